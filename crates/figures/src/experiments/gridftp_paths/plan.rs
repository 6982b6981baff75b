//! The transfers: paths, shares of the connections, hosts, and flows of others.

use serde::{Deserialize, Serialize};

/// Connections of a transfer, as in the paper.
pub const CONNECTIONS: u32 = 10;
/// Divisor of the paper's rates and buffers.
pub const RATE_DIVISOR: f64 = 25.0;
/// Rate that is reserved of each path, relative to its link.
pub const RESERVED: f64 = 0.95;
/// Total rate that is reserved beside flows of others, in bit/s: four fifths of A or C.
pub const RESERVED_BESIDE_BPS: f64 = 320e6;
/// Rate of the sender's own link relative to A's or C's, where the hosts are the limit. The paper's
/// hosts sent 7 Gbit/s at most, on paths of 10 Gbit/s.
pub const HOST_LIMIT: f64 = 0.7;
/// Estimated time of a run for its lab, controller and circuit, in seconds.
const SET_UP_SECONDS: f64 = 10.0;

/// One of the paper's paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Path {
    /// 57 ms, 400 Mbit/s.
    A,
    /// 75 ms, 100 Mbit/s.
    B,
    /// 48 ms, 400 Mbit/s.
    C,
}

/// Shares of the connections that the paths have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shares {
    /// The same number for each path.
    Even,
    /// 30 % on the slower of two paths, 70 % on the other one.
    ThirtySeventy,
    /// In proportion to what each path carries: the default of `longhaul run`.
    Rate,
}

/// Limit of the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hosts {
    /// The sender can fill all paths.
    Unlimited,
    /// The sender can fill [`HOST_LIMIT`] of A or C, as the paper's.
    Limited,
}

/// Bytes of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// The paper's 100 GB by [`RATE_DIVISOR`], so that a transfer takes as long as the paper's.
    Full,
    /// Less than a tenth of that.
    Short,
}

/// Flows of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Beside {
    /// There are none.
    Nothing,
    /// There are some on A and on C, beside the transfer on its reserved paths.
    Reserved,
    /// The same, but nothing is reserved: the transfer takes the shortest path, which is C.
    BestEffort,
}

/// One transfer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Bytes of the transfer.
    pub scale: Scale,
    /// Paths of the transfer.
    pub paths: Vec<Path>,
    /// Shares of the connections.
    pub shares: Shares,
    /// Limit of the hosts.
    pub hosts: Hosts,
    /// Flows of others.
    pub beside: Beside,
}

impl Path {
    /// All paths.
    pub const ALL: [Self; 3] = [Self::A, Self::B, Self::C];

    /// Returns the name of its link, and of the site in its middle.
    pub const fn link(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
            Self::C => "c",
        }
    }

    /// Returns the rate of its link, in bit/s.
    pub const fn link_bps(self) -> f64 {
        match self {
            Self::A | Self::C => 400e6,
            Self::B => 100e6,
        }
    }
}

impl Scale {
    /// Both scales, in the order of the page.
    pub const ALL: [Self; 2] = [Self::Full, Self::Short];

    /// Returns the bytes of a transfer.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Full => 4_000_000_000,
            Self::Short => 300_000_000,
        }
    }

    /// Returns the bytes of a transfer beside others.
    pub const fn bytes_beside(self) -> u64 {
        match self {
            Self::Full => 2_400_000_000,
            Self::Short => 500_000_000,
        }
    }
}

/// Paths and shares of the transfers without others: Table 4, Figures 5 and 7, and beyond.
pub const SPREADS: [(&[Path], Shares); 12] = [
    (&[Path::A], Shares::Rate),
    (&[Path::B], Shares::Rate),
    (&[Path::C], Shares::Rate),
    (&[Path::A, Path::B], Shares::Even),
    (&[Path::A, Path::C], Shares::Even),
    (&[Path::B, Path::C], Shares::Even),
    (&[Path::A, Path::B], Shares::ThirtySeventy),
    (&[Path::B, Path::C], Shares::ThirtySeventy),
    (&[Path::A, Path::B], Shares::Rate),
    (&[Path::B, Path::C], Shares::Rate),
    (&Path::ALL, Shares::Even),
    (&Path::ALL, Shares::Rate),
];

