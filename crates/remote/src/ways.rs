//! Choice of the data's route, without I/O and without a clock.
//!
//! A connection to the far side is tried first. If that fails or takes longer than a head start,
//! the far side is asked to connect to this host as well, and the first established connection is
//! taken. If both fail, the data goes inside the ssh connection. If the far side had to connect to
//! this host last time, that is tried first. If neither reached the other, both are tried at once
//! with less time.

/// Route of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Connections from here to the far side.
    ToHost,
    /// Connections from the far side to here.
    FromHost,
    /// One stream inside the ssh connection.
    InsideSsh,
}

/// Result of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WayEvent {
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
pub enum Step {
    /// Wait for attempts under way.
    Wait,
    /// Have the far side connect to this host.
    TryFromHost,
    /// Connect to the far side.
    TryToHost,
    /// Take this route.
    Take(Way),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trial {
    NotBegun,
    UnderWay,
    Failed,
}

/// State of the choice.
#[derive(Debug)]
pub struct Ways {
    to_host: Trial,
    from_host: Trial,
    taken: Option<Way>,
}

impl Default for Ways {
    fn default() -> Self {
        Self::new(None)
    }
}

impl Ways {
    /// Starts with the route of last time, if there was one.
    pub fn new(last_time: Option<Way>) -> Self {
        let (to_host, from_host) = match last_time {
            None | Some(Way::ToHost) => (Trial::UnderWay, Trial::NotBegun),
            Some(Way::FromHost) => (Trial::NotBegun, Trial::UnderWay),
            Some(Way::InsideSsh) => (Trial::UnderWay, Trial::UnderWay),
        };
        Self {
            to_host,
            from_host,
            taken: None,
        }
    }

    /// Returns true if connections to the far side are being tried.
    pub fn tries_to_host(&self) -> bool {
        self.to_host == Trial::UnderWay
    }

    /// Returns true if connections to the far side are being tried, or were.
    pub fn has_tried_to_host(&self) -> bool {
        self.to_host != Trial::NotBegun
    }

    /// Returns true if connections from the far side are being tried.
    pub fn tries_from_host(&self) -> bool {
        self.from_host == Trial::UnderWay
    }

    /// Records an event, and returns the next step.
    pub fn observe(&mut self, event: WayEvent) -> Step {
        if let Some(way) = self.taken {
            return Step::Take(way);
        }
        match event {
            WayEvent::ToHostStands => self.taken = Some(Way::ToHost),
            WayEvent::FromHostStands => self.taken = Some(Way::FromHost),
            WayEvent::ToHostFailed => self.to_host = Trial::Failed,
            WayEvent::FromHostFailed => self.from_host = Trial::Failed,
            WayEvent::HeadStartOver => {}
        }
        if (self.to_host, self.from_host) == (Trial::Failed, Trial::Failed) {
            self.taken = Some(Way::InsideSsh);
        }
        if let Some(way) = self.taken {
            return Step::Take(way);
        }
        if self.from_host == Trial::NotBegun {
            self.from_host = Trial::UnderWay;
            return Step::TryFromHost;
        }
        if self.to_host == Trial::NotBegun {
            self.to_host = Trial::UnderWay;
            return Step::TryToHost;
        }
        Step::Wait
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_far_side_is_tried_first_then_both_then_ssh() {
        let mut ways = Ways::default();
        assert_eq!(
            ways.observe(WayEvent::ToHostStands),
            Step::Take(Way::ToHost)
        );
        let mut ways = Ways::default();
        assert_eq!(ways.observe(WayEvent::HeadStartOver), Step::TryFromHost);
        assert_eq!(ways.observe(WayEvent::FromHostFailed), Step::Wait);
        assert_eq!(
            ways.observe(WayEvent::ToHostStands),
            Step::Take(Way::ToHost)
        );
        let mut ways = Ways::default();
        assert_eq!(ways.observe(WayEvent::ToHostFailed), Step::TryFromHost);
        assert_eq!(ways.observe(WayEvent::HeadStartOver), Step::Wait);
        assert_eq!(
            ways.observe(WayEvent::FromHostStands),
            Step::Take(Way::FromHost)
        );
        let mut ways = Ways::default();
        assert_eq!(ways.observe(WayEvent::ToHostFailed), Step::TryFromHost);
        assert_eq!(
            ways.observe(WayEvent::FromHostFailed),
            Step::Take(Way::InsideSsh)
        );
    }

    #[test]
    fn the_last_route_is_tried_first_then_the_other() {
        let ways = Ways::new(Some(Way::FromHost));
        assert!(ways.tries_from_host() && !ways.tries_to_host());
        let mut ways = Ways::new(Some(Way::FromHost));
        assert_eq!(
            ways.observe(WayEvent::FromHostStands),
            Step::Take(Way::FromHost)
        );
        let mut ways = Ways::new(Some(Way::FromHost));
        assert_eq!(ways.observe(WayEvent::FromHostFailed), Step::TryToHost);
        assert_eq!(ways.observe(WayEvent::HeadStartOver), Step::Wait);
        assert_eq!(
            ways.observe(WayEvent::ToHostFailed),
            Step::Take(Way::InsideSsh)
        );
        let mut ways = Ways::new(Some(Way::InsideSsh));
        assert!(ways.tries_from_host() && ways.tries_to_host());
        assert_eq!(ways.observe(WayEvent::HeadStartOver), Step::Wait);
        assert_eq!(
            ways.observe(WayEvent::ToHostStands),
            Step::Take(Way::ToHost)
        );
    }

    proptest! {
        #[test]
        fn ssh_carries_the_data_only_if_both_directions_failed(
            last_time in prop::option::of(prop::sample::select(vec![
                Way::ToHost, Way::FromHost, Way::InsideSsh
            ])),
            order in Just(vec![
                WayEvent::ToHostFailed, WayEvent::HeadStartOver, WayEvent::FromHostFailed,
                WayEvent::ToHostStands, WayEvent::FromHostStands
            ])
                .prop_shuffle(),
        ) {
            let mut ways = Ways::new(last_time);
            let begun = i32::from(ways.tries_to_host()) + i32::from(ways.tries_from_host());
            let (mut asked, mut taken, mut received) = (begun, None, Vec::new());
            for event in order {
                received.push(event);
                match ways.observe(event) {
                    Step::TryFromHost | Step::TryToHost => asked += 1,
                    Step::Take(way) => {
                        prop_assert_eq!(*taken.get_or_insert(way), way);
                        if received.len() == 1 {
                            prop_assert!(matches!(
                                event, WayEvent::ToHostStands | WayEvent::FromHostStands
                            ));
                        }
                        let failed = [WayEvent::ToHostFailed, WayEvent::FromHostFailed]
                            .iter()
                            .all(|event| received.contains(event));
                        prop_assert!(way != Way::InsideSsh || failed);
                    }
                    Step::Wait => {}
                }
            }
            prop_assert!((1..=2).contains(&asked) && taken.is_some());
        }
    }
}
