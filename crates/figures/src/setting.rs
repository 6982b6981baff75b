//! Measured settings: a scenario, its hosts, the two ends of the copy, and its depots.

use anyhow::Result;

use crate::experiment::{Cost, Network};
use crate::paper::{self, PaperCurve};
use crate::tools::Tools;

/// Route of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CopyRoute {
    /// One TCP connection from end to end.
    Direct,
    /// Through the setting's depots, in order from the client.
    Depots,
}

impl CopyRoute {
    /// Both routes, in the order of the output.
    pub const BOTH: [Self; 2] = [Self::Direct, Self::Depots];

    /// Returns the word for tables and reports.
    pub fn word(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Depots => "depots",
        }
    }
}

/// One setting of a paper, as used in the lab.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Short name, used in reports and file names.
    pub id: &'static str,
    /// Description in one line.
    pub title: &'static str,
    /// Scenario file below `scenarios/`.
    pub scenario: &'static str,
    /// Overrides of the scenario: path and value.
    pub set: Vec<(String, String)>,
    /// Congestion control of the end hosts, for reports. The scenario or `set` applies it.
    pub congestion: &'static str,
    /// Buffers of the end hosts, as text.
    pub hosts: &'static str,
    /// Node of the command. Data flows towards it, as in the papers.
    pub client: &'static str,
    /// Node that serves the files.
    pub server: &'static str,
    /// Depot nodes, in order from the client.
    pub depots: &'static [&'static str],
    /// Wide-area links, to which noise adds jitter and reordering.
    pub noisy_links: &'static [&'static str],
    /// Share of this machine that one run needs, direct and through depots. Runs are parallel while
    /// the shares sum to at most 1.
    pub load: (f64, f64),
    /// Approximate rates of a copy, direct and through depots, in Mbit/s. They determine its
    /// expected duration.
    pub about_mbps: (f64, f64),
    /// Figures that the paper printed for this setting.
    pub paper: Option<&'static PaperCurve>,
}

impl Setting {
    /// Returns the cost of a copy of `bytes`, including the setup of the lab.
    pub fn cost(&self, way: CopyRoute, bytes: u64) -> Cost {
        let of = |(direct, depots): (f64, f64)| match way {
            CopyRoute::Direct => direct,
            CopyRoute::Depots => depots,
        };
        Cost {
            share: of(self.load),
            seconds: 2.0 + bytes as f64 * 8.0 / (1e6 * of(self.about_mbps)),
        }
    }

    /// Returns the network of one copy. The limit of lag depends on the hops of the copy's route.
    ///
    /// # Errors
    /// The scenario cannot be read.
    pub fn network(&self, tools: &Tools, way: CopyRoute) -> Result<Network> {
        let relays = match way {
            CopyRoute::Direct => &[][..],
            CopyRoute::Depots => self.depots,
        };
        let network = Network::load(tools, self.scenario)?.relays(relays);
        let set = self.set.iter();
        Ok(set.fold(network, |network, (path, value)| network.set(path, value)))
    }
}

/// LSL path 1: the direct route and that of the depot share no wide-area link.
pub fn anl_utk() -> Setting {
    Setting {
        id: "lsl-anl-utk",
        title: "LSL path 1, ANL to UTK: 106 ms direct, 2.3 + 75 ms through ORNL",
        scenario: "lsl-anl-utk.toml",
        set: vec![],
        congestion: "reno",
        hosts: "8 MB buffers",
        client: "utk",
        server: "anl",
        depots: &["ornl"],
        noisy_links: &["utk-anl", "ornl-anl"],
        load: (0.125, 0.2),
        about_mbps: (4.5, 10.0),
        paper: Some(&paper::ANL_UTK),
    }
}

/// LSL path 2: the depot is on the direct path.
pub fn ucsd_utk() -> Setting {
    Setting {
        id: "lsl-ucsd-utk",
        title: "LSL path 2, UCSD to UTK: 122 ms direct, 87 + 39 ms through Houston",
        scenario: "lsl-ucsd-utk.toml",
        set: vec![],
        congestion: "reno",
        hosts: "8 MB buffers",
        client: "utk",
        server: "ucsd",
        depots: &["houston"],
        noisy_links: &["utk-router", "router-ucsd"],
        load: (0.125, 0.2),
        about_mbps: (3.5, 6.0),
        paper: Some(&paper::UCSD_UTK),
    }
}

/// Overrides that limit two hosts to windows of 64 KB.
fn small_hosts(hosts: [&str; 2]) -> Vec<(String, String)> {
    hosts
        .map(|host| (format!("nodes.{host}.buffers"), "\"64 KB\"".into()))
        .into()
}

