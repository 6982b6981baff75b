//! A socket, with its sampler, its estimator and its right-sizing.

use std::{
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
    time::Duration,
};

use crate::{
    Action, ActionOutcome, Advice, Applied, Budget, BudgetClaim, Cause, Estimator, HostLimits,
    Mode, Sample, SampleError, Sampler, Side, Verdict,
    auto::{AutoMode, unsent_allowance},
    classic::ClassicMode,
    open_receive_window, options,
    orders::{MAX_ACTIONS, Orders},
    paper_plus::PaperPlus,
    slow_start::SlowStartGuard,
};

/// Window that [`Flow::opening_window`] opens, in bytes: sixteen of them carry 1 Gbit/s over 250
/// ms.
pub const START_WINDOW_BYTES: u32 = 2 << 20;

/// One connection under right-sizing. It has a fixed size; a [`step`](Self::step) allocates
/// nothing.
///
/// ```no_run
/// # fn main() -> Result<(), drs::FlowError> {
/// # let socket = std::net::TcpStream::connect("store.example:7511").unwrap();
/// use drs::{Flow, Mode, SAMPLE_PERIOD, Side};
///
/// let mut flow = Flow::new(Mode::Auto, Side::Receiving);
/// let start = std::time::Instant::now();
/// loop {
///     let step = flow.step(&socket, start.elapsed())?;
///     for applied in step.actions {
///         println!("{applied}");
///     }
///     std::thread::sleep(SAMPLE_PERIOD);
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct Flow {
    mode: Mode,
    side: Side,
    sampler: Sampler,
    estimator: Estimator,
    auto: AutoMode,
    guard: SlowStartGuard,
    sizing: ModeState,
    claim: Option<BudgetClaim>,
    fitted_rate: Option<u64>,
    /// Limit on unsent bytes if the flow keeps them few from the first sample on; 0 before that
    /// sample.
    unsent_limit: Option<u32>,
    /// Window to open at the first sample, in bytes.
    receive_window: Option<u32>,
    /// Actions that the kernel refused, which are not repeated. Refusals that find no free slot are
    /// forgotten.
    refused: [Option<Action>; 8],
    applied: [Applied; MAX_ACTIONS],
    latest: Option<Verdict>,
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // a box would allocate, and a flow is small
enum ModeState {
    None,
    Classic(ClassicMode),
    PaperPlus(PaperPlus),
}

/// Result of one step.
#[derive(Debug)]
pub struct FlowStep<'a> {
    /// Sample that was taken.
    pub sample: Sample,
    /// Verdict, if an interval closed with this sample.
    pub verdict: Option<Verdict>,
    /// Actions with their causes; empty in most steps.
    pub actions: &'a [Applied],
    /// Advice for limits that no option of this socket can change.
    pub advice: Option<Advice>,
}

/// Reason why a step was not possible.
#[derive(Debug, thiserror::Error)]
pub enum FlowError {
    /// The socket gave no sample: it is not a TCP socket, or the kernel is not supported.
    #[error(transparent)]
    Sample(#[from] SampleError),
}

impl Flow {
    /// Returns a flow of one side of a connection. It reads this host's limits from
    /// `/proc/sys/net`. If many flows start, read them once and use [`with_host`](Self::with_host).
    #[must_use]
    pub fn new(mode: Mode, side: Side) -> Self {
        // The other modes ask the kernel, and see what it grants.
        let host = match mode {
            Mode::Observe | Mode::Auto => HostLimits::read(),
            Mode::Classic | Mode::PaperPlus => HostLimits::default(),
        };
        Self::with_host(mode, side, host)
    }

