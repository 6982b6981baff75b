//! Duration of a TCP transfer over one hop, from the first segment's departure to the last one's,
//! without connection setup and propagation.
//!
//! The long run follows [`quantities::path`]: Mathis et al. for Reno, section 5 of RFC 9438 for
//! CUBIC. A transfer is often over before the long run begins. After slow start the window is far
//! above what losses permit, and shrinks by one loss at a time.
//!
//! So losses are followed one by one, `1 / loss` segments apart. Each window follows from the one
//! before by the rule of the congestion control. With even spacing, Reno's windows settle at
//! Mathis' average, from which the rest is extrapolated.

use quantities::path::{ETHERNET_MSS, INITIAL_WINDOW};
use serde::{Deserialize, Serialize};

/// Share of the window that CUBIC keeps after a loss (RFC 9438, section 4.6).
const CUBIC_BETA: f64 = 0.7;
/// Steepness of CUBIC's curve, in segments per second cubed (RFC 9438, section 5).
const CUBIC_C: f64 = 0.4;
/// Growth of CUBIC in its Reno-friendly region, in segments per round trip (RFC 9438, section 4.3).
const CUBIC_ALPHA: f64 = 3.0 * (1.0 - CUBIC_BETA) / (1.0 + CUBIC_BETA);
/// Share of the window that Reno keeps after a loss (RFC 5681).
const RENO_BETA: f64 = 0.5;
/// Loss above which BBR (version 1) no longer reaches the bottleneck's rate. Its paper shows that
/// the rate falls beyond 15 %; this is half of that, because depots and ends run whatever their
/// kernels have.
const MAX_BBR_LOSS: f64 = 0.075;
/// Maximum number of losses to follow one by one; after them, the long run is assumed.
const MAX_FOLLOWED_LOSSES: usize = 24;
/// Relative change between two windows below which they have settled.
const MAX_SETTLED_CHANGE: f64 = 0.02;
/// Payload of a full segment, in bytes.
const SEGMENT_BYTES: f64 = ETHERNET_MSS as f64;
/// Minimum rate of a path, in bit/s, so that times stay finite.
const MIN_RATE_BPS: f64 = 1.0;

/// Median of an exponential distribution relative to its mean: the share of `1 / loss` that passes
/// before the first loss in half of all cases.
pub const MEDIAN_FIRST_LOSS: f64 = std::f64::consts::LN_2;
/// The same share in one case of ten.
pub const EARLY_FIRST_LOSS: f64 = 0.105_360_515_657_826_3;
/// The same share in nine cases of ten.
pub const LATE_FIRST_LOSS: f64 = std::f64::consts::LN_10;

/// A sender's congestion control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CongestionModel {
    /// Reno (RFC 5681).
    Reno,
    /// CUBIC (RFC 9438).
    #[default]
    Cubic,
    /// BBR: near the bottleneck's rate despite losses of up to some percent.
    Bbr,
}

/// The hop of one connection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HopConnection {
    /// Round trip, in seconds.
    pub rtt: f64,
    /// Maximum rate of this connection, in bit/s of payload.
    pub rate: f64,
    /// Probability that a segment is lost.
    pub loss: f64,
    /// Maximum window that both hosts allow, in bytes; infinite if unlimited.
    pub window: f64,
    /// The sender's congestion control.
    pub control: CongestionModel,
}

/// Duration of a transfer, divided into its phases.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TransferCourse {
    /// Time from the first segment's departure to the last one's, in seconds.
    pub seconds: f64,
    /// Share of that in slow start.
    pub slow_start: f64,
    /// Share of that after the first loss.
    pub after_loss: f64,
    /// Number of losses after the first.
    pub losses: f64,
}

/// Returns the greatest loss with which a connection sustains a rate, with a round trip in seconds
/// and a rate in bit/s. It uses the more tolerant of Mathis et al. and CUBIC (RFC 9438, section 5).
///
/// A connection that had this rate with more loss lost packets to a full queue, as at the end of
/// slow start, and not to random loss of the path.
#[must_use]
pub fn max_loss_at(rate: f64, rtt: f64) -> f64 {
    let window = rate * rtt / (SEGMENT_BYTES * 8.0);
    if !(window > 0.0 && rtt > 0.0) {
        return 1.0;
    }
    let reno = 1.5 / (window * window);
    let cubic = rtt * (cubic_factor() / window).powf(4.0 / 3.0);
    reno.max(cubic).min(1.0)
}

