//! Watch of the principal of a running session.

use std::future::pending;
use std::sync::Arc;

use longhaul_identity::Identities;
use longhaul_proto::PublicKey;
use tokio::sync::watch;

use crate::Rule;

/// Watches whether the rule that allowed a session still applies to its principal. Certificates
/// end and are revoked, and the file of principals changes.
#[derive(Debug)]
pub struct PrincipalWatch {
    identities: Arc<Identities>,
    rule: Arc<Rule>,
    key: PublicKey,
    changes: watch::Receiver<u64>,
}

impl PrincipalWatch {
    /// Watches the session of `key` that `rule` allows. Returns `None` if keys have no names, so
    /// that nothing can change.
    #[must_use]
    pub fn new(identities: Arc<Identities>, rule: Arc<Rule>, key: PublicKey) -> Option<Self> {
        identities.file()?;
        Some(Self {
            changes: identities.subscribe(),
            identities,
            rule,
            key,
        })
    }

    /// Completes when the rule no longer applies. Never completes without a watch.
    pub async fn wait_until_revoked(watch: &mut Option<Self>) {
        let Some(watch) = watch else {
            return pending().await;
        };
        loop {
            if !watch
                .rule
                .applies_to(&watch.identities.principal(&watch.key))
            {
                return;
            }
            if watch.changes.changed().await.is_err() {
                return pending().await;
            }
        }
    }
}