    /// Returns a flow with limits of the host that were read before.
    #[must_use]
    pub fn with_host(mode: Mode, side: Side, host: HostLimits) -> Self {
        const NOTHING: Applied = Applied {
            action: Action::UnlockReceive,
            cause: Cause::HostLimit { limit: 0 },
            outcome: ActionOutcome::Refused(0),
        };
        Self {
            mode,
            side,
            sampler: Sampler::new(),
            estimator: Estimator::new(side),
            auto: AutoMode::new(side, host),
            guard: match (mode, side) {
                (Mode::Auto, Side::Sending) => SlowStartGuard::default(),
                _ => SlowStartGuard::Over,
            },
            sizing: match mode {
                Mode::Observe | Mode::Auto => ModeState::None,
                Mode::Classic => ModeState::Classic(ClassicMode::new(side)),
                Mode::PaperPlus => ModeState::PaperPlus(PaperPlus::new(side)),
            },
            claim: None,
            fitted_rate: None,
            unsent_limit: None,
            receive_window: None,
            refused: [None; 8],
            applied: [NOTHING; MAX_ACTIONS],
            latest: None,
        }
    }

    /// Puts the flow's buffer under a budget that it shares with others. Only [`Mode::PaperPlus`]
    /// follows the budget.
    #[must_use]
    pub fn with_budget(mut self, budget: &Arc<Budget>) -> Self {
        self.claim = Some(budget.open_claim());
        self
    }

    /// Leaves the congestion control alone: losses then lead to advice only, and slow start is not
    /// ended early. For callers whose user chose it, or who share a bottleneck with other
    /// loss-based flows.
    #[must_use]
    pub fn keeping_congestion_control(mut self) -> Self {
        self.auto.keeps_congestion = true;
        self.guard = SlowStartGuard::Over;
        self
    }

    /// Keeps the unsent data small from the first sample on, and allows more as more is in flight
    /// (`TCP_NOTSENT_LOWAT`). Works for senders in [`Mode::Auto`], and is meant for callers
    /// whose streams share their work. It is not reported as an action of a [`FlowStep`]. Without
    /// it, only a large backlog is cut.
    #[must_use]
    pub fn limiting_unsent(mut self) -> Self {
        if self.mode == Mode::Auto && self.side == Side::Sending {
            self.auto.unsent_limited = true;
            self.unsent_limit = Some(0);
        }
        self
    }

    /// Opens the receive window up to [`START_WINDOW_BYTES`] at the first sample
    /// ([`open_receive_window`](crate::open_receive_window)), so that the sender's slow start need
    /// not wait for autotuning. Works for receivers in [`Mode::Auto`], and is meant for bulk
    /// data. It is not reported as an action of a [`FlowStep`].
    #[must_use]
    pub fn opening_window(mut self) -> Self {
        if self.mode == Mode::Auto && self.side == Side::Receiving {
            self.receive_window = Some(START_WINDOW_BYTES);
        }
        self
    }

    /// Sets the rate that the caller wants to reach, in bit/s, so that advice can name a number of
    /// streams. Without it, the advice is to double them.
    pub fn set_goal(&mut self, bps: Option<u64>) {
        self.auto.aim_bps = bps;
    }

    /// Sets the rate that the caller has reserved, in bytes per second. [`Mode::Auto`] paces
    /// the sender to it, so that no burst meets the reservation's policer.
    pub fn set_reservation(&mut self, rate: Option<u64>) {
        self.auto.reserved = rate;
    }

    /// Sets the rate to which the caller limits the flow because the path carries no more, in bytes
    /// per second ([`FlowGuard::fitted_rate`](crate::FlowGuard::fitted_rate)). At that rate the
    /// limit counts as the path, not as pacing.
    pub const fn set_fitted_rate(&mut self, rate: Option<u64>) {
        self.fitted_rate = rate;
    }

    /// Returns the mode.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns the side of the connection on which the socket is.
    #[must_use]
    pub const fn side(&self) -> Side {
        self.side
    }

    /// Returns the most recent verdict, if there was one.
    #[must_use]
    pub const fn verdict(&self) -> Option<&Verdict> {
        self.latest.as_ref()
    }

