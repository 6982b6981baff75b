//! Circuits that the depot reserves around its onward hops, in the name of principals whose
//! delegations permit it (LH-DELEGATION-3, LH-DELEGATION-5).

use std::sync::Arc;

use longhaul_hop::{Conn, Payer, RateLimits};
use longhaul_policy::Rule;
use longhaul_proto::{Delegation, Open};
use longhaul_wishes::{
    DrivenFlow, FlowDirection, FlowLink, ReserveRule, ReserveTerms, StatedWish, drive, terms,
};

use crate::state::DepotState;

/// Circuit that a session may get.
#[derive(Debug)]
pub(crate) struct DelegatedTerms {
    terms: ReserveTerms,
    delegation: Box<Delegation>,
}

/// Returns what the depot may reserve for a session: the stated rate, within the delegation and the
/// rule. `None` if the rule reserves nothing, or if there is no delegation to this depot. A
/// session with a grant has a circuit already.
pub(crate) fn delegated_terms(
    shared: &DepotState,
    open: &Open,
    rule: &Rule,
) -> Option<DelegatedTerms> {
    shared.circuits.as_ref()?;
    let most = rule.max_reserved_rate().filter(|_| open.grant.is_none())?;
    let delegation = match open.delegation_to(&shared.key.public()) {
        Ok(found) => found?,
        Err(error) => {
            shared
                .events
                .log(Some(Payer::Key(open.principal)), |left_out| {
                    tracing::info!(principal = %open.principal, %error, left_out, "no circuit");
                });
            return None;
        }
    };
    let stated = StatedWish {
        rate: open
            .rate
            .map(|rate| rate.min(most).min(delegation.max_rate)),
        duration: open.duration,
        size: open.size,
    };
    terms::terms(stated, ReserveRule::Stated).map(|terms| DelegatedTerms {
        terms,
        delegation: Box::new(delegation),
    })
}

/// Starts to manage the circuit of a session's onward hop. `None` without terms, or if the hop is
/// not TCP.
pub(crate) fn drive_circuit(
    shared: &DepotState,
    delegated: Option<DelegatedTerms>,
    open: &Open,
    payer: Payer,
    downstream: &Conn,
) -> Option<DrivenFlow> {
    let DelegatedTerms { terms, delegation } = delegated?;
    let broker = Arc::clone(shared.circuits.as_ref()?);
    let tcp = downstream.tcp()?;
    let link = FlowLink {
        local: tcp.local_addr().ok()?,
        peer: tcp.peer_addr().ok()?,
        purpose: open.purpose.clone(),
        delegation: Some(delegation),
    };
    let (events, session) = (Arc::clone(&shared.events), open.session_id);
    let principal = open.principal;
    let report = move |event| {
        events.log(Some(payer), |left_out| {
            tracing::info!(%session, %principal, left_out, "{event}");
        });
    };
    Some(drive(broker, terms, link, report))
}

/// Waits until a circuit begins or ends, and returns the limits from then on. Never completes
/// without a circuit.
pub(crate) async fn changed_limits(flow: &mut Option<DrivenFlow>, usual: RateLimits) -> RateLimits {
    let Some(flow) = flow else {
        return std::future::pending().await;
    };
    match flow.changed().await {
        Some(held) => held.limits(FlowDirection::Send, usual),
        None => usual,
    }
}
