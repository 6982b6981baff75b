//! Fits the sending rates of sockets to their paths, in one thread for all flows.
//!
//! It is a thread and not an asynchronous task because a train of acknowledgements lasts
//! milliseconds. A busy runtime may take as long between two checks of its timer. The thread starts
//! with the first flow and ends after the last.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, OnceLock},
    thread,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};

use crate::{
    FitSample, FitState, PacingLimit, RateFit, Siblings, TcpInfo, TcpInfoError, set_max_pacing_rate,
};

/// Maximum share of one processor for sampling sockets. One flow in slow start, sampled 3000 times
/// per second, takes less; many flows are sampled less often.
const MAX_PROCESSOR_SHARE: f64 = 0.05;

/// Fits flows while their guards live. Clones fit together, and share one thread.
#[derive(Debug, Clone, Default)]
pub struct RateFitter(Arc<SharedFlows>);

/// One flow of a [`RateFitter`]. Dropping it releases the flow at once: the socket gets its former
/// limit back.
#[derive(Debug)]
pub struct FlowGuard {
    shared: Arc<SharedFlows>,
    number: u64,
}

/// Reason why a flow cannot be fitted.
#[derive(Debug, thiserror::Error)]
pub enum RateFitError {
    /// The socket reports too little of its flow.
    #[error(transparent)]
    TcpInfo(#[from] TcpInfoError),
    /// The socket is not connected, or no descriptor is free for it.
    #[error("cannot watch the socket: {0}")]
    Socket(io::Error),
    /// The kernel does not limit the rate of this socket.
    #[error("cannot set SO_MAX_PACING_RATE: {0}")]
    Pacing(io::Error),
    /// The thread cannot be started.
    #[error("cannot start a thread to fit sending rates: {0}")]
    Thread(io::Error),
}

#[derive(Debug, Default)]
struct SharedFlows {
    flows: Mutex<FittedFlows>,
    added: Condvar,
}

#[derive(Debug, Default)]
struct FittedFlows {
    list: Vec<FittedFlow>,
    next_number: u64,
    /// If true, the thread runs.
    is_watched: bool,
}

#[derive(Debug)]
struct FittedFlow {
    number: u64,
    socket: OwnedFd,
    /// Address of the peer; flows to the same one share a path.
    destination: IpAddr,
    began: Instant,
    earlier_retransmits: u32,
    /// Former limit of the socket, which is restored when the flow is released.
    earlier_limit: Option<u64>,
    fit: RateFit,
    /// Error of the socket or the kernel; the flow is left to TCP.
    failed: Option<Arc<RateFitError>>,
    /// Sample of the current sweep.
    sample: Option<FitSample>,
}

impl RateFitter {
    /// Returns a fitter with a thread of its own.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the fitter of this process.
    #[must_use]
    pub fn global() -> Self {
        static OF_PROCESS: OnceLock<RateFitter> = OnceLock::new();
        OF_PROCESS.get_or_init(Self::new).clone()
    }

    /// Fits the sending rate of a connected TCP socket to its path from now on. Never sets more
    /// than `ceiling`, in bytes per second. A limit that the socket already has is a ceiling, too.
    ///
    /// # Errors
    /// [`RateFitError`] if it is not a connected TCP socket, the kernel reports too little, or no
    /// descriptor or thread is available.
    pub fn add(&self, socket: impl AsFd, ceiling: Option<u64>) -> Result<FlowGuard, RateFitError> {
        let socket = socket
            .as_fd()
            .try_clone_to_owned()
            .map_err(RateFitError::Socket)?;
        let not_connected = || RateFitError::Socket(io::ErrorKind::NotConnected.into());
        let peer = rustix::net::getpeername(&socket)
            .map_err(|error| RateFitError::Socket(error.into()))?
            .and_then(|peer| SocketAddr::try_from(peer).ok())
            .ok_or_else(not_connected)?;
        let info = TcpInfo::read(&socket)?;
        let earlier_limit = info.max_pacing_rate;
        let ceiling = [ceiling, earlier_limit].into_iter().flatten().min();
        let mut flows = self.0.flows.lock();
        let number = flows.next_number;
        flows.next_number += 1;
        flows.list.push(FittedFlow {
            number,
            socket,
            destination: peer.ip().to_canonical(),
            began: Instant::now(),
            earlier_retransmits: info.retransmits,
            earlier_limit,
            fit: RateFit::new(ceiling),
            failed: None,
            sample: None,
        });
        if flows.is_watched {
            self.0.added.notify_one();
        } else {
            let shared = self.0.clone();
            thread::Builder::new()
                .name("rate fitter".into())
                .spawn(move || shared.watch())
                .map_err(|error| {
                    flows.list.retain(|flow| flow.number != number);
                    RateFitError::Thread(error)
                })?;
            flows.is_watched = true;
        }
        drop(flows);
        Ok(FlowGuard {
            shared: self.0.clone(),
            number,
        })
    }
}

impl FlowGuard {
    /// Returns the progress of the fitting.
    ///
    /// # Errors
    /// The error that ended the fitting: the socket or the kernel refused, and the flow is left to
    /// TCP.
    pub fn state(&self) -> Result<FitState, Arc<RateFitError>> {
        let flows = self.shared.flows.lock();
        match flows.list.iter().find(|flow| flow.number == self.number) {
            Some(flow) => flow.failed.clone().map_or(Ok(flow.fit.state()), Err),
            None => Ok(FitState::Released),
        }
    }