    /// Samples the socket, judges, and acts as the mode allows. Call it about every
    /// [`SAMPLE_PERIOD`](crate::SAMPLE_PERIOD). `now` counts from any fixed start and never goes
    /// back. An action that the kernel refuses is reported and not repeated.
    ///
    /// # Errors
    /// [`FlowError`] if there is no sample; the socket is unchanged then.
    pub fn step(&mut self, socket: impl AsFd, now: Duration) -> Result<FlowStep<'_>, FlowError> {
        let socket = socket.as_fd();
        if let Some(window) = self.receive_window.take() {
            // If the kernel refuses, autotuning begins as usual.
            let _ = open_receive_window(socket, window);
        }
        let mut sample = self.sampler.sample(socket, now)?;
        sample.fitted_rate = self.fitted_rate;
        let verdict = self.estimator.observe(&sample);
        self.latest = verdict.or(self.latest);
        let in_flight = verdict.map_or(0, |verdict| verdict.evidence.in_flight);
        if let Some(limit) = self
            .unsent_limit
            .and_then(|limit| wider_unsent_limit(limit, in_flight))
        {
            self.unsent_limit = Some(limit);
            // If the kernel refuses, the program may write ahead as usual.
            let _ = options::apply(socket, Action::UnsentLimit(limit));
        }
        let orders = (self.guard.observe(&sample).iter()).fold(
            self.decide(&sample, verdict.as_ref()),
            |orders, (action, cause)| orders.with(action, cause),
        );
        let count = self.carry_out(socket, &orders);
        Ok(FlowStep {
            sample,
            verdict,
            actions: self.applied.get(..count).unwrap_or_default(),
            advice: orders.advice,
        })
    }

    fn decide(&mut self, sample: &Sample, verdict: Option<&Verdict>) -> Orders {
        match (&mut self.sizing, verdict) {
            (ModeState::Classic(classic), _) => classic.observe(sample),
            (ModeState::PaperPlus(sizing), _) => {
                let claim = self.claim.as_ref();
                // A window takes twice its size in the kernel's accounts.
                sizing.observe(sample, |window| {
                    claim.map_or(window, |claim| claim.request(window.saturating_mul(2)) / 2)
                })
            }
            (ModeState::None, Some(verdict)) => {
                let orders = self.auto.decide(sample, verdict);
                if self.mode == Mode::Auto {
                    orders
                } else {
                    orders.advice_only()
                }
            }
            (ModeState::None, None) => Orders::default(),
        }
    }

    /// Carries out the actions that were not refused before. Returns the number of attempts.
    fn carry_out(&mut self, socket: BorrowedFd<'_>, orders: &Orders) -> usize {
        let mut count = 0;
        for (action, cause) in orders.iter() {
            if self
                .refused
                .iter()
                .flatten()
                .any(|refused| refused.shares_refusal_with(action))
            {
                continue;
            }
            let outcome = options::apply(socket, action);
            match outcome {
                ActionOutcome::Refused(_) => {
                    if let Some(free) = self.refused.iter_mut().find(|slot| slot.is_none()) {
                        *free = Some(action);
                    }
                }
                ActionOutcome::Set(made) => {
                    if let (Some(claim), Action::ReceiveBuffer(_) | Action::SendBuffer(_)) =
                        (&self.claim, action)
                    {
                        claim.report_held(made.into());
                    }
                }
            }
            if let Some(slot) = self.applied.get_mut(count) {
                *slot = Applied {
                    action,
                    cause,
                    outcome,
                };
                count += 1;
            }
        }
        count
    }
}

