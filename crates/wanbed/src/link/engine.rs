//! The thread of a link.

use super::{LinkError, Port, Snapshot};
use crate::spec::LinkSpec;

/// A running link. Dropping it stops it.
#[derive(Debug)]
pub struct LinkHandle {
    name: String,
}

/// Starts a link between two ports, on a thread of its own.
///
/// # Errors
/// [`LinkError::Spec`], [`LinkError::TooMuchUnderWay`] or [`LinkError::Thread`].
pub fn start(spec: LinkSpec, _a: Port, _b: Port) -> Result<LinkHandle, LinkError> {
    spec.check().map_err(|source| LinkError::Spec {
        link: spec.name.clone(),
        source,
    })?;
    Err(LinkError::Ended {
        link: spec.name,
        why: "the engine is not built yet".to_owned(),
    })
}

impl LinkHandle {
    /// The counters at this moment.
    ///
    /// # Errors
    /// [`LinkError::Ended`] when the link has ended by itself.
    pub fn counters(&self) -> Result<Snapshot, LinkError> {
        Err(LinkError::Ended {
            link: self.name.clone(),
            why: "the engine is not built yet".to_owned(),
        })
    }

    /// Stops the link and gives its last counters.
    ///
    /// # Errors
    /// [`LinkError::Ended`] when the link had ended by itself before.
    pub fn stop(self) -> Result<Snapshot, LinkError> {
        self.counters()
    }
}
