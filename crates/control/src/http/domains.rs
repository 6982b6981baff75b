//! Reservations across domains: [`peers`] are other domains, [`users`] those of this one.

mod attempts;
mod peers;
mod shown;
mod users;

use std::time::Duration;

use longhaul_api::{Problem, ProblemKind};
use longhaul_domains::agent::MessageFault;
use utoipa_axum::router::OpenApiRouter;

use crate::controller::Controller;
use crate::domains::DomainsHandle;
use crate::domains::handle::DomainError;

pub(super) use shown::add_domain_state;

/// Time limit for learning of a domain from peers.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns the endpoints of this module.
pub(super) fn endpoints() -> OpenApiRouter<Controller> {
    peers::endpoints().merge(users::endpoints())
}

/// Returns the handle of the domain's agent.
fn domains(controller: &Controller) -> Result<&DomainsHandle, Problem> {
    controller.domains().ok_or_else(|| {
        Problem::new(
            ProblemKind::NotFound,
            "this controller has no [domain] in its control.toml, so it reaches no other domain",
        )
    })
}

impl From<DomainError> for Problem {
    fn from(error: DomainError) -> Self {
        match error {
            DomainError::Store(error) => error.into(),
            DomainError::Refused(fault) => {
                let kind = match &fault {
                    MessageFault::Full(..) => ProblemKind::TooMany,
                    MessageFault::Unknown(_) | MessageFault::NoLegs(_) => ProblemKind::NotFound,
                    MessageFault::Sender { .. } => ProblemKind::Forbidden,
                    MessageFault::Receiver { .. } | MessageFault::GlobalId => ProblemKind::Invalid,
                };
                Self::new(kind, fault.to_string())
            }
        }
    }
}
