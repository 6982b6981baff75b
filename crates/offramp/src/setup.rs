//! Session set-up, from a valid OPEN to a connection with its server: policy, name look-up, dial.
//! All of it comes before the answer to the initiator (LH-OFFRAMP-2).

use std::net::{IpAddr, SocketAddr};

use longhaul_hop::{Conn, Dialled, Options, Payer, Phase, Phases, Place, dial};
use longhaul_policy::{Asked, Candidates, NoPlace, NoWay, RuleSession, Wishes};
use longhaul_proto::{Open, StatusCode};
use longhaul_session::Declined;
use tokio::time::Instant;

use crate::offramp::Shared;

/// Admission of an OPEN by the policy, before any name look-up.
pub(crate) struct Admitted {
    pub(crate) candidates: Candidates,
    pub(crate) payer: Payer,
}

/// A connected server.
pub(crate) struct Reached {
    pub(crate) conn: Conn,
    pub(crate) address: SocketAddr,
    pub(crate) rule: RuleSession,
    /// Maximum bytes that its session may carry in each direction.
    pub(crate) most_bytes: Option<u64>,
}

/// Checks that the policy admits `open`, and that its session fits (LH-ADMIT-1). No name is looked
/// up.
pub(crate) fn admit(
    shared: &Shared,
    peer: IpAddr,
    open: &Open,
    place: &mut Place,
    phases: &Phases,
) -> Result<Admitted, Declined> {
    let policy = shared.policy.policy();
    let asked = asked(open)?;
    let candidates = policy.candidates(&open.principal, asked, &shared.finder.own_addresses());
    if phases.now() != Phase::Running {
        return Err(StatusCode::Draining.into());
    }
    if candidates.rules.is_empty() {
        return Err(declined(NoWay::not_allowed(asked)));
    }
    // LH-WISH-1.
    let candidates = candidates
        .within(&open.principal, &Wishes::from(open))
        .map_err(|unmet| declined(NoWay::unmet(&unmet)))?;
    let payer = match candidates.listed {
        true => Payer::Key(open.principal),
        false => Payer::source(peer),
    };
    place.verified(payer).map_err(|full| Declined {
        code: StatusCode::Overloaded,
        detail: full.to_string(),
    })?;
    Ok(Admitted { candidates, payer })
}

/// Finds the server's addresses by the policy, takes a permit under its rule, and connects.
/// Completes by `deadline`.
pub(crate) async fn reach(
    shared: &Shared,
    open: &Open,
    admitted: Admitted,
    deadline: Instant,
) -> Result<Reached, Declined> {
    let Admitted { candidates, payer } = admitted;
    let asked = asked(open)?;
    let way = shared
        .finder
        .find(candidates, asked, payer, deadline)
        .await
        .map_err(declined)?;
    let rule = shared
        .policy
        .live()
        .enter(&way.rule)
        .map_err(|no| match no {
            NoPlace::Full => Declined {
                code: StatusCode::Overloaded,
                detail: format!("{}: as many sessions as it allows", way.rule.name()),
            },
            // The policy changed while the name was looked up.
            NoPlace::Gone => declined(NoWay::not_allowed(asked)),
        })?;
    let options = |_| Options {
        unacknowledged: shared.timeouts.unacknowledged,
        ..Options::default()
    };
    let began = Instant::now();
    let Dialled { conn, address } =
        dial(&way.addresses, options, deadline)
            .await
            .map_err(|error| Declined {
                code: error.code(),
                detail: error.to_string(),
            })?;
    shared.metrics.dialled(began.elapsed());
    Ok(Reached {
        conn,
        address,
        rule,
        most_bytes: way.rule.most_bytes(open.size),
    })
}

/// Returns the server that `open` names. An OPEN for the service `tcp` has one (LH-OPEN-14).
fn asked(open: &Open) -> Result<Asked<'_>, Declined> {
    match Asked::of(open) {
        Some(asked @ Asked::Server(_)) => Ok(asked),
        _ => Err(StatusCode::BadOpen.into()),
    }
}

fn declined(no: NoWay) -> Declined {
    Declined {
        code: no.code,
        detail: no.detail,
    }
}
