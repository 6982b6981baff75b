//! Links carried by the kernel's own emulator, `netem`, where the kernel has it.
//!
//! A node's device is a veth pair whose other end lies in the lab's *wire* namespace. There a `mirred` action moves every
//! packet that comes in at one end straight to the queue of the opposite end, and `netem` on that queue gives rate, delay and loss.
//! The queue is thus no sender's own device, and a full one drops as a router's would. Segmentation offload is off on
//! the nodes' devices, because netem drops and delays super-packets whole.
//!
//! Two things differ from the user-space links: netem loses packets before its queue, not after, so a lost packet uses no wire
//! time; and it can follow no trace.

use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::error::{Error, Result};
use crate::link::{DirectionSnapshot, Scheduling, Snapshot};
use crate::namespace::NodeThread;
use crate::scenario::Network;
use crate::setup::{self, missing};
use crate::spec::{DirectionSpec, LossModel};

/// What this kernel and this `tc` can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Netem {
    /// Whether `tc` passes a seed on, so that losses repeat.
    pub(crate) seeds: bool,
}

/// A packet limit for a link without a rate.
const UNLIMITED_PACKETS: u64 = 100_000;
/// The veth pair's framing, which netem would count into the rate.
const ETHERNET_HEADER: u32 = 14;

impl Netem {
    /// Tries netem in a namespace of the lab's own; the reason when the kernel has none.
    pub(crate) fn probe(wire: &NodeThread) -> Result<Self, String> {
        let attempt = |extra: &'static [&'static str]| {
            wire.run(move || {
                let add = ["qdisc", "replace", "dev", "lo", "root", "netem", "delay", "1ms"];
                let output = Command::new("tc")
                    .args(add)
                    .args(extra)
                    .stdin(Stdio::null())
                    .output();
                let remove = Command::new("tc")
                    .args(["qdisc", "del", "dev", "lo", "root"])
                    .stderr(Stdio::null())
                    .status();
                drop(remove); // lo has none when the attempt failed
                output
            })
        };
        let works = |extra| match attempt(extra) {
            Ok(Ok(output)) if output.status.success() => Ok(()),
            Ok(Ok(output)) => {
                let said = String::from_utf8_lossy(&output.stderr)
                    .lines()
                    .next()
                    .unwrap_or_default()
                    .to_owned();
                Err(format!("tc says: {said}"))
            }
            Ok(Err(error)) => Err(missing("tc", error).to_string()),
            Err(error) => Err(error.to_string()),
        };
        works(&[])?;
        Ok(Netem {
            seeds: works(&["seed", "1"]).is_ok(),
        })
    }

    /// Why netem cannot carry this network, if so.
    pub(crate) fn unable(network: &Network) -> Option<String> {
        let traced = network
            .links
            .iter()
            .find(|link| link.spec.forward.changes.is_some() || link.spec.backward.changes.is_some())?;
        Some(format!(
            "link {} follows a trace, which netem cannot",
            traced.spec.name
        ))
    }

    /// The lines for `tc -batch` in the wire namespace.
    pub(crate) fn lines(self, network: &Network) -> Vec<String> {
        let mut lines = Vec::new();
        for (index, link) in network.links.iter().enumerate() {
            let [a, b] = wire_ends(index);
            let ways = [
                (&a, &b, &link.spec.forward, link.spec.seed),
                (&b, &a, &link.spec.backward, !link.spec.seed),
            ];
            for (from, to, way, seed) in ways {
                let seed = if self.seeds {
                    format!(" seed {seed}")
                } else {
                    String::new()
                };
                lines.push(format!(
                    "qdisc add dev {to} root netem {}{seed}",
                    arguments(way, link.spec.mtu)
                ));
                lines.push(format!("qdisc add dev {from} clsact"));
                lines.push(format!(
                    "filter add dev {from} ingress protocol all prio 1 u32 match u32 0 0 action mirred egress redirect dev {to}"
                ));
            }
        }
        lines
    }
}

/// The names of a link's two ends in the wire namespace.
pub(crate) fn wire_ends(link: usize) -> [String; 2] {
    [format!("w{link}a"), format!("w{link}b")]
}

