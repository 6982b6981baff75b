//! Session set-up, from a valid OPEN to a connection with its server: policy, name look-up, dial.
//! All of it comes before the answer to the initiator (LH-OFFRAMP-2).

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use longhaul_hop::{Conn, ConnectionPermit, DialledConnection, HopOptions, Payer, dial};
use longhaul_policy::{
    AccessRequest, Candidates, NoPermit, PrincipalWatch, RuleSession, StatedWishes, Unreachable,
};
use longhaul_proto::{Open, StatusCode};
use longhaul_service::{Phase, PhaseReceiver};
use longhaul_session::SessionRefusal;
use tokio::time::Instant;

use crate::state::OfframpState;

/// Admission of an OPEN by the policy, before any name look-up.
pub(crate) struct AdmittedOpen {
    pub(crate) candidates: Candidates,
    pub(crate) payer: Payer,
}

/// A connected server.
pub(crate) struct ConnectedServer {
    pub(crate) conn: Conn,
    pub(crate) address: SocketAddr,
    pub(crate) rule: RuleSession,
    /// Watch of the names that the rule requires; `None` if keys have no names here.
    pub(crate) names: Option<PrincipalWatch>,
    /// Maximum bytes that its session may carry in each direction.
    pub(crate) most_bytes: Option<u64>,
}

/// Checks that the policy admits `open`, and that its session fits (LH-ADMIT-1). No name is looked
/// up.
pub(crate) fn admit(
    shared: &OfframpState,
    peer: IpAddr,
    open: &Open,
    place: &mut ConnectionPermit,
    phases: &PhaseReceiver,
) -> Result<AdmittedOpen, SessionRefusal> {
    let policy = shared.policy.policy();
    let asked = policy_request(open)?;
    let candidates = policy.candidates(&open.principal, asked, &shared.finder.own_addresses());
    if phases.current() != Phase::Running {
        return Err(StatusCode::Draining.into());
    }
    if candidates.rules.is_empty() {
        return Err(to_refusal(Unreachable::not_allowed(asked)));
    }
    // LH-WISH-1.
    let candidates = candidates
        .retain_within(&StatedWishes::from(open))
        .map_err(|unmet| to_refusal(Unreachable::from_unmet(&unmet)))?;
    let payer = match candidates.listed {
        true => Payer::Key(open.principal),
        false => Payer::from_address(peer),
    };
    place.charge_to(payer).map_err(|full| SessionRefusal {
        code: StatusCode::Overloaded,
        detail: full.to_string(),
    })?;
    Ok(AdmittedOpen { candidates, payer })
}

/// Finds the server's addresses by the policy, takes a permit under its rule, and connects.
/// Completes by `deadline`.
pub(crate) async fn connect_server(
    shared: &OfframpState,
    open: &Open,
    admitted: AdmittedOpen,
    deadline: Instant,
) -> Result<ConnectedServer, SessionRefusal> {
    let AdmittedOpen { candidates, payer } = admitted;
    let asked = policy_request(open)?;
    let way = shared
        .finder
        .find(candidates, asked, payer, deadline)
        .await
        .map_err(to_refusal)?;
    let rule = shared
        .policy
        .live()
        .admit_session(&way.rule)
        .map_err(|no| match no {
            NoPermit::Full => SessionRefusal {
                code: StatusCode::Overloaded,
                detail: format!(
                    "{}: its maximum number of sessions is reached (max_sessions)",
                    way.rule.name()
                ),
            },
            // The policy changed while the name was looked up.
            NoPermit::Gone => to_refusal(Unreachable::not_allowed(asked)),
        })?;
    let options = |_| HopOptions {
        user_timeout: shared.timeouts.unacknowledged,
        ..HopOptions::default()
    };
    let began = Instant::now();
    let DialledConnection { conn, address } = dial(&way.addresses, options, deadline)
        .await
        .map_err(|error| SessionRefusal {
            code: error.code(),
            detail: error.to_string(),
        })?;
    shared.metrics.observe_dial_time(began.elapsed());
    let identities = Arc::clone(shared.policy.policy().identities());
    Ok(ConnectedServer {
        conn,
        address,
        rule,
        most_bytes: way.rule.max_bytes(open.size),
        names: PrincipalWatch::new(identities, way.rule, open.principal),
    })
}

/// Returns the server that `open` names. An OPEN for the service `tcp` has one (LH-OPEN-14).
fn policy_request(open: &Open) -> Result<AccessRequest<'_>, SessionRefusal> {
    match AccessRequest::from_open(open) {
        Some(asked @ AccessRequest::Server(_)) => Ok(asked),
        _ => Err(StatusCode::BadOpen.into()),
    }
}

fn to_refusal(no: Unreachable) -> SessionRefusal {
    SessionRefusal {
        code: no.code,
        detail: no.detail,
    }
}