/// Returns a new limit on unsent bytes if the current one is small for what is in flight, or
/// missing.
fn wider_unsent_limit(limit: u32, in_flight: u64) -> Option<u32> {
    let allowance = unsent_allowance(in_flight);
    (allowance >= limit.saturating_mul(2)).then_some(allowance)
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
    };

    use super::*;
    use crate::CongestionName;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (sender, listener.accept().unwrap().0)
    }

    #[test]
    fn every_mode_steps_on_both_sides_and_only_those_that_may_set() {
        let (sender, receiver) = pair();
        for mode in Mode::ALL {
            for (socket, side) in [(&sender, Side::Sending), (&receiver, Side::Receiving)] {
                let mut flow = Flow::new(mode, side);
                for millis in (0..2_000).step_by(20) {
                    let step = flow.step(socket, Duration::from_millis(millis)).unwrap();
                    assert!(mode != Mode::Observe || step.actions.is_empty());
                }
            }
        }
    }

    #[test]
    fn refused_action_is_not_repeated() {
        let (sender, _receiver) = pair();
        let mut flow = Flow::new(Mode::Auto, Side::Sending);
        let unknown = Action::CongestionControl(CongestionName::from_kernel(b"no-such"));
        let orders = Orders::one(unknown, Cause::Reserved { rate: 1 });
        assert_eq!(flow.carry_out(sender.as_fd(), &orders), 1);
        assert!(matches!(flow.applied[0].outcome, ActionOutcome::Refused(_)));
        assert_eq!(flow.carry_out(sender.as_fd(), &orders), 0);
    }

    #[test]
    fn refused_size_counts_for_other_sizes_of_that_buffer() {
        let no_socket = std::fs::File::open("/dev/null").unwrap();
        let mut flow = Flow::new(Mode::Auto, Side::Sending);
        let mut attempts = |action| {
            let orders = Orders::one(action, Cause::Reserved { rate: 1 });
            flow.carry_out(no_socket.as_fd(), &orders)
        };
        let congestion = |name| Action::CongestionControl(CongestionName::from_kernel(name));
        assert_eq!(attempts(Action::SendBuffer(40_000)), 1);
        assert_eq!(attempts(Action::SendBuffer(80_000)), 0);
        assert_eq!(attempts(Action::ReceiveBuffer(80_000)), 1);
        assert_eq!(attempts(congestion(b"reno")), 1);
        assert_eq!(attempts(congestion(b"cubic")), 1);
        assert_eq!(attempts(congestion(b"reno")), 0);
    }

    #[test]
    fn unsent_limit_follows_bytes_in_flight() {
        let (sender, _receiver) = pair();
        for (mode, side, limit) in [
            (Mode::Auto, Side::Sending, Some(256 << 10)),
            (Mode::Auto, Side::Receiving, None),
            (Mode::Observe, Side::Sending, None),
        ] {
            let mut flow = Flow::new(mode, side).limiting_unsent();
            assert!(
                flow.step(&sender, Duration::ZERO)
                    .unwrap()
                    .actions
                    .is_empty()
            );
            assert_eq!(flow.unsent_limit, limit);
        }
        assert_eq!(wider_unsent_limit(0, 0), Some(256 << 10));
        assert_eq!(wider_unsent_limit(256 << 10, 1_000_000), None);
        assert_eq!(wider_unsent_limit(256 << 10, 2_000_000), Some(1_000_000));
    }

    #[test]
    fn window_opens_once_and_single_bytes_still_wake_reader() {
        let buffer =
            |socket: &TcpStream| rustix::net::sockopt::socket_recv_buffer_size(socket).unwrap();
        for (mode, side, opens) in [
            (Mode::Auto, Side::Receiving, true),
            (Mode::Auto, Side::Sending, false),
            (Mode::Observe, Side::Receiving, false),
        ] {
            let (mut sender, mut receiver) = pair();
            let before = buffer(&receiver);
            let mut flow = Flow::new(mode, side).opening_window();
            assert!(
                flow.step(&receiver, Duration::ZERO)
                    .unwrap()
                    .actions
                    .is_empty()
            );
            assert_eq!(buffer(&receiver) > before, opens);
            assert_eq!(flow.receive_window, None);
            sender.write_all(&[7]).unwrap();
            let mut byte = [0];
            receiver.read_exact(&mut byte).unwrap();
            assert_eq!(byte, [7]);
        }
        assert!(open_receive_window(std::fs::File::open("/dev/null").unwrap(), 1).is_err());
    }

    #[test]
    fn a_flow_is_small_and_another_socket_is_an_error() {
        assert!(size_of::<Flow>() < 4096, "{}", size_of::<Flow>());
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(
            Flow::new(Mode::Auto, Side::Sending)
                .step(&socket, Duration::ZERO)
                .is_err()
        );
    }
}
