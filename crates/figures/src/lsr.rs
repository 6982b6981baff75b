//! The Land Speed Record's path: one stream of `longhaul perf` that nobody tuned, beside iperf3, as it comes and tuned by hand.

mod run;
mod write;

use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::copy::Tools;
use crate::report;

/// The bottleneck of the scenario, of IP bytes, in bit/s.
const BOTTLENECK: f64 = 2.4e9;
/// What of it is payload: 8948 bytes of a segment of 9000.
const GOODPUT: f64 = BOTTLENECK * 8948.0 / 9000.0;
/// The distance of the record, in km, and the router hops of the scenario in each direction.
const COURSE: (&str, &str) = ("10037", "3");
/// The bandwidth-delay product and the segments that the scenario's buffers hold: what a person works out for this path.
const FITTED: &str = "54 MB";
/// A ceiling of the kernel's autotuning that fits no path in particular.
const ROOMY: &str = "256 MB";

/// Who sends, and what was done for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Way {
    /// `longhaul perf`, nothing tuned.
    Longhaul,
    /// The same, with the measured bytes as they are.
    LonghaulPlain,
    /// `iperf3`, nothing tuned.
    Iperf3,
    /// `iperf3` on hosts whose buffers are the path's bandwidth-delay product, as the record's were.
    Iperf3Window,
    /// The same, and paced by hand just below the bottleneck's rate.
    Iperf3Paced,
}

impl Way {
    const ALL: [Self; 5] = [
        Self::Longhaul,
        Self::LonghaulPlain,
        Self::Iperf3,
        Self::Iperf3Window,
        Self::Iperf3Paced,
    ];

    fn title(self) -> &'static str {
        match self {
            Self::Longhaul => "longhaul perf, nothing tuned, TLS",
            Self::LonghaulPlain => "longhaul perf, nothing tuned, no encryption",
            Self::Iperf3 => "iperf3, nothing tuned",
            Self::Iperf3Window => "iperf3, buffers fitted by hand",
            Self::Iperf3Paced => "iperf3, buffers fitted and paced by hand",
        }
    }

    fn buffers(self) -> &'static str {
        match self {
            Self::Iperf3Window | Self::Iperf3Paced => FITTED,
            _ => ROOMY,
        }
    }
}

/// One measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Run {
    way: Way,
    repeat: u32,
    seconds: f64,
    /// Received over the whole time, slow start included, in bit/s.
    bits_per_second: f64,
    /// Sent from the fifth second on, in bit/s: what is sustained.
    sustained_bits_per_second: f64,
    retransmits: u64,
    /// Sender's congestion control.
    congestion: String,
    /// Percent of one processor, sender and receiver.
    sender_cpu: f64,
    receiver_cpu: f64,
    /// Share of the machine's processors that was busy, and stolen, 0 to 1.
    machine_busy: f64,
    machine_steal: f64,
    valid: bool,
    invalid_because: Vec<String>,
    /// Earlier runs of this cell that were thrown away because the lab did not keep up.
    discarded: u32,
}

/// Measures every way `repeats` times in turn, and writes `lsr.json` and `lsr.md` into `out`.
///
/// # Errors
/// iperf3 or `longhaul` is missing, a measurement failed, or a file cannot be written.
pub fn run(scenarios: &Path, out: &Path, repeats: u32, seconds: u32, retries: u32) -> Result<()> {
    let tools = Tools::prepare(scenarios)?;
    std::process::Command::new("iperf3")
        .arg("--version")
        .output()
        .context("iperf3 is needed beside longhaul perf: install it (Debian: iperf3)")?;
    let path = out.join("lsr.json");
    let mut runs: Vec<Run> = Vec::new();
    for repeat in 1..=repeats {
        for way in Way::ALL {
            let mut run = run::once(&tools, way, repeat, seconds)?;
            while !run.valid && run.discarded < retries {
                eprintln!(
                    "thrown away and repeated: {}: {}",
                    way.title(),
                    run.invalid_because.join("; ")
                );
                let discarded = run.discarded + 1;
                run = Run {
                    discarded,
                    ..run::once(&tools, way, repeat, seconds)?
                };
            }
            eprintln!(
                "{} {repeat}: {:.1} Mbit/s, sustained {:.1}, {} retransmissions{}",
                way.title(),
                run.bits_per_second / 1e6,
                run.sustained_bits_per_second / 1e6,
                run.retransmits,
                if run.valid { "" } else { " INVALID" }
            );
            runs.push(run);
            report::write(&path, &runs)?;
            write::table(out, &runs)?;
        }
    }
    Ok(())
}
