//! The trait.

use std::pin::Pin;

use longhaul_control_client::ClientError;

use crate::belief::Ignored;
use crate::question::{Choice, Question};

/// What a source answers with: it may have to ask somebody else first.
pub type Answer<'a> = Pin<Box<dyn Future<Output = Result<Choice, NoRoutes>> + Send + 'a>>;

/// Where routes come from.
pub trait RouteSource: Send + Sync {
    /// By which routes something goes.
    ///
    /// # Errors
    /// [`NoRoutes`]: it does not say.
    fn routes<'a>(&'a self, question: &'a Question) -> Answer<'a>;
}

/// Why a source does not say by which routes something goes.
#[derive(Debug, thiserror::Error)]
pub enum NoRoutes {
    /// It has nothing of this destination.
    #[error("nothing is known of routes to it")]
    Nothing,
    /// What it has is not gone by.
    #[error("{0}")]
    Ignored(#[from] Ignored),
    /// It cannot be asked.
    #[error(transparent)]
    Asked(#[from] ClientError),
}
