//! The policy in force, reloaded from its file.

use std::path::Path;
use std::sync::Arc;

use longhaul_identity::IdentityError;
use parking_lot::RwLock;

use crate::{Policy, PolicyError, RuleUsage};

/// The policy in force and the use of its rules. Both change together.
#[derive(Debug)]
pub struct ActivePolicy {
    policy: RwLock<Arc<Policy>>,
    live: Arc<RuleUsage>,
}

/// Result of reloading a policy file.
#[derive(Debug)]
pub enum ReloadResult {
    /// The new policy is in force.
    Loaded(Arc<Policy>),
    /// The file has an error; the previous policy stays in force.
    Refused(PolicyError),
    /// The file of principals has an error; the previous principals and policy stay in force.
    PrincipalsRefused(IdentityError),
    /// The task that reads the file failed; the previous policy stays in force.
    Failed,
}

impl ReloadResult {
    /// Returns the label of this result in metrics.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Loaded(_) => "loaded",
            Self::Refused(_) | Self::PrincipalsRefused(_) => "refused",
            Self::Failed => "failed",
        }
    }
}

impl ActivePolicy {
    /// Creates a policy in force, whose rules are not used yet.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self {
            live: RuleUsage::new(&policy),
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
    pub const fn live(&self) -> &Arc<RuleUsage> {
        &self.live
    }

    /// Reloads the policy and the principals from their files. A file with an error changes
    /// nothing. Returns `None` if the policy has no file.
    pub async fn reload(&self) -> Option<ReloadResult> {
        let policy = self.policy();
        let file = policy.file().map(Path::to_owned)?;
        let identities = Arc::clone(policy.identities());
        let load = move || {
            let policy = Policy::load(&file).map_err(ReloadResult::Refused)?;
            identities
                .reload()
                .map_err(ReloadResult::PrincipalsRefused)?;
            Ok(policy.with_identities(identities))
        };
        Some(match tokio::task::spawn_blocking(load).await {
            Ok(Ok(policy)) => {
                let policy = Arc::new(policy);
                // The counters come first, so that every rule that can be found can also be
                // entered.
                self.live.reload(&policy);
                *self.policy.write() = Arc::clone(&policy);
                ReloadResult::Loaded(policy)
            }
            Ok(Err(refused)) => refused,
            Err(_) => ReloadResult::Failed,
        })
    }
}
