//! Record of one run: its key, its observations, the validity of the lab, and its origin.

use serde::{Deserialize, Serialize};
use wanbed::Report;

use crate::ip::IpVersion;
use crate::noise::Noise;

/// One run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record<C, S> {
    /// Key that distinguishes it from other runs.
    pub cell: Key<C>,
    /// Observation of the run.
    pub seen: S,
    /// Validity of the run: the lab kept up or not.
    pub gate: Gate,
    /// Origin and date of the run.
    pub made: Provenance,
}

/// Key of a run among all of its experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Key<C> {
    /// Factors that the experiment varies.
    #[serde(flatten)]
    pub factors: C,
    /// Seed of the lab and of the experiment's random choices. Runs of the same seed meet the same
    /// losses on the same links.
    pub seed: u64,
    /// Noise added to the scenario's links.
    pub noise: Noise,
    /// Version of IP between the programs.
    #[serde(default, skip_serializing_if = "IpVersion::is_ipv4")]
    pub ip: IpVersion,
}

impl<C> Key<C> {
    /// Returns the key of a run over IPv4, without noise.
    pub fn new(factors: C, seed: u64) -> Self {
        Self {
            factors,
            seed,
            noise: Noise::None,
            ip: IpVersion::Ipv4,
        }
    }
}

/// Verdict on the validity of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gate {
    /// If true, the lab kept up; otherwise the run does not count.
    pub valid: bool,
    /// Reasons of invalidity, a clause each.
    pub reasons: Vec<String>,
    /// Maximum 99th percentile of lag over the lab's links, in microseconds.
    pub lag_p99_us: u64,
    /// Share of the machine's processors that was busy, 0 to 1.
    pub busy: f64,
    /// Share of processor time that other guests of the host took, 0 to 1.
    pub steal: f64,
    /// Earlier runs of the same cell that were discarded because the lab did not keep up.
    pub discarded: u32,
}

impl Gate {
    /// Judges the run of a lab.
    pub fn judge(report: &Report, discarded: u32) -> Self {
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

    /// Returns the verdict on a run whose results do not depend on time: always valid.
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
pub struct Provenance {
    /// Measured code, as from [`crate::provenance`].
    pub commit: String,
    /// The kernel's release.
    pub kernel: String,
    /// Kind of link devices.
    pub backend: String,
    /// Model and number of the processors.
    pub processor: String,
    /// If true, the processors of a guest were kept from halting ([`wanbed::AwakeGuard`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub awake: bool,
    /// The day, in UTC: YYYY-MM-DD.
    pub date: String,
}

/// Returns the name that a factor without fields has in records.
pub fn name(factor: impl Serialize) -> String {
    let value = serde_json::to_value(factor).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}
