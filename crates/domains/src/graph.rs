//! Paths over the graph of domains, by what each domain publishes, and the legs of a segment.
//!
//! Domains publish less than they know, and what they publish may be out of date. A path is
//! therefore only a proposal: each domain decides for itself when it is asked.

mod links;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use longhaul_control_api::domains::{
    Criteria, DomainName, DomainTopology, ProblemReason, Segment, SegmentProblem, Shape,
    TerminationPoint,
};

use crate::agent::Planner;
use crate::connection::{PlannedLeg, Provider};
use links::Links;

/// Planner of one domain.
#[derive(Debug, Clone)]
pub struct GraphPlanner {
    /// The planner's domain.
    pub domain: DomainName,
    /// Domains that have this one's key, and whose keys it has.
    pub peers: BTreeSet<DomainName>,
    /// Known topologies, the domain's own included.
    pub topologies: BTreeMap<DomainName, DomainTopology>,
    /// Domains to avoid, as they refused or did not answer.
    pub avoided: BTreeSet<DomainName>,
}

impl Planner for GraphPlanner {
    fn plan(
        &self,
        criteria: &Criteria,
        path_trace: &[DomainName],
    ) -> Result<Vec<PlannedLeg>, SegmentProblem> {
        let own = &self.domain;
        if criteria.source.domain == *own && criteria.destination.domain == *own {
            return Ok(vec![PlannedLeg {
                provider: Provider::Book,
                criteria: criteria.clone(),
            }]);
        }
        let path = self.best_path(criteria, path_trace)?;
        self.legs(criteria, &path)
    }
}

impl GraphPlanner {
    /// Returns true if this domain has the keys of all domains on the best path.
    #[must_use]
    pub fn knows_all_on_path(&self, criteria: &Criteria) -> bool {
        let Ok(path) = self.best_path(criteria, &[]) else {
            return false;
        };
        let mut domains = path.iter().map(|segment| &segment.source.domain);
        domains.all(|domain| *domain == self.domain || self.peers.contains(domain))
    }

    /// Returns the segments of the best path that avoids the domains of `path_trace`.
    ///
    /// # Errors
    /// There is none.
    pub fn best_path(
        &self,
        criteria: &Criteria,
        path_trace: &[DomainName],
    ) -> Result<Vec<Segment>, SegmentProblem> {
        let ends = [&criteria.source.domain, &criteria.destination.domain];
        let unknown = ends
            .into_iter()
            .find(|domain| !self.topologies.contains_key(*domain));
        if let Some(domain) = unknown {
            return Err(self.no_path(format!(
                "domain {domain} has not published what it has: check its name, and that its \
                 neighbours are its peers"
            )));
        }
        let field = Links::new(self, criteria, path_trace);
        let candidates = field.candidates(criteria.capacity_bps);
        let candidates = candidates.iter().map(|path| field.segments(criteria, path));
        let mut once = candidates.filter(|segments| {
            let domains = segments.iter().map(|segment| &segment.source.domain);
            let different: BTreeSet<&DomainName> = domains.collect();
            !segments.is_empty() && different.len() == segments.len()
        });
        once.next().ok_or_else(|| {
            self.no_path(format!(
                "no path over the known domains leads from {} to {} with {} bit/s at that time",
                criteria.source, criteria.destination, criteria.capacity_bps
            ))
        })
    }

    /// Returns the legs for a path, in the direction of the bytes.
    fn legs(
        &self,
        criteria: &Criteria,
        path: &[Segment],
    ) -> Result<Vec<PlannedLeg>, SegmentProblem> {
        let own = path
            .iter()
            .position(|segment| segment.source.domain == self.domain);
        let Some((own, segment)) = own.and_then(|own| Some((own, path.get(own)?))) else {
            return Err(self.no_path(format!(
                "the path from {} to {} does not pass domain {}: ask a domain on it",
                criteria.source, criteria.destination, self.domain
            )));
        };
        let part = |source: &TerminationPoint, destination: &TerminationPoint| Criteria {
            source: source.clone(),
            destination: destination.clone(),
            ..criteria.clone()
        };
        let book = PlannedLeg {
            provider: Provider::Book,
            criteria: part(&segment.source, &segment.destination),
        };
        let peer = |domain: &DomainName, criteria: Criteria| {
            if !self.peers.contains(domain) {
                return Err(self.no_path(format!(
                    "domain {domain} is no peer of domain {}: ask for a chain, or make it a peer",
                    self.domain
                )));
            }
            Ok(PlannedLeg {
                provider: Provider::Peer(domain.clone()),
                criteria,
            })
        };
        let (before, after) = (path.get(..own), path.get(own.saturating_add(1)..));
        let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
        let mut legs = Vec::new();
        match criteria.shape {
            Shape::Tree => {
                let leg = |segment: &Segment| {
                    let wanted = part(&segment.source, &segment.destination);
                    peer(&segment.source.domain, wanted)
                };
                for segment in before {
                    legs.push(leg(segment)?);
                }
                legs.push(book);
                for segment in after {
                    legs.push(leg(segment)?);
                }
            }
            Shape::Chain => {
                if let Some(last) = before.last() {
                    let wanted = part(&criteria.source, &last.destination);
                    legs.push(peer(&last.source.domain, wanted)?);
                }
                legs.push(book);
                if let Some(first) = after.first() {
                    let wanted = part(&first.source, &criteria.destination);
                    legs.push(peer(&first.source.domain, wanted)?);
                }
            }
        }
        Ok(legs)
    }

    fn no_path(&self, text: String) -> SegmentProblem {
        SegmentProblem {
            reason: ProblemReason::NoPath,
            domain: self.domain.clone(),
            text,
        }
    }
}
