//! Ends slow start before it ends in losses.
//!
//! Reno doubles its window until a queue overflows, and loses up to half a window at once. CUBIC's
//! slow start on Linux ends by the delay that it causes (HyStart; RFC 9406 describes its
//! successor). So a flow with Reno borrows CUBIC for its start. It gets Reno back when it has
//! recovered from the first loss: the window is as wide again, or is cut once more. An earlier
//! return would be slow, because Reno grows by one segment per round trip. HyStart may have ended
//! slow start too early because the delay varies, or a short queue may have caused the first loss
//! before the window was as wide as the path.

use std::time::Duration;

use crate::{Action, Cause, CongestionName, Sample, orders::Orders};

/// Minimum round trip of a guarded flow. On shorter paths a flow recovers from the losses before
/// anybody notices.
const MIN_GUARDED_RTT: Duration = Duration::from_millis(20);

/// Decides on the congestion control in slow start. Pure: samples in, orders out.
#[derive(Debug, Clone, Default)]
pub(crate) enum SlowStartGuard {
    /// No action was taken yet.
    #[default]
    Waiting,
    /// CUBIC is borrowed.
    Borrowed {
        /// The flow's own congestion control.
        own: CongestionName,
        /// Segments retransmitted before CUBIC was borrowed.
        retransmits: u32,
        /// Widest congestion window since then, in segments.
        widest: u32,
    },
    /// CUBIC is borrowed, and the first loss has happened.
    Regaining {
        /// The flow's own congestion control.
        own: CongestionName,
        /// Widest congestion window before the loss, in segments.
        widest: u32,
        /// Threshold that the loss set, in segments; another loss changes it.
        threshold: Option<u32>,
    },
    /// Slow start is over, or cannot be helped.
    Over,
}

impl SlowStartGuard {
    /// Takes a sample of the sender.
    pub(crate) fn observe(&mut self, sample: &Sample) -> Orders {
        let info = &sample.info;
        let name = sample.congestion.name;
        let borrowed = matches!(self, Self::Borrowed { .. } | Self::Regaining { .. });
        if borrowed && name.as_str() != "cubic" {
            // The kernel refused, or the program has chosen another one since.
            *self = Self::Over;
        }
        match self {
            Self::Waiting if info.slow_start_threshold.is_some() || name.as_str() != "reno" => {
                *self = Self::Over;
            }
            Self::Waiting if info.rtt >= MIN_GUARDED_RTT => {
                *self = Self::Borrowed {
                    own: name,
                    retransmits: info.retransmits,
                    widest: info.congestion_window,
                };
                let cubic = CongestionName::from_kernel(b"cubic");
                return Orders::one(Action::CongestionControl(cubic), Cause::BlindSlowStart);
            }
            Self::Borrowed {
                own,
                retransmits,
                widest,
            } => {
                if info.retransmits == *retransmits {
                    *widest = info.congestion_window.max(*widest);
                } else {
                    *self = Self::Regaining {
                        own: *own,
                        widest: *widest,
                        threshold: info.slow_start_threshold,
                    };
                }
            }
            Self::Regaining {
                own,
                widest,
                threshold,
            } if info.congestion_window >= *widest || info.slow_start_threshold != *threshold => {
                let back = Action::CongestionControl(*own);
                *self = Self::Over;
                let window = sample.congestion_window();
                return Orders::one(back, Cause::SlowStartOver { window });
            }
            _ => {}
        }
        Orders::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Congestion, TcpInfo};

    fn sample(name: &[u8], threshold: Option<u32>, retransmits: u32) -> Sample {
        Sample {
            info: TcpInfo {
                rtt: Duration::from_millis(100),
                slow_start_threshold: threshold,
                retransmits,
                ..TcpInfo::default()
            },
            congestion: Congestion {
                name: CongestionName::from_kernel(name),
                bbr: None,
            },
            ..Sample::default()
        }
    }

    fn set(orders: &Orders) -> Vec<String> {
        orders
            .iter()
            .map(|(action, _)| action.to_string())
            .collect()
    }

    /// Returns a sample of a flow that has borrowed CUBIC, with this window.
    fn later(window: u32, threshold: u32, retransmits: u32) -> Sample {
        let mut sample = sample(b"cubic", Some(threshold), retransmits);
        sample.info.congestion_window = window;
        sample
    }

    #[test]
    fn reno_borrows_cubic_until_recovery_from_first_loss() {
        for (last, window) in [
            (later(400, 280, 12), "regained"),
            (later(250, 240, 15), "cut again"),
        ] {
            let mut guard = SlowStartGuard::default();
            // The handshake's retransmission is not a loss of the flow.
            assert_eq!(
                set(&guard.observe(&sample(b"reno", None, 1))),
                ["congestion control cubic"]
            );
            assert_eq!(guard.observe(&sample(b"cubic", None, 1)), Orders::default());
            assert_eq!(guard.observe(&later(400, 390, 1)), Orders::default());
            // One loss costs several segments, over several samples.
            assert_eq!(guard.observe(&later(390, 280, 2)), Orders::default());
            assert_eq!(guard.observe(&later(280, 280, 9)), Orders::default());
            assert_eq!(guard.observe(&later(399, 280, 12)), Orders::default());
            assert_eq!(
                set(&guard.observe(&last)),
                ["congestion control reno"],
                "{window}"
            );
            assert_eq!(
                guard.observe(&sample(b"reno", Some(300), 99)),
                Orders::default()
            );
        }
    }

    #[test]
    fn only_reno_in_slow_start_borrows_cubic() {
        for (name, threshold) in [
            (b"cubic".as_slice(), None),
            (b"bbr", None),
            (b"", None),
            (b"reno", Some(10)),
        ] {
            let mut guard = SlowStartGuard::default();
            assert_eq!(
                guard.observe(&sample(name, threshold, 0)),
                Orders::default()
            );
            assert_eq!(guard.observe(&sample(b"reno", None, 0)), Orders::default());
        }
    }

    #[test]
    fn a_short_path_is_left_alone_until_it_is_long() {
        let mut guard = SlowStartGuard::default();
        let mut near = sample(b"reno", None, 0);
        near.info.rtt = Duration::from_millis(1);
        assert_eq!(guard.observe(&near), Orders::default());
        assert!(!set(&guard.observe(&sample(b"reno", None, 0))).is_empty());
    }

    #[test]
    fn refused_or_changed_congestion_control_is_kept() {
        for name in [b"reno".as_slice(), b"bbr"] {
            let mut guard = SlowStartGuard::default();
            guard.observe(&sample(b"reno", None, 0));
            assert_eq!(guard.observe(&sample(name, None, 0)), Orders::default());
            assert_eq!(
                guard.observe(&sample(b"cubic", Some(9), 5)),
                Orders::default()
            );
        }
    }
}
