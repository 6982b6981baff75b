//! Grants of a reservation's paths, for the depots on them.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use longhaul_control_api::map::{Depot, DepotAddress, Map, Transport};
use longhaul_control_api::reservations::{
    LifeState, PathGrant, PathGrants, Piece, ProvisionState, Reservation, ReservedPath,
};
use longhaul_proto::text::printable;
use longhaul_proto::{
    CircuitGrant, Endpoint, Hop, MAX_GRANT_DEPOTS, MAX_GRANT_LIFETIME, PublicKey, Route, SigningKey,
};

use crate::reservations::streams::PORTS_OF_PATH;

/// Maximum length of an end's name in a grant, in bytes.
const MAX_END_BYTES: usize = 64;

/// Maximum time from a grant's issue to its end, in milliseconds.
const LIFETIME_MS: u64 = MAX_GRANT_LIFETIME.as_millis() as u64;

/// Reason why no grant is issued.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrantRefusal {
    /// The reservation is not provisioned. Depots get grants only for provisioned reservations.
    #[error("reservation {0} is not provisioned: run longhaul reservations {0} provision")]
    Released(u64),
    /// The reservation was cancelled or has failed. Its sessions continue as best effort.
    #[error("reservation {0} is cancelled or has failed: make a new one")]
    Ended(u64),
    /// All pieces of the reservation are over.
    #[error("reservation {0} is over: make a new one")]
    Over(u64),
    /// The next piece of the reservation begins too late.
    #[error("reservation {0} continues in {1} s: ask again at most a minute before that")]
    Early(u64, u64),
    /// The path no longer leads over this depot.
    #[error(
        "this depot is not on that path of reservation {0}: ask for the grants of its present \
             paths"
    )]
    Elsewhere(u64),
    /// The grant cannot be signed. The controller's key cannot sign, or a name on its map is
    /// invalid.
    #[error("the grant cannot be issued: {0}")]
    Sign(String),
}

/// Name of a circuit in grants: its reservation, and its path if there are several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CircuitName {
    /// Number of the reservation.
    pub reservation: u64,
    /// Number of the path, from 1.
    path: Option<usize>,
}

impl fmt::Display for CircuitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.reservation)?;
        self.path.map_or(Ok(()), |path| write!(f, ".{path}"))
    }
}

/// The text is no name of a circuit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this controller has no circuit of that name")]
pub struct NotACircuit;

impl FromStr for CircuitName {
    type Err = NotACircuit;

    fn from_str(text: &str) -> Result<Self, NotACircuit> {
        let (reservation, path) = match text.split_once('.') {
            Some((reservation, path)) => (reservation, Some(path)),
            None => (text, None),
        };
        let name = Self {
            reservation: reservation.parse().map_err(|_| NotACircuit)?,
            path: path.map(str::parse).transpose().map_err(|_| NotACircuit)?,
        };
        // Each circuit has exactly one name.
        match name.to_string() == text {
            true => Ok(name),
            false => Err(NotACircuit),
        }
    }
}

/// Issues grants for the current or next piece of a reservation. They are valid for one minute at
/// most, and a controller revokes one by not renewing it.
///
/// # Errors
/// [`GrantRefusal`].
pub fn grants(
    reservation: &Reservation,
    map: &Map,
    holder: PublicKey,
    signer: &SigningKey,
    now_ms: u64,
) -> Result<PathGrants, GrantRefusal> {
    let issue = GrantIssuer::new(reservation, holder, signer, now_ms)?;
    let piece = issue.piece;
    let is_near = issue.end_ms() > piece.start_ms;
    let items = (0..).zip(&piece.paths).map(|(at, path)| {
        let on_it = DepotsOnPath::on_path(path, map);
        let grant = match is_near && !on_it.all.is_empty() {
            true => Some(issue.sign_grant(at, path, &on_it)?),
            false => None,
        };
        Ok(PathGrant {
            path: path.clone(),
            depots: on_it.names(),
            route: on_it.route().map(|route| route.to_string()),
            grant,
        })
    });
    Ok(PathGrants {
        start_ms: piece.start_ms,
        end_ms: match is_near {
            true => issue.end_ms(),
            false => piece.end_ms.min(piece.start_ms.saturating_add(LIFETIME_MS)),
        },
        items: items.collect::<Result<_, GrantRefusal>>()?,
    })
}

