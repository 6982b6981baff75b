//! States of links in the running network, combined with what the operator's map states.

use std::collections::BTreeMap;

use crate::live::{LiveDirection, LiveLink};
use crate::model::{Capacity, CapacitySource, Direction, Link, Map, Reservable};

impl LiveDirection {
    /// Returns a direction with the announced rates. Where the map states a rate too, the lower one
    /// counts; an announced capacity replaces one that is a bound or assumed.
    #[must_use]
    pub fn limit(&self, stated: &Direction) -> Direction {
        let capacity = match (stated.capacity, self.capacity) {
            (Some(stated), Some(live))
                if stated.source == CapacitySource::Stated && stated.rate < live =>
            {
                Some(stated)
            }
            (_, Some(live)) => Some(Capacity {
                rate: live,
                source: CapacitySource::Stated,
            }),
            (stated, None) => stated,
        };
        let limited = Direction {
            capacity,
            ..*stated
        };
        let Some(live) = self.reservable else {
            return limited;
        };
        let reservable = match limited.reservable_rate() {
            Some(stated) if stated < live => stated,
            _ => live,
        };
        Direction {
            reservable: Some(Reservable::Rate(reservable)),
            ..limited
        }
    }
}

impl Link {
    /// Returns true if the running network says that the link has failed.
    #[must_use]
    pub fn is_down(&self) -> bool {
        self.live.is_some_and(|live| !live.up)
    }

    /// Returns the direction from `from` to `to`, limited to what the running network announces.
    #[must_use]
    pub fn current_forward(&self) -> Direction {
        match &self.live {
            Some(live) => live.forward.limit(&self.forward),
            None => self.forward,
        }
    }

    /// Returns the direction from `to` to `from`, limited to what the running network announces.
    #[must_use]
    pub fn current_backward(&self) -> Option<Direction> {
        let backward = self.backward.as_ref()?;
        Some(match &self.live {
            Some(live) => live.backward.limit(backward),
            None => *backward,
        })
    }
}

/// States of all links that are followed, by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LiveNetwork {
    /// States by link. Links that are not named are as the map states them.
    pub links: BTreeMap<String, LiveLink>,
    /// Reasons why links are not followed, or may be outdated, one line each.
    pub problems: Vec<String>,
}

impl LiveNetwork {
    /// Returns a map whose links have these states, and no others.
    #[must_use]
    pub fn attach(&self, map: &Map) -> Map {
        let mut map = map.clone();
        for link in &mut map.links {
            link.live = self.links.get(&link.name).copied();
        }
        map
    }

    /// Returns the number of links that have failed.
    #[must_use]
    pub fn down(&self) -> usize {
        self.links.values().filter(|link| !link.up).count()
    }
}

impl Map {
    /// Removes the states of links, as a map that is stored is the operator's alone.
    pub fn forget_live(&mut self) {
        for link in &mut self.links {
            link.live = None;
        }
    }
}
