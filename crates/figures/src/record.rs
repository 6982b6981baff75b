//! One run as it is kept: what was asked, what was seen, whether the lab was good enough to say so,
//! and where it was made.

use serde::{Deserialize, Serialize};
use wanbed::Report;

use crate::noise::Noise;

/// One run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record<C, S> {
    /// Everything that tells it from other runs.
    pub cell: Key<C>,
    /// Observation of the run.
    pub seen: S,
    /// Validity of the run: the lab kept up or not.
    pub gate: Gate,
    /// Origin and date of the run.
    pub made: Made,
}

/// Everything that tells a run from the others of its experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Key<C> {
    /// Factors that the experiment varies.
    #[serde(flatten)]
    pub factors: C,
    /// The seed of the lab and of whatever the experiment draws: runs of the same seed meet the
    /// same losses where they use the same links.
    pub seed: u64,
    /// Noise that was added to the scenario's links.
    pub noise: Noise,
}

/// The verdict of the one gate that every run passes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gate {
    /// If true, the lab kept up; otherwise the run does not count.
    pub valid: bool,
    /// Why not, a clause each.
    pub reasons: Vec<String>,
    /// The worst 99th percentile of lag over the lab's links, in microseconds.
    pub lag_p99_us: u64,
    /// Share of the machine's processors that was busy, 0 to 1.
    pub busy: f64,
    /// Share that other guests of the host took, 0 to 1.
    pub steal: f64,
    /// Runs of the same cell that were thrown away before this one because the lab did not keep up.
    pub discarded: u32,
}

impl Gate {
    /// The verdict on a lab's run.
    pub fn of(report: &Report, discarded: u32) -> Self {
        let both = report
            .links
            .iter()
            .flat_map(|link| [&link.counters.forward, &link.counters.backward]);
        let rounded = |share: f64| (share * 1e4).round() / 1e4;
        Self {
            valid: report.valid,
            reasons: report.reasons.clone(),
            lag_p99_us: both.map(|direction| direction.lag.p99).max().unwrap_or(0),
            busy: rounded(report.cpu.busy),
            steal: rounded(report.cpu.steal),
            discarded,
        }
    }

    /// The same of a run in which nothing hangs on time: it counts.
    pub fn of_counts(self) -> Self {
        Self {
            valid: true,
            reasons: Vec::new(),
            ..self
        }
    }
}

/// Origin and date of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// The code that was measured: see [`crate::provenance`].
    pub commit: String,
    /// The kernel's release.
    pub kernel: String,
    /// Kind of link devices.
    pub backend: String,
    /// Model and number of the processors.
    pub processor: String,
    /// If true, the processors of a guest were kept from halting ([`wanbed::Awake`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub awake: bool,
    /// The day, in UTC: YYYY-MM-DD.
    pub date: String,
}
