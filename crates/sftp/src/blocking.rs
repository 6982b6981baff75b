//! Work that blocks.

use longhaul_transfer::{Failure, FailureKind};

/// Runs blocking work. A panic of it is a failure.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(Failure::with_detail(FailureKind::Io, error.to_string())),
    }
}
