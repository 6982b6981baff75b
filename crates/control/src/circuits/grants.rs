//! Grants of the paths of a reservation, for the depots on them.

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

/// Longest name of an end in a grant, in bytes.
const MAX_END_BYTES: usize = 64;

/// Longest time from a grant's issue to its end, in milliseconds.
const LIFETIME_MS: u64 = MAX_GRANT_LIFETIME.as_millis() as u64;

/// Why nothing is granted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoGrants {
    /// It is not to be used now.
    #[error("reservation {0} is not provisioned: longhaul reservations {0} provision")]
    Released(u64),
    /// It was cancelled, or has failed.
    #[error("reservation {0} is cancelled or has failed: make a new one")]
    Ended(u64),
    /// Nothing of it is to come.
    #[error("nothing of reservation {0} is left: reserve anew")]
    Over(u64),
    /// Its next stretch of time is not near enough.
    #[error("reservation {0} goes on in {1} s: ask again within a minute of that")]
    Early(u64, u64),
    /// The path, or all paths, lead elsewhere by now.
    #[error("this depot is on no such path of reservation {0}: ask for the grants of its paths")]
    Elsewhere(u64),
    /// It can't be signed.
    #[error("the grant can't be made: {0}")]
    Sign(String),
}

/// Name of a circuit in grants: its reservation, and its path if there are several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CircuitName {
    /// Number of the reservation.
    pub reservation: u64,
    /// Number of the path, counted from 1.
    path: Option<usize>,
}

impl fmt::Display for CircuitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.reservation)?;
        self.path.map_or(Ok(()), |path| write!(f, ".{path}"))
    }
}

/// A text that no controller names a circuit by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no circuit of this controller has that name")]
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
        // One circuit has one name.
        match name.to_string() == text {
            true => Ok(name),
            false => Err(NotACircuit),
        }
    }
}

/// Grants for the stretch of time that lasts, or comes next. They hold for a minute at most: a
/// controller takes one back by issuing no further one.
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
    let issue = Issue::new(reservation, holder, signer, now_ms)?;
    let piece = issue.piece;
    let is_near = issue.end_ms() > piece.start_ms;
    let items = (0..).zip(&piece.paths).map(|(at, path)| {
        let on_it = OnPath::of(path, map);
        let grant = match is_near && !on_it.all.is_empty() {
            true => Some(issue.signed(at, path, &on_it)?),
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
        items: items.collect::<Result<_, NoGrants>>()?,
    })
}

/// Renews the grant of one circuit, which a depot has in use.
///
/// # Errors
/// [`NoGrants`]: it has ended.
pub fn renewal(
    reservation: &Reservation,
    circuit: CircuitName,
    depot: &PublicKey,
    map: &Map,
    holder: PublicKey,
    signer: &SigningKey,
    now_ms: u64,
) -> Result<String, NoGrants> {
    let id = reservation.id;
    let issue = Issue::new(reservation, holder, signer, now_ms)?;
    let piece = issue.piece;
    if issue.end_ms() <= piece.start_ms {
        let early = piece.start_ms.saturating_sub(now_ms);
        return Err(NoGrants::Early(id, early / 1000));
    }
    let mut paths = (0..).zip(&piece.paths);
    let found = paths.find(|(at, _)| issue.name(*at) == circuit);
    let (at, path) = found.ok_or(NoGrants::Elsewhere(id))?;
    let on_it = OnPath::of(path, map);
    if !on_it.keys().contains(depot) {
        return Err(NoGrants::Elsewhere(id));
    }
    issue.signed(at, path, &on_it)
}

/// The stretch of time that lasts, or comes next.
fn stretch(reservation: &Reservation, now_ms: u64) -> Result<&Piece, NoGrants> {
    let state = reservation.state;
    match state.life {
        LifeState::Created => {}
        LifeState::PassedEndTime => return Err(NoGrants::Over(reservation.id)),
        LifeState::Terminating | LifeState::Terminated | LifeState::Failed => {
            return Err(NoGrants::Ended(reservation.id));
        }
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
    piece.ok_or(NoGrants::Over(reservation.id))
}

/// Issue of the grants of one stretch of a reservation, to one holder, at one moment.
struct Issue<'a> {
    reservation: &'a Reservation,
    piece: &'a Piece,
    holder: PublicKey,
    signer: &'a SigningKey,
    now_ms: u64,
}

