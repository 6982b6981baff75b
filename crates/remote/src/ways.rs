//! Choice of the data's route, without I/O and without a clock.
//!
//! A connection to the far side is tried first. If that fails or takes longer than a head start,
//! the far side is asked to connect to this host as well, and the first established connection is
//! taken. If both fail, the data goes inside the ssh connection. If the far side had to connect to
//! this host last time, that is tried first. If neither reached the other, both are tried at once
//! with less time.

/// Route of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataRoute {
    /// Connections from here to the far side.
    ToHost,
    /// Connections from the far side to here.
    FromHost,
    /// One stream inside the ssh connection.
    InsideSsh,
}

/// Result of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteEvent {
    /// A session to the far side is established.
    ToHostStands,
    /// A session to the far side could not be established, or it can't listen.
    ToHostFailed,
    /// The head start of connections to the far side is over.
    HeadStartOver,
    /// A session from the far side is established.
    FromHostStands,
    /// A session from the far side could not be established, or this host can't listen.
    FromHostFailed,
}

/// Next step of the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteStep {
    /// Wait for attempts under way.
    Wait,
    /// Have the far side connect to this host.
    TryFromHost,
    /// Connect to the far side.
    TryToHost,
    /// Take this route.
    Take(DataRoute),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AttemptState {
    NotBegun,
    UnderWay,
    Failed,
}

/// State of the choice.
#[derive(Debug)]
pub struct RouteChoice {
    to_host: AttemptState,
    from_host: AttemptState,
    taken: Option<DataRoute>,
}

impl Default for RouteChoice {
    fn default() -> Self {
        Self::new(None)
    }
}

impl RouteChoice {
    /// Starts with the route of last time, if there was one.
    pub fn new(last_time: Option<DataRoute>) -> Self {
        let (to_host, from_host) = match last_time {
            None | Some(DataRoute::ToHost) => (AttemptState::UnderWay, AttemptState::NotBegun),
            Some(DataRoute::FromHost) => (AttemptState::NotBegun, AttemptState::UnderWay),
            Some(DataRoute::InsideSsh) => (AttemptState::UnderWay, AttemptState::UnderWay),
        };
        Self {
            to_host,
            from_host,
            taken: None,
        }
    }

    /// Returns true if connections to the far side are being tried.
    pub fn tries_to_host(&self) -> bool {
        self.to_host == AttemptState::UnderWay
    }

    /// Returns true if connections to the far side are being tried, or were.
    pub fn has_tried_to_host(&self) -> bool {
        self.to_host != AttemptState::NotBegun
    }

    /// Returns true if connections from the far side are being tried.
    pub fn tries_from_host(&self) -> bool {
        self.from_host == AttemptState::UnderWay
    }

