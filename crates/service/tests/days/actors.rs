//! Those who connect: honest keys, and attacks of every kind.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use longhaul_hop::Payer;
use longhaul_proto::PublicKey;
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

/// Kind of attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attack {
    /// Silent connections from four addresses.
    FewSources,
    /// Silent connections from one /16.
    OneNetwork,
    /// Silent connections from random addresses, each with one.
    ManySources,
    /// Sessions from random addresses, where a rule admits anybody. They stay for hours.
    Squatters,
    /// A listed key that takes all sessions that it gets, for hours.
    GreedyKey,
    /// A listed key that opens and ends sessions, to fill the memory.
    ShortSessions,
    /// OPENs of others, sent again.
    Replays,
}

/// Behaviour of an attack while it lasts.
pub struct AttackPlan {
    /// Connections in a second.
    pub per_second: u32,
    /// Number of connections.
    pub connections: u32,
}

impl Attack {
    /// Every kind.
    pub const ALL: [Self; 7] = [
        Self::FewSources,
        Self::OneNetwork,
        Self::ManySources,
        Self::Squatters,
        Self::GreedyKey,
        Self::ShortSessions,
        Self::Replays,
    ];

    /// Returns its rate and size.
    pub const fn plan(self) -> AttackPlan {
        let (per_second, connections) = match self {
            Self::FewSources | Self::OneNetwork | Self::ManySources => (200, 3_000),
            Self::Squatters => (50, 1_500),
            Self::GreedyKey => (50, 800),
            // More than one payer's part of the memory (LH-SIGN-4), within 120 s.
            Self::ShortSessions => (100, 9_000),
            Self::Replays => (20, 600),
        };
        AttackPlan {
            per_second,
            connections,
        }
    }

    /// Returns the address of its next connection.
    pub fn source(self, random: &mut Xoshiro256PlusPlus) -> IpAddr {
        let address = match self {
            Self::FewSources => Ipv4Addr::new(198, 51, 100, random.random_range(1..5)),
            Self::OneNetwork => Ipv4Addr::new(203, 0, random.random(), random.random()),
            // 11.0.0.0/8 to 191.0.0.0/8, which no other actor uses.
            Self::ManySources | Self::Squatters => {
                let first = random.random_range(11..192);
                Ipv4Addr::new(first, random.random(), random.random(), random.random())
            }
            Self::GreedyKey | Self::ShortSessions => Ipv4Addr::new(192, 0, 2, 1),
            Self::Replays => Ipv4Addr::new(192, 0, 2, 2),
        };
        address.into()
    }

    /// Returns who pays for a session from `source`, and its duration; `None` if the connection
    /// stays silent, or replays.
    pub fn session(
        self,
        source: IpAddr,
        random: &mut Xoshiro256PlusPlus,
    ) -> Option<(Payer, Duration)> {
        let hours = |random: &mut Xoshiro256PlusPlus| {
            Duration::from_secs(60 * random.random_range(60..240))
        };
        match self {
            Self::FewSources | Self::OneNetwork | Self::ManySources | Self::Replays => None,
            Self::Squatters => Some((Payer::from_address(source), hours(random))),
            Self::GreedyKey => Some((Payer::Key(key(200)), hours(random))),
            Self::ShortSessions => Some((Payer::Key(key(201)), Duration::from_millis(10))),
        }
    }
}

/// Returns the key of a number. Honest clients have those below 100.
pub fn key(number: u8) -> PublicKey {
    PublicKey::from_bytes([number; 32])
}

/// Returns the address of an honest client, in a network of its own.
pub fn honest_address(number: u8) -> IpAddr {
    Ipv4Addr::new(10, number, 0, 7).into()
}

/// Draws from the exponential distribution with this mean, in milliseconds.
pub fn exponential_ms(random: &mut Xoshiro256PlusPlus, mean_ms: u64) -> u64 {
    let share: f64 = random.random();
    (-(mean_ms as f64) * (1.0 - share).ln()) as u64
}
