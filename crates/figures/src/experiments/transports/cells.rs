//! The runs of the three parts.

use serde::{Deserialize, Serialize};

use crate::experiment::Cost;

/// Size of the copied file.
pub const FILE_BYTES: u64 = 1 << 30;
/// Duration of a measurement through gateways, in seconds.
pub const PERF_SECONDS: u32 = 8;
/// Number of seeds, except for the parts with a single one.
const SEEDS: u64 = 3;
/// Estimated time for a lab and its servers, in seconds.
const SET_UP_SECONDS: f64 = 3.0;

/// One run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "part", rename_all = "kebab-case")]
pub enum Cell {
    /// A copy over a path that loses packets at random.
    RandomLoss {
        /// Named transports and depots.
        way: CopyWay,
    },
    /// A copy without options over one of the paths for which rates of FASP are published.
    Fasp {
        /// Round trip, in milliseconds.
        rtt_ms: u32,
        /// Random loss in each direction.
        loss: Loss,
    },
    /// A measurement over MNEMONIC's path.
    Gateways {
        /// Random loss in each direction of each LAN.
        lan_loss: Loss,
        /// Windows of the end hosts.
        windows: Windows,
        /// Congestion control of all nodes.
        congestion: Congestion,
        /// Transports of the hops.
        way: PerfWay,
    },
}

/// Named transports and depots of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CopyWay {
    /// Direct, without named transports.
    Cp,
    /// Direct by QUIC.
    Quic,
    /// Direct by TCP.
    Tcp,
    /// Through both depots, each hop by QUIC.
    DepotsQuic,
    /// Through both depots, which choose the transports.
    Depots,
}

/// Transports of the hops of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PerfWay {
    /// One TCP connection from end to end.
    Direct,
    /// Through both depots, each hop by TCP.
    Tcp,
    /// Through both depots, each hop by QUIC.
    Quic,
    /// Through both depots, whose onward hops are paced TCP.
    Paced,
}

/// Share of the packets that a link loses at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Loss {
    /// None.
    #[serde(rename = "0%")]
    None,
    /// One in a thousand.
    #[serde(rename = "0.1%")]
    Tenth,
    /// One in a hundred.
    #[serde(rename = "1%")]
    One,
    /// Two in a hundred.
    #[serde(rename = "2%")]
    Two,
    /// Five in a hundred.
    #[serde(rename = "5%")]
    Five,
}

/// Windows of the end hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Windows {
    /// Those of untuned hosts in MNEMONIC's paper.
    #[serde(rename = "64 KB")]
    Small,
    /// Larger than the path needs.
    #[serde(rename = "64 MB")]
    Large,
}

/// Congestion control of TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Congestion {
    Reno,
    Cubic,
    Bbr,
}

/// A path for which a rate of FASP is published.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FaspPath {
    /// Round trip, in milliseconds.
    pub rtt_ms: u32,
    /// Random loss.
    pub loss: Loss,
    /// The published rate.
    pub published_mbps: f64,
}

/// Rate of the links of all [`FaspPath`]s, in Mbit/s.
pub const FASP_LINK_MBPS: f64 = 155.0;

/// The paths for which rates of FASP are published.
pub const FASP_PATHS: [FaspPath; 5] = [
    FaspPath::new(10, Loss::Tenth, 155.0),
    FaspPath::new(90, Loss::One, 153.0),
    FaspPath::new(150, Loss::Two, 152.0),
    FaspPath::new(200, Loss::Two, 152.0),
    FaspPath::new(550, Loss::Five, 147.0),
];

impl FaspPath {
    const fn new(rtt_ms: u32, loss: Loss, published_mbps: f64) -> Self {
        Self {
            rtt_ms,
            loss,
            published_mbps,
        }
    }

    /// Returns the copy over this path.
    pub const fn cell(self) -> Cell {
        Cell::Fasp {
            rtt_ms: self.rtt_ms,
            loss: self.loss,
        }
    }
}

/// Conditions of a measurement over MNEMONIC's path: a row of its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatewayCase {
    /// Random loss in each direction of each LAN.
    pub lan_loss: Loss,
    /// Windows of the end hosts.
    pub windows: Windows,
    /// Congestion control of all nodes.
    pub congestion: Congestion,
}

impl GatewayCase {
    /// Returns all cases, in the order of the table.
    pub fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for lan_loss in [Loss::None, Loss::Tenth, Loss::One] {
            for windows in Windows::ALL {
                all.extend(Congestion::ALL.map(|congestion| Self {
                    lan_loss,
                    windows,
                    congestion,
                }));
            }
        }
        all
    }

    /// Returns the measurement of this case by one of the ways.
    pub const fn cell(self, way: PerfWay) -> Cell {
        let Self {
            lan_loss,
            windows,
            congestion,
        } = self;
        Cell::Gateways {
            lan_loss,
            windows,
            congestion,
            way,
        }
    }

    /// Returns the words for a row.
    pub fn words(self) -> String {
        format!(
            "{}, {}, {}",
            self.lan_loss.words(),
            self.windows.text(),
            self.congestion.name()
        )
    }
}

