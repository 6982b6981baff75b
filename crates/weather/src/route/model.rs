//! How long TCP takes over one hop, from the first segment's departure to the last one's, set-up
//! and propagation left out.
//!
//! The long run is [`quantities::path`]'s: Mathis et al. for Reno, section 5 of RFC 9438 for CUBIC.
//! A transfer is often over before the long run has begun: after slow start the window is far above
//! what losses leave of it, and comes down by one loss at a time. So losses are followed one by
//! one, `1 / loss` segments apart, each window from the one before by the congestion control's own
//! rule; spaced evenly, Reno's settle at Mathis' average, from which the rest is extrapolated.

use quantities::path::{ETHERNET_MSS, INITIAL_WINDOW};
use serde::{Deserialize, Serialize};

/// How much of a window CUBIC keeps after a loss (RFC 9438, section 4.6).
const CUBIC_BETA: f64 = 0.7;
/// How steep CUBIC's curve is, in segments per second cubed (RFC 9438, section 5).
const CUBIC_C: f64 = 0.4;
/// Segments a round trip by which CUBIC grows in its Reno-friendly region (RFC 9438, section 4.3).
const CUBIC_ALPHA: f64 = 3.0 * (1.0 - CUBIC_BETA) / (1.0 + CUBIC_BETA);
/// Reno halves the window (RFC 5681).
const RENO_BETA: f64 = 0.5;
/// The loss above which BBR (version 1) no longer holds the bottleneck's rate: its paper shows the
/// rate to fall beyond 15 %; half of that is taken, because depots and ends run what their kernels
/// have.
const MAX_BBR_LOSS: f64 = 0.075;
/// Losses that are followed one by one at most; beyond, the long run is taken to have begun.
const MAX_FOLLOWED_LOSSES: usize = 24;
/// The window after a loss has settled when it differs from the one before by less than this part.
const MAX_SETTLED_CHANGE: f64 = 0.02;
/// A full segment's payload, in bytes.
const SEGMENT: f64 = ETHERNET_MSS as f64;
/// A path that is slower than this, in bit/s, is taken to be that fast, so that times stay finite.
const MIN_RATE_BPS: f64 = 1.0;

/// The median of an exponential distribution, by its mean: how much of `1 / loss` goes before the
/// first loss in half of all cases.
pub const MEDIAN_FIRST_LOSS: f64 = std::f64::consts::LN_2;
/// The same in one case of ten.
pub const EARLY_FIRST_LOSS: f64 = 0.105_360_515_657_826_3;
/// The same in nine cases of ten.
pub const LATE_FIRST_LOSS: f64 = std::f64::consts::LN_10;

/// A sender's congestion control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Control {
    /// RFC 5681.
    Reno,
    /// RFC 9438.
    #[default]
    Cubic,
    /// Near the bottleneck's rate, whatever is lost, up to some percent.
    Bbr,
}

/// One connection's hop.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hop {
    /// Round trip, in seconds.
    pub rtt: f64,
    /// What this connection may carry at most, in bit/s of payload.
    pub rate: f64,
    /// The chance that a segment is lost.
    pub loss: f64,
    /// The largest window that both hosts allow, in bytes; infinite if none.
    pub window: f64,
    /// The sender's congestion control.
    pub control: Control,
}

/// How long some bytes take, and what of it is whose.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Course {
    /// From the first segment's departure to the last one's.
    pub seconds: f64,
    /// Of that, in slow start.
    pub slow_start: f64,
    /// Of that, behind the first loss.
    pub after_loss: f64,
    /// Losses behind the first.
    pub losses: f64,
}

/// The greatest loss with which a connection carries a rate in the long run, by the kinder of
/// Mathis et al. and CUBIC (RFC 9438, section 5), with a round trip in seconds and a rate in bit/s:
/// whoever carried as much and lost more lost it to a queue that was full, as at the end of slow
/// start, and not by the path's chance.
#[must_use]
pub fn most_loss_at(rate: f64, rtt: f64) -> f64 {
    let window = rate * rtt / (SEGMENT * 8.0);
    if !(window > 0.0 && rtt > 0.0) {
        return 1.0;
    }
    let reno = 1.5 / (window * window);
    let cubic = rtt * (cubic_factor() / window).powf(4.0 / 3.0);
    reno.max(cubic).min(1.0)
}

/// The window that CUBIC's curve keeps, in segments, by the round trip and the loss to the power of
/// three quarters (RFC 9438, section 5.1).
fn cubic_factor() -> f64 {
    (CUBIC_C * (3.0 + CUBIC_BETA) / (4.0 * (1.0 - CUBIC_BETA))).powf(0.25)
}

