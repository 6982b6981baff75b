//! The Land Speed Record's path: one stream of `longhaul perf` that nobody tuned, beside iperf3, as it comes and tuned by hand.

mod run;
mod write;

use std::path::Path;
use std::time::Instant;

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

/// How much is measured.
pub struct Extent {
    /// Runs of each sender.
    pub repeats: u32,
    /// How long each sends, in seconds.
    pub seconds: u32,
    /// How often a run is repeated when the lab did not keep up.
    pub retries: u32,
    /// No run is begun after this many minutes.
    pub minutes: Option<f64>,
}

/// Measures every way in turn, as often as asked, and writes `lsr.json` and `lsr.md` into `out`. Valid runs that are there are kept.
///
/// # Errors
/// iperf3 or `longhaul` is missing, a measurement failed, or a file cannot be read or written.
pub fn run(scenarios: &Path, out: &Path, extent: &Extent) -> Result<()> {
    let began = Instant::now();
    let tools = Tools::prepare(scenarios)?;
    std::process::Command::new("iperf3")
        .arg("--version")
        .output()
        .context("iperf3 is needed beside longhaul perf: install it (Debian: iperf3)")?;
    let path = out.join("lsr.json");
    let mut runs: Vec<Run> = report::read(&path)?;
    for repeat in 1..=extent.repeats {
        for way in Way::ALL {
            let there = |run: &Run| run.way == way && run.repeat == repeat;
            if runs.iter().any(|run| there(run) && run.valid) {
                continue;
            }
            if extent
                .minutes
                .is_some_and(|minutes| began.elapsed().as_secs_f64() > minutes * 60.0)
            {
                eprintln!("time is over; call again for the rest");
                return Ok(());
            }
            let run = measured(&tools, way, repeat, extent)?;
            runs.retain(|run| !there(run));
            runs.push(run);
            runs.sort_by_key(|run| (run.way as u8, run.repeat));
            report::write(&path, &runs)?;
            write::table(out, &runs)?;
        }
    }
    Ok(())
}

/// One run, repeated when the lab did not keep up.
fn measured(tools: &Tools, way: Way, repeat: u32, extent: &Extent) -> Result<Run> {
    let mut run = run::once(tools, way, repeat, extent.seconds)?;
    while !run.valid && run.discarded < extent.retries {
        eprintln!(
            "thrown away and repeated: {}: {}",
            way.title(),
            run.invalid_because.join("; ")
        );
        let discarded = run.discarded + 1;
        run = Run {
            discarded,
            ..run::once(tools, way, repeat, extent.seconds)?
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
    Ok(run)
}
