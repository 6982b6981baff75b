//! Chooses the transport of a hop from what earlier sessions experienced on it.
//!
//! TCP costs less, so QUIC has to earn its place: random losses must have limited TCP for most of
//! the time, and a congestion control that they do not slow down (BBR) must not be in use. QUIC
//! that then carries less than TCP did is left for a while.
//!
//! This module has no clock and no sockets. Times are since an arbitrary origin.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use drs::Limit;
use longhaul_proto::{Endpoint, Transport};

use crate::observe::HopObservation;

/// Maximum number of hops remembered. One more replaces the one that was used least recently.
const MAX_HOPS: usize = 1024;
/// Minimum number of segments that say something about losses.
const MIN_SEGMENTS: f64 = 1000.0;
/// Share of the time that losses must limit TCP for QUIC to be tried.
const MIN_LOSS_SHARE: f64 = 0.5;
/// Weight of what was known when a session adds its own figures.
const MEMORY: f64 = 0.7;
/// Minimum bytes and time of a session whose rate counts.
const MIN_RATED_BYTES: u64 = 16 * 1024 * 1024;
const MIN_RATED_TIME: Duration = Duration::from_secs(2);
/// Time for which a transport that carried less than the other is left.
const RETRY_AFTER: Duration = Duration::from_secs(600);

/// Experience with the hops that this depot dials.
#[derive(Debug, Default)]
pub(crate) struct HopExperiences {
    hops: HashMap<Endpoint, HopExperience>,
}

/// A transport, and the reason for it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TransportChoice {
    pub(crate) transport: Transport,
    reason: ChoiceReason,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum ChoiceReason {
    Unknown,
    NoRandomLoss,
    Bbr,
    /// Ratio of lost segments, and the rate that TCP reached in bit/s.
    RandomLoss(f64, f64),
    /// Rates of QUIC and TCP in bit/s.
    QuicIsSlower(f64, f64),
}

#[derive(Debug, Clone, Default)]
struct HopExperience {
    segments: f64,
    lost: f64,
    /// Seconds observed, and those in which losses limited TCP.
    observed: f64,
    loss_limited: f64,
    is_bbr: bool,
    /// Latest rates in bit/s; 0 if unknown.
    tcp_rate: f64,
    quic_rate: f64,
    /// Time since which QUIC is known to carry less.
    quic_slower_at: Option<Duration>,
    used_at: Duration,
}

impl HopExperiences {
    /// Returns the transport for a session to `hop`, for which nobody named one.
    pub(crate) fn choose(&self, hop: &Endpoint, now: Duration) -> TransportChoice {
        let (transport, reason) = self
            .hops
            .get(hop)
            .map_or((Transport::Tcp, ChoiceReason::Unknown), |known| {
                known.choose(now)
            });
        TransportChoice { transport, reason }
    }

    /// Records what TCP experienced while it sent over `hop`.
    pub(crate) fn record_tcp(&mut self, hop: &Endpoint, seen: &HopObservation, now: Duration) {
        let known = self.hop(hop, now);
        for sum in [
            &mut known.segments,
            &mut known.lost,
            &mut known.observed,
            &mut known.loss_limited,
        ] {
            *sum *= MEMORY;
        }
        known.segments += seen.segments as f64;
        known.lost += seen.lost as f64;
        known.observed += seen.tally.total().as_secs_f64();
        known.loss_limited += seen.tally.time_of(Limit::Loss).as_secs_f64();
        known.is_bbr = seen.congestion.starts_with("bbr");
        if let Some(rate) = rate(seen.bytes, seen.time) {
            known.tcp_rate = rate;
        }
    }

    /// Records what QUIC carried over `hop`.
    pub(crate) fn record_quic(
        &mut self,
        hop: &Endpoint,
        bytes: u64,
        time: Duration,
        now: Duration,
    ) {
        let Some(rate) = rate(bytes, time) else {
            return;
        };
        let known = self.hop(hop, now);
        known.quic_rate = rate;
        known.quic_slower_at = (rate < known.tcp_rate).then_some(now);
    }

    fn hop(&mut self, hop: &Endpoint, now: Duration) -> &mut HopExperience {
        if self.hops.len() >= MAX_HOPS && !self.hops.contains_key(hop) {
            let oldest = self.hops.iter().min_by_key(|(_, known)| known.used_at);
            if let Some(oldest) = oldest.map(|(hop, _)| hop.clone()) {
                self.hops.remove(&oldest);
            }
        }
        let known = self.hops.entry(hop.clone()).or_default();
        known.used_at = now;
        known
    }
}

impl HopExperience {
    fn choose(&self, now: Duration) -> (Transport, ChoiceReason) {
        let is_left = |since: Duration| now.saturating_sub(since) < RETRY_AFTER;
        if self.is_bbr {
            return (Transport::Tcp, ChoiceReason::Bbr);
        }
        if self.quic_slower_at.is_some_and(is_left) {
            let slower = ChoiceReason::QuicIsSlower(self.quic_rate, self.tcp_rate);
            return (Transport::Tcp, slower);
        }
        if self.segments < MIN_SEGMENTS {
            return (Transport::Tcp, ChoiceReason::Unknown);
        }
        if self.loss_limited < MIN_LOSS_SHARE * self.observed || self.loss_limited == 0.0 {
            return (Transport::Tcp, ChoiceReason::NoRandomLoss);
        }
        let loss = self.lost / self.segments;
        (
            Transport::Quic,
            ChoiceReason::RandomLoss(loss, self.tcp_rate),
        )
    }
}

