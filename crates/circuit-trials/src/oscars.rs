//! Admission by OSCARS' published rule, for comparison. Its sources are the MULTIPATH paper
//! (section 3) and the first releases of OSCARS.
//!
//! The rule first chooses the path with the fewest hops, and then reserves the whole rate on that
//! path or nothing. On each link it adds up all reservations whose windows overlap the requested
//! window, even if they do not overlap each other. Windows include both endpoints, so two
//! consecutive windows overlap.

use longhaul_circuits::network::CircuitNetwork;
use longhaul_circuits::path::{BandwidthField, LinkPath, PathEnds, Preference};
use longhaul_circuits::time::{BitsPerSecond, Window};

/// Admission by OSCARS' rule: a network, and the reservations granted so far.
#[derive(Debug, Clone)]
pub struct OscarsAdmission<'a> {
    network: &'a CircuitNetwork,
    /// Windows and rates of the reservations on each link.
    reserved: Vec<Vec<(Window, BitsPerSecond)>>,
}

impl<'a> OscarsAdmission<'a> {
    /// Returns the admission for a network without reservations.
    #[must_use]
    pub fn new(network: &'a CircuitNetwork) -> Self {
        Self {
            network,
            reserved: vec![Vec::new(); network.links().len()],
        }
    }

    /// Reserves a rate in a window if the rule allows it, and returns the path.
    pub fn reserve(
        &mut self,
        ends: PathEnds,
        window: Window,
        rate: BitsPerSecond,
    ) -> Option<LinkPath> {
        let empty = BandwidthField::new(self.network, |_| Some(1));
        let path = empty.best_path(ends, 1, Preference::FewestHops)?;
        for id in &path.0 {
            let reserved = self.reserved.get(id.0 as usize)?.iter();
            let overlapping = reserved
                .filter(|(other, _)| other.start <= window.end && window.start <= other.end);
            let sum = overlapping
                .map(|(_, rate)| *rate)
                .fold(rate, BitsPerSecond::saturating_add);
            if sum > self.network.link(*id)?.reservable() {
                return None;
            }
        }
        for id in &path.0 {
            self.reserved.get_mut(id.0 as usize)?.push((window, rate));
        }
        Some(path)
    }
}

#[cfg(test)]
mod tests {
    use super::OscarsAdmission;
    use longhaul_circuits::network::NodeId;
    use longhaul_circuits::path::PathEnds;
    use longhaul_circuits::testing::network;
    use longhaul_circuits::time::Window;

    #[test]
    fn refuses_requests_that_would_fit() {
        let network = network(3, &[(0, 1, 10), (0, 2, 10), (2, 1, 10)]);
        let ends = PathEnds {
            from: NodeId(0),
            to: NodeId(1),
        };
        let mut oscars = OscarsAdmission::new(&network);
        assert!(oscars.reserve(ends, Window::new(0, 10), 6).is_some());
        assert!(
            oscars.reserve(ends, Window::new(10, 20), 6).is_none(),
            "consecutive windows are added"
        );
        assert!(oscars.reserve(ends, Window::new(11, 20), 6).is_some());
        assert!(
            oscars.reserve(ends, Window::new(5, 15), 4).is_none(),
            "reservations that do not overlap each other are added"
        );
        assert!(
            oscars.reserve(ends, Window::new(30, 40), 11).is_none(),
            "no other path is tried"
        );
    }
}
