//! Which of the controllers that share a store leads: it alone writes reservations, has circuits
//! set up, and brings old measurements together.
//!
//! | room | what it does |
//! |---|---|
//! | [`election`] | what is made of the server's answers and of their absence. Pure |
//! | [`candidate`] | the task that asks for the lock, over a connection that it keeps for that |
//!
//! Whoever has the lock of PostgreSQL leads. The server takes it back when nothing has come from
//! its holder for [`SERVER_LIMIT_MS`]; the holder stops to lead [`LEASE_MS`] after it asked last,
//! which is before that. Should a machine stand still so long that two lead all the same, the epoch
//! of the journal refuses what the older one writes ([`crate::store::reservations`]).

pub mod candidate;
pub mod election;

use tokio::sync::watch;

/// How long who leads does so after it asked the server for the last time and was answered, in
/// milliseconds.
pub const LEASE_MS: u64 = 4_000;
/// How long the server leaves the lock to whom nothing comes from, in milliseconds.
pub const SERVER_LIMIT_MS: u64 = 8_000;

/// A controller that leads, as others are to know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leader {
    /// What it is known by.
    pub name: String,
    /// Where it answers other machines, if it does.
    pub url: Option<String>,
}

/// Whether this controller leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leadership {
    /// It has its store for itself.
    Alone,
    /// It does.
    Leading {
        /// The journal's epoch, which was taken over the connection that has the lock: nobody who
        /// has lost it can take another.
        epoch: i64,
    },
    /// Another one does: the last of which it is known.
    Following {
        /// Who.
        leader: Option<Leader>,
    },
    /// The store does not answer: who leads is not known.
    Lost,
}

impl Leadership {
    /// What tells this time of leading from others, if it leads.
    #[must_use]
    pub const fn term(&self) -> Option<i64> {
        match self {
            Self::Alone => Some(0),
            Self::Leading { epoch } => Some(*epoch),
            Self::Following { .. } | Self::Lost => None,
        }
    }

    /// Where the one answers that leads, where that is another.
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

/// Completes when it changes; never where nobody is left who could change it.
pub(crate) async fn changed<T>(watched: &mut watch::Receiver<T>) {
    if watched.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}
