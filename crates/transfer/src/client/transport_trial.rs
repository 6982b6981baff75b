//! Decides whether a copy moves from TCP to another transport on the same route.
//!
//! TCP takes every loss for congestion, so random losses slow each of its streams down. A transport
//! that only yields to a queue keeps the path full. Neither is better everywhere: networks may
//! block or police the other one, and it needs more processor time. A trial therefore decides, once
//! losses without a queue have shown that TCP may be slow here, or once a fetch over depots, whose
//! client does not see all losses, turns out to last:
//!
//! 1. **Opening**: streams of the other transport join those of TCP. It is rejected if none is open
//!    after [`MAX_OPEN_TIME`].
//! 2. **Starting**: both carry data. After [`FILLING_SPANS`], in which bytes only fill the send
//!    buffer, the other transport is preferred as soon as it carries more than all TCP streams
//!    together. By the end of its start-up, it is rejected if it carries much less.
//! 3. **Alone**: a transport that yields to a queue gets only what TCP leaves, but might fill
//!    the path without it. So TCP keeps one stream for a moment, and the other transport is
//!    preferred if it then carries more than TCP did before. If not, it is rejected.
//! 4. **Preferred**: TCP keeps one stream, so that it is still measured. The other transport is
//!    rejected if it carries less than that stream over [`WATCH_RTTS`] round trips, or less than
//!    TCP did while that stream is as fast as before, or if it stalls. If both became slower, a
//!    disk may be the reason.
//! 5. **Rejected**: TCP has all streams, and as many as it needs. Paths change, so another trial
//!    follows after a pause, which doubles each time. A comparison with TCP only holds while TCP is
//!    as fast as it was then. In slow start it may fill the path until its first losses, so another
//!    trial follows as soon as TCP has become slower.
//!
//! This module has no clock and no sockets. The route steering feeds it.

use std::time::Duration;

use super::route_observation::RouteObservation;
use crate::progress::RouteStanding;

/// Time limit for the first stream of the other transport to open. It covers a lost packet in each
/// of its two round trips.
const MAX_OPEN_TIME: Duration = Duration::from_secs(3);
/// Period over which rates are compared, in round trips and in time.
const SPAN_RTTS: u32 = 2;
const MIN_SPAN: Duration = Duration::from_millis(100);
/// Number of spans after the opening that are not compared.
const FILLING_SPANS: u32 = 2;
/// Start-up ends when the rate grows by less than this factor from one span to the next, for
/// [`STEADY_SPANS`] spans, or after [`MAX_START_SPANS`].
const START_GROWTH: f64 = 1.2;
const STEADY_SPANS: u32 = 2;
const MAX_START_SPANS: u32 = 12;
/// Minimum part of TCP's rate from which a transport is tried alone after its start-up.
const MIN_SHARE: f64 = 0.25;
/// TCP's other streams are still delivering what they had taken while it carries more than this
/// many times the rate of its one stream.
const DRAINING_RATIO: f64 = 2.0;
/// Maximum number of times that a comparison is put off because TCP is draining.
const MAX_DRAINING: u32 = 12;
/// Number of round trips, and minimum time, over which a preferred transport may carry less than
/// TCP before it is rejected.
const WATCH_RTTS: u32 = 10;
const MIN_WATCH_TIME: Duration = Duration::from_secs(1);
/// A stream of TCP counts as fast as before from this part of its earlier rate.
const AS_FAST_RATIO: f64 = 0.5;
/// Pause before the trial that follows a rejected one.
const FIRST_RETRY_PAUSE: Duration = Duration::from_secs(60);
/// TCP has become slower since a comparison if it carries less than this part of its rate then,
/// over [`WATCH_RTTS`] round trips.
const SLOWED_RATIO: f64 = 0.75;
/// Number of trials that may follow because TCP has become slower.
const MAX_EARLY_RETRIES: u32 = 2;
/// Duration of a fetch over depots from which a trial begins without losses, and minimum time that
/// the rest would take at the same rate.
const UNSEEN_LOSSES_AFTER: Duration = Duration::from_secs(2);
const MIN_TIME_LEFT: Duration = Duration::from_secs(5);

/// Returns true if a fetch over depots should try the other transport, although its client has seen
/// no losses. It has moved `moved` bytes in `spent`, and `left` bytes are left.
pub(super) fn unseen_losses_are_worth_a_trial(spent: Duration, moved: u64, left: u64) -> bool {
    let at_least = moved as f64 * MIN_TIME_LEFT.as_secs_f64();
    spent >= UNSEEN_LOSSES_AFTER && left as f64 * spent.as_secs_f64() >= at_least
}

