//! Constraints that make a request fail. Each is removed by itself; if the rest of the request then
//! fits, the constraint is a cause. If none is one by itself, all are removed together.

#[cfg(test)]
mod tests;

use super::{BestFound, available_field, plan_request};
use crate::ledger::View;
use crate::network::NodeId;
use crate::path::{BandwidthField, Disjoint, LinkPath, Preference, latency_of};
use crate::policy::RequestLimits;
use crate::request::{CircuitRequest, Demand, ReservationPlan};
use crate::split::{assign_links, total_rate};
use crate::time::BitsPerSecond;

/// Constraint of a request on its paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathConstraint {
    /// Nodes to pass.
    Via,
    /// Only these nodes may be passed.
    OnlyNodes,
    /// Only these links may be used.
    OnlyLinks,
    /// Nodes that may not be passed.
    AvoidedNodes,
    /// Links that may not be used.
    AvoidedLinks,
    /// A maximum number of hops.
    MaxHops {
        /// Hops of the longest path that the request needs without this constraint.
        needed: u32,
        /// If true, paths within the limit are missing even if nothing is reserved.
        is_unreachable: bool,
    },
    /// A maximum latency.
    MaxLatency {
        /// Latency of the slowest path that the request needs without this constraint, in
        /// microseconds.
        needed: u64,
        /// If true, paths within the limit are missing even if nothing is reserved.
        is_unreachable: bool,
    },
    /// Paths may not share links or nodes.
    Disjoint,
    /// An explicit path has a hop without enough bandwidth.
    Explicit {
        /// Number of the path in the request, from 1.
        path: usize,
        /// Node at which the hop begins.
        from: NodeId,
        /// Node at which the hop ends.
        to: NodeId,
        /// Rate of all explicit paths over the hop, in bit/s.
        needed: BitsPerSecond,
        /// Rate left on the hop, in bit/s.
        left: BitsPerSecond,
    },
}

/// Constraints that make a request fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusalCause {
    /// The constraints. Without any of them the request would be granted; if there are several and
    /// `together` is true, only without all of them.
    pub constraints: Vec<PathConstraint>,
    /// If true, removing a single one of the constraints does not suffice.
    pub together: bool,
    /// Most that was found within all constraints, in bit/s. `None` for a volume.
    pub found: Option<BitsPerSecond>,
}

/// Constraint that can be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Removable {
    Via,
    OnlyNodes,
    OnlyLinks,
    AvoidedNodes,
    AvoidedLinks,
    MaxHops,
    MaxLatency,
    Disjoint,
}

impl Removable {
    const ALL: [Self; 8] = [
        Self::Via,
        Self::OnlyNodes,
        Self::OnlyLinks,
        Self::AvoidedNodes,
        Self::AvoidedLinks,
        Self::MaxHops,
        Self::MaxLatency,
        Self::Disjoint,
    ];

    /// Removes the constraint. Returns true if the request had it.
    fn remove(self, request: &mut CircuitRequest) -> bool {
        let (elements, bounds) = (&mut request.elements, &mut request.bounds);
        match self {
            Self::Via => !std::mem::take(&mut bounds.via).is_empty(),
            Self::OnlyNodes => elements.only_nodes.take().is_some(),
            Self::OnlyLinks => elements.only_links.take().is_some(),
            Self::AvoidedNodes => !std::mem::take(&mut elements.no_nodes).is_empty(),
            Self::AvoidedLinks => !std::mem::take(&mut elements.no_links).is_empty(),
            Self::MaxHops => bounds.max_hops.take().is_some(),
            Self::MaxLatency => bounds.max_latency.take().is_some(),
            Self::Disjoint => {
                std::mem::take(&mut request.diversity) != Disjoint::No && request.paths > 1
            }
        }
    }
}

