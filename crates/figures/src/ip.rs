//! Version of IP between the programs of a run.

use serde::{Deserialize, Serialize};

use crate::network::Network;

/// Version of IP over which the programs of a run talk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IpVersion {
    /// IPv4.
    #[default]
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl IpVersion {
    /// Returns true for IPv4, with which runs are recorded without a version.
    #[allow(clippy::trivially_copy_pass_by_ref)] // serde passes a reference
    pub const fn is_ipv4(&self) -> bool {
        matches!(self, Self::Ipv4)
    }

    /// Gives the network's nodes addresses of this version.
    pub fn add_to(self, network: Network) -> Network {
        match self {
            Self::Ipv4 => network,
            Self::Ipv6 => network.set("ipv6", "true"),
        }
    }
}