/// Renews the grant of one circuit that a depot has in use.
///
/// # Errors
/// [`GrantRefusal`]: the grant has ended.
pub fn renewal(
    reservation: &Reservation,
    circuit: CircuitName,
    depot: &PublicKey,
    map: &Map,
    holder: PublicKey,
    signer: &SigningKey,
    now_ms: u64,
) -> Result<String, GrantRefusal> {
    let id = reservation.id;
    let issue = GrantIssuer::new(reservation, holder, signer, now_ms)?;
    let piece = issue.piece;
    if issue.end_ms() <= piece.start_ms {
        let early = piece.start_ms.saturating_sub(now_ms);
        return Err(GrantRefusal::Early(id, early / 1000));
    }
    let mut paths = (0..).zip(&piece.paths);
    let found = paths.find(|(at, _)| issue.name(*at) == circuit);
    let (at, path) = found.ok_or(GrantRefusal::Elsewhere(id))?;
    let on_it = DepotsOnPath::on_path(path, map);
    if !on_it.keys().contains(depot) {
        return Err(GrantRefusal::Elsewhere(id));
    }
    issue.sign_grant(at, path, &on_it)
}

/// Returns the current or next piece of a reservation.
fn current_piece(reservation: &Reservation, now_ms: u64) -> Result<&Piece, GrantRefusal> {
    let state = reservation.state;
    match state.life {
        LifeState::Created => {}
        LifeState::PassedEndTime => return Err(GrantRefusal::Over(reservation.id)),
        LifeState::Terminating | LifeState::Terminated | LifeState::Failed => {
            return Err(GrantRefusal::Ended(reservation.id));
        }
    }
    let is_wanted = matches!(
        state.provision,
        Some(ProvisionState::Provisioning | ProvisionState::Provisioned)
    );
    if !is_wanted {
        return Err(GrantRefusal::Released(reservation.id));
    }
    let mut pieces = reservation.pieces.iter();
    let piece = pieces.find(|piece| piece.end_ms > now_ms);
    piece.ok_or(GrantRefusal::Over(reservation.id))
}

/// Parameters of grants for one piece of a reservation, for one holder at one time.
struct GrantIssuer<'a> {
    reservation: &'a Reservation,
    piece: &'a Piece,
    holder: PublicKey,
    signer: &'a SigningKey,
    now_ms: u64,
}

impl<'a> GrantIssuer<'a> {
    /// Selects the current or next piece of a reservation.
    ///
    /// # Errors
    /// [`GrantRefusal`]: there is no such piece.
    fn new(
        reservation: &'a Reservation,
        holder: PublicKey,
        signer: &'a SigningKey,
        now_ms: u64,
    ) -> Result<Self, GrantRefusal> {
        Ok(Self {
            reservation,
            piece: current_piece(reservation, now_ms)?,
            holder,
            signer,
            now_ms,
        })
    }

    /// Returns the end of grants that are issued now.
    fn end_ms(&self) -> u64 {
        let last = self.now_ms.saturating_add(LIFETIME_MS);
        self.piece.end_ms.min(last)
    }

    /// Returns the name of the circuit of the path at this index.
    fn name(&self, at: usize) -> CircuitName {
        CircuitName {
            reservation: self.reservation.id,
            path: (self.piece.paths.len() > 1).then_some(at.saturating_add(1)),
        }
    }

