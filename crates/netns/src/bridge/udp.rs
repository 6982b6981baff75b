//! The program's datagrams: each pair of ends has a socket of the host, until it has been idle for
//! a while.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::BridgeState;
use crate::addresses::{DNS_PORT, may_leave};
use crate::device::MTU;
use crate::packet::{self, AddressPair, Unreachable};

/// Maximum number of simultaneous flows. A further one replaces the one that was idle longest.
const MAX_FLOWS: usize = 512;
/// Idle time after which a flow is over (RFC 4787, REQ-5).
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);
/// Idle time after which a flow to a name server is over.
const DNS_IDLE_TIMEOUT: Duration = Duration::from_secs(15);

/// Known flows.
pub(crate) struct UdpFlows {
    known: RefCell<HashMap<AddressPair, Rc<UdpFlow>>>,
    /// Buffer for one datagram.
    room: RefCell<Vec<u8>>,
}

impl Default for UdpFlows {
    fn default() -> Self {
        Self {
            known: RefCell::default(),
            room: RefCell::new(vec![0; MTU]),
        }
    }
}

struct UdpFlow {
    socket: UdpSocket,
    /// Time at which a datagram was last carried.
    last: Cell<Instant>,
    /// Notified when another flow replaces this one.
    over: Notify,
}

impl BridgeState {
    /// Handles a datagram from the program.
    pub(crate) fn datagram(self: &Rc<Self>, pair: AddressPair, payload: &[u8], bytes: &[u8]) {
        let flow = self.flows.known.borrow().get(&pair).map(Rc::clone);
        let flow = match flow {
            Some(flow) => flow,
            None => {
                let resolver = self.resolvers.host(pair.far);
                let Some(to) = resolver.or_else(|| may_leave(pair.far).then_some(pair.far)) else {
                    return;
                };
                match connect_socket(to) {
                    Ok(socket) => self.flow(pair, socket),
                    Err(error) => return self.send(packet::unreachable(&pair, bytes, why(&error))),
                }
            }
        };
        flow.last.set(Instant::now());
        // A datagram that cannot be sent now is lost, as datagrams may be. An error of the previous
        // one is reported by the receiving task.
        let _ = flow.socket.try_send(payload);
    }

    fn flow(self: &Rc<Self>, pair: AddressPair, socket: UdpSocket) -> Rc<UdpFlow> {
        let mut known = self.flows.known.borrow_mut();
        if known.len() >= MAX_FLOWS {
            let oldest = known.iter().min_by_key(|(_, flow)| flow.last.get());
            if let Some(oldest) = oldest.map(|(pair, _)| *pair)
                && let Some(flow) = known.remove(&oldest)
            {
                flow.over.notify_one();
            }
        }
        let flow = Rc::new(UdpFlow {
            socket,
            last: Cell::new(Instant::now()),
            over: Notify::new(),
        });
        known.insert(pair, Rc::clone(&flow));
        tokio::task::spawn_local(carry_answers(Rc::clone(self), pair, Rc::clone(&flow)));
        flow
    }
}

/// Returns a socket of the host that is connected to one peer.
fn connect_socket(to: SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr = match to {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = std::net::UdpSocket::bind(any)?;
    socket.connect(to)?;
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket)
}

/// Carries answers to the program.
async fn carry_answers(inside: Rc<BridgeState>, pair: AddressPair, flow: Rc<UdpFlow>) {
    let idle = if pair.far.port() == DNS_PORT {
        DNS_IDLE_TIMEOUT
    } else {
        IDLE_TIMEOUT
    };
    loop {
        let until = flow.last.get() + idle;
        tokio::select! {
            ready = flow.socket.readable() => {
                if ready.is_err() {
                    break;
                }
                answer(&inside, &pair, &flow);
            }
            () = tokio::time::sleep_until(until) => {
                if flow.last.get() + idle <= Instant::now() {
                    break;
                }
            }
            () = flow.over.notified() => return,
        }
    }
    let mut known = inside.flows.known.borrow_mut();
    if known
        .get(&pair)
        .is_some_and(|found| Rc::ptr_eq(found, &flow))
    {
        known.remove(&pair);
    }
}

fn answer(inside: &BridgeState, pair: &AddressPair, flow: &UdpFlow) {
    let mut room = inside.flows.room.borrow_mut();
    match flow.socket.try_recv(&mut room) {
        Ok(length) => {
            let payload = room.get(..length).unwrap_or_default();
            if pair.far.port() == DNS_PORT {
                inside.names.borrow_mut().learn(payload);
            }
            flow.last.set(Instant::now());
            inside.send(packet::datagram(pair, payload));
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        Err(error) => {
            let quoted = packet::first_packet(pair);
            inside.send(quoted.and_then(|sent| packet::unreachable(pair, &sent, why(&error))));
        }
    }
}

fn why(error: &io::Error) -> Unreachable {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Unreachable::Port,
        io::ErrorKind::NetworkUnreachable => Unreachable::Network,
        io::ErrorKind::PermissionDenied => Unreachable::Prohibited,
        _ => Unreachable::Host,
    }
}
