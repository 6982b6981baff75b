//! Measurements that a copy made of its paths: of its own first hop, or of the whole path if that
//! is one hop. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use longhaul_control_api::measurements::{Conditions, Measurement, Quantity, Source};
use longhaul_transfer::{ConnectionEnds, RouteInfo, StreamCounters};

use crate::of_path::{MeasuredPath, convert_limit, loss_share};

/// Minimum bytes for a meaningful rate.
const MIN_RATE_BYTES: u64 = 1 << 20;
/// Payload of a segment in bytes, if it was not measured.
const DEFAULT_MSS_BYTES: u64 = 1448;

/// Properties of a whole copy.
pub struct CopySummary<'a> {
    /// Name of this end.
    pub me: &'a str,
    /// The server's host.
    pub host: &'a str,
    /// True if files went to the server.
    pub push: bool,
    /// Start, in milliseconds since the Unix epoch.
    pub begun_ms: u64,
    /// Duration.
    pub seconds: f64,
    /// Unique identifier of the copy.
    pub transfer: &'a str,
}

/// Sums over the streams of one route.
#[derive(Default)]
struct RouteSums {
    streams: u32,
    bytes: u64,
    rtt: Duration,
    rtts: u32,
    lost: u64,
    segments: u64,
    tally: drs::LimitTally,
    congestion: String,
}

/// Returns the measurements of a copy's streams. `names` returns the depots of a route.
pub fn measured(
    whole: &CopySummary<'_>,
    streams: &[Arc<StreamCounters>],
    names: impl Fn(&RouteInfo) -> Vec<String>,
) -> Vec<Measurement> {
    let mut routes = BTreeMap::<&str, (&RouteInfo, RouteSums)>::new();
    // The throughput of a reserved route does not predict what others get there.
    for stream in streams.iter().filter(|stream| !stream.route.is_reserved()) {
        let (ends, saved) = (stream.ends(), stream.saved.load(Ordering::Relaxed));
        // Others may copy what cannot be compressed.
        let bytes = stream.bytes.load(Ordering::Relaxed).saturating_sub(saved);
        let (_, sums) = routes
            .entry(stream.route.name())
            .or_insert_with(|| (&stream.route, RouteSums::default()));
        sums.add(&ends, bytes, whole.push);
    }
    let mut found = Vec::new();
    for (route, of) in routes.into_values() {
        let depots = names(route);
        let is_direct = depots.is_empty();
        // The hop that ends here.
        let other = match (depots.first(), depots.last()) {
            (Some(first), Some(last)) => {
                if whole.push {
                    first.clone()
                } else {
                    last.clone()
                }
            }
            _ => whole.host.to_owned(),
        };
        let (from, to) = match whole.push {
            true => (whole.me.to_owned(), other),
            false => (other, whole.me.to_owned()),
        };
        let middle = Duration::try_from_secs_f64(whole.seconds / 2.0).unwrap_or_default();
        let at_ms = whole
            .begun_ms
            .saturating_add(u64::try_from(middle.as_millis()).unwrap_or(0));
        let conditions = Conditions {
            bytes: Some(of.bytes),
            duration_s: Some(whole.seconds),
            streams: Some(of.streams),
            congestion: (!of.congestion.is_empty()).then(|| of.congestion.clone()),
            limit: of
                .tally
                .dominant_limit()
                .and_then(|(limit, _)| convert_limit(limit)),
            transfer: Some(whole.transfer.to_owned()),
        };
        let path = MeasuredPath {
            from,
            to,
            at_ms,
            source: Source::Transfer,
            conditions,
        };
        let rtt = (of.rtts > 0).then(|| (of.rtt / of.rtts).as_secs_f64());
        // When the server sends into a chain, this end only sees losses on the server's own hop.
        let hears_of_losses = whole.push || is_direct;
        let loss = loss_share(of.lost, of.segments).filter(|_| hears_of_losses);
        let has_rate = of.bytes >= MIN_RATE_BYTES && whole.seconds > 0.0;
        let rate = has_rate.then(|| of.bytes as f64 * 8.0 / whole.seconds);
        found.extend(path.measurements([
            (Quantity::Rtt, rtt),
            (Quantity::Loss, loss),
            (Quantity::Rate, rate),
        ]));
    }
    found
}

impl RouteSums {
    fn add(&mut self, ends: &ConnectionEnds, bytes: u64, push: bool) {
        let here = &ends.here;
        self.streams += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        if !here.rtt.is_zero() {
            self.rtt = self.rtt.saturating_add(here.rtt);
            self.rtts += 1;
        }
        let mss = match here.mss {
            0 => DEFAULT_MSS_BYTES,
            mss => u64::from(mss),
        };
        let tally = if push { &here.tally } else { &ends.there };
        let (lost, segments) = match (push, here.packets) {
            (true, None) => (here.retransmits.into(), here.sent / mss),
            // All streams of a connection count its packets, so their ratio stays the same.
            (true, Some(packets)) => (packets.lost, packets.sent),
            (false, None) => (ends.retransmits_there.unwrap_or(0), here.moved / mss),
            // The server does not report the packets of other transports.
            (false, Some(_)) => (0, 0),
        };
        self.lost = self.lost.saturating_add(lost);
        self.segments = self.segments.saturating_add(segments);
        self.tally.merge(tally);
        if self.congestion.is_empty() && push {
            self.congestion = here.congestion.as_str().to_owned();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_of_other_transports_are_those_of_their_packets() {
        let mut ends = ConnectionEnds::default();
        ends.here.rtt = Duration::from_millis(50);
        ends.here.moved = 1 << 30;
        ends.here.packets = Some(drs::PacketCounts {
            sent: 100_000,
            lost: 200,
        });
        let sums = |push| {
            let mut sums = RouteSums::default();
            sums.add(&ends, 1 << 30, push);
            (sums.rtts, loss_share(sums.lost, sums.segments))
        };
        assert_eq!(sums(true), (1, Some(0.002)));
        // Not known, which is not the same as none.
        assert_eq!(sums(false), (1, None));
    }
}