/// Returns CUBIC's average window in segments, relative to the round trip over the loss to the
/// power of three quarters (RFC 9438, section 5.1).
fn cubic_factor() -> f64 {
    (CUBIC_C * (3.0 + CUBIC_BETA) / (4.0 * (1.0 - CUBIC_BETA))).powf(0.25)
}

impl HopConnection {
    /// Returns the window that fills the hop, or that the hosts allow if it is less. In segments,
    /// at least one.
    fn full_window(&self) -> f64 {
        (self.rate.max(MIN_RATE_BPS) * self.rtt / 8.0)
            .min(self.window)
            .max(SEGMENT_BYTES)
            / SEGMENT_BYTES
    }

    /// Returns the rate with that window, in bit/s.
    #[must_use]
    pub fn without_loss(&self) -> f64 {
        self.rate.max(MIN_RATE_BPS).min(if self.rtt > 0.0 {
            self.window.max(SEGMENT_BYTES) * 8.0 / self.rtt
        } else {
            f64::INFINITY
        })
    }

    /// Returns the long-run rate under loss, in bit/s.
    #[must_use]
    pub fn under_loss(&self) -> f64 {
        let loss = self.effective_loss();
        if loss == 0.0 || self.rtt <= 0.0 {
            return f64::INFINITY;
        }
        let reno = (1.5 / loss).sqrt();
        let window = match self.control {
            CongestionModel::Reno | CongestionModel::Bbr => reno,
            CongestionModel::Cubic => reno.max(cubic_factor() * (self.rtt / loss).powf(0.75)),
        };
        window * SEGMENT_BYTES * 8.0 / self.rtt
    }

    /// Returns the loss to which the congestion control reacts.
    fn effective_loss(&self) -> f64 {
        match self.control {
            CongestionModel::Bbr if self.loss <= MAX_BBR_LOSS => 0.0,
            _ => self.loss.clamp(0.0, 1.0),
        }
    }

    /// Returns the duration of `bytes` bytes. The first loss comes when `first_loss / loss`
    /// segments were sent.
    #[must_use]
    pub fn course(&self, bytes: f64, first_loss: f64) -> TransferCourse {
        let loss = self.effective_loss();
        let lost_at = match loss {
            0.0 => f64::INFINITY,
            loss => SEGMENT_BYTES * (first_loss / loss).max(1.0),
        };
        let carried = self.without_loss()
            * if self.loss < 1.0 {
                1.0 - self.loss
            } else {
                1.0
            };
        let full = self.full_window() * SEGMENT_BYTES;
        let mut window = f64::from(INITIAL_WINDOW) * SEGMENT_BYTES;
        let (mut sent, mut seconds) = (0.0, 0.0);
        // Slow start: the window doubles each round trip, and is sent in one burst at the rate of
        // the hop.
        while window < full && sent < bytes.min(lost_at) {
            let left = bytes.min(lost_at) - sent;
            if left <= window {
                let ends = left >= bytes - sent;
                let burst = left * 8.0 / carried;
                let evenly = left / window * self.rtt;
                seconds += if ends { burst.min(evenly) } else { evenly };
                sent += left;
                break;
            }
            sent += window;
            seconds += self.rtt;
            window *= 2.0;
        }
        let slow_start = seconds;
        // At the full window, until the first loss or the end.
        let before_loss = (lost_at.min(bytes) - sent).max(0.0);
        seconds += before_loss * 8.0 / carried;
        sent += before_loss;
        let left = (bytes - sent).max(0.0) / SEGMENT_BYTES;
        let (after_loss, losses) = if left > 0.0 {
            self.after_first_loss(left, window.min(full) / SEGMENT_BYTES, loss)
        } else {
            (0.0, 0.0)
        };
        TransferCourse {
            seconds: seconds + after_loss,
            slow_start,
            after_loss,
            losses,
        }
    }