/// Paths of the transfers beside others, and what they reserve.
pub const BESIDE: [(&[Path], Beside); 4] = [
    (&[Path::C], Beside::BestEffort),
    (&[Path::C], Beside::Reserved),
    (&[Path::A, Path::C], Beside::Reserved),
    (&Path::ALL, Beside::Reserved),
];

impl Cell {
    /// Returns all transfers.
    pub fn all() -> Vec<Self> {
        let of_scale = |scale| {
            let hosts = [Hosts::Limited, Hosts::Unlimited].into_iter();
            let alone = hosts.flat_map(move |hosts| {
                let all = SPREADS.into_iter();
                all.map(move |(paths, shares)| Self::alone(scale, paths, shares, hosts))
            });
            let beside = BESIDE.into_iter();
            alone.chain(beside.map(move |(paths, how)| Self::beside(scale, paths, how)))
        };
        Scale::ALL.into_iter().flat_map(of_scale).collect()
    }

    /// Returns a transfer without others.
    pub fn alone(scale: Scale, paths: &[Path], shares: Shares, hosts: Hosts) -> Self {
        Self {
            scale,
            paths: paths.to_vec(),
            shares,
            hosts,
            beside: Beside::Nothing,
        }
    }

    /// Returns a transfer beside others.
    pub fn beside(scale: Scale, paths: &[Path], beside: Beside) -> Self {
        Self {
            beside,
            ..Self::alone(scale, paths, Shares::Rate, Hosts::Unlimited)
        }
    }

    /// Returns the bytes of the transfer.
    pub fn bytes(&self) -> u64 {
        match self.beside {
            Beside::Nothing => self.scale.bytes(),
            Beside::Reserved | Beside::BestEffort => self.scale.bytes_beside(),
        }
    }

    /// Returns the reserved rate of a path, in bit/s; 0 if the transfer does not reserve it.
    pub fn reserved_bps(&self, path: Path) -> f64 {
        let is_used = self.paths.contains(&path) && self.beside != Beside::BestEffort;
        let all: f64 = self.paths.iter().map(|path| path.link_bps()).sum();
        match self.beside {
            _ if !is_used => 0.0,
            Beside::Nothing => RESERVED * path.link_bps(),
            Beside::Reserved | Beside::BestEffort => RESERVED_BESIDE_BPS * path.link_bps() / all,
        }
    }

    /// Returns the option `--spread` of `longhaul run`. The controller lists the path with the
    /// highest rate first.
    pub const fn spread(&self) -> &'static str {
        match self.shares {
            Shares::Even => "even",
            Shares::ThirtySeventy => "70:30",
            Shares::Rate => "rate",
        }
    }

    /// Returns the estimated share of the data on a path.
    fn data_share(&self, path: Path) -> f64 {
        let all: f64 = self.paths.iter().map(|path| path.link_bps()).sum();
        match self.shares {
            Shares::Even => 1.0 / self.paths.len() as f64,
            Shares::ThirtySeventy if path == Path::B => 0.3,
            Shares::ThirtySeventy => 0.7,
            Shares::Rate => path.link_bps() / all,
        }
    }

    /// Returns the estimated time of a run, in seconds: the slowest path counts.
    pub fn seconds(&self) -> f64 {
        let bits = self.bytes() as f64 * 8.0;
        let of_path = |path: &Path| {
            let rate = match self.reserved_bps(*path) {
                0.0 => path.link_bps() / 2.0,
                reserved => reserved,
            };
            self.data_share(*path) * bits / (0.95 * rate)
        };
        let of_host = match self.hosts {
            Hosts::Limited => bits / (HOST_LIMIT * Path::A.link_bps()),
            Hosts::Unlimited => 0.0,
        };
        SET_UP_SECONDS + self.paths.iter().map(of_path).fold(of_host, f64::max)
    }
}