impl Hop {
    /// The window that fills the hop, or that hosts allow where that is less; in segments, never
    /// less than one.
    fn full_window(&self) -> f64 {
        (self.rate.max(MIN_RATE_BPS) * self.rtt / 8.0)
            .min(self.window)
            .max(SEGMENT)
            / SEGMENT
    }

    /// What it carries with that window, in bit/s.
    #[must_use]
    pub fn without_loss(&self) -> f64 {
        self.rate.max(MIN_RATE_BPS).min(if self.rtt > 0.0 {
            self.window.max(SEGMENT) * 8.0 / self.rtt
        } else {
            f64::INFINITY
        })
    }

    /// What losses let it carry in the long run, in bit/s.
    #[must_use]
    pub fn under_loss(&self) -> f64 {
        let loss = self.loss_that_counts();
        if loss == 0.0 || self.rtt <= 0.0 {
            return f64::INFINITY;
        }
        let reno = (1.5 / loss).sqrt();
        let window = match self.control {
            Control::Reno | Control::Bbr => reno,
            Control::Cubic => reno.max(cubic_factor() * (self.rtt / loss).powf(0.75)),
        };
        window * SEGMENT * 8.0 / self.rtt
    }

    /// The loss that the congestion control minds.
    fn loss_that_counts(&self) -> f64 {
        match self.control {
            Control::Bbr if self.loss <= MAX_BBR_LOSS => 0.0,
            _ => self.loss.clamp(0.0, 1.0),
        }
    }

    /// How long so many bytes take. The first loss comes when `first_loss / loss` segments were
    /// sent.
    #[must_use]
    pub fn course(&self, bytes: f64, first_loss: f64) -> Course {
        let loss = self.loss_that_counts();
        let lost_at = match loss {
            0.0 => f64::INFINITY,
            loss => SEGMENT * (first_loss / loss).max(1.0),
        };
        let carried = self.without_loss()
            * if self.loss < 1.0 {
                1.0 - self.loss
            } else {
                1.0
            };
        let full = self.full_window() * SEGMENT;
        let mut window = f64::from(INITIAL_WINDOW) * SEGMENT;
        let (mut sent, mut seconds) = (0.0, 0.0);
        // Slow start: the window doubles each round trip, and leaves in one burst at the rate of
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
        let left = (bytes - sent).max(0.0) / SEGMENT;
        let (after_loss, losses) = if left > 0.0 {
            self.after_first_loss(left, window.min(full) / SEGMENT, loss)
        } else {
            (0.0, 0.0)
        };
        Course {
            seconds: seconds + after_loss,
            slow_start,
            after_loss,
            losses,
        }
    }

    /// Seconds for so many segments behind a loss at a window, and how many losses that is.
    fn after_first_loss(&self, segments: f64, window: f64, loss: f64) -> (f64, f64) {
        let full = self.full_window();
        let between = 1.0 / loss;
        let rtt = self.rtt.max(SEGMENT * 8.0 / self.without_loss() / full);
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
        // CUBIC's windows settle slowly, from above: no more is carried from here on than in the
        // long run.
        let each = (time / between).max(SEGMENT * 8.0 / self.under_loss());
        (seconds + left * each, segments * loss)
    }

    /// Seconds for so many segments from a loss at a window on, and the window at their end.
    fn between_losses(&self, window: f64, segments: f64, full: f64, rtt: f64) -> (f64, f64) {
        if self.control != Control::Cubic {
            let (rounds, end) = additive(window * RENO_BETA, segments, full, 1.0);
            return (rounds * rtt, end);
        }
        let (rounds, end) = additive(window * CUBIC_BETA, segments, full, CUBIC_ALPHA);
        let (seconds, cubic_end) = cubic(window, segments, full, rtt);
        if rounds * rtt <= seconds {
            (rounds * rtt, end)
        } else {
            (seconds, cubic_end)
        }
    }
}

/// Round trips for so many segments, from a window that grows by `step` segments each round trip up
/// to `full`; and where it ends.
fn additive(window: f64, segments: f64, full: f64, step: f64) -> (f64, f64) {
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

/// Seconds for so many segments behind a loss at `window`, along CUBIC's curve up to `full`; and
/// where it ends.
fn cubic(window: f64, segments: f64, full: f64, rtt: f64) -> (f64, f64) {
    let k = (window * (1.0 - CUBIC_BETA) / CUBIC_C).cbrt();
    let at = |t: f64| CUBIC_C * (t - k).powi(3) + window;
    // The integral of the curve, one window a round trip.
    let sent = |t: f64| (CUBIC_C / 4.0 * ((t - k).powi(4) - k.powi(4)) + window * t) / rtt;
    let full_at = k + ((full - window).max(0.0) / CUBIC_C).cbrt();
    let until_full = sent(full_at);
    if segments >= until_full {
        return (full_at + (segments - until_full) / full * rtt, full);
    }
    // Newton's method on an increasing function, kept between bounds.
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
