//! Sends the fireflies of all marked flows, in a thread of its own.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::packet::{Flow, FlowState, FlowTimes, FlowUsage, datagram};
use crate::tag::FlowTag;

/// Port at which networks and collectors expect fireflies.
const FIREFLY_PORT: u16 = 10514;
/// Interval of fireflies about a flow that lasts.
const ONGOING_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum starts and ends that wait for the thread. Beyond that, fireflies are left out.
const QUEUE_EVENTS: usize = 4096;

/// Marks flows of one experiment and activity. Clones share it.
#[derive(Clone)]
pub struct FlowMarker {
    to_thread: SyncSender<FlowEvent>,
    next: Arc<AtomicU64>,
}

/// A flow that is marked until this is dropped.
#[derive(Debug)]
pub struct MarkedFlow {
    number: u64,
    to_thread: SyncSender<FlowEvent>,
    details: Arc<FlowDetails>,
}

enum FlowEvent {
    Started(u64, Arc<FlowDetails>),
    Ended(u64, Arc<FlowDetails>),
}

struct FlowDetails {
    flow: Flow,
    /// The other end of the flow.
    peer: IpAddr,
    started: Timestamp,
    usage: Box<dyn Fn() -> FlowUsage + Send + Sync>,
}

impl fmt::Debug for FlowDetails {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.flow.fmt(f)
    }
}

impl fmt::Debug for FlowMarker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FlowMarker")
    }
}

impl FlowMarker {
    /// Starts to mark flows with `tag`. Fireflies go to the other end of each flow and to
    /// `collectors`. The thread ends with the last clone.
    ///
    /// # Errors
    /// The system has no socket or thread for it.
    pub fn start(tag: FlowTag, collectors: Vec<SocketAddr>) -> io::Result<Self> {
        let (to_thread, events) = mpsc::sync_channel(QUEUE_EVENTS);
        let sender = FireflySender {
            tag,
            collectors,
            host: host_name(),
            // A system may lack one of the families.
            ipv4: socket(Ipv4Addr::UNSPECIFIED.into()),
            ipv6: socket(Ipv6Addr::UNSPECIFIED.into()),
        };
        if let (Err(error), Err(_)) = (&sender.ipv4, &sender.ipv6) {
            return Err(error.kind().into());
        }
        std::thread::Builder::new()
            .name("scitags".into())
            .spawn(move || sender.run(&events))?;
        Ok(Self {
            to_thread,
            next: Arc::default(),
        })
    }

    /// Marks a flow with `peer`, which has moved what `usage` returns.
    #[must_use]
    pub fn mark(
        &self,
        flow: Flow,
        peer: IpAddr,
        usage: impl Fn() -> FlowUsage + Send + Sync + 'static,
    ) -> MarkedFlow {
        let details = Arc::new(FlowDetails {
            flow,
            peer: peer.to_canonical(),
            started: Timestamp::now(),
            usage: Box::new(usage),
        });
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        // If the queue is full, the flow is not marked: data matters more.
        let event = FlowEvent::Started(number, Arc::clone(&details));
        let _ = self.to_thread.try_send(event);
        MarkedFlow {
            number,
            to_thread: self.to_thread.clone(),
            details,
        }
    }
}

impl Drop for MarkedFlow {
    fn drop(&mut self) {
        let event = FlowEvent::Ended(self.number, Arc::clone(&self.details));
        let _ = self.to_thread.try_send(event);
    }
}

struct FireflySender {
    tag: FlowTag,
    collectors: Vec<SocketAddr>,
    host: String,
    ipv4: io::Result<UdpSocket>,
    ipv6: io::Result<UdpSocket>,
}

impl FireflySender {
    fn run(&self, events: &Receiver<FlowEvent>) {
        let mut flows = HashMap::new();
        let mut next_round = Instant::now() + ONGOING_INTERVAL;
        loop {
            let wait = next_round.saturating_duration_since(Instant::now());
            match events.recv_timeout(wait) {
                Ok(FlowEvent::Started(number, details)) => {
                    self.send(&details, FlowState::Start);
                    flows.insert(number, details);
                }
                Ok(FlowEvent::Ended(number, details)) => {
                    self.send(&details, FlowState::End);
                    flows.remove(&number);
                }
                Err(RecvTimeoutError::Timeout) => {
                    for details in flows.values() {
                        self.send(details, FlowState::Ongoing);
                    }
                    next_round = Instant::now() + ONGOING_INTERVAL;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn send(&self, details: &FlowDetails, state: FlowState) {
        let times = FlowTimes {
            started: details.started,
            now: Timestamp::now(),
        };
        let usage = (details.usage)();
        let datagram = datagram(self.tag, &details.flow, state, times, usage, &self.host);
        let peer = SocketAddr::new(details.peer, FIREFLY_PORT);
        for to in [peer].iter().chain(&self.collectors) {
            let socket = match to.is_ipv4() {
                true => &self.ipv4,
                false => &self.ipv6,
            };
            if let Ok(socket) = socket {
                // Nobody may listen there, and a full send buffer must hold up nobody.
                let _ = socket.send_to(&datagram, to);
            }
        }
    }
}

fn socket(address: IpAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((address, 0))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Returns the name of this machine, for the header.
fn host_name() -> String {
    let system = rustix::system::uname();
    let name = system.nodename().to_string_lossy();
    let name: String = name.chars().filter(char::is_ascii_graphic).collect();
    // The nil value of syslog.
    match name.is_empty() {
        true => "-".to_owned(),
        false => name,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn receive(collector: &UdpSocket) -> Value {
        let mut bytes = [0; 2048];
        let length = collector.recv(&mut bytes).unwrap();
        let text = std::str::from_utf8(&bytes[..length]).unwrap();
        serde_json::from_str(&text[text.find('{').unwrap()..]).unwrap()
    }

    #[test]
    fn collectors_see_the_start_and_the_end_of_a_flow() {
        let collector = UdpSocket::bind("127.0.0.1:0").unwrap();
        let limit = Some(Duration::from_secs(120));
        collector.set_read_timeout(limit).unwrap();
        let to = vec![collector.local_addr().unwrap()];
        let marker = FlowMarker::start("16:2".parse().unwrap(), to).unwrap();
        let flow = Flow {
            source: "127.0.0.1:1".parse().unwrap(),
            destination: "127.0.0.1:2".parse().unwrap(),
            protocol: crate::Protocol::Tcp,
        };
        let moved = Arc::new(AtomicU64::new(0));
        let usage = {
            let moved = Arc::clone(&moved);
            move || FlowUsage {
                received: 0,
                sent: moved.load(Ordering::Relaxed),
            }
        };
        let marked = marker.mark(flow, flow.destination.ip(), usage);
        assert_eq!(receive(&collector)["flow-lifecycle"]["state"], "start");
        moved.store(7, Ordering::Relaxed);
        drop(marked);
        let ended = receive(&collector);
        assert_eq!(ended["flow-lifecycle"]["state"], "end");
        assert_eq!(ended["usage"]["sent"], 7);
        assert_eq!(ended["context"]["experiment-id"], 16);
    }
}
