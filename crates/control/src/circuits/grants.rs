//! Grants of the paths of a reservation, for the depots on them.

use std::collections::BTreeSet;

use longhaul_control_api::map::Map;
use longhaul_control_api::reservations::{
    LifeState, PathGrant, PathGrants, ProvisionState, Reservation, ReservedPath,
};
use longhaul_proto::text::printable;
use longhaul_proto::{CircuitGrant, MAX_GRANT_DEPOTS, PublicKey, SigningKey};

use crate::reservations::streams::PORTS_OF_PATH;

/// Longest name of an end in a grant, in bytes.
const MAX_END_BYTES: usize = 64;

/// Why nothing is granted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoGrants {
    /// It is not to be used now.
    #[error("reservation {0} is not provisioned: longhaul reservations {0} provision")]
    Released(u64),
    /// Nothing of it is to come.
    #[error("nothing of reservation {0} is left: reserve anew")]
    Over(u64),
    /// It can't be signed.
    #[error("the grant can't be made: {0}")]
    Sign(String),
}

/// Grants for the stretch of time that lasts, or comes next.
///
/// # Errors
/// [`NoGrants`].
pub fn grants(
    reservation: &Reservation,
    map: &Map,
    holder: PublicKey,
    signer: &SigningKey,
    now_ms: u64,
) -> Result<PathGrants, NoGrants> {
    let state = reservation.state;
    if state.life != LifeState::Created {
        return Err(NoGrants::Over(reservation.id));
    }
    let is_wanted = matches!(
        state.provision,
        Some(ProvisionState::Provisioning | ProvisionState::Provisioned)
    );
    if !is_wanted {
        return Err(NoGrants::Released(reservation.id));
    }
    let mut pieces = reservation.pieces.iter();
    let piece = pieces.find(|piece| piece.end_ms > now_ms);
    let piece = piece.ok_or(NoGrants::Over(reservation.id))?;
    let is_one = piece.paths.len() == 1;
    let items = piece.paths.iter().zip(1..).map(|(path, place): (_, usize)| {
        let (names, keys) = depots(path, map);
        let circuit = match is_one {
            true => reservation.id.to_string(),
            false => format!("{}.{place}", reservation.id),
        };
        let mut grant = CircuitGrant {
            circuit: circuit.into_bytes(),
            holder,
            from: end(&reservation.from),
            to: end(&reservation.to),
            start_unix_ms: piece.start_ms,
            end_unix_ms: piece.end_ms,
            rate: path.rate_bps,
            // As many as have source ports.
            sessions: PORTS_OF_PATH,
            depots: keys.into_iter().collect(),
            issuer: signer.public(),
            signature: [0; 64],
        };
        let text = match grant.depots.is_empty() {
            true => None,
            false => {
                grant
                    .sign(signer)
                    .map_err(|error| NoGrants::Sign(error.to_string()))?;
                let text = grant.to_text();
                Some(text.map_err(|error| NoGrants::Sign(error.to_string()))?)
            }
        };
        Ok(PathGrant {
            path: path.clone(),
            depots: names,
            grant: text,
        })
    });
    Ok(PathGrants {
        start_ms: piece.start_ms,
        end_ms: piece.end_ms,
        items: items.collect::<Result<_, NoGrants>>()?,
    })
}

/// The depots at the sites of a path, by name and by key.
fn depots(path: &ReservedPath, map: &Map) -> (Vec<String>, BTreeSet<PublicKey>) {
    let sites = path.links.iter().flat_map(|link| [&link.from, &link.to]);
    let sites: BTreeSet<&String> = sites.collect();
    let on_it = map
        .depots
        .iter()
        .filter(|depot| depot.site.as_ref().is_some_and(|site| sites.contains(site)));
    on_it
        .take(MAX_GRANT_DEPOTS)
        .map(|depot| (depot.name.clone(), depot.key))
        .unzip()
}

/// An end's name as grants have it.
fn end(name: &str) -> String {
    let mut name = printable(name.as_bytes());
    let mut most = MAX_END_BYTES.min(name.len());
    while !name.is_char_boundary(most) {
        most -= 1;
    }
    name.truncate(most);
    name
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_path_has_a_grant_for_the_depots_on_it() {
        let [signer, depot, other] = [(); 3].map(|()| SigningKey::generate().unwrap());
        let map: Map = serde_json::from_value(json!({
            "sites": [{"name": "a"}, {"name": "b"}, {"name": "c"}],
            "depots": [
                {"name": "on-it", "key": depot.public().to_string(), "site": "b", "addresses": []},
                {"name": "elsewhere", "key": other.public().to_string(), "site": "c", "addresses": []},
            ],
        }))
        .unwrap();
        let reservation = |provision: &str| -> Reservation {
            serde_json::from_value(json!({
                "id": 12, "owner": "k", "owner_name": "ana", "from": "dtn1", "to": "store", "wish": {"rate": {"rate_bps": 5}},
                "start_ms": 0, "end_ms": 100, "paths": 1, "disjoint": "no", "preference": "fewest-hops", "created_ms": 0,
                "pieces": [
                    {"start_ms": 0, "end_ms": 50, "paths": [{"rate_bps": 4, "links": [{"link": "ab", "from": "a", "to": "b"}]}]},
                    {"start_ms": 50, "end_ms": 100, "paths": [{"rate_bps": 5, "links": [{"link": "ab", "from": "a", "to": "b"}]}]},
                ],
                "state": {"reserve": "start", "provision": provision, "life": "created"},
            }))
            .unwrap()
        };
        let holder = other.public();
        let found = grants(&reservation("provisioned"), &map, holder, &signer, 60).unwrap();
        assert_eq!(
            (found.start_ms, found.items[0].depots.clone()),
            (50, vec!["on-it".to_owned()])
        );
        let grant: CircuitGrant = found.items[0].grant.as_ref().unwrap().parse().unwrap();
        assert_eq!((grant.rate, &grant.circuit[..]), (5, &b"12"[..]));
        let trusts = |issuer: &PublicKey| *issuer == signer.public();
        assert_eq!(grant.check(&holder, &depot.public(), 60, trusts), Ok(()));
        let none =
            |reservation: &Reservation, now| grants(reservation, &map, holder, &signer, now).unwrap_err();
        assert_eq!(none(&reservation("released"), 60), NoGrants::Released(12));
        assert_eq!(none(&reservation("provisioned"), 100), NoGrants::Over(12));
    }
}
