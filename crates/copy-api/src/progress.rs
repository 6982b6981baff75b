//! Progress of a copy.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Progress of a copy: the fields of the event `progress` of `longhaul cp --json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Progress {
    /// Seconds since it began.
    pub seconds: f64,
    /// Bytes at the destination.
    pub bytes: u64,
    /// Bytes found at the source so far.
    pub bytes_found: u64,
    /// If true, `bytes_found` is the total.
    pub walk_complete: bool,
    /// Files at the destination.
    pub files: u64,
    /// Files, directories and links found so far.
    pub entries_found: u64,
    /// Rate, in bit/s.
    pub bps: f64,
    /// Rate of each route, in bit/s.
    pub routes_bps: BTreeMap<String, f64>,
}

impl Progress {
    /// Sums the progress of a copy's parts, of which there are `of`.
    #[must_use]
    pub fn sum<'a>(parts: impl IntoIterator<Item = &'a Self>, of: u32) -> Self {
        let (mut sum, mut begun) = (Self::default(), 0u32);
        let mut all_walked = true;
        for part in parts {
            begun = begun.saturating_add(1);
            all_walked &= part.walk_complete;
            sum.seconds = sum.seconds.max(part.seconds);
            sum.bytes = sum.bytes.saturating_add(part.bytes);
            sum.bytes_found = sum.bytes_found.saturating_add(part.bytes_found);
            sum.files = sum.files.saturating_add(part.files);
            sum.entries_found = sum.entries_found.saturating_add(part.entries_found);
            sum.bps += part.bps;
            for (route, bps) in &part.routes_bps {
                *sum.routes_bps.entry(route.clone()).or_default() += bps;
            }
        }
        sum.walk_complete = all_walked && begun >= of;
        sum
    }
}
