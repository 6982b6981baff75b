//! Hops within a site, which nobody may have measured yet: from a host to a depot beside it, and
//! back. What they are like is assumed from the operator's map and from nothing that anybody
//! reported, and only until they are measured: so that what depots measure between sites is of use
//! for the first transfer of a host.

use longhaul_control_api::map::Map as Places;
use longhaul_weather::Quantiles;
use longhaul_weather::route::map::HopForecast;
use longhaul_weather::route::trust::LONE_SAMPLES;

/// Round trips within a site, in seconds.
const RTT: Quantiles = Quantiles {
    p10: 0.000_2,
    p50: 0.001,
    p90: 0.003,
};
/// What a host of which nothing is said can send and take, in bits per second.
const USUAL_RATE_BPS: f64 = 10e9;
/// The most of such hops that are assumed.
const MAX_ASSUMED: usize = 100_000;

/// A hop within a site, in either direction.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct WithinSite {
    /// A host's name.
    pub host: String,
    /// The name of a depot beside it.
    pub depot: String,
    /// What the slower of the two can send and take, in bits per second.
    rate_bps: f64,
}

impl WithinSite {
    /// What is assumed of it at that moment.
    pub fn forecast(&self, now: f64) -> HopForecast {
        HopForecast {
            rtt: RTT,
            loss: Quantiles::exactly(0.0),
            rate: Quantiles {
                p10: self.rate_bps / 2.0,
                p50: self.rate_bps,
                p90: self.rate_bps,
            },
            at: now,
            samples: LONE_SAMPLES,
        }
    }
}

/// Those of a map.
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
                rate_bps: least.unwrap_or(USUAL_RATE_BPS),
            }
        })
    });
    pairs.take(MAX_ASSUMED).collect()
}
