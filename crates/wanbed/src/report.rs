//! What a lab says about itself: its links' counters, and whether a figure measured in it may be
//! believed.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::link::Snapshot;
use crate::machine::CpuUse;

/// More than this share of stolen CPU time, and the run is discarded.
const MAX_STEAL: f64 = 0.01;
/// Lag that 99 of 100 packets stay under may be at most this share of the shortest control loop's
/// round trip ...
const MAX_LAG_SHARE: f64 = 0.05;
/// ... or this much, in microseconds, where that is more: what waking a process costs, which every
/// host of a real path pays too.
const MIN_LAG_LIMIT_US: u64 = 250;

/// A lab's counters, all since it came up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The lab's name.
    pub lab: String,
    /// The scenario file.
    pub scenario: String,
    /// The seed in force.
    pub seed: u64,
    /// What carries the links: `tun` or `packet`.
    pub backend: String,
    /// Seconds since the lab came up.
    pub seconds: f64,
    /// In the order of the scenario.
    pub links: Vec<LinkReport>,
    /// What the machine's processors did meanwhile.
    pub cpu: CpuUse,
    /// Whether figures measured since the lab came up may be believed.
    pub valid: bool,
    /// Why not, one clause each; empty when `valid`.
    pub reasons: Vec<String>,
}

/// One link's counters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkReport {
    /// The node at the a end; `forward` leads away from it.
    pub a: String,
    /// The node at the b end.
    pub b: String,
    /// The round trip of the shortest control loop that crosses this link, in milliseconds and
    /// without queues: what lag is measured against.
    pub loop_rtt_ms: f64,
    /// The 99th percentile of the lag up to which a run is valid, in microseconds.
    pub lag_limit_us: u64,
    /// The counters.
    #[serde(flatten)]
    pub counters: Snapshot,
}

/// The lag limit of a link that is crossed by a control loop of this round trip.
pub(crate) fn lag_limit_us(loop_rtt_ms: f64) -> u64 {
    ((MAX_LAG_SHARE * loop_rtt_ms * 1e3).round() as u64).max(MIN_LAG_LIMIT_US)
}

/// The gate every figure has to pass: why this run may not be believed.
pub(crate) fn reasons(links: &[LinkReport], cpu: CpuUse) -> Vec<String> {
    let mut reasons = Vec::new();
    if cpu.steal > MAX_STEAL {
        reasons.push(format!(
            "{:.1} % of the CPU time was stolen by other guests (at most 1 %)",
            100.0 * cpu.steal
        ));
    }
    for link in links {
        let ways = [
            (&link.a, &link.b, &link.counters.forward),
            (&link.b, &link.a, &link.counters.backward),
        ];
        for (from, to, way) in ways {
            let mut found = |what: String| {
                reasons.push(format!("link {} {from}->{to}: {what}", link.counters.link))
            };
            if way.device_drops > 0 {
                found(format!(
                    "{} packets dropped by the device before the emulator read them",
                    way.device_drops
                ));
            }
            if way.ring_overflow > 0 {
                found(format!(
                    "{} packets dropped for want of emulator memory",
                    way.ring_overflow
                ));
            }
            if way.write_errors > 0 {
                found(format!(
                    "{} packets refused by the receiving device",
                    way.write_errors
                ));
            }
            if way.lag.p99 > link.lag_limit_us {
                found(format!(
                    "1 in 100 packets was more than {:.2} ms late, over the {:.2} ms that a control loop of {:.1} ms allows",
                    way.lag.p99 as f64 / 1e3,
                    link.lag_limit_us as f64 / 1e3,
                    link.loop_rtt_ms
                ));
            }
        }
    }
    reasons
}

impl Report {
    /// One line for a person, when the run may not be believed.
    pub fn warning(&self) -> Option<String> {
        (!self.valid).then(|| {
            format!(
                "lab {}: the machine was too slow or disturbed; discard what was measured: {}",
                self.lab,
                self.reasons.join("; ")
            )
        })
    }