impl<'a> Issue<'a> {
    /// Grants for the stretch of time that lasts, or comes next.
    ///
    /// # Errors
    /// [`NoGrants`]: none does.
    fn new(
        reservation: &'a Reservation,
        holder: PublicKey,
        signer: &'a SigningKey,
        now_ms: u64,
    ) -> Result<Self, NoGrants> {
        Ok(Self {
            reservation,
            piece: stretch(reservation, now_ms)?,
            holder,
            signer,
            now_ms,
        })
    }

    /// The end of what is issued now.
    fn end_ms(&self) -> u64 {
        let last = self.now_ms.saturating_add(LIFETIME_MS);
        self.piece.end_ms.min(last)
    }

    /// Names the circuit of the path at this place.
    fn name(&self, at: usize) -> CircuitName {
        CircuitName {
            reservation: self.reservation.id,
            path: (self.piece.paths.len() > 1).then_some(at.saturating_add(1)),
        }
    }

    /// Signs the grant of the path at this place, on which there are depots.
    fn signed(
        &self,
        at: usize,
        path: &ReservedPath,
        on_it: &OnPath<'_>,
    ) -> Result<String, NoGrants> {
        let mut grant = CircuitGrant {
            circuit: self.name(at).to_string().into_bytes(),
            holder: self.holder,
            from: end(&self.reservation.from),
            to: end(&self.reservation.to),
            start_unix_ms: self.piece.start_ms,
            end_unix_ms: self.end_ms(),
            rate: path.rate_bps,
            // As many as have source ports.
            sessions: PORTS_OF_PATH,
            depots: on_it.keys().into_iter().collect(),
            issuer: self.signer.public(),
            signature: [0; 64],
        };
        grant
            .sign(self.signer)
            .map_err(|error| NoGrants::Sign(error.to_string()))?;
        let text = grant.to_text();
        text.map_err(|error| NoGrants::Sign(error.to_string()))
    }
}

/// The depots at the sites of a path.
struct OnPath<'a> {
    /// In the order in which the bytes pass the sites; of one site, in the map's order.
    all: Vec<&'a Depot>,
}

impl<'a> OnPath<'a> {
    fn of(path: &ReservedPath, map: &'a Map) -> Self {
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

    /// Those that a way passes: of each site the first that can be reached and is not known to be
    /// away.
    fn passed(&self) -> Vec<&'a Depot> {
        let mut passed: Vec<&Depot> = Vec::new();
        for depot in &self.all {
            let is_there = address(depot).is_some() && depot.state.usable();
            let is_new = passed.last().is_none_or(|last| last.site != depot.site);
            if is_there && is_new {
                passed.push(depot);
            }
        }
        passed
    }

    /// Those that the grant is for, by key.
    fn keys(&self) -> BTreeSet<PublicKey> {
        // Where there are more than one grant has room for, those that ways pass come first.
        let passed = self.passed();
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

    /// The way over them; none without depots, and beyond what a route has room for (LH-ROUTE-4).
    fn route(&self) -> Option<Route> {
        let hops = self.passed().into_iter().filter_map(|depot| {
            Some(Hop {
                endpoint: address(depot)?.clone(),
                strict: true,
                key: Some(depot.key),
            })
        });
        let route = Route::new(hops.collect()).ok()?;
        (!route.is_direct()).then_some(route)
    }
}

/// Where a depot is dialled.
fn address(depot: &Depot) -> Option<&Endpoint> {
    let takes_tcp = |address: &&DepotAddress| address.transports.contains(&Transport::Tcp);
    Some(&depot.addresses.iter().find(takes_tcp)?.endpoint)
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
mod tests;
