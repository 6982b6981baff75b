//! Noise of a real path besides delay and loss: jitter, reordering, a managed queue.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::network::Network;

/// Noise that is added to the links of a scenario.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Noise {
    /// Add nothing.
    #[default]
    None,
    /// The delay varies by 1 ms (standard deviation); packets stay in order.
    #[value(name = "jitter-1ms")]
    #[serde(rename = "jitter-1ms")]
    Jitter1,
    /// The delay varies by 5 ms; packets stay in order.
    #[value(name = "jitter-5ms")]
    #[serde(rename = "jitter-5ms")]
    Jitter5,
    /// One packet in a thousand comes 3 ms late, behind others.
    Reorder,
    /// CoDel manages every queue (RFC 8289).
    Codel,
}

impl Noise {
    /// All kinds except `None`, in the order of the tables.
    pub const ALL: [Self; 4] = [Self::Jitter1, Self::Jitter5, Self::Reorder, Self::Codel];

    /// Returns the head of its column.
    pub const fn title(self) -> &'static str {
        match self {
            Self::None => "as it is",
            Self::Jitter1 => "jitter 1 ms",
            Self::Jitter5 => "jitter 5 ms",
            Self::Reorder => "reordering 0.1 %, 3 ms",
            Self::Codel => "CoDel",
        }
    }

    /// Adds the noise: jitter and reordering to the named links, in both directions; CoDel to all
    /// links.
    pub fn add_to(self, network: Network, links: &[&str]) -> Network {
        let on = |network: Network, field: &str, value: &str| {
            links.iter().fold(network, |network, link| {
                network.set(format!("links.{link}.{field}"), value)
            })
        };
        match self {
            Self::None => network,
            Self::Jitter1 => on(network, "jitter", "\"1 ms\""),
            Self::Jitter5 => on(network, "jitter", "\"5 ms\""),
            Self::Reorder => on(
                network,
                "reorder",
                "{ probability = \"0.1%\", by = \"3 ms\" }",
            ),
            Self::Codel => network.set("links.*.aqm", "\"codel\""),
        }
    }
}