    /// Returns the rate to which the flow is limited because its path carries no more, in bytes per
    /// second.
    #[must_use]
    pub fn fitted_rate(&self) -> Option<u64> {
        match self.state() {
            Ok(FitState::Fitted(rate)) => Some(rate),
            _ => None,
        }
    }

    /// Sets a new ceiling, in bytes per second.
    pub fn set_ceiling(&self, ceiling: Option<u64>) {
        let mut flows = self.shared.flows.lock();
        if let Some(flow) = flows
            .list
            .iter_mut()
            .find(|flow| flow.number == self.number)
        {
            let ceiling = [ceiling, flow.earlier_limit].into_iter().flatten().min();
            let limit = flow.fit.set_ceiling(ceiling);
            flow.limit(limit);
        }
    }
}

impl Drop for FlowGuard {
    fn drop(&mut self) {
        let mut flows = self.shared.flows.lock();
        if let Some(at) = flows
            .list
            .iter()
            .position(|flow| flow.number == self.number)
        {
            // The descriptor is closed here, too, so that the connection ends when its owner closes
            // it.
            let flow = flows.list.swap_remove(at);
            // If the socket refuses, it has already ended.
            let _ = set_max_pacing_rate(&flow.socket, flow.earlier_limit);
        }
    }
}

impl SharedFlows {
    fn watch(&self) {
        let mut flows = self.flows.lock();
        // Measures processor time, not the clock's: a sweep also waits for its turn, and for
        // sockets that others have locked.
        let mut before = processor_time();
        let mut mean = Duration::ZERO;
        while !flows.list.is_empty() {
            flows.sweep();
            let now = processor_time();
            mean = (mean * 7 + now.saturating_sub(before)) / 8;
            before = now;
            let pause = flows.pause(mean);
            self.added.wait_for(&mut flows, pause);
        }
        flows.is_watched = false;
    }
}

/// Returns the processor time of this thread so far.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

impl FittedFlows {
    /// Samples every flow once.
    fn sweep(&mut self) {
        for flow in &mut self.list {
            flow.look();
        }
        let mut siblings = BTreeMap::<IpAddr, Siblings>::new();
        for flow in &self.list {
            if let Some(sample) = &flow.sample {
                siblings
                    .entry(flow.destination)
                    .or_default()
                    .add(&flow.fit, sample);
            }
        }
        for flow in &mut self.list {
            if let (Some(sample), Some(siblings)) =
                (flow.sample.take(), siblings.get(&flow.destination))
            {
                let limit = flow.fit.observe(&sample, siblings);
                flow.limit(limit);
            }
        }
    }

    /// Returns the time until the next sweep, if one takes so long.
    fn pause(&self, sweep: Duration) -> Duration {
        let wanted = (self.list.iter().filter(|flow| flow.failed.is_none()))
            .map(|flow| flow.fit.sample_period())
            .min();
        let least = sweep.mul_f64(1.0 / MAX_PROCESSOR_SHARE - 1.0);
        wanted.unwrap_or(Duration::from_secs(1)).max(least)
    }
}

impl FittedFlow {
    fn look(&mut self) {
        if self.failed.is_some() {
            return;
        }
        match TcpInfo::read(&self.socket) {
            Ok(info) => {
                self.sample =
                    FitSample::from_tcp_info(self.began.elapsed(), &info, self.earlier_retransmits);
            }
            Err(error) => self.failed = Some(Arc::new(error.into())),
        }
    }

    fn limit(&mut self, limit: Option<PacingLimit>) {
        let rate = match limit {
            None => return,
            Some(PacingLimit::Rate(rate)) => Some(rate),
            Some(PacingLimit::Unlimited) => None,
        };
        if let Err(error) = set_max_pacing_rate(&self.socket, rate) {
            self.failed = Some(Arc::new(RateFitError::Pacing(error)));
        }
    }
}

#[cfg(test)]
mod tests;
