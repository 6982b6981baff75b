//! The thread of a link: reads both ports, advances the directions, writes what is due, and sleeps
//! until the next event.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use super::direction::Direction;
use super::port::Port;
use super::port_read::PortRead;
use super::report::{DirectionSnapshot, LagPercentiles, LinkSnapshot, Scheduling};
use super::thread::prioritize;
use super::{LinkError, Nanos};
use crate::spec::LinkSpec;

/// Maximum number of packets read, or pieces written, before the other direction has its turn.
const MAX_PACKETS_PER_TURN: usize = 16;
/// Time that falling asleep and waking up take, more on a virtual machine. Every sleep ends this
/// much early, and the thread busy-waits for the rest.
const BUSY_WAIT: Duration = Duration::from_micros(20);
/// The same after a long sleep, from which the processor itself has to wake.
const BUSY_WAIT_AFTER_LONG_SLEEP: Duration = Duration::from_micros(150);
/// Minimum length of a long sleep, so that this costs at most a twentieth of a processor.
const LONG_SLEEP: Duration = Duration::from_millis(3);
/// Maximum recorded lag, in microseconds; it is recorded to two digits.
const MAX_RECORDED_LAG_US: u64 = 60_000_000;

/// A running link. Dropping it stops it.
#[derive(Debug)]
pub struct LinkHandle {
    name: String,
    commands: Sender<EngineCommand>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<RawCounters>>,
    /// Error that ended the link by itself.
    ended: Arc<OnceLock<Errno>>,
}

enum EngineCommand {
    Report(SyncSender<RawCounters>),
    Stop,
}

/// Raw counters of the thread; the caller computes the percentiles.
#[derive(Debug)]
struct RawCounters {
    elapsed: Duration,
    scheduling: Scheduling,
    directions: [(DirectionSnapshot, Histogram<u64>); 2],
}

/// Starts a link between two ports, on a thread of its own.
///
/// # Errors
/// [`LinkError::Spec`], [`LinkError::TooMuchUnderWay`] or [`LinkError::Thread`].
pub fn start(spec: LinkSpec, a: Port, b: Port) -> Result<LinkHandle, LinkError> {
    let name = spec.name.clone();
    spec.check().map_err(|source| LinkError::Spec {
        link: name.clone(),
        source,
    })?;
    let failed = |what| {
        let link = name.clone();
        move |source| LinkError::Thread { link, what, source }
    };
    let forward =
        LinkFlow::new(Direction::new(&spec, &spec.forward, 0)?).map_err(failed("record lag"))?;
    let backward =
        LinkFlow::new(Direction::new(&spec, &spec.backward, 1)?).map_err(failed("record lag"))?;
    let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .map_err(io::Error::from)
        .map_err(failed("make an eventfd"))?;
    let wake = Arc::new(wake);
    let (commands, asked) = channel();
    let ended = Arc::new(OnceLock::new());
    let engine = Engine {
        ports: [a, b],
        flows: [forward, backward],
        wake: Arc::clone(&wake),
        asked,
        start: Instant::now(),
        scheduling: Scheduling::Ordinary,
    };
    let thread = std::thread::Builder::new()
        .name(format!("link {name}"))
        .spawn({
            let ended = Arc::clone(&ended);
            move || engine.run(&ended)
        })
        .map_err(failed("start a thread"))?;
    Ok(LinkHandle {
        name,
        commands,
        wake,
        thread: Some(thread),
        ended,
    })
}

impl LinkHandle {
    /// Returns the current counters.
    ///
    /// # Errors
    /// [`LinkError::Ended`] if the link has ended by itself.
    pub fn counters(&self) -> Result<LinkSnapshot, LinkError> {
        let (reply, report) = sync_channel(1);
        self.command(EngineCommand::Report(reply));
        let report = report.recv().map_err(|_| self.why_ended())?;
        Ok(report.snapshot(&self.name))
    }