    /// A table for a person.
    pub fn table(&self) -> String {
        let mut text = format!(
            "lab {} ({}, seed {}, {}): {:.1} s, CPU {:.0} % busy, {:.1} % stolen\n",
            self.lab,
            self.scenario,
            self.seed,
            self.backend,
            self.seconds,
            100.0 * self.cpu.busy,
            100.0 * self.cpu.steal
        );
        let _ = writeln!(
            text,
            "{:<15} {:<21} {:>14} {:>11} {:>9} {:>9} {:>9} {:>9} {:>10} {:>12} {:>9}",
            "link",
            "direction",
            "bytes",
            "packets",
            "lost",
            "queue-",
            "aqm-/ce",
            "overtaken",
            "queue now",
            "lag p50/p99",
            "faults"
        );
        for link in &self.links {
            let ways = [
                (&link.a, &link.b, &link.counters.forward),
                (&link.b, &link.a, &link.counters.backward),
            ];
            for (from, to, way) in ways {
                let _ = writeln!(
                    text,
                    "{:<15} {:<21} {:>14} {:>11} {:>9} {:>9} {:>9} {:>9} {:>10} {:>9} us {:>9}",
                    link.counters.link,
                    format!("{from} -> {to}"),
                    way.bytes,
                    way.packets,
                    way.drops_loss,
                    way.drops_queue,
                    format!("{}/{}", way.drops_aqm, way.marks_ecn),
                    way.reordered,
                    way.queue_bytes,
                    format!("{}/{}", way.lag.p50, way.lag.p99),
                    way.device_drops + way.ring_overflow + way.write_errors,
                );
            }
        }
        if let Some(warning) = self.warning() {
            let _ = writeln!(text, "{warning}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{DirectionSnapshot, Lag, Scheduling};

    fn link(rtt: f64, forward: DirectionSnapshot) -> LinkReport {
        let counters = Snapshot {
            link: "wan".into(),
            seconds: 1.0,
            scheduling: Scheduling::Ordinary,
            forward,
            backward: DirectionSnapshot::default(),
        };
        LinkReport {
            a: "left".into(),
            b: "right".into(),
            loop_rtt_ms: rtt,
            lag_limit_us: lag_limit_us(rtt),
            counters,
        }
    }

    #[test]
    fn the_gate_lets_a_quiet_run_pass() {
        let late = DirectionSnapshot {
            lag: Lag {
                p99: 4_999,
                ..Lag::default()
            },
            drops_loss: 9,
            drops_queue: 9,
            ..Default::default()
        };
        assert!(
            reasons(
                &[link(100.0, late)],
                CpuUse {
                    busy: 1.0,
                    steal: 0.01
                }
            )
            .is_empty()
        );
    }

    #[test]
    fn the_lag_limit_is_a_share_of_the_loop_but_never_less_than_waking_up_costs() {
        assert_eq!(lag_limit_us(100.0), 5_000);
        assert_eq!(lag_limit_us(2.3), 250);
    }

    #[test]
    fn each_fault_is_a_reason() {
        let cases = [
            (
                DirectionSnapshot {
                    device_drops: 1,
                    ..Default::default()
                },
                "1 packets dropped by the device",
            ),
            (
                DirectionSnapshot {
                    ring_overflow: 2,
                    ..Default::default()
                },
                "2 packets dropped for want of",
            ),
            (
                DirectionSnapshot {
                    write_errors: 3,
                    ..Default::default()
                },
                "3 packets refused",
            ),
            (
                DirectionSnapshot {
                    lag: Lag {
                        p99: 5_001,
                        ..Lag::default()
                    },
                    ..Default::default()
                },
                "more than 5.00 ms late",
            ),
        ];
        for (forward, expected) in cases {
            let found = reasons(&[link(100.0, forward)], CpuUse::default());
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(
                found[0].contains(expected) && found[0].starts_with("link wan left->right: "),
                "{found:?}"
            );
        }
        assert!(
            reasons(
                &[],
                CpuUse {
                    busy: 0.0,
                    steal: 0.02
                }
            )[0]
            .contains("stolen")
        );
    }
}
