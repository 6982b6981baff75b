//! Which way the data goes: decided without I/O and without a clock.
//!
//! The far side is tried first. Where that fails, or takes longer than a head start, the far side is asked to connect to this one as well; the
//! first connection that stands is taken. When both have failed, the data goes inside the ssh connection.

/// A way for the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Connections from here to the far side.
    ToHost,
    /// Connections from the far side to here.
    FromHost,
    /// One stream inside the ssh connection.
    InsideSsh,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// A session to the far side stands.
    ToHostStands,
    /// None came about, or the far side can't listen.
    ToHostFailed,
    /// The far side has had its time alone.
    HeadStartOver,
    /// A session from the far side stands.
    FromHostStands,
    /// None came about, or this side can't listen.
    FromHostFailed,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing: wait for what is under way.
    Wait,
    /// Have the far side connect to here.
    TryFromHost,
    /// This way it is.
    Take(Way),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trial {
    NotBegun,
    UnderWay,
    Failed,
}

/// The decision.
#[derive(Debug)]
pub struct Ways {
    to_host: Trial,
    from_host: Trial,
    taken: Option<Way>,
}

impl Default for Ways {
    fn default() -> Self {
        Self {
            to_host: Trial::UnderWay,
            from_host: Trial::NotBegun,
            taken: None,
        }
    }
}

impl Ways {
    /// Takes note, and says what to do.
    pub fn told(&mut self, told: Told) -> Step {
        if let Some(way) = self.taken {
            return Step::Take(way);
        }
        match told {
            Told::ToHostStands => self.taken = Some(Way::ToHost),
            Told::FromHostStands => self.taken = Some(Way::FromHost),
            Told::ToHostFailed => self.to_host = Trial::Failed,
            Told::FromHostFailed => self.from_host = Trial::Failed,
            Told::HeadStartOver => {}
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
        assert_eq!(ways.told(Told::ToHostStands), Step::Take(Way::ToHost));
        let mut ways = Ways::default();
        assert_eq!(ways.told(Told::HeadStartOver), Step::TryFromHost);
        assert_eq!(ways.told(Told::FromHostFailed), Step::Wait);
        assert_eq!(ways.told(Told::ToHostStands), Step::Take(Way::ToHost));
        let mut ways = Ways::default();
        assert_eq!(ways.told(Told::ToHostFailed), Step::TryFromHost);
        assert_eq!(ways.told(Told::HeadStartOver), Step::Wait);
        assert_eq!(ways.told(Told::FromHostStands), Step::Take(Way::FromHost));
        let mut ways = Ways::default();
        assert_eq!(ways.told(Told::ToHostFailed), Step::TryFromHost);
        assert_eq!(ways.told(Told::FromHostFailed), Step::Take(Way::InsideSsh));
    }

    proptest! {
        #[test]
        fn it_asks_once_decides_once_and_goes_inside_ssh_only_when_both_failed(
            order in Just(vec![Told::ToHostFailed, Told::HeadStartOver, Told::FromHostFailed, Told::ToHostStands, Told::FromHostStands])
                .prop_shuffle(),
        ) {
            let mut ways = Ways::default();
            let (mut asked, mut taken, mut heard) = (0, None, Vec::new());
            for told in order {
                heard.push(told);
                match ways.told(told) {
                    Step::TryFromHost => asked += 1,
                    Step::Take(way) => {
                        prop_assert_eq!(*taken.get_or_insert(way), way);
                        if heard.len() == 1 {
                            prop_assert!(matches!(told, Told::ToHostStands | Told::FromHostStands));
                        }
                        let failed = [Told::ToHostFailed, Told::FromHostFailed].iter().all(|told| heard.contains(told));
                        prop_assert!(way != Way::InsideSsh || failed);
                    }
                    Step::Wait => {}
                }
            }
            prop_assert!(asked <= 1 && taken.is_some());
        }
    }
}
