//! The program's TCP connections: requested, answered, carried.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::BuildHasher;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::Shutdown;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::BridgeState;
use crate::addresses::may_leave;
use crate::end::{ConnectionEnd, Readable};
use crate::packet::{AddressPair, TcpSegment, Unreachable, unreachable};
use crate::ramp;

/// Maximum number of simultaneous connections. Further ones wait, as at a server whose queue is
/// full.
const MAX_CONNECTIONS: usize = 2048;
/// Maximum length of a packet that asks for a connection, in bytes: its headers, with all their
/// options.
const MAX_SYN_BYTES: usize = 256;
/// Time for which an unanswered destination stays silent: until a kernel has given up by itself
/// (`tcp_syn_retries`).
const SILENCE_TIMEOUT: Duration = Duration::from_secs(140);

/// Known connections.
#[derive(Default)]
pub(crate) struct Connections {
    known: RefCell<HashMap<AddressPair, TcpConnection>>,
    number: Cell<u64>,
    seeds: RandomState,
}

struct TcpConnection {
    /// Number that distinguishes it from others between the same ends.
    number: u64,
    stage: ConnectionStage,
}

enum ConnectionStage {
    /// The destination is being reached. The last packet that asked is answered then.
    Asked(TcpSegment, Vec<u8>),
    /// The destination did not answer.
    Silent,
    Stands(Rc<EstablishedFlow>),
}

/// An established connection.
struct EstablishedFlow {
    end: RefCell<ConnectionEnd>,
    /// Notified when a packet has come.
    wake: Notify,
}

/// Permit of one connection.
struct ConnectionPermit {
    inside: Rc<BridgeState>,
    pair: AddressPair,
    number: u64,
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut known = self.inside.connections.known.borrow_mut();
        if let Entry::Occupied(entry) = known.entry(self.pair)
            && entry.get().number == self.number
        {
            entry.remove();
        }
    }
}

impl BridgeState {
    /// Handles a segment from the program.
    pub(crate) fn segment(self: &Rc<Self>, pair: AddressPair, segment: TcpSegment, bytes: &[u8]) {
        let opens = segment.opens();
        let flow = match self.connections.known.borrow_mut().get_mut(&pair) {
            // The old connection is over there, and nearly here: this is a new one.
            Some(TcpConnection {
                stage: ConnectionStage::Stands(flow),
                ..
            }) if opens && flow.end.borrow().has_ended() => None,
            Some(TcpConnection {
                stage: ConnectionStage::Stands(flow),
                ..
            }) => Some(Rc::clone(flow)),
            Some(TcpConnection {
                stage: ConnectionStage::Asked(asked, syn),
                ..
            }) => {
                if opens && bytes.len() <= MAX_SYN_BYTES {
                    *asked = segment;
                    bytes.clone_into(syn);
                }
                return;
            }
            Some(TcpConnection {
                stage: ConnectionStage::Silent,
                ..
            }) => return,
            None => None,
        };
        if let Some(flow) = flow {
            self.with_output(|output| {
                flow.end
                    .borrow_mut()
                    .packet(&segment, bytes, self.now(), output)
            });
            flow.wake.notify_one();
        } else if !opens || bytes.len() > MAX_SYN_BYTES || !self.may_reach(&pair) {
            self.send(segment.refusal(&pair));
        } else if let Some(place) = self.assign_permit(pair, segment, bytes) {
            tokio::task::spawn_local(place.reach());
        }
    }

    fn may_reach(&self, pair: &AddressPair) -> bool {
        may_leave(pair.far) || self.resolvers.host(pair.far).is_some()
    }

    /// Returns a permit for one more connection, if there is any.
    fn assign_permit(
        self: &Rc<Self>,
        pair: AddressPair,
        segment: TcpSegment,
        syn: &[u8],
    ) -> Option<ConnectionPermit> {
        let mut known = self.connections.known.borrow_mut();
        // Data of a connection that has ended for the program may still be in flight to the far
        // side.
        if known.len().max(self.established_count()) >= MAX_CONNECTIONS {
            return None;
        }
        let number = self.connections.number.get() + 1;
        self.connections.number.set(number);
        let stage = ConnectionStage::Asked(segment, syn.to_vec());
        known.insert(pair, TcpConnection { number, stage });
        Some(ConnectionPermit {
            inside: Rc::clone(self),
            pair,
            number,
        })
    }
}