/// Trial of another transport beside TCP.
#[derive(Debug, Clone, Default)]
pub(super) struct TransportTrial {
    stage: TrialStage,
    rejections: u32,
    early_retries: u32,
    span: Option<SpanStart>,
    /// Rate of TCP's streams in the last trial, and of each of them, in bytes per second.
    tcp_rate: f64,
    tcp_rate_each: f64,
    /// Number of comparisons that were put off since then.
    draining: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
enum TrialStage {
    /// Holds the time of the first attempt.
    #[default]
    Unopened,
    Opening {
        since: Duration,
    },
    Starting {
        spans: u32,
        steady: u32,
        /// Rate of the last span, in bytes per second.
        rate: f64,
    },
    Alone {
        spans: u32,
        steady: u32,
        /// Rate of the last span, in bytes per second.
        rate: f64,
    },
    Preferred,
    Rejected {
        until: Duration,
        /// Rate of TCP that the other transport did not reach, in bytes per second. `None` if the
        /// rates were not the reason.
        tcp_rate: Option<f64>,
    },
}

#[derive(Debug, Clone, Copy)]
struct SpanStart {
    at: Duration,
    tcp_bytes: u64,
    other_bytes: u64,
}

/// Change of a trial, as the observer of the copy learns it.
pub(super) type TrialVerdict = (RouteStanding, &'static str);

impl TransportTrial {
    /// Returns true if the copy should carry its data over the other transport.
    pub(super) fn is_preferred(&self) -> bool {
        matches!(self.stage, TrialStage::Preferred | TrialStage::Alone { .. })
    }

    /// Returns true if the other transport is used or tried.
    pub(super) fn is_used(&self) -> bool {
        !matches!(self.stage, TrialStage::Rejected { .. })
    }

    /// Records an observation of both transports. Returns the standing of the other one if it has
    /// changed.
    pub(super) fn observe(
        &mut self,
        now: Duration,
        rtt: Duration,
        tcp: &RouteObservation,
        other: &RouteObservation,
    ) -> Option<TrialVerdict> {
        if other.gone && self.is_used() {
            return Some(self.reject(now, RouteStanding::Gone, "no attempt can succeed", None));
        }
        match self.stage {
            TrialStage::Unopened => {
                self.stage = TrialStage::Opening { since: now };
                None
            }
            TrialStage::Opening { since } => {
                if other.open > 0 {
                    self.begin_span(now, tcp, other);
                    self.stage = TrialStage::Starting {
                        spans: 0,
                        steady: 0,
                        rate: 0.0,
                    };
                    return None;
                }
                let is_late = now.saturating_sub(since) >= MAX_OPEN_TIME;
                is_late.then(|| self.reject(now, RouteStanding::Late, "it does not open", None))
            }
            TrialStage::Starting {
                spans,
                steady,
                rate,
            } => {
                let span = rtt.saturating_mul(SPAN_RTTS).max(MIN_SPAN);
                let (tcp_rate, other_rate) = self.close_span(now, span, tcp, other)?;
                let spans = spans + 1;
                if spans <= FILLING_SPANS {
                    self.stage = TrialStage::Starting {
                        spans,
                        steady: 0,
                        rate: 0.0,
                    };
                    return None;
                }
                if other_rate > tcp_rate {
                    self.compare_with(tcp_rate, tcp);
                    return Some(self.prefer());
                }
                let steady = next_steady(steady, rate, other_rate);
                if steady >= STEADY_SPANS || spans >= MAX_START_SPANS {
                    if other_rate >= MIN_SHARE * tcp_rate && tcp.open > 1 {
                        self.compare_with(tcp_rate, tcp);
                        self.stage = TrialStage::Alone {
                            spans: 0,
                            steady: 0,
                            rate: other_rate,
                        };
                        return None;
                    }
                    let why = "it carries less than TCP";
                    return Some(self.reject(now, RouteStanding::Slower, why, Some(tcp_rate)));
                }
                self.stage = TrialStage::Starting {
                    spans,
                    steady,
                    rate: other_rate,
                };
                None
            }
            TrialStage::Alone {
                spans,
                steady,
                rate,
            } => {
                let span = rtt.saturating_mul(SPAN_RTTS).max(MIN_SPAN);
                let (tcp_rate, other_rate) = self.close_span(now, span, tcp, other)?;
                if other_rate > self.tcp_rate {
                    return Some(self.prefer());
                }
                if self.is_draining(tcp_rate) {
                    return None;
                }
                let (spans, steady) = (spans + 1, next_steady(steady, rate, other_rate));
                if steady >= STEADY_SPANS || spans >= MAX_START_SPANS {
                    let why = "it carries less than TCP";
                    // TCP has to open its streams again, and so is slower for a while.
                    return Some(self.reject(now, RouteStanding::Slower, why, None));
                }
                self.stage = TrialStage::Alone {
                    spans,
                    steady,
                    rate: other_rate,
                };
                None
            }
            TrialStage::Preferred => {
                if !other.busy {
                    // There is nothing left to carry, or nothing to read it from.
                    self.begin_span(now, tcp, other);
                    return None;
                }
                let watch = rtt.saturating_mul(WATCH_RTTS).max(MIN_WATCH_TIME);
                let (tcp_rate, other_rate) = self.close_span(now, watch, tcp, other)?;
                if other_rate == 0.0 && tcp_rate > 0.0 {
                    let why = "it moves nothing";
                    return Some(self.reject(now, RouteStanding::Stalled, why, None));
                }
                if self.is_draining(tcp_rate) {
                    return None;
                }
                let tcp_is_as_fast = tcp_rate >= AS_FAST_RATIO * self.tcp_rate_each;
                let is_slower =
                    other_rate < tcp_rate || (other_rate < self.tcp_rate && tcp_is_as_fast);
                let why = "it carries less than TCP";
                is_slower.then(|| self.reject(now, RouteStanding::Slower, why, None))
            }
            TrialStage::Rejected { until, tcp_rate } => {
                if other.gone {
                    return None;
                }
                if now < until {
                    let compared = tcp_rate.filter(|_| self.early_retries < MAX_EARLY_RETRIES)?;
                    if !tcp.busy {
                        self.span = None;
                    }
                    let watch = rtt.saturating_mul(WATCH_RTTS).max(MIN_WATCH_TIME);
                    let (rate, _) = self.close_span(now, watch, tcp, other)?;
                    if rate >= SLOWED_RATIO * compared {
                        return None;
                    }
                    self.early_retries += 1;
                    self.stage = TrialStage::Unopened;
                    return Some((RouteStanding::Joined, "TCP has become slower"));
                }
                self.stage = TrialStage::Unopened;
                Some((RouteStanding::Joined, "it is tried again"))
            }
        }
    }

    /// Keeps the rate of TCP, with which the other transport is compared once TCP has one stream.
    fn compare_with(&mut self, tcp_rate: f64, tcp: &RouteObservation) {
        self.tcp_rate = tcp_rate;
        self.tcp_rate_each = tcp_rate / tcp.open.max(1) as f64;
        self.draining = 0;
    }

    fn prefer(&mut self) -> TrialVerdict {
        self.stage = TrialStage::Preferred;
        (RouteStanding::Better, "it carries more than TCP")
    }

    /// Returns true if TCP still carries what streams had taken that it no longer uses. A limited
    /// number of times.
    fn is_draining(&mut self, tcp_rate: f64) -> bool {
        let is_draining =
            self.draining < MAX_DRAINING && tcp_rate > DRAINING_RATIO * self.tcp_rate_each;
        self.draining += u32::from(is_draining);
        is_draining
    }

    fn reject(
        &mut self,
        now: Duration,
        standing: RouteStanding,
        reason: &'static str,
        tcp_rate: Option<f64>,
    ) -> TrialVerdict {
        let pause = FIRST_RETRY_PAUSE.saturating_mul(1 << self.rejections.min(8));
        self.rejections = self.rejections.saturating_add(1);
        self.span = None;
        self.stage = TrialStage::Rejected {
            until: now.saturating_add(pause),
            tcp_rate,
        };
        (standing, reason)
    }

    fn begin_span(&mut self, now: Duration, tcp: &RouteObservation, other: &RouteObservation) {
        self.span = Some(SpanStart {
            at: now,
            tcp_bytes: tcp.moved,
            other_bytes: other.moved,
        });
    }

    /// Ends the span if it has lasted `length`, and begins the next. Returns the rates of TCP and
    /// of the other transport, in bytes per second.
    fn close_span(
        &mut self,
        now: Duration,
        length: Duration,
        tcp: &RouteObservation,
        other: &RouteObservation,
    ) -> Option<(f64, f64)> {
        let Some(span) = self.span else {
            self.begin_span(now, tcp, other);
            return None;
        };
        let lasted = now.saturating_sub(span.at);
        if lasted < length {
            return None;
        }
        self.begin_span(now, tcp, other);
        let rate =
            |bytes: u64, before: u64| bytes.saturating_sub(before) as f64 / lasted.as_secs_f64();
        Some((
            rate(tcp.moved, span.tcp_bytes),
            rate(other.moved, span.other_bytes),
        ))
    }
}

/// Returns the number of spans, after one more, in which the rate has grown little.
fn next_steady(steady: u32, before: f64, rate: f64) -> u32 {
    match rate < START_GROWTH * before {
        true => steady + 1,
        false => 0,
    }
}

#[cfg(test)]
mod tests;