/// Returns the constraints that make a request fail, or `None` if it also fails without any.
pub(super) fn find_cause(
    view: &View<'_>,
    request: &CircuitRequest,
    limits: &RequestLimits,
    found: &BestFound,
) -> Option<RefusalCause> {
    if !request.bounds.explicit.is_empty() {
        return explicit_cause(view, request);
    }
    let found = match found {
        BestFound::Routes(routes) => Some(total_rate(routes)),
        BestFound::Volume(_) => None,
    };
    let mut without_all = request.clone();
    let present: Vec<Removable> = Removable::ALL
        .into_iter()
        .filter(|constraint| constraint.remove(&mut without_all))
        .collect();
    if present.is_empty() {
        return None;
    }
    let describe =
        |constraint: Removable, plan: &ReservationPlan| describe(view, request, constraint, plan);
    let causes = present.iter().filter_map(|constraint| {
        let mut without = request.clone();
        constraint.remove(&mut without);
        let plan = plan_request(view, &shortest(*constraint, without), limits).ok()?;
        Some(describe(*constraint, &plan))
    });
    let constraints: Vec<PathConstraint> = causes.collect();
    if !constraints.is_empty() {
        return Some(RefusalCause {
            constraints,
            together: false,
            found,
        });
    }
    let plan = plan_request(view, &without_all, limits).ok()?;
    let constraints: Vec<PathConstraint> = present
        .into_iter()
        .map(|constraint| describe(constraint, &plan))
        .collect();
    Some(RefusalCause {
        together: constraints.len() > 1,
        constraints,
        found,
    })
}

/// Returns the request with the preference that shows how far it is from fitting.
fn shortest(removed: Removable, request: CircuitRequest) -> CircuitRequest {
    let preference = match removed {
        Removable::MaxHops => Preference::FewestHops,
        Removable::MaxLatency => Preference::LeastLatency,
        _ => request.preference,
    };
    CircuitRequest {
        preference,
        ..request
    }
}

fn describe(
    view: &View<'_>,
    request: &CircuitRequest,
    constraint: Removable,
    plan: &ReservationPlan,
) -> PathConstraint {
    match constraint {
        Removable::Via => PathConstraint::Via,
        Removable::OnlyNodes => PathConstraint::OnlyNodes,
        Removable::OnlyLinks => PathConstraint::OnlyLinks,
        Removable::AvoidedNodes => PathConstraint::AvoidedNodes,
        Removable::AvoidedLinks => PathConstraint::AvoidedLinks,
        Removable::Disjoint => PathConstraint::Disjoint,
        Removable::MaxHops | Removable::MaxLatency => {
            let empty = empty_field(view, request);
            let measure = |path: &LinkPath| match constraint {
                Removable::MaxHops => u64::try_from(path.0.len()).unwrap_or(u64::MAX),
                _ => latency_of(&empty, path),
            };
            let (ends, preference) = (request.ends, request.preference);
            let within = request.bounds.best_path(&empty, ends, 1, preference);
            let mut without = request.clone();
            constraint.remove(&mut without);
            let without = shortest(constraint, without);
            // The shortest path of all, if even that is too long.
            let unreachable = match within {
                None => without
                    .bounds
                    .best_path(&empty, ends, 1, without.preference),
                Some(_) => None,
            };
            let is_unreachable = unreachable.is_some();
            let needed = unreachable.as_ref().map(measure).or_else(|| {
                let routes = plan.0.iter().flat_map(|piece| &piece.routes);
                routes.map(|route| measure(&route.path)).max()
            });
            let needed = needed.unwrap_or_default();
            match constraint {
                Removable::MaxHops => PathConstraint::MaxHops {
                    needed: u32::try_from(needed).unwrap_or(u32::MAX),
                    is_unreachable,
                },
                _ => PathConstraint::MaxLatency {
                    needed,
                    is_unreachable,
                },
            }
        }
    }
}

/// Returns the rates of the links that a request may use if nothing is reserved.
fn empty_field<'a>(view: &View<'a>, request: &CircuitRequest) -> BandwidthField<'a> {
    let network = view.network();
    BandwidthField::new(network, |link| {
        let is_allowed = request.elements.allows_link(network, request.ends, link);
        is_allowed.then(|| view.ceiling(link))
    })
}

fn explicit_cause(view: &View<'_>, request: &CircuitRequest) -> Option<RefusalCause> {
    let Demand::Rate(_) = request.wish else {
        return None;
    };
    let field = available_field(view, request, request.window);
    let full = assign_links(&field, &request.path_constraints()).err()?;
    Some(RefusalCause {
        constraints: vec![PathConstraint::Explicit {
            path: full.path + 1,
            from: full.from,
            to: full.to,
            needed: full.needed,
            left: full.left,
        }],
        together: false,
        found: None,
    })
}
