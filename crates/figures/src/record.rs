//! One measured copy, as it is written into reports.

use crate::plan::Job;
use crate::setting::Way;
use serde::{Deserialize, Serialize};

/// One copy over one path: what was asked, what came out, and whether the lab was good enough to say so.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// The setting's short name.
    pub scenario: String,
    /// Which way the bytes took.
    pub route: Way,
    /// Congestion control of the end hosts.
    pub congestion: String,
    /// Buffers of the end hosts.
    pub hosts: String,
    /// Bytes of file content that arrived.
    pub bytes: u64,
    /// Files that arrived.
    pub files: u64,
    /// From the start of the copy to its verified end, seconds, set-up included.
    pub seconds: f64,
    /// `bytes * 8 / seconds`.
    pub goodput_bps: f64,
    /// Whether every file matched its BLAKE3 hash at both ends and the copy ended without a failure.
    pub verified: bool,
    /// Seed of the lab's losses: the same seed loses the same segments of a direction.
    pub seed: u64,
    /// Streams of the copy.
    pub streams: u32,
    /// Segments the sending ends of the copy's own connections sent again, as far as this end sees them.
    pub retransmits: u64,
    /// What limited it for longest, by its own account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited_by: Option<String>,
    /// Whether the lab kept up (emulator lag, drops of its own, stolen processor time).
    pub valid: bool,
    /// Why not, where it did not.
    pub invalid_because: Vec<String>,
    /// The worst 99th percentile of lag over the lab's links, microseconds.
    pub lag_p99_us: u64,
    /// Runs of the same cell and seed thrown away before this one because the lab did not keep up.
    pub discarded: u32,
}

impl Run {
    /// Goodput in Mbit/s, the unit of the papers.
    pub fn mbps(&self) -> f64 {
        self.goodput_bps / 1e6
    }

    /// Whether it belongs into a figure: the copy verified, and the lab kept up.
    pub fn counts(&self) -> bool {
        self.verified && self.valid
    }

    /// Whether it is a run of this job.
    pub fn is_of(&self, job: &Job) -> bool {
        (self.scenario.as_str(), self.bytes, self.route, self.seed)
            == (job.setting.id, job.bytes, job.way, job.seed)
    }
}