    /// Stops the link and returns its last counters.
    ///
    /// # Errors
    /// [`LinkError::Ended`] if the link had already ended by itself.
    pub fn stop(mut self) -> Result<LinkSnapshot, LinkError> {
        let report = self.join();
        match report {
            Some(report) if self.ended.get().is_none() => Ok(report.snapshot(&self.name)),
            _ => Err(self.why_ended()),
        }
    }

    fn join(&mut self) -> Option<RawCounters> {
        let thread = self.thread.take()?;
        self.command(EngineCommand::Stop);
        thread.join().ok()
    }

    /// Sends a command. If the thread is gone, its missing answer shows it.
    fn command(&self, command: EngineCommand) {
        let _ = self.commands.send(command);
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
    }

    fn why_ended(&self) -> LinkError {
        let why = match self.ended.get() {
            Some(errno) => io::Error::from(*errno).to_string(),
            None => "its thread is gone".to_owned(),
        };
        LinkError::Ended {
            link: self.name.clone(),
            why,
        }
    }
}

impl Drop for LinkHandle {
    fn drop(&mut self) {
        self.join();
    }
}

struct Engine {
    /// Ports a and b; the flow of the same index starts there.
    ports: [Port; 2],
    flows: [LinkFlow; 2],
    wake: Arc<OwnedFd>,
    asked: Receiver<EngineCommand>,
    start: Instant,
    scheduling: Scheduling,
}

struct LinkFlow {
    direction: Direction,
    lag: Histogram<u64>,
    /// If true, the port has nothing more to read, as far as is known.
    drained: bool,
}

impl LinkFlow {
    fn new(direction: Direction) -> io::Result<Self> {
        let lag =
            Histogram::new_with_bounds(1, MAX_RECORDED_LAG_US, 2).map_err(io::Error::other)?;
        Ok(Self {
            direction,
            lag,
            drained: false,
        })
    }
}

impl Engine {
    fn run(mut self, ended: &OnceLock<Errno>) -> RawCounters {
        self.scheduling = prioritize();
        if let Err(errno) = self.serve() {
            let _ = ended.set(errno);
        }
        self.report()
    }

    /// Runs until told to stop, or until a port is gone.
    fn serve(&mut self) -> Result<(), Errno> {
        loop {
            let mut more = false;
            for from in 0..2 {
                more |= self.write_due(1 - from);
                more |= self.read(from)?;
            }
            if !more && self.sleep()? == WakeReason::ToStop {
                return Ok(());
            }
        }
    }

    fn now(&self) -> Nanos {
        self.start.elapsed().as_nanos() as Nanos
    }

    /// Reads the port `from`. Returns true if there may be more.
    fn read(&mut self, from: usize) -> Result<bool, Errno> {
        let flow = &mut self.flows[from];
        for _ in 0..MAX_PACKETS_PER_TURN {
            if flow.drained {
                return Ok(false);
            }
            match self.ports[from].receive(flow.direction.room())? {
                PortRead::Packet { virtio, len } => {
                    let now = self.start.elapsed().as_nanos() as Nanos;
                    flow.direction.take(now, &virtio, len);
                }
                PortRead::Noise => flow.direction.count_noise(),
                PortRead::Empty => flow.drained = true,
            }
        }
        Ok(true)
    }

    /// Writes what is due at the port `to`. Returns true if there may be more.
    fn write_due(&mut self, to: usize) -> bool {
        let flow = &mut self.flows[1 - to];
        let port = &mut self.ports[to];
        for _ in 0..MAX_PACKETS_PER_TURN {
            let now = self.start.elapsed().as_nanos() as Nanos;
            flow.direction.advance(now);
            let lag = &mut flow.lag;
            let sent = flow.direction.deliver(now, |delivery| {
                lag.saturating_record((now - delivery.due) / 1_000);
                let piece = &delivery.piece;
                port.send(piece.virtio, piece.headers, piece.body).is_ok()
            });
            if !sent {
                return false;
            }
        }
        true
    }

