//! CUBIC (RFC 9438), with fast convergence and the Reno-friendly region. Windows are packets.

use std::time::Duration;

const SCALE: f64 = 0.4;
const DECREASE: f64 = 0.7;

#[derive(Clone, Debug)]
pub struct Cubic {
    window: f64,
    threshold: f64,
    /// Window before the last reduction.
    maximum: f64,
    epoch: Option<Epoch>,
    /// Packets sent before this time belong to a loss that was responded to.
    recovery_began_at: Option<Duration>,
}

#[derive(Clone, Debug)]
struct Epoch {
    began_at: Duration,
    /// Seconds until the window is at its former maximum.
    plateau: f64,
    reno_window: f64,
}

impl Cubic {
    pub fn new() -> Self {
        Self {
            window: 10.0,
            threshold: f64::INFINITY,
            maximum: 0.0,
            epoch: None,
            recovery_began_at: None,
        }
    }

    pub fn window(&self) -> f64 {
        self.window
    }

    pub fn on_ack(&mut self, sent_at: Duration, round_trip: Duration, now: Duration) {
        if self.recovery_began_at.is_some_and(|began| sent_at <= began) {
            return;
        }
        if self.window < self.threshold {
            self.window += 1.0;
            return;
        }
        let (window, maximum) = (self.window, self.maximum.max(self.window));
        let epoch = self.epoch.get_or_insert_with(|| Epoch {
            began_at: now,
            plateau: ((maximum - window) / SCALE).cbrt(),
            reno_window: window,
        });
        let elapsed = (now - epoch.began_at + round_trip).as_secs_f64();
        let cubic = SCALE * (elapsed - epoch.plateau).powi(3) + maximum;
        epoch.reno_window += 3.0 * (1.0 - DECREASE) / (1.0 + DECREASE) / window;
        let target = cubic.max(epoch.reno_window).min(1.5 * window);
        if target > window {
            self.window += (target - window) / window;
        }
    }

    pub fn on_loss(&mut self, sent_at: Duration, now: Duration) {
        if self.recovery_began_at.is_some_and(|began| sent_at <= began) {
            return;
        }
        self.recovery_began_at = Some(now);
        let converges = self.window < self.maximum;
        self.maximum = self.window
            * if converges {
                (1.0 + DECREASE) / 2.0
            } else {
                1.0
            };
        self.window = (self.window * DECREASE).max(2.0);
        self.threshold = self.window;
        self.epoch = None;
    }

    pub fn on_timeout(&mut self, now: Duration) {
        self.on_loss(now, now);
        self.window = 2.0;
    }
}
