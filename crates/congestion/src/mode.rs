//! Phases of a connection: start-up, draining its queue, and probing in a cycle.

use crate::cycle::GainCycle;

/// Pacing gain of the start-up: the smallest that can double the rate each round.
const START_UP_GAIN: f64 = 2.77;
/// Pacing gain after the start-up, until its queue is drained.
const DRAIN_GAIN: f64 = 0.36;
/// Bandwidth-delay products in flight after the start-up. The second one bridges delayed
/// acknowledgements, and the round in which losses are repaired.
const WINDOW_GAIN: f64 = 2.0;
/// Growth of the bandwidth in a round that continues the start-up.
const START_UP_GROWTH: f64 = 1.25;
/// Rounds without such growth that end the start-up.
const START_UP_ROUNDS: u32 = 3;

/// Phase of a connection.
#[derive(Clone, Debug)]
pub(crate) enum Mode {
    StartUp(StartUp),
    Drain,
    Cycle(GainCycle),
}

/// Growth that the start-up has seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct StartUp {
    bandwidth: u64,
    flat_rounds: u32,
}

impl Mode {
    pub fn is_start_up(&self) -> bool {
        matches!(self, Self::StartUp(_))
    }

    /// Returns the pacing rate as a multiple of the bandwidth.
    pub fn pacing_gain(&self) -> f64 {
        match self {
            Self::StartUp(_) => START_UP_GAIN,
            Self::Drain => DRAIN_GAIN,
            Self::Cycle(cycle) => cycle.gain(),
        }
    }

    /// Returns the window as a multiple of the bandwidth-delay product.
    pub fn window_gain(&self) -> f64 {
        match self {
            Self::StartUp(_) => START_UP_GAIN,
            Self::Drain | Self::Cycle(_) => WINDOW_GAIN,
        }
    }

    /// Ends a round that the application did not limit. The start-up ends if the bandwidth has
    /// stopped to grow.
    pub fn end_round(&mut self, bandwidth: u64) {
        let Self::StartUp(start_up) = self else {
            return;
        };
        if bandwidth as f64 >= START_UP_GROWTH * start_up.bandwidth as f64 {
            *start_up = StartUp {
                bandwidth,
                flat_rounds: 0,
            };
            return;
        }
        start_up.flat_rounds += 1;
        if start_up.flat_rounds >= START_UP_ROUNDS {
            *self = Self::Drain;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_up_ends_after_three_flat_rounds() {
        let mut mode = Mode::StartUp(StartUp::default());
        for bandwidth in [100, 200, 220, 240, 300, 310, 320] {
            mode.end_round(bandwidth);
            assert!(mode.is_start_up());
        }
        mode.end_round(330);
        assert!(matches!(mode, Mode::Drain));
    }
}
