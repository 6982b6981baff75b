//! Election of the leader among controllers that share a store. Only the leader writes
//! reservations, has circuits set up, and summarizes old measurements.
//!
//! | module | purpose |
//! |---|---|
//! | [`election`] | state machine of the server's answers and their absence. Pure |
//! | [`candidate`] | the task that requests the lock, over a connection of its own |
//!
//! The holder of a PostgreSQL lock leads. The server revokes the lock when nothing has come from
//! its holder for [`SERVER_LIMIT_MS`]. The holder stops leading [`LEASE_MS`] after its last
//! request, which is earlier. If a machine is suspended so long that two controllers lead, the
//! epoch of the journal refuses what the older one writes ([`crate::store::reservations`]).

pub mod candidate;
pub mod election;

use tokio::sync::watch;

/// Time for which a leader leads after its last answered request, in milliseconds.
pub const LEASE_MS: u64 = 4_000;
/// Time after which the server revokes the lock of a silent holder, in milliseconds.
pub const SERVER_LIMIT_MS: u64 = 8_000;

/// The leader, as other controllers know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leader {
    /// Name of the leader.
    pub name: String,
    /// URL at which other machines reach it, if any.
    pub url: Option<String>,
}

/// Leadership as this controller knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leadership {
    /// This controller has a store of its own.
    Alone,
    /// This controller leads.
    Leading {
        /// Epoch of the journal. It was taken over the connection with the lock, so a controller
        /// that has lost the lock cannot take another one.
        epoch: i64,
    },
    /// Another controller leads.
    Following {
        /// The last known leader.
        leader: Option<Leader>,
    },
    /// The store does not answer, so the leader is unknown.
    Lost,
}

impl Leadership {
    /// Returns the term of leading, if this controller leads.
    #[must_use]
    pub const fn term(&self) -> Option<i64> {
        match self {
            Self::Alone => Some(0),
            Self::Leading { epoch } => Some(*epoch),
            Self::Following { .. } | Self::Lost => None,
        }
    }

    /// Returns the URL of the leader, if that is another controller.
    #[must_use]
    pub fn elsewhere(&self) -> Option<&str> {
        match self {
            Self::Following {
                leader: Some(leader),
            } => leader.url.as_deref(),
            _ => None,
        }
    }
}

/// Completes when the value changes; never once its sender is gone.
pub(crate) async fn changed<T>(watched: &mut watch::Receiver<T>) {
    if watched.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}
