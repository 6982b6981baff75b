//! The policy in force, reloaded from its file.

use std::path::Path;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::{Live, Policy, PolicyError};

/// The policy in force and the use of its rules. Both change together.
#[derive(Debug)]
pub struct InForce {
    policy: RwLock<Arc<Policy>>,
    live: Arc<Live>,
}

/// Result of reloading a policy file.
#[derive(Debug)]
pub enum Reloaded {
    /// The new policy is in force.
    Loaded(Arc<Policy>),
    /// The file has an error; the previous policy stays in force.
    Refused(PolicyError),
    /// The task that reads the file failed; the previous policy stays in force.
    Failed,
}

impl Reloaded {
    /// Returns the label of this result in metrics.
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
    /// Creates a policy in force, whose rules are not used yet.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self {
            live: Live::new(&policy),
            policy: RwLock::new(Arc::new(policy)),
        }
    }

    /// Returns the policy in force.
    #[must_use]
    pub fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.policy.read())
    }

    /// Returns the sessions and rates of its rules.
    #[must_use]
    pub const fn live(&self) -> &Arc<Live> {
        &self.live
    }

    /// Reloads the policy from its file. A file with an error changes nothing. Returns `None` if
    /// the policy has no file.
    pub async fn reload(&self) -> Option<Reloaded> {
        let file = self.policy().file().map(Path::to_owned)?;
        let loaded = tokio::task::spawn_blocking(move || Policy::load(&file)).await;
        Some(match loaded {
            Ok(Ok(policy)) => {
                let policy = Arc::new(policy);
                // The counters come first, so that every rule that can be found can also be
                // entered.
                self.live.reload(&policy);
                *self.policy.write() = Arc::clone(&policy);
                Reloaded::Loaded(policy)
            }
            Ok(Err(error)) => Reloaded::Refused(error),
            Err(_) => Reloaded::Failed,
        })
    }
}
