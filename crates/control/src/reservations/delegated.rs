//! Requests that a delegate makes for a principal (LH-DELEGATION-2, LH-DELEGATION-4). Pure: the
//! caller passes the time.

use longhaul_control_api::map::Map;
use longhaul_control_api::reservations::{ReservationRequest, Wish};
use longhaul_policy::HostPattern;
use longhaul_proto::{
    DelegatedCircuit, Delegation, DelegationFault, Endpoint, InvalidDelegation, PublicKey,
};
use serde::{Deserialize, Serialize};

use super::wanted::ReservationEnd;

/// Delegation under which a reservation was made, as the journal keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedDelegation {
    /// Key of the delegate, which made the request.
    pub delegate: String,
    /// Display name of the delegate at the time of the request.
    pub delegate_name: String,
    /// The delegation in text form: proof that the owner permitted the request.
    pub text: String,
}

/// The delegation does not permit the request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DelegationRefusal {
    /// The text is not a delegation.
    #[error(transparent)]
    Invalid(#[from] InvalidDelegation),
    /// The delegation does not permit it.
    #[error(transparent)]
    Fault(#[from] DelegationFault),
    /// The ends of the request are not those of the delegation.
    #[error("the delegation is for a circuit from {from} to {to}: ask for one between these ends")]
    Ends {
        /// First end of the delegation.
        from: String,
        /// Second end of the delegation.
        to: String,
    },
    /// The request has options that a delegate may not choose.
    #[error("a delegate asks for one rate over one path, once: leave out {0}")]
    Options(&'static str),
}

/// Verifies that a request is within its delegation, and returns the principal. `from` and `to` are
/// the ends of the request as on `map`; `delegate` made it, at the controller `me`.
///
/// # Errors
/// [`DelegationRefusal`].
pub fn verify(
    text: &str,
    request: &ReservationRequest,
    (from, to): (&ReservationEnd, &ReservationEnd),
    map: &Map,
    (delegate, me): (&PublicKey, &PublicKey),
    now_ms: u64,
) -> Result<PublicKey, DelegationRefusal> {
    let delegation: Delegation = text.parse()?;
    let Wish::Rate { rate_bps } = request.wish else {
        return Err(DelegationRefusal::Options("the volume"));
    };
    if request.recurrence.is_some() {
        return Err(DelegationRefusal::Options("the recurrence"));
    }
    if request.paths != 1 || !request.constraints.is_empty() {
        return Err(DelegationRefusal::Options("paths and constraints"));
    }
    let circuit = DelegatedCircuit {
        rate: rate_bps,
        end_unix_ms: request.end_ms,
    };
    delegation.check_circuit(delegate, me, now_ms, circuit)?;
    let is_end =
        |end: &ReservationEnd, text: &str| end_name(map, text).is_some_and(|name| name == end.name);
    let is_forward = is_end(from, &delegation.from) && is_end(to, &delegation.to);
    let is_backward =
        delegation.both_ways && is_end(from, &delegation.to) && is_end(to, &delegation.from);
    match is_forward || is_backward {
        true => Ok(delegation.principal),
        false => Err(DelegationRefusal::Ends {
            from: delegation.from,
            to: delegation.to,
        }),
    }
}

/// Returns the name on the map of an end that is given as a name, a key or an address.
fn end_name<'a>(map: &'a Map, text: &'a str) -> Option<&'a str> {
    let is_named = map.host(text).is_some() || map.depot(text).is_some();
    if is_named || map.site(text).is_some() {
        return Some(text);
    }
    if let Ok(key) = text.parse::<PublicKey>() {
        let depot = map.depots.iter().find(|depot| depot.key == key)?;
        return Some(&depot.name);
    }
    let address = text.parse().ok();
    let host_name = Some(text).filter(|_| address.is_none());
    let is_known_by = |pattern: &String| {
        let pattern = pattern.parse::<HostPattern>();
        pattern.is_ok_and(|pattern| pattern.matches(address, host_name))
    };
    let mut hosts = map.hosts.iter();
    if let Some(host) = hosts.find(|host| host.addresses.iter().any(is_known_by)) {
        return Some(&host.name);
    }
    let is_at = |endpoint: &Endpoint| endpoint.host.to_string() == text;
    let mut depots = map.depots.iter();
    let depot = depots.find(|depot| depot.addresses.iter().any(|at| is_at(&at.endpoint)))?;
    Some(&depot.name)
}