/// Returns the rate in bit/s, if the session was long enough to show it.
fn rate(bytes: u64, time: Duration) -> Option<f64> {
    (bytes >= MIN_RATED_BYTES && time >= MIN_RATED_TIME)
        .then(|| bytes as f64 * 8.0 / time.as_secs_f64())
}

impl fmt::Display for TransportChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mbps = |rate: f64| rate / 1e6;
        write!(f, "{}: ", self.transport)?;
        match self.reason {
            ChoiceReason::Unknown => f.write_str("too little is known of the hop"),
            ChoiceReason::NoRandomLoss => f.write_str("random losses do not limit TCP"),
            ChoiceReason::Bbr => f.write_str("the kernel's BBR is not slowed by random losses"),
            ChoiceReason::RandomLoss(loss, 0.0) => {
                write!(f, "random losses of {:.3} % limit TCP", loss * 100.0)
            }
            ChoiceReason::RandomLoss(loss, rate) => write!(
                f,
                "random losses of {:.3} % limit TCP to {:.0} Mbit/s",
                loss * 100.0,
                mbps(rate)
            ),
            ChoiceReason::QuicIsSlower(quic, tcp) => write!(
                f,
                "QUIC carried {:.0} Mbit/s, TCP {:.0} Mbit/s",
                mbps(quic),
                mbps(tcp)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use drs::LimitTally;

    use super::*;

    const NOW: Duration = Duration::from_secs(1000);

    fn hop() -> Endpoint {
        "depot.example:7510".parse().unwrap()
    }

    /// Returns what a session of ten seconds saw, of which losses limited some.
    fn seen(loss_seconds: u64, congestion: &str) -> HopObservation {
        let mut tally = LimitTally::default();
        tally.add_time(Limit::Loss, Duration::from_secs(loss_seconds));
        tally.add_time(Limit::Path, Duration::from_secs(10 - loss_seconds));
        HopObservation {
            tally,
            segments: 20_000,
            lost: 20,
            bytes: 25_000_000,
            time: Duration::from_secs(10),
            congestion: congestion.to_owned(),
            ..HopObservation::default()
        }
    }

    fn after(seen: &HopObservation) -> HopExperiences {
        let mut known = HopExperiences::default();
        known.record_tcp(&hop(), seen, NOW);
        known
    }

    #[test]
    fn an_unknown_hop_is_dialled_by_tcp() {
        let choice = HopExperiences::default().choose(&hop(), NOW);
        assert_eq!(choice.transport, Transport::Tcp);
    }

    #[test]
    fn random_losses_choose_quic_and_say_so() {
        let choice = after(&seen(9, "cubic")).choose(&hop(), NOW);
        assert_eq!(
            choice.to_string(),
            "quic: random losses of 0.100 % limit TCP to 20 Mbit/s"
        );
    }

    #[test]
    fn a_full_path_or_bbr_stays_on_tcp() {
        for seen in [seen(1, "cubic"), seen(0, "cubic"), seen(9, "bbr")] {
            let choice = after(&seen).choose(&hop(), NOW);
            assert_eq!(choice.transport, Transport::Tcp, "{choice}");
        }
    }

    #[test]
    fn a_hop_that_no_longer_loses_returns_to_tcp() {
        let mut known = after(&seen(9, "cubic"));
        known.record_tcp(&hop(), &seen(0, "cubic"), NOW);
        assert_eq!(known.choose(&hop(), NOW).transport, Transport::Tcp);
    }

    #[test]
    fn quic_that_carries_less_is_left_for_ten_minutes() {
        let mut known = after(&seen(9, "cubic"));
        let ten = Duration::from_secs(10);
        known.record_quic(&hop(), 20_000_000, ten, NOW);
        let choice = known.choose(&hop(), NOW + ten);
        assert_eq!(
            choice.to_string(),
            "tcp: QUIC carried 16 Mbit/s, TCP 20 Mbit/s"
        );
        let choice = known.choose(&hop(), NOW + RETRY_AFTER);
        assert_eq!(choice.transport, Transport::Quic);
        known.record_quic(&hop(), 900_000_000, ten, NOW + RETRY_AFTER);
        let choice = known.choose(&hop(), NOW + RETRY_AFTER);
        assert_eq!(choice.transport, Transport::Quic);
    }

    #[test]
    fn the_memory_is_bounded() {
        let mut known = HopExperiences::default();
        for number in 0..=MAX_HOPS as u64 {
            let hop = format!("d{number}:1").parse().unwrap();
            known.record_tcp(&hop, &seen(9, "cubic"), Duration::from_secs(number));
        }
        assert_eq!(known.hops.len(), MAX_HOPS);
        let first = "d0:1".parse().unwrap();
        assert_eq!(known.choose(&first, NOW).transport, Transport::Tcp);
    }
}
