//! Routes of a copy: how they are named, and what distinguishes reserved ones.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use longhaul_proto::text::printable;
use longhaul_proto::{CircuitGrant, Route};
use serde::{Serialize, Serializer};

/// A route of a copy. Events and reports show it by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteInfo {
    name: String,
    route: Route,
    is_reserved: bool,
}

impl RouteInfo {
    /// Creates the description of a route. The `name` distinguishes it from other routes through
    /// the same depots.
    pub(crate) fn new(name: String, route: Route, is_reserved: bool) -> Self {
        Self {
            name,
            route,
            is_reserved,
        }
    }

    /// Creates the description of a route without depots, such as that inside an ssh connection.
    pub fn without_depots(name: &str) -> Self {
        Self::new(name.to_owned(), Route::direct(), false)
    }

    /// Creates the description of the direct route.
    pub fn direct() -> Self {
        Self::without_depots("direct")
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the depots.
    pub fn route(&self) -> &Route {
        &self.route
    }

    /// Returns true if the route is reserved (see [`ReservedRoute`]).
    pub fn is_reserved(&self) -> bool {
        self.is_reserved
    }
}

/// The direct route.
impl Default for RouteInfo {
    fn default() -> Self {
        Self::direct()
    }
}

impl fmt::Display for RouteInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Serialize for RouteInfo {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name)
    }
}

/// A reserved path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservedRoute {
    /// Depots on the path.
    pub route: Route,
    /// Mark that distinguishes its streams from others.
    pub mark: ReservationMark,
}

/// Mark that distinguishes the streams of a reserved path from others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReservationMark {
    /// Source ports on this host, by which the network recognises the streams.
    Ports(RangeInclusive<u16>),
    /// Grant that the OPENs carry, by which the depots recognise the streams (LH-GRANT-1).
    Grant(Arc<CircuitGrant>),
}

impl ReservedRoute {
    /// Returns the name of the route in events and reports. A circuit keeps its name when its
    /// granted rate changes.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{} {}", self.route, self.mark)
    }
}

impl fmt::Display for ReservationMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ports(ports) => write!(f, "from ports {}-{}", ports.start(), ports.end()),
            Self::Grant(grant) => write!(f, "by circuit {}", printable(&grant.circuit)),
        }
    }
}