fn arguments(way: &DirectionSpec, mtu: u32) -> String {
    // netem's limit is in packets and counts those under way as well as those that wait.
    let limit = way.rate.map_or(UNLIMITED_PACKETS, |rate| {
        (way.queue + rate.bytes_in(way.delay))
            .div_ceil(u64::from(mtu + ETHERNET_HEADER))
            .max(2)
            + 1
    });
    let mut text = format!("limit {limit} delay {}us", way.delay.as_micros());
    match way.loss {
        LossModel::None => {}
        LossModel::Independent { probability } => {
            text.push_str(&format!(" loss random {}", percent(probability)))
        }
        // netem wants the probabilities of keeping: in its words 1-h is the loss in the bad state, 1-k in the good one.
        LossModel::GilbertElliott {
            good_to_bad,
            bad_to_good,
            loss_in_good,
            loss_in_bad,
        } => text.push_str(&format!(
            " loss gemodel {} {} {} {}",
            percent(good_to_bad),
            percent(bad_to_good),
            percent(loss_in_bad),
            percent(loss_in_good)
        )),
    }
    if let Some(rate) = way.rate {
        text.push_str(&format!(" rate {}bit -{ETHERNET_HEADER}", rate.bits_per_second()));
    }
    text
}

/// In decimals, since `tc` reads no exponents; netem keeps 32 bits of it.
fn percent(probability: f64) -> String {
    let text = format!("{:.9}", 100.0 * probability);
    format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
}

/// One qdisc of `tc -s -j qdisc show`.
#[derive(Debug, Deserialize)]
struct Qdisc {
    kind: String,
    dev: Option<String>,
    #[serde(default)]
    bytes: u64,
    #[serde(default)]
    packets: u64,
    #[serde(default)]
    drops: u64,
    #[serde(default)]
    backlog: u64,
}

/// Reads the counters of every link.
pub(crate) fn snapshots(wire: &NodeThread, network: &Network, seconds: f64) -> Result<Vec<Snapshot>> {
    let output = wire
        .run(|| {
            Command::new("tc")
                .args(["-s", "-j", "qdisc", "show"])
                .stdin(Stdio::null())
                .output()
        })?
        .map_err(|error| missing("tc", error))?;
    let qdiscs: Vec<Qdisc> = serde_json::from_slice(&output.stdout).map_err(|error| Error::SetUp {
        program: "tc",
        node: "wire".to_owned(),
        line: "-s -j qdisc show".to_owned(),
        answer: format!("its answer is not understood: {error}"),
    })?;
    let counters = |device: &str, way: &DirectionSpec| {
        let found = qdiscs
            .iter()
            .find(|qdisc| qdisc.kind == "netem" && qdisc.dev.as_deref() == Some(device));
        found.map_or_else(DirectionSnapshot::default, |qdisc| direction(qdisc, way))
    };
    let snapshot = |(index, link): (usize, &crate::scenario::Link)| {
        let [a, b] = wire_ends(index);
        Snapshot {
            link: link.spec.name.clone(),
            seconds,
            scheduling: Scheduling::Ordinary,
            forward: counters(&b, &link.spec.forward),
            backward: counters(&a, &link.spec.backward),
        }
    };
    Ok(network.links.iter().enumerate().map(snapshot).collect())
}

fn direction(qdisc: &Qdisc, way: &DirectionSpec) -> DirectionSnapshot {
    // netem has one counter for what it lost and what found no room.
    let lossy = way.loss != LossModel::None;
    DirectionSnapshot {
        bytes: qdisc
            .bytes
            .saturating_sub(qdisc.packets * u64::from(ETHERNET_HEADER)),
        packets: qdisc.packets,
        offered: qdisc.packets + qdisc.drops,
        drops_loss: if lossy { qdisc.drops } else { 0 },
        drops_queue: if lossy { 0 } else { qdisc.drops },
        queue_bytes: qdisc.backlog,
        ..DirectionSnapshot::default()
    }
}