    /// Returns the seconds for `segments` segments after a loss at `window`, and the number of
    /// losses.
    fn after_first_loss(&self, segments: f64, window: f64, loss: f64) -> (f64, f64) {
        let full = self.full_window();
        let between = 1.0 / loss;
        let rtt = self
            .rtt
            .max(SEGMENT_BYTES * 8.0 / self.without_loss() / full);
        let (mut window, mut left, mut seconds) = (window.max(1.0), segments, 0.0);
        for _ in 0..MAX_FOLLOWED_LOSSES {
            let part = between.min(left);
            let (time, next) = self.between_losses(window, part, full, rtt);
            seconds += time;
            left -= part;
            if left <= 0.0 {
                return (seconds, segments * loss);
            }
            let settled = (next - window).abs() < MAX_SETTLED_CHANGE * window;
            window = next.max(1.0);
            if settled {
                break;
            }
        }
        let (time, _) = self.between_losses(window, between, full, rtt);
        // CUBIC's windows settle slowly, from above. From here on, the rate is at most that of the
        // long run.
        let each = (time / between).max(SEGMENT_BYTES * 8.0 / self.under_loss());
        (seconds + left * each, segments * loss)
    }

    /// Returns the seconds for `segments` segments after a loss at `window`, and the window at
    /// their end.
    fn between_losses(&self, window: f64, segments: f64, full: f64, rtt: f64) -> (f64, f64) {
        if self.control != CongestionModel::Cubic {
            let (rounds, end) = additive_growth(window * RENO_BETA, segments, full, 1.0);
            return (rounds * rtt, end);
        }
        let (rounds, end) = additive_growth(window * CUBIC_BETA, segments, full, CUBIC_ALPHA);
        let (seconds, cubic_end) = cubic_growth(window, segments, full, rtt);
        if rounds * rtt <= seconds {
            (rounds * rtt, end)
        } else {
            (seconds, cubic_end)
        }
    }
}

/// Returns the round trips for `segments` segments, from a window that grows by `step` segments per
/// round trip up to `full`; and the final window.
fn additive_growth(window: f64, segments: f64, full: f64, step: f64) -> (f64, f64) {
    let window = window.max(1.0);
    if window >= full {
        return (segments / full, full);
    }
    let until_full = (full * full - window * window) / (2.0 * step);
    if segments <= until_full {
        let end = (window * window + 2.0 * step * segments).sqrt();
        ((end - window) / step, end)
    } else {
        (
            (full - window) / step + (segments - until_full) / full,
            full,
        )
    }
}

/// Returns the seconds for `segments` segments after a loss at `window`, along CUBIC's curve up to
/// `full`; and the final window.
fn cubic_growth(window: f64, segments: f64, full: f64, rtt: f64) -> (f64, f64) {
    let k = (window * (1.0 - CUBIC_BETA) / CUBIC_C).cbrt();
    let at = |t: f64| CUBIC_C * (t - k).powi(3) + window;
    // Integral of the curve, one window per round trip.
    let sent = |t: f64| (CUBIC_C / 4.0 * ((t - k).powi(4) - k.powi(4)) + window * t) / rtt;
    let full_at = k + ((full - window).max(0.0) / CUBIC_C).cbrt();
    let until_full = sent(full_at);
    if segments >= until_full {
        return (full_at + (segments - until_full) / full * rtt, full);
    }
    // Newton's method on an increasing function, kept within bounds.
    let (mut low, mut high) = (0.0, full_at);
    let mut t = (segments * rtt / (window * CUBIC_BETA)).clamp(low, high);
    for _ in 0..8 {
        let off = sent(t) - segments;
        if off > 0.0 {
            high = t;
        } else {
            low = t;
        }
        let step = t - off * rtt / at(t).max(1.0);
        t = if step > low && step < high {
            step
        } else {
            (low + high) / 2.0
        };
        if off.abs() < 1e-3 * segments {
            break;
        }
    }
    (t, at(t))
}

#[cfg(test)]
mod tests;
