//! Trait of all sources of routes.

use std::pin::Pin;

use crate::ClientError;

use crate::routes::belief::IgnoreReason;
use crate::routes::question::{Choice, RouteQuery};

/// Future of a source's answer, which may need a request.
pub type RoutesFuture<'a> = Pin<Box<dyn Future<Output = Result<Choice, NoRoutes>> + Send + 'a>>;

/// A source of routes.
pub trait RouteSource: Send + Sync {
    /// Chooses the routes for a transfer.
    ///
    /// # Errors
    /// [`NoRoutes`] if the source has none.
    fn routes<'a>(&'a self, question: &'a RouteQuery) -> RoutesFuture<'a>;
}

/// Reason why a source has no routes.
#[derive(Debug, thiserror::Error)]
pub enum NoRoutes {
    /// The source does not know the destination. Add it to `routes.toml`, or use a controller.
    #[error("no routes to it are known")]
    UnknownDestination,
    /// The source's information is not usable.
    #[error("{0}")]
    Ignored(#[from] IgnoreReason),
    /// The controller cannot be asked.
    #[error(transparent)]
    ControllerUnavailable(#[from] ClientError),
}
