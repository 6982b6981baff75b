//! Admission by the published rule of OSCARS, for comparison (MULTIPATH, section 3, and its first
//! releases).
//!
//! It chooses one path before anything else, and reserves the whole rate on it or nothing. On each
//! link it adds up all reservations that touch the window, whether or not they touch each other.
//! Both ends of a window belong to it, so two consecutive windows are added up.

use crate::network::CircuitNetwork;
use crate::path::{BandwidthField, LinkPath, PathEnds, Preference};
use crate::time::{BitsPerSecond, Window};

/// Reservations by link.
#[derive(Debug, Clone)]
pub struct Oscars<'a> {
    network: &'a CircuitNetwork,
    taken: Vec<Vec<(Window, BitsPerSecond)>>,
}

impl<'a> Oscars<'a> {
    /// Creates an empty record for a network.
    #[must_use]
    pub fn new(network: &'a CircuitNetwork) -> Self {
        Self {
            network,
            taken: vec![Vec::new(); network.links().len()],
        }
    }

    /// Reserves a rate in a window if the rule allows it. Returns the path.
    pub fn reserve(
        &mut self,
        ends: PathEnds,
        window: Window,
        rate: BitsPerSecond,
    ) -> Option<LinkPath> {
        let empty = BandwidthField::new(self.network, |_| Some(1));
        let path = empty.best_path(ends, 1, Preference::FewestHops)?;
        for id in &path.0 {
            let touch = self.taken.get(id.index())?.iter();
            let touch =
                touch.filter(|(there, _)| there.start <= window.end && window.start <= there.end);
            let sum = touch
                .map(|(_, rate)| *rate)
                .fold(rate, BitsPerSecond::saturating_add);
            if sum > self.network.link(*id)?.reservable() {
                return None;
            }
        }
        for id in &path.0 {
            self.taken.get_mut(id.index())?.push((window, rate));
        }
        Some(path)
    }
}

#[cfg(test)]
mod tests {
    use super::Oscars;
    use crate::network::NodeId;
    use crate::path::PathEnds;
    use crate::testing::network;
    use crate::time::Window;

    #[test]
    fn refuses_requests_that_would_fit() {
        let network = network(3, &[(0, 1, 10), (0, 2, 10), (2, 1, 10)]);
        let ends = PathEnds {
            from: NodeId(0),
            to: NodeId(1),
        };
        let mut oscars = Oscars::new(&network);
        assert!(oscars.reserve(ends, Window::new(0, 10), 6).is_some());
        assert!(
            oscars.reserve(ends, Window::new(10, 20), 6).is_none(),
            "windows that only touch are added"
        );
        assert!(oscars.reserve(ends, Window::new(11, 20), 6).is_some());
        assert!(
            oscars.reserve(ends, Window::new(5, 15), 4).is_none(),
            "two that don't meet are added"
        );
        assert!(
            oscars.reserve(ends, Window::new(30, 40), 11).is_none(),
            "the way around is not looked at"
        );
    }
}