impl Cell {
    /// Returns all runs, in the order of the tables.
    pub fn all() -> Vec<Self> {
        let mut all: Vec<Self> = CopyWay::ALL.map(|way| Self::RandomLoss { way }).into();
        all.extend(FASP_PATHS.map(FaspPath::cell));
        for case in GatewayCase::all() {
            all.extend(PerfWay::ALL.map(|way| case.cell(way)));
        }
        all
    }

    /// Returns the default number of seeds.
    pub const fn seeds(self) -> u64 {
        match self {
            Self::RandomLoss { .. }
            | Self::Gateways {
                lan_loss: Loss::Tenth,
                ..
            } => SEEDS,
            Self::Fasp { .. } | Self::Gateways { .. } => 1,
        }
    }

    /// Returns the cost of a run. Each has the machine alone, because QUIC needs its processors.
    pub fn cost(self) -> Cost {
        let copy = |mbps: f64| FILE_BYTES as f64 * 8.0 / (1e6 * mbps);
        let seconds = match self {
            Self::RandomLoss { way } => copy(way.estimated_mbps()),
            Self::Fasp { .. } => copy(0.9 * FASP_LINK_MBPS),
            Self::Gateways { .. } => f64::from(PERF_SECONDS) + 1.0,
        };
        Cost::new(1.0, SET_UP_SECONDS + seconds)
    }
}

impl CopyWay {
    /// All of them, in the order of the table.
    pub const ALL: [Self; 5] = [
        Self::Cp,
        Self::Quic,
        Self::Tcp,
        Self::DepotsQuic,
        Self::Depots,
    ];

    /// Returns true if the bytes pass the depots.
    pub const fn has_depots(self) -> bool {
        matches!(self, Self::DepotsQuic | Self::Depots)
    }

    /// Returns the name in records.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cp => "cp",
            Self::Quic => "quic",
            Self::Tcp => "tcp",
            Self::DepotsQuic => "depots-quic",
            Self::Depots => "depots",
        }
    }

    /// Returns the options of the copy, with these depots in its route.
    pub fn options(self, depots: &[String; 2]) -> Vec<String> {
        let [first, second] = depots;
        let options = match self {
            Self::Cp => vec![],
            Self::Quic => vec!["--transport", "quic"],
            Self::Tcp => vec!["--transport", "tcp"],
            Self::DepotsQuic => return quic_route(depots),
            Self::Depots => return vec!["--route".into(), format!("{first},{second}")],
        };
        options.into_iter().map(str::to_owned).collect()
    }

    const fn estimated_mbps(self) -> f64 {
        match self {
            Self::Quic | Self::DepotsQuic => 800.0,
            Self::Cp | Self::Depots => 600.0,
            Self::Tcp => 150.0,
        }
    }
}

impl PerfWay {
    /// All of them, in the order of the table.
    pub const ALL: [Self; 4] = [Self::Direct, Self::Tcp, Self::Quic, Self::Paced];

    /// Returns the head of its column.
    pub const fn head(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Tcp => "TCP hops",
            Self::Quic => "QUIC hops",
            Self::Paced => "paced hops",
        }
    }

    /// Returns the options of the measurement, with these depots in its route.
    pub fn options(self, depots: &[String; 2]) -> Vec<String> {
        match self {
            Self::Direct => vec![],
            Self::Tcp | Self::Paced => vec!["--route".into(), depots.join(",")],
            Self::Quic => quic_route(depots),
        }
    }

    /// Returns the options of each depot.
    pub const fn depot_options(self) -> &'static [&'static str] {
        match self {
            // Otherwise depots try QUIC where random losses limit TCP.
            Self::Tcp => &["--next-transport", "*=tcp"],
            Self::Paced => &["--next-transport", "*=paced:950M"],
            Self::Direct | Self::Quic => &[],
        }
    }
}

/// Returns the options for QUIC on each hop.
fn quic_route([first, second]: &[String; 2]) -> Vec<String> {
    let route = format!("quic:{first},quic:{second}");
    vec!["--route".into(), route, "--transport".into(), "quic".into()]
}

impl Loss {
    /// Returns the text for a scenario.
    pub const fn text(self) -> &'static str {
        match self {
            Self::None => "0%",
            Self::Tenth => "0.1%",
            Self::One => "1%",
            Self::Two => "2%",
            Self::Five => "5%",
        }
    }

    /// Returns the words for a page.
    pub fn words(self) -> String {
        self.text().replace('%', " %")
    }
}

impl Windows {
    /// Both, in the order of the table.
    pub const ALL: [Self; 2] = [Self::Small, Self::Large];

    /// Returns the text for a scenario and for a page.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Small => "64 KB",
            Self::Large => "64 MB",
        }
    }
}

impl Congestion {
    /// All of them, in the order of the table.
    pub const ALL: [Self; 3] = [Self::Reno, Self::Cubic, Self::Bbr];

    /// Returns the kernel's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reno => "reno",
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
        }
    }
}
