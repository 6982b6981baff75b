//! Assumed forecasts of hops within a site: from a host to a depot beside it, and back. They come
//! from the operator's map only, not from any report, and apply until the hop is measured. With
//! them, measurements between sites serve the first transfer of a host.

use longhaul_control_api::map::Map as Places;
use longhaul_routing::Quantiles;
use longhaul_routing::route::map::HopForecast;
use longhaul_routing::route::trust::MAX_LONE_SAMPLES;

/// Assumed round-trip time within a site, in seconds.
const ASSUMED_RTT: Quantiles = Quantiles {
    p10: 0.000_2,
    p50: 0.001,
    p90: 0.003,
};
/// Assumed rate of a host without one on the map, in bits per second.
const DEFAULT_RATE_BPS: f64 = 10e9;
/// Maximum number of assumed hops.
const MAX_ASSUMED_HOPS: usize = 100_000;

/// Hop within a site, in either direction.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct WithinSite {
    /// Name of the host.
    pub host: String,
    /// Name of the depot beside it.
    pub depot: String,
    /// Rate of the slower of the two, in bits per second.
    rate_bps: f64,
}

impl WithinSite {
    /// Returns the assumed forecast at that time.
    pub fn forecast(&self, now: f64) -> HopForecast {
        HopForecast {
            rtt: ASSUMED_RTT,
            loss: Quantiles::exactly(0.0),
            rate: Quantiles {
                p10: self.rate_bps / 2.0,
                p50: self.rate_bps,
                p90: self.rate_bps,
            },
            at: now,
            samples: MAX_LONE_SAMPLES,
        }
    }
}

/// Returns the hops within sites of a map.
pub(super) fn within_sites(map: &Places) -> Vec<WithinSite> {
    let pairs = map.hosts.iter().flat_map(|host| {
        let beside = map
            .depots
            .iter()
            .filter(|depot| depot.site.as_ref() == Some(&host.site));
        beside.map(|depot| {
            let rates = [host.access, depot.limits.max_rate].into_iter().flatten();
            let least = rates
                .map(|rate| rate.bits_per_second())
                .min_by(f64::total_cmp);
            WithinSite {
                host: host.name.clone(),
                depot: depot.name.clone(),
                rate_bps: least.unwrap_or(DEFAULT_RATE_BPS),
            }
        })
    });
    pairs.take(MAX_ASSUMED_HOPS).collect()
}