    /// Signs the grant of the path at this index, which has depots.
    fn sign_grant(
        &self,
        at: usize,
        path: &ReservedPath,
        on_it: &DepotsOnPath<'_>,
    ) -> Result<String, GrantRefusal> {
        let mut grant = CircuitGrant {
            circuit: self.name(at).to_string().into_bytes(),
            holder: self.holder,
            from: end_name(&self.reservation.from),
            to: end_name(&self.reservation.to),
            start_unix_ms: self.piece.start_ms,
            end_unix_ms: self.end_ms(),
            rate: path.rate_bps,
            // One session for each source port.
            sessions: PORTS_OF_PATH,
            depots: on_it.keys().into_iter().collect(),
            issuer: self.signer.public(),
            signature: [0; 64],
        };
        grant
            .sign(self.signer)
            .map_err(|error| GrantRefusal::Sign(error.to_string()))?;
        let text = grant.to_text();
        text.map_err(|error| GrantRefusal::Sign(error.to_string()))
    }
}

/// Depots at the sites of a path.
struct DepotsOnPath<'a> {
    /// Depots in the order in which the bytes pass their sites; within a site, in the map's order.
    all: Vec<&'a Depot>,
}

impl<'a> DepotsOnPath<'a> {
    fn on_path(path: &ReservedPath, map: &'a Map) -> Self {
        let first = path.links.first().map(|link| &link.from);
        let sites = first
            .into_iter()
            .chain(path.links.iter().map(|link| &link.to));
        let at = |site| {
            map.depots
                .iter()
                .filter(move |depot| depot.site.as_ref() == Some(site))
        };
        Self {
            all: sites.flat_map(at).collect(),
        }
    }

    /// Returns the depots that a route passes: of each site the first with an address that is not
    /// known to be down.
    fn route_depots(&self) -> Vec<&'a Depot> {
        let mut passed: Vec<&Depot> = Vec::new();
        for depot in &self.all {
            let is_there = address(depot).is_some() && depot.state.is_usable();
            let is_new = passed.last().is_none_or(|last| last.site != depot.site);
            if is_there && is_new {
                passed.push(depot);
            }
        }
        passed
    }

    /// Returns the keys of the depots that the grant is for.
    fn keys(&self) -> BTreeSet<PublicKey> {
        // If a grant cannot hold all keys, the depots on routes come first.
        let passed = self.route_depots();
        let others = self.all.iter().copied();
        let mut keys = BTreeSet::new();
        for depot in passed.into_iter().chain(others) {
            if keys.len() < MAX_GRANT_DEPOTS {
                keys.insert(depot.key);
            }
        }
        keys
    }

    fn names(&self) -> Vec<String> {
        let keys = self.keys();
        let granted = self.all.iter().filter(|depot| keys.contains(&depot.key));
        granted.map(|depot| depot.name.clone()).collect()
    }

    /// Returns the route over the depots. `None` without depots, and if it exceeds the maximum
    /// length (LH-ROUTE-4).
    fn route(&self) -> Option<Route> {
        let hops = self.route_depots().into_iter().filter_map(|depot| {
            Some(Hop {
                endpoint: address(depot)?.clone(),
                strict: true,
                key: Some(depot.key),
                transport: None,
            })
        });
        let route = Route::new(hops.collect()).ok()?;
        (!route.is_direct()).then_some(route)
    }
}

/// Returns the address at which a depot is dialled.
fn address(depot: &Depot) -> Option<&Endpoint> {
    let takes_tcp = |address: &&DepotAddress| address.transports.contains(&Transport::Tcp);
    Some(&depot.addresses.iter().find(takes_tcp)?.endpoint)
}

/// Shortens an end's name for a grant.
fn end_name(name: &str) -> String {
    let mut name = printable(name.as_bytes());
    let mut most = MAX_END_BYTES.min(name.len());
    while !name.is_char_boundary(most) {
        most -= 1;
    }
    name.truncate(most);
    name
}

#[cfg(test)]
mod tests;
