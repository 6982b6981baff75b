//! Report of a lab: its links' counters, and the validity of figures measured in it.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::link::LinkSnapshot;
use crate::machine::CpuUse;

/// Maximum share of stolen CPU time of a valid run.
const MAX_STEAL: f64 = 0.01;
/// Maximum 99th percentile of the lag, as a share of the shortest control loop's round trip.
const MAX_LAG_SHARE: f64 = 0.05;
/// Minimum of that limit, in microseconds: the cost of waking a process, which every host of a real
/// path pays, too.
const MIN_LAG_LIMIT_US: u64 = 250;

/// A lab's counters, all since it came up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Name of the lab.
    pub lab: String,
    /// Scenario file.
    pub scenario: String,
    /// Seed in force.
    pub seed: u64,
    /// Kind of link devices: `tun` or `packet`.
    pub backend: String,
    /// Seconds since the lab came up.
    pub seconds: f64,
    /// Links, in the order of the scenario.
    pub links: Vec<LinkReport>,
    /// Use of the machine's processors meanwhile.
    pub cpu: CpuUse,
    /// If true, figures measured since the lab came up are valid.
    pub valid: bool,
    /// Reasons against it, one clause each; empty if `valid`.
    pub reasons: Vec<String>,
}

/// One link's counters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkReport {
    /// Node at the a end; `forward` leads away from it.
    pub a: String,
    /// Node at the b end.
    pub b: String,
    /// Round trip of the shortest control loop across this link, in milliseconds and without
    /// queues. Lag is compared with it.
    pub loop_rtt_ms: f64,
    /// Maximum 99th percentile of the lag of a valid run, in microseconds.
    pub lag_limit_us: u64,
    /// Counters of the link.
    #[serde(flatten)]
    pub counters: LinkSnapshot,
}

/// Returns the lag limit of a link whose shortest control loop has this round trip.
pub(crate) fn lag_limit_us(loop_rtt_ms: f64) -> u64 {
    ((MAX_LAG_SHARE * loop_rtt_ms * 1e3).round() as u64).max(MIN_LAG_LIMIT_US)
}

/// Returns the reasons why figures of this run are invalid. Every figure has to pass this check.
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
                    "{} packets dropped for lack of emulator memory",
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
                    "1 in 100 packets was more than {:.2} ms late, over the {:.2} ms that a \
                     control loop of {:.1} ms allows",
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
    /// Returns one line for a person if the run is invalid.
    pub fn warning(&self) -> Option<String> {
        (!self.valid).then(|| {
            format!(
                "lab {}: the machine was too slow or disturbed; discard what was measured: {}",
                self.lab,
                self.reasons.join("; ")
            )
        })
    }

    /// Returns a table for a person.
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
    use crate::link::{DirectionSnapshot, LagPercentiles, Scheduling};

    fn link(rtt: f64, forward: DirectionSnapshot) -> LinkReport {
        let counters = LinkSnapshot {
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
            lag: LagPercentiles {
                p99: 4_999,
                ..LagPercentiles::default()
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
    fn lag_limit_is_a_share_of_the_loop_with_a_minimum() {
        assert_eq!(lag_limit_us(100.0), 5_000);
        assert_eq!(lag_limit_us(2.3), 250);
    }

    #[test]
    fn each_fault_makes_a_run_invalid() {
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
                "2 packets dropped for lack of",
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
                    lag: LagPercentiles {
                        p99: 5_001,
                        ..LagPercentiles::default()
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