    /// Records an event, and returns the next step.
    pub fn observe(&mut self, event: RouteEvent) -> RouteStep {
        if let Some(way) = self.taken {
            return RouteStep::Take(way);
        }
        match event {
            RouteEvent::ToHostStands => self.taken = Some(DataRoute::ToHost),
            RouteEvent::FromHostStands => self.taken = Some(DataRoute::FromHost),
            RouteEvent::ToHostFailed => self.to_host = AttemptState::Failed,
            RouteEvent::FromHostFailed => self.from_host = AttemptState::Failed,
            RouteEvent::HeadStartOver => {}
        }
        if (self.to_host, self.from_host) == (AttemptState::Failed, AttemptState::Failed) {
            self.taken = Some(DataRoute::InsideSsh);
        }
        if let Some(way) = self.taken {
            return RouteStep::Take(way);
        }
        if self.from_host == AttemptState::NotBegun {
            self.from_host = AttemptState::UnderWay;
            return RouteStep::TryFromHost;
        }
        if self.to_host == AttemptState::NotBegun {
            self.to_host = AttemptState::UnderWay;
            return RouteStep::TryToHost;
        }
        RouteStep::Wait
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_far_side_is_tried_first_then_both_then_ssh() {
        let mut ways = RouteChoice::default();
        assert_eq!(
            ways.observe(RouteEvent::ToHostStands),
            RouteStep::Take(DataRoute::ToHost)
        );
        let mut ways = RouteChoice::default();
        assert_eq!(
            ways.observe(RouteEvent::HeadStartOver),
            RouteStep::TryFromHost
        );
        assert_eq!(ways.observe(RouteEvent::FromHostFailed), RouteStep::Wait);
        assert_eq!(
            ways.observe(RouteEvent::ToHostStands),
            RouteStep::Take(DataRoute::ToHost)
        );
        let mut ways = RouteChoice::default();
        assert_eq!(
            ways.observe(RouteEvent::ToHostFailed),
            RouteStep::TryFromHost
        );
        assert_eq!(ways.observe(RouteEvent::HeadStartOver), RouteStep::Wait);
        assert_eq!(
            ways.observe(RouteEvent::FromHostStands),
            RouteStep::Take(DataRoute::FromHost)
        );
        let mut ways = RouteChoice::default();
        assert_eq!(
            ways.observe(RouteEvent::ToHostFailed),
            RouteStep::TryFromHost
        );
        assert_eq!(
            ways.observe(RouteEvent::FromHostFailed),
            RouteStep::Take(DataRoute::InsideSsh)
        );
    }

    #[test]
    fn the_last_route_is_tried_first_then_the_other() {
        let ways = RouteChoice::new(Some(DataRoute::FromHost));
        assert!(ways.tries_from_host() && !ways.tries_to_host());
        let mut ways = RouteChoice::new(Some(DataRoute::FromHost));
        assert_eq!(
            ways.observe(RouteEvent::FromHostStands),
            RouteStep::Take(DataRoute::FromHost)
        );
        let mut ways = RouteChoice::new(Some(DataRoute::FromHost));
        assert_eq!(
            ways.observe(RouteEvent::FromHostFailed),
            RouteStep::TryToHost
        );
        assert_eq!(ways.observe(RouteEvent::HeadStartOver), RouteStep::Wait);
        assert_eq!(
            ways.observe(RouteEvent::ToHostFailed),
            RouteStep::Take(DataRoute::InsideSsh)
        );
        let mut ways = RouteChoice::new(Some(DataRoute::InsideSsh));
        assert!(ways.tries_from_host() && ways.tries_to_host());
        assert_eq!(ways.observe(RouteEvent::HeadStartOver), RouteStep::Wait);
        assert_eq!(
            ways.observe(RouteEvent::ToHostStands),
            RouteStep::Take(DataRoute::ToHost)
        );
    }

    proptest! {
        #[test]
        fn ssh_carries_the_data_only_if_both_directions_failed(
            last_time in prop::option::of(prop::sample::select(vec![
                DataRoute::ToHost, DataRoute::FromHost, DataRoute::InsideSsh
            ])),
            order in Just(vec![
                RouteEvent::ToHostFailed, RouteEvent::HeadStartOver, RouteEvent::FromHostFailed,
                RouteEvent::ToHostStands, RouteEvent::FromHostStands
            ])
                .prop_shuffle(),
        ) {
            let mut ways = RouteChoice::new(last_time);
            let begun = i32::from(ways.tries_to_host()) + i32::from(ways.tries_from_host());
            let (mut asked, mut taken, mut received) = (begun, None, Vec::new());
            for event in order {
                received.push(event);
                match ways.observe(event) {
                    RouteStep::TryFromHost | RouteStep::TryToHost => asked += 1,
                    RouteStep::Take(way) => {
                        prop_assert_eq!(*taken.get_or_insert(way), way);
                        if received.len() == 1 {
                            prop_assert!(matches!(
                                event, RouteEvent::ToHostStands | RouteEvent::FromHostStands
                            ));
                        }
                        let failed = [RouteEvent::ToHostFailed, RouteEvent::FromHostFailed]
                            .iter()
                            .all(|event| received.contains(event));
                        prop_assert!(way != DataRoute::InsideSsh || failed);
                    }
                    RouteStep::Wait => {}
                }
            }
            prop_assert!((1..=2).contains(&asked) && taken.is_some());
        }
    }
}
