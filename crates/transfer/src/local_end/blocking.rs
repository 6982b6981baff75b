//! Work that blocks.

use crate::error::{Failure, FailureKind};

/// Runs blocking work of a copy.
///
/// # Errors
/// Those of the work. A panic of it is a failure, too.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(Failure::with_detail(FailureKind::Io, error.to_string())),
    }
}