    /// Sleeps until a port can be read, something is due, or a command comes.
    fn sleep(&mut self) -> Result<WakeReason, Errno> {
        let Some(due) = self.next_wake() else {
            return self.wait(None);
        };
        let rest = Duration::from_nanos(due.saturating_sub(self.now()));
        let watch = if rest < LONG_SLEEP {
            BUSY_WAIT
        } else {
            BUSY_WAIT_AFTER_LONG_SLEEP
        };
        let mut asked = self.wait(Some(rest.saturating_sub(watch)))?;
        let idle = |flows: &[LinkFlow; 2]| flows.iter().all(|flow| flow.drained);
        // An interrupted sleep may end long before: then it starts again.
        let watch = due.saturating_sub(2 * watch.as_nanos() as Nanos)..due;
        while asked == WakeReason::Nothing && idle(&self.flows) && watch.contains(&self.now()) {
            asked = self.wait(Some(Duration::ZERO))?;
        }
        Ok(asked)
    }

    /// Returns the latest time that serves what is due first, together with as much else as
    /// possible.
    fn next_wake(&self) -> Option<Nanos> {
        let directions = || self.flows.iter().map(|flow| &flow.direction);
        let deadline = directions().filter_map(Direction::deadline).min()?;
        directions()
            .filter_map(|direction| direction.last_due_by(deadline))
            .max()
    }

    fn wait(&mut self, rest: Option<Duration>) -> Result<WakeReason, Errno> {
        let timeout = rest.map(|rest| Timespec {
            tv_sec: rest.as_secs().cast_signed(),
            tv_nsec: rest.subsec_nanos().into(),
        });
        let mut waiting = [
            PollFd::from_borrowed_fd(self.ports[0].as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.ports[1].as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.wake.as_fd(), PollFlags::IN),
        ];
        match poll(&mut waiting, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        let ready = waiting.map(|fd| !fd.revents().is_empty());
        for (flow, ready) in self.flows.iter_mut().zip(ready) {
            flow.drained = !ready;
        }
        if ready[2] {
            self.obey()
        } else {
            Ok(WakeReason::Nothing)
        }
    }

    fn obey(&mut self) -> Result<WakeReason, Errno> {
        rustix::io::read(&*self.wake, &mut [0; 8])?;
        loop {
            match self.asked.try_recv() {
                Ok(EngineCommand::Report(reply)) => drop(reply.try_send(self.report())),
                Err(TryRecvError::Empty) => return Ok(WakeReason::Nothing),
                Ok(EngineCommand::Stop) | Err(TryRecvError::Disconnected) => {
                    return Ok(WakeReason::ToStop);
                }
            }
        }
    }

    fn report(&mut self) -> RawCounters {
        let drops = [0, 1].map(|at| self.ports[at].device_drops());
        let [forward, backward] = [0, 1].map(|at| {
            let flow = &self.flows[at];
            let counters = DirectionSnapshot {
                device_drops: drops[at],
                ..flow.direction.counters()
            };
            (counters, flow.lag.clone())
        });
        let elapsed = self.start.elapsed();
        RawCounters {
            elapsed,
            scheduling: self.scheduling,
            directions: [forward, backward],
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum WakeReason {
    Nothing,
    ToStop,
}

impl RawCounters {
    fn snapshot(self, link: &str) -> LinkSnapshot {
        let [forward, backward] = self.directions.map(|(counters, lag)| {
            let at = |quantile| lag.value_at_quantile(quantile);
            let lag = LagPercentiles {
                p50: at(0.5),
                p90: at(0.9),
                p99: at(0.99),
                max: lag.max(),
            };
            DirectionSnapshot { lag, ..counters }
        });
        let seconds = self.elapsed.as_secs_f64();
        LinkSnapshot {
            link: link.to_owned(),
            seconds,
            scheduling: self.scheduling,
            forward,
            backward,
        }
    }
}

#[cfg(test)]
mod tests;