/// LSL path 2 with end hosts limited to 64 KB.
pub fn ucsd_utk_64k() -> Setting {
    Setting {
        id: "lsl-ucsd-utk-64k",
        title: "LSL path 2 with 64 KB hosts",
        set: small_hosts(["utk", "ucsd"]),
        hosts: "64 KB",
        paper: Some(&paper::UCSD_UTK_64K),
        ..ucsd_utk()
    }
}

/// One of the MNEMONIC paths: `client - LAN - gateway - WAN - gateway - LAN - server`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mnemonic {
    /// 10 ms LAN, 50 ms WAN (round trips).
    Short,
    /// 25 ms LAN, 100 ms WAN.
    Long,
}

/// A MNEMONIC path between untuned hosts of 64 KB. The window is the limit, so congestion control
/// has no effect.
pub fn mnemonic_untuned(path: Mnemonic) -> Setting {
    let base = mnemonic_tuned(path, "reno");
    let (id, title) = match path {
        Mnemonic::Short => (
            "mnemonic-10-50-10-64k",
            "MNEMONIC 10/50/10 ms, untuned hosts",
        ),
        Mnemonic::Long => (
            "mnemonic-25-100-25-64k",
            "MNEMONIC 25/100/25 ms, untuned hosts",
        ),
    };
    let set = small_hosts(["client", "server"]);
    Setting {
        id,
        title,
        set,
        hosts: "64 KB",
        load: (0.125, 0.2),
        about_mbps: (3.4, 18.0),
        ..base
    }
}

/// A MNEMONIC path between hosts whose windows are never the limit, with one stream and the given
/// congestion control on hosts and gateways.
pub fn mnemonic_tuned(path: Mnemonic, congestion: &'static str) -> Setting {
    let (id, title, scenario) = match (path, congestion) {
        (Mnemonic::Short, "reno") => (
            "mnemonic-10-50-10-reno",
            "MNEMONIC 10/50/10 ms, Reno",
            "mnemonic-10-50-10.toml",
        ),
        (Mnemonic::Short, "cubic") => (
            "mnemonic-10-50-10-cubic",
            "MNEMONIC 10/50/10 ms, CUBIC",
            "mnemonic-10-50-10.toml",
        ),
        (Mnemonic::Short, _) => (
            "mnemonic-10-50-10-bbr",
            "MNEMONIC 10/50/10 ms, BBR",
            "mnemonic-10-50-10.toml",
        ),
        (Mnemonic::Long, "reno") => (
            "mnemonic-25-100-25-reno",
            "MNEMONIC 25/100/25 ms, Reno",
            "mnemonic-25-100-25.toml",
        ),
        (Mnemonic::Long, "cubic") => (
            "mnemonic-25-100-25-cubic",
            "MNEMONIC 25/100/25 ms, CUBIC",
            "mnemonic-25-100-25.toml",
        ),
        (Mnemonic::Long, _) => (
            "mnemonic-25-100-25-bbr",
            "MNEMONIC 25/100/25 ms, BBR",
            "mnemonic-25-100-25.toml",
        ),
    };
    Setting {
        id,
        title,
        scenario,
        set: vec![("nodes.*.congestion".into(), congestion.into())],
        congestion,
        hosts: "large buffers",
        client: "client",
        server: "server",
        depots: &["gw1", "gw2"],
        noisy_links: &["wan"],
        load: match congestion {
            "reno" => (0.2, 0.5),
            "cubic" => (0.5, 1.0),
            _ => (1.0, 1.0),
        },
        about_mbps: match congestion {
            "reno" => (60.0, 350.0),
            "cubic" => (180.0, 500.0),
            _ => (700.0, 700.0),
        },
        paper: None,
    }
}

/// A clean path with large buffers, which shows the cost of a depot where it cannot help.
pub fn clean_long() -> Setting {
    Setting {
        id: "clean-long",
        title: "clean 60 + 60 ms path, large buffers: nothing to gain",
        scenario: "clean-long.toml",
        set: vec![("nodes.*.congestion".into(), "cubic".into())],
        congestion: "cubic",
        hosts: "large buffers",
        client: "client",
        server: "server",
        depots: &["depot"],
        noisy_links: &["west", "east"],
        // One at a time, because a parallel copy has more effect than the difference of the two
        // routes.
        load: (1.0, 1.0),
        about_mbps: (143.0, 143.0),
        paper: None,
    }
}
