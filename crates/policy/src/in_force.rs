//! The policy in force, read again from its file.

use std::path::Path;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::{Live, Policy, PolicyError};

/// The policy in force, and what is under way by its rules. Both change together.
#[derive(Debug)]
pub struct InForce {
    policy: RwLock<Arc<Policy>>,
    live: Arc<Live>,
}

/// What became of reading a policy's file again.
#[derive(Debug)]
pub enum Reloaded {
    /// It is in force.
    Loaded(Arc<Policy>),
    /// It has a mistake: the one before stays.
    Refused(PolicyError),
    /// The reading itself broke off: the one before stays.
    Failed,
}

impl Reloaded {
    /// A word for metrics.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Loaded(_) => "loaded",
            Self::Refused(_) => "refused",
            Self::Failed => "failed",
        }
    }
}

impl InForce {
    /// `policy`, with nothing under way.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self {
            live: Live::new(&policy),
            policy: RwLock::new(Arc::new(policy)),
        }
    }

    /// The policy that is in force now.
    #[must_use]
    pub fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.policy.read())
    }

    /// What is under way by its rules.
    #[must_use]
    pub const fn live(&self) -> &Arc<Live> {
        &self.live
    }

    /// Reads its file again; one with a mistake changes nothing. None if it came from no file.
    pub async fn reload(&self) -> Option<Reloaded> {
        let file = self.policy().file().map(Path::to_owned)?;
        let loaded = tokio::task::spawn_blocking(move || Policy::load(&file)).await;
        Some(match loaded {
            Ok(Ok(policy)) => {
                let policy = Arc::new(policy);
                // First, so that a rule that can be found can be entered.
                self.live.reload(&policy);
                *self.policy.write() = Arc::clone(&policy);
                Reloaded::Loaded(policy)
            }
            Ok(Err(error)) => Reloaded::Refused(error),
            Err(_) => Reloaded::Failed,
        })
    }
}
