//! Constraints on the paths of a reservation and on its packets, and the combinations of them that
//! exclude each other.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Disjoint, Preference, ReservationRequest, SourcePortRange, Wish};
use crate::principals::{PathOption, PathOptionSet};

/// Largest differentiated services code point (RFC 2474): six bits.
pub const MAX_DSCP: u8 = 63;

/// Constraints on each path of a reservation. They use names of the map: a host or a depot stands
/// for its site.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RouteConstraints {
    /// Sites that each path passes, in this order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 16)]
    pub via: Vec<String>,
    /// Links that paths may use, in either direction; all, if left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 100)]
    pub only_links: Vec<String>,
    /// Maximum number of links of each path.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub max_hops: Option<u32>,
    /// Maximum one-way latency of each path, in microseconds. A link without a latency on the map
    /// counts as 1 ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_latency_us: Option<u64>,
    /// Site at which the paths begin, if it is not that of the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 253)]
    pub ingress: Option<String>,
    /// Site at which the paths end, if it is not that of the destination.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 253)]
    pub egress: Option<String>,
    /// The paths themselves, each at exactly its rate. The request is for the sum of their rates.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 8)]
    pub paths: Vec<NamedPath>,
}

/// A path that a request names by its sites.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NamedPath {
    /// Sites of the path, from the one at which it begins to the one at which it ends.
    #[schema(min_items = 2, max_items = 100)]
    pub sites: Vec<String>,
    /// Rate of the path, in bit/s.
    #[schema(minimum = 1)]
    pub rate_bps: u64,
}

/// Packets that use the reservation, of those between its ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PacketFilter {
    /// Only TCP packets with these source ports. Several paths share the range evenly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_ports: Option<SourcePortRange>,
    /// Only packets with this differentiated services code point (RFC 2474).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 63)]
    pub dscp: Option<u8>,
}

impl RouteConstraints {
    /// Returns true if there is no constraint.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl PacketFilter {
    /// Returns true if all packets between the ends use the reservation.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Two parts of a request that exclude each other, or one that is out of range. The words are those
/// of [`PathOption`] and of the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptionConflict(String);

impl fmt::Display for OptionConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OptionConflict {}

impl ReservationRequest {
    /// Returns the path options that the request uses.
    #[must_use]
    pub fn path_options(&self) -> PathOptionSet {
        let RouteConstraints {
            via,
            only_links,
            max_hops,
            max_latency_us,
            ingress,
            egress,
            paths,
        } = &self.constraints;
        let used = [
            (PathOption::AvoidSite, !self.avoid_sites.is_empty()),
            (PathOption::AvoidLink, !self.avoid_links.is_empty()),
            (PathOption::Prefer, self.preference != Preference::default()),
            (PathOption::Disjoint, self.disjoint != Disjoint::No),
            (PathOption::Via, !via.is_empty()),
            (PathOption::OnlyLinks, !only_links.is_empty()),
            (PathOption::MaxHops, max_hops.is_some()),
            (PathOption::MaxLatency, max_latency_us.is_some()),
            (PathOption::Ingress, ingress.is_some()),
            (PathOption::Egress, egress.is_some()),
            (PathOption::Path, !paths.is_empty()),
            (PathOption::Ports, self.filter.source_ports.is_some()),
            (PathOption::Dscp, self.filter.dscp.is_some()),
        ];
        let used = used.into_iter().filter(|(_, is_used)| *is_used);
        used.map(|(option, _)| option).collect()
    }

    /// Checks that no two constraints of the request exclude each other.
    ///
    /// # Errors
    /// [`OptionConflict`] names the first two that do, and what to do.
    pub fn check_options(&self) -> Result<(), OptionConflict> {
        let conflict = |text: String| Err(OptionConflict(text));
        self.check_named_paths()?;
        let RouteConstraints {
            via,
            only_links,
            max_hops,
            ..
        } = &self.constraints;
        if let Some(both) = via.iter().find(|site| self.avoid_sites.contains(site)) {
            return conflict(format!(
                "via and avoid-site both name {both}: leave it out of one of them"
            ));
        }
        let mut named = BTreeSet::new();
        if let Some(twice) = via.iter().find(|site| !named.insert(*site)) {
            return conflict(format!(
                "via names {twice} twice: a path passes a site once; leave it out once"
            ));
        }
        if let Some(both) = only_links
            .iter()
            .find(|link| self.avoid_links.contains(link))
        {
            return conflict(format!(
                "only-links and avoid-link both name {both}: leave it out of one of them"
            ));
        }
        if *max_hops == Some(0) {
            return conflict("max-hops 0: a path has at least one hop; allow 1 or more".to_owned());
        }
        let least = via.len() + 1;
        if let Some(most) = max_hops.filter(|most| usize::try_from(*most).is_ok_and(|m| m < least))
        {
            return conflict(format!(
                "max-hops {most} and via with {} sites: a path over them has at least {least} \
                 hops; allow more or name fewer",
                via.len()
            ));
        }
        self.check_filter()
    }

    fn check_named_paths(&self) -> Result<(), OptionConflict> {
        let conflict = |text: String| Err(OptionConflict(text));
        let named = &self.constraints.paths;
        if named.is_empty() {
            return Ok(());
        }
        let beside = self
            .path_options()
            .iter()
            .find(|option| option.chooses_paths());
        if let Some(option) = beside {
            return conflict(format!(
                "path and {option} exclude each other: a named path leaves nothing to choose; \
                 leave out one of them"
            ));
        }
        let count = u32::try_from(named.len()).unwrap_or(u32::MAX);
        if self.paths != count {
            return conflict(format!(
                "paths {} and path given {count} times: leave out paths",
                self.paths
            ));
        }
        let rates = named.iter().map(|path| path.rate_bps);
        let together = rates.fold(0, u64::saturating_add);
        match self.wish {
            Wish::Volume { .. } => conflict(
                "path and bytes exclude each other: named paths have fixed rates; leave out one of \
                 them"
                .to_owned(),
            ),
            Wish::Rate { rate_bps } if rate_bps != together => conflict(format!(
                "path and rate: the paths carry {together} bit/s together, and the rate is \
                 {rate_bps}; leave out rate"
            )),
            Wish::Rate { .. } => Ok(()),
        }
    }

    fn check_filter(&self) -> Result<(), OptionConflict> {
        let conflict = |text: String| Err(OptionConflict(text));
        if let Some(dscp) = self.filter.dscp.filter(|dscp| *dscp > MAX_DSCP) {
            return conflict(format!("dscp {dscp}: write 0 to {MAX_DSCP}"));
        }
        let Some(SourcePortRange { first, last }) = self.filter.source_ports else {
            return Ok(());
        };
        if first == 0 || first > last {
            return conflict(format!(
                "ports {first}-{last} is not a range: the first is at least 1 and at most the last"
            ));
        }
        if self.pin {
            return conflict(
                "ports and pin exclude each other: pin assigns ports; leave out one of them"
                    .to_owned(),
            );
        }
        let count = u32::from(last - first) + 1;
        if count < self.paths {
            return conflict(format!(
                "ports {first}-{last} and paths {}: each path needs a port of its own; widen the \
                 range or ask for fewer paths",
                self.paths
            ));
        }
        Ok(())
    }
}