/// Puts netem on the wire namespace's devices, which must exist.
pub(crate) fn install(wire: &NodeThread, network: &Network, netem: Netem) -> Result<()> {
    let lines = netem.lines(network);
    wire.run(move || setup::batch("tc", "wire", &lines))?
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::scenario::{Overrides, Scenario};
    use crate::spec::BitRate;

    const TWO: &str = r#"
        [nodes]
        a = {}
        b = {}
        [links.wan]
        ends = ["a", "b"]
        delay = "10 ms"
        rate = "155 Mbit/s"
        queue = "256 KB"
        loss = "0.001%"
        backward = { delay = "12.5 ms", rate = "unlimited", queue = "1 MB", loss = { mean = "1%", burst = 10 } }
    "#;

    /// How long the packets that the limit allows would take on the wire.
    fn limit_covers(way: &DirectionSpec, mtu: u32) -> Duration {
        let text = arguments(way, mtu);
        let limit: u64 = text
            .split_whitespace()
            .nth(1)
            .and_then(|n| n.parse().ok())
            .unwrap_or(0);
        let bytes = limit * u64::from(mtu + ETHERNET_HEADER);
        Duration::from_secs_f64(
            bytes as f64 * 8.0
                / way
                    .rate
                    .map_or(f64::INFINITY, |rate| rate.bits_per_second() as f64),
        )
    }

    #[test]
    fn the_commands_for_tc() {
        let network = Scenario::from_text("two.toml", TWO)
            .resolve(&Overrides::default())
            .unwrap();
        let seed = network.links[0].spec.seed;
        let expected = [
            "qdisc add dev w0b root netem limit 303 delay 10000us loss random 0.001% rate 155000000bit -14".to_owned(),
            "qdisc add dev w0a clsact".to_owned(),
            "filter add dev w0a ingress protocol all prio 1 u32 match u32 0 0 action mirred egress redirect dev w0b".to_owned(),
            "qdisc add dev w0a root netem limit 100000 delay 12500us loss gemodel 0.101010101% 10% 100% 0%".to_owned(),
            "qdisc add dev w0b clsact".to_owned(),
            "filter add dev w0b ingress protocol all prio 1 u32 match u32 0 0 action mirred egress redirect dev w0a".to_owned(),
        ];
        assert_eq!(Netem { seeds: false }.lines(&network), expected);
        let seeded = Netem { seeds: true }.lines(&network);
        assert_eq!(seeded[0], format!("{} seed {seed}", expected[0]));
        assert_eq!(seeded[1], expected[1]);
    }

    #[test]
    fn the_packet_limit_holds_the_queue_and_what_is_under_way() {
        let way = DirectionSpec {
            delay: Duration::from_millis(50),
            rate: Some(BitRate(1_000_000_000)),
            queue: 12_500_000,
            loss: LossModel::None,
            changes: None,
        };
        let covered = limit_covers(&way, 1500);
        assert!(
            (Duration::from_millis(150)..Duration::from_millis(151)).contains(&covered),
            "{covered:?}"
        );
    }

    #[test]
    fn a_trace_is_beyond_netem() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(
            directory.path().join("t.csv"),
            "at,rate,delay,loss\n0 s,1 Mbit/s,,\n",
        )
        .unwrap();
        let file = directory.path().join("s.toml");
        std::fs::write(&file, TWO.replace("queue = \"256 KB\"", "trace = \"t.csv\"")).unwrap();
        let network = Scenario::read(&file)
            .unwrap()
            .resolve(&Overrides::default())
            .unwrap();
        assert_eq!(
            Netem::unable(&network).unwrap(),
            "link wan follows a trace, which netem cannot"
        );
    }

    #[test]
    fn counters_come_without_framing() {
        let text = r#"[{"kind":"netem","dev":"w0b","bytes":15140,"packets":10,"drops":2,"backlog":1514,"qlen":1},{"kind":"noqueue"}]"#;
        let qdiscs: Vec<Qdisc> = serde_json::from_str(text).unwrap();
        let network = Scenario::from_text("two.toml", TWO)
            .resolve(&Overrides::default())
            .unwrap();
        let found = direction(&qdiscs[0], &network.links[0].spec.forward);
        assert_eq!(
            (found.bytes, found.packets, found.drops_loss, found.offered),
            (15_000, 10, 2, 12)
        );
    }
}