impl ConnectionPermit {
    /// Reaches the destination, answers the program, and carries data in both directions.
    async fn reach(self) {
        let inside = &self.inside;
        let far = self.pair.far;
        let reached = match inside.resolvers.host(far) {
            Some(resolver) => ramp::connect_directly(resolver).await,
            None => {
                let name = inside.name(&self.pair);
                inside.wishes.reach(far, name.as_deref()).await
            }
        };
        let Some((segment, syn)) = self.syn() else {
            return;
        };
        match reached {
            Ok(stream) => {
                let _standing = inside.count_established();
                let seed = inside.connections.seeds.hash_one((self.number, self.pair));
                let end = inside.with_output(|output| {
                    ConnectionEnd::accept(&self.pair, (&segment, &syn), seed, inside.now(), output)
                });
                let flow = Rc::new(EstablishedFlow {
                    end: RefCell::new(end),
                    wake: Notify::new(),
                });
                self.become_stage(ConnectionStage::Stands(Rc::clone(&flow)));
                carry(inside, &flow, stream).await;
            }
            Err(Errno::TIMEDOUT) => {
                self.become_stage(ConnectionStage::Silent);
                tokio::time::sleep(SILENCE_TIMEOUT).await;
            }
            Err(errno) => self.refuse(errno, &segment, &syn),
        }
    }

    /// Reports a failure by the fitting packet.
    fn refuse(&self, errno: Errno, segment: &TcpSegment, syn: &[u8]) {
        let unreachable = |why| unreachable(&self.pair, syn, why);
        let answer = match errno {
            Errno::CONNREFUSED | Errno::CONNRESET | Errno::CONNABORTED => {
                segment.refusal(&self.pair)
            }
            Errno::NETUNREACH | Errno::NETDOWN => unreachable(Unreachable::Network),
            Errno::ACCESS | Errno::PERM => unreachable(Unreachable::Prohibited),
            _ => unreachable(Unreachable::Host),
        };
        self.inside.send(answer);
    }

    fn syn(&self) -> Option<(TcpSegment, Vec<u8>)> {
        let known = self.inside.connections.known.borrow();
        match known.get(&self.pair) {
            Some(TcpConnection {
                number,
                stage: ConnectionStage::Asked(segment, syn),
            }) if *number == self.number => Some((*segment, syn.clone())),
            _ => None,
        }
    }

    fn become_stage(&self, stage: ConnectionStage) {
        let mut known = self.inside.connections.known.borrow_mut();
        if let Some(connection) = known.get_mut(&self.pair)
            && connection.number == self.number
        {
            connection.stage = stage;
        }
    }
}

/// State of the far side.
#[derive(Default)]
struct FarSideState {
    /// If true, it sends no more.
    ended: bool,
    /// If true, it was told that no more is sent.
    reported: bool,
    /// If true, it takes no more for now.
    full: bool,
    /// If true, it has reset the connection.
    dead: bool,
}

/// Carries data until the connection ends.
async fn carry(inside: &BridgeState, flow: &EstablishedFlow, stream: TcpStream) {
    let mut far = FarSideState::default();
    loop {
        let (next, has_room) = {
            let mut end = flow.end.borrow_mut();
            if !end.is_reset() {
                carry_to_far(&mut end, &stream, &mut far);
                carry_to_program(&mut end, &stream, &mut far);
            }
            if far.dead {
                end.abort();
            }
            inside.with_output(|output| end.poll(inside.now(), output));
            if end.is_reset() {
                // A reset by the program is passed on as a reset.
                let _ = rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO));
                return;
            }
            if end.is_over() {
                return;
            }
            (end.next_poll(inside.now()), end.has_room())
        };
        let reads = !far.ended && has_room;
        let interest = match (reads, far.full) {
            (true, true) => Some(Interest::READABLE | Interest::WRITABLE),
            (true, false) => Some(Interest::READABLE),
            (false, true) => Some(Interest::WRITABLE),
            (false, false) => None,
        };
        let ready = async {
            match interest {
                Some(interest) => stream.ready(interest).await.is_err(),
                None => std::future::pending().await,
            }
        };
        let timer = async {
            match next {
                Some(time) => tokio::time::sleep_until(inside.instant_at(time)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = flow.wake.notified() => {}
            broken = ready => far.dead |= broken,
            () = timer => {}
        }
    }
}

/// Carries data from the program.
fn carry_to_far(end: &mut ConnectionEnd, stream: &TcpStream, far: &mut FarSideState) {
    far.full = false;
    while end.readable() == Readable::Bytes && !far.full && !far.dead {
        end.read(|bytes| match stream.try_write(bytes) {
            Ok(written) => written,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                far.full = true;
                0
            }
            Err(_) => {
                far.dead = true;
                0
            }
        });
    }
    if end.readable() == Readable::End && !far.reported {
        far.reported = true;
        far.dead |= rustix::net::shutdown(stream, Shutdown::Write).is_err();
    }
}

/// Carries data to the program.
fn carry_to_program(end: &mut ConnectionEnd, stream: &TcpStream, far: &mut FarSideState) {
    let mut more = true;
    while more && !far.ended && !far.dead && end.has_room() {
        end.write(|room| match stream.try_read(room) {
            Ok(0) => {
                far.ended = true;
                0
            }
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                more = false;
                0
            }
            Err(_) => {
                far.dead = true;
                0
            }
        });
    }
    if far.ended {
        end.close();
    }
}
