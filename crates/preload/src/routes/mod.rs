//! Mode *routes*: the program's connections go to the on-ramp of this machine if it says so, and
//! appear to the program as if they led to their destinations.
//!
//! The program's socket stays its own. If the on-ramp knows a route, the socket is really connected
//! to a listener of the on-ramp on loopback. Over a Unix socket (the *control* connection) the
//! on-ramp learns the destination, and reports when the route stands. Questions go over a
//! connection that the process keeps (the *line*), which becomes the control connection of a socket
//! that takes a route. Until the route stands, a nonblocking socket is kept from being writable by
//! filler bytes in its buffer (`fill`), so `poll`, `select` and `epoll` report what they would
//! without a route. `errno`, `SO_ERROR` and the peer's address are those of the destination. The
//! local address is the one that the socket would have for that destination.

mod address;
pub mod connect;
mod line;
mod names;
mod ramp;
mod remembered;
mod socket;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use longhaul_ramp_protocol::{ConnectionWish, RampRequest, RouteQuery};
use rustix::io::Errno;

pub use address::{ConnectArgument, SocketDestination};

use crate::descriptor::{self, borrow};
use crate::settings::RouteSettings;
use crate::table::{DescriptorTable, MAX_DESCRIPTORS, SlotGuard, SlotKey, SlotValue};
use names::NameCache;
use ramp::RampClient;

/// State of this mode.
pub struct Routes {
    ramp: RampClient,
    settings: RouteSettings,
    table: DescriptorTable<RoutedSocket>,
    names: NameCache,
    own: OwnDescriptors,
}

/// State of a socket.
#[derive(Clone, Copy)]
pub struct RoutedSocket {
    inode: u64,
    destination: SocketDestination,
    stage: RouteStage,
    /// Descriptor of the control connection until the route stands; otherwise -1.
    control: RawFd,
    /// If true, filler bytes precede those of the program.
    is_filled: bool,
    buffer: socket::SendBuffer,
}

/// Progress of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum RouteStage {
    /// It is not connected to the on-ramp.
    Elsewhere = 0,
    /// Its route is being made.
    Connecting = 1,
    /// Its route stands.
    Connected = 2,
    /// It is not connected to the on-ramp, which wants to know the distance of its destination.
    Unmeasured = 3,
}

impl RoutedSocket {
    /// Returns the state of a socket that does not lead to the on-ramp, or that the program already
    /// uses.
    const fn without_route(inode: u64, destination: SocketDestination, stage: RouteStage) -> Self {
        Self {
            inode,
            destination,
            stage,
            control: -1,
            is_filled: false,
            buffer: socket::SendBuffer::untouched(),
        }
    }
}

// SAFETY: numbers, and a stage, of which zero is a valid value. A stage is one byte, so a copy is
// never torn.
unsafe impl SlotValue for RoutedSocket {}

/// Descriptors of this mode, not of the program: for each one the key of the socket that it serves.
struct OwnDescriptors {
    keys: Box<[AtomicU64]>,
    lowest: AtomicI32,
    highest: AtomicI32,
}

impl Routes {
    /// Returns a state without sockets.
    pub fn new(settings: RouteSettings, socket: Option<&Path>) -> Self {
        Self {
            ramp: RampClient::new(socket),
            settings,
            table: DescriptorTable::new(),
            names: NameCache::new(),
            own: OwnDescriptors {
                // SAFETY: an atomic number of zero bytes is zero.
                keys: unsafe { Box::new_zeroed_slice(MAX_DESCRIPTORS).assume_init() },
                lowest: AtomicI32::new(i32::MAX),
                highest: AtomicI32::new(-1),
            },
        }
    }

    /// Returns true if connections without a route are refused.
    pub fn is_closed(&self) -> bool {
        self.settings.closed
    }

    /// Returns true if a descriptor is known.
    pub fn knows(&self, descriptor: RawFd) -> bool {
        self.table.find(descriptor).is_some()
    }

    /// Remembers that a name resolved to an address.
    pub fn remember_name(&self, name: &[u8], address: IpAddr) {
        self.names.remember(name, address);
    }

    /// Returns the lowest descriptor from `first` to `last` that belongs to this mode.
    pub fn lowest_own_descriptor(&self, first: u32, last: u32) -> Option<u32> {
        let bound = |number: &AtomicI32| i64::from(number.load(Ordering::Acquire));
        let from = i64::from(first).max(bound(&self.own.lowest));
        let to = i64::from(last).min(bound(&self.own.highest));
        let control = (from..=to)
            .filter_map(|descriptor| u32::try_from(descriptor).ok())
            .find(|descriptor| RawFd::try_from(*descriptor).is_ok_and(|own| self.is_own(own)));
        let line = u32::try_from(self.ramp.line.descriptor()).ok();
        let line = line.filter(|own| (first..=last).contains(own) && self.ramp.line.is_valid());
        control.into_iter().chain(line).min()
    }

    /// Returns true if a descriptor belongs to this mode, and is still the same socket.
    pub fn is_own(&self, descriptor: RawFd) -> bool {
        if descriptor >= 0 && descriptor == self.ramp.line.descriptor() {
            return self.ramp.line.is_valid();
        }
        let key = self
            .own
            .key(descriptor)
            .and_then(|key| self.table.hold(key));
        key.is_some_and(|mut held| {
            held.value().control == descriptor && socket::is_unix(descriptor)
        })
    }

    /// Moves this mode's socket to another descriptor if the program wants this number.
    pub fn vacate(&self, wanted: RawFd) {
        self.ramp.line.vacate(wanted);
        let Some(mut held) = self.own.key(wanted).and_then(|key| self.table.hold(key)) else {
            return;
        };
        if held.value().control != wanted {
            return;
        }
        let moved = borrow(wanted)
            .and_then(|control| rustix::io::fcntl_dupfd_cloexec(control, wanted + 1).ok());
        self.own.forget(wanted);
        let moved = moved.map_or(-1, descriptor::keep);
        self.own.note(moved, held.key());
        held.value().control = moved;
    }

    /// Adapts the state in the child of a fork.
    pub fn after_fork(&self) {
        self.table.after_fork();
        self.names.after_fork();
        self.ramp.line.after_fork();
    }

    /// Called when the process exits normally.
    pub fn ending(&self) {
        self.ramp.report_remembered();
    }

    /// Notes that a descriptor is about to be closed.
    pub fn closing(&self, descriptor: RawFd) {
        if self.knows(descriptor) {
            self.measure(descriptor);
            self.table
                .close(descriptor, |_, routed| self.close_control(routed));
        }
    }

    /// Notes that `new` has become a copy of `old`.
    pub fn duplicated(&self, old: RawFd, new: RawFd) {
        let Some(key) = self.table.find(old) else {
            return;
        };
        let inode = borrow(new).and_then(socket::tcp_inode);
        if self
            .table
            .hold(key)
            .is_some_and(|mut held| Some(held.value().inode) == inode)
        {
            self.table.alias(old, new);
        }
    }

    /// Returns a socket's pending error for `getsockopt(SO_ERROR)`, or `None` if the kernel has it.
    pub fn error(&self, descriptor: RawFd) -> Option<i32> {
        self.measure(descriptor);
        let mut held = self.state_of(descriptor)?;
        if held.value().stage != RouteStage::Connecting {
            return None;
        }
        match self.poll_route(&mut held) {
            ramp::AttemptProgress::Pending => Some(0),
            ramp::AttemptProgress::Stands => None,
            ramp::AttemptProgress::Failed(errno) => {
                self.give_up(held, descriptor);
                Some(errno)
            }
            ramp::AttemptProgress::Gone => {
                self.give_up(held, descriptor);
                Some(libc::ENETUNREACH)
            }
        }
    }

    /// Returns the destination to which the program connected a socket, or `None` if the kernel
    /// knows it.
    pub fn peer(&self, descriptor: RawFd) -> Option<Result<SocketDestination, Errno>> {
        let socket = borrow(descriptor)?;
        if let Some(mut held) = self.state_of(descriptor) {
            let stage = held.value().stage;
            return match stage {
                RouteStage::Elsewhere | RouteStage::Unmeasured => None,
                RouteStage::Connecting
                    if self.poll_route(&mut held) != ramp::AttemptProgress::Stands =>
                {
                    Some(Err(Errno::NOTCONN))
                }
                // It may not be connected any more.
                _ => socket::peer(socket).map(|_| Ok(held.value().destination)),
            };
        }
        // The socket survived an exec, came from another process, or is a local connection of the
        // program.
        let peer = socket::peer(socket)?;
        if !peer.ip().to_canonical().is_loopback() {
            return None;
        }
        let inode = socket::tcp_inode(socket)?;
        let leads = socket::local(socket).and_then(|local| self.ramp.peer(local));
        let known = SocketDestination::new(leads.unwrap_or(peer), peer.is_ipv6());
        let stage = if leads.is_some() {
            RouteStage::Connected
        } else {
            RouteStage::Elsewhere
        };
        self.table
            .open(descriptor, RoutedSocket::without_route(inode, known, stage));
        leads.map(|_| Ok(known))
    }

    /// Reports the distance of a direct connection's destination to the on-ramp, once the
    /// connection stands, if the on-ramp wants to know it.
    pub fn measure(&self, descriptor: RawFd) {
        let Some(mut held) = self.state_of(descriptor) else {
            return;
        };
        let routed = held.value();
        if routed.stage != RouteStage::Unmeasured {
            return;
        }
        if let Some(round_trip) = borrow(descriptor).and_then(socket::round_trip) {
            routed.stage = RouteStage::Elsewhere;
            let address = routed.destination.ip();
            drop(held);
            self.ramp.report(&RampRequest::Measured {
                address,
                round_trip,
            });
        }
    }

    /// Returns a socket's local address as the program should see it: the one that the kernel would
    /// choose for the destination, with the socket's port. Returns `None` if the kernel knows it.
    pub fn local(&self, descriptor: RawFd) -> Option<SocketDestination> {
        let own = borrow(descriptor).and_then(socket::local)?;
        if !own.ip().to_canonical().is_loopback() {
            return None;
        }
        let known = self
            .state_of(descriptor)
            .map(|mut held| (held.value().stage, held.value().destination));
        let destination = match known {
            Some((RouteStage::Elsewhere | RouteStage::Unmeasured, _)) => return None,
            Some((_, destination)) => destination,
            None => self.peer(descriptor)?.ok()?,
        };
        let source = socket::source_address(SocketAddr::new(destination.ip(), destination.port()))?;
        Some(SocketDestination::new(
            SocketAddr::new(source, own.port()),
            own.is_ipv6(),
        ))
    }

    /// Returns the state of a descriptor, if it is still the same socket.
    fn state_of(&self, descriptor: RawFd) -> Option<SlotGuard<'_, RoutedSocket>> {
        let mut held = self.table.hold(self.table.find(descriptor)?)?;
        if borrow(descriptor).and_then(socket::tcp_inode) == Some(held.value().inode) {
            return Some(held);
        }
        // Its end was missed.
        if !held.remove_descriptor(descriptor) {
            self.close_control(held.value());
            held.free();
        }
        None
    }

    /// Returns the progress of a socket that is being connected. If the route stands, the socket is
    /// handed to the program.
    fn poll_route(&self, held: &mut SlotGuard<'_, RoutedSocket>) -> ramp::AttemptProgress {
        let descriptor = held.descriptor();
        let routed = held.value();
        let Some(control) = borrow(routed.control) else {
            return ramp::AttemptProgress::Gone;
        };
        let result = ramp::result(control);
        if result == ramp::AttemptProgress::Stands {
            if let Some(socket) = descriptor.and_then(borrow) {
                routed.buffer.restore(socket);
            }
            routed.stage = RouteStage::Connected;
            self.close_control(routed);
        }
        result
    }

    /// Ends a failed attempt: the socket is as before, and may be connected again.
    fn give_up(&self, mut held: SlotGuard<'_, RoutedSocket>, descriptor: RawFd) {
        let routed = held.value();
        self.close_control(routed);
        if let Some(socket) = borrow(descriptor) {
            socket::disconnect(socket);
            routed.buffer.restore(socket);
        }
        routed.stage = RouteStage::Elsewhere;
        self.forget(held, descriptor);
    }

    /// Drops the state of a socket.
    fn forget(&self, mut held: SlotGuard<'_, RoutedSocket>, descriptor: RawFd) {
        self.close_control(held.value());
        if !held.remove_descriptor(descriptor) {
            held.free();
        }
    }

    /// Closes the control connection.
    fn close_control(&self, routed: &mut RoutedSocket) {
        let control = std::mem::replace(&mut routed.control, -1);
        self.own.forget(control);
        if socket::is_unix(control) {
            // SAFETY: it was the table's, and is removed from there.
            unsafe { descriptor::drop_kept(control) };
        }
    }

    /// Asks the on-ramp how to reach a destination.
    fn ask_route(&self, destination: &SocketDestination, binds: bool) -> Option<ramp::RampAnswer> {
        let name = self.names.name_of(destination.ip());
        self.ramp.ask_route(RouteQuery {
            address: Some(destination.ip()),
            name: name.as_ref().and_then(names::NameBuffer::as_str),
            port: destination.port(),
            route: None,
            wish: ConnectionWish {
                purpose: self.settings.purpose.as_deref(),
                size: self.settings.size,
                rate: self.settings.rate,
                duration: self.settings.duration,
            },
            v6: destination.is_v6(),
            route_required: self.settings.closed,
            acceptor: false,
            key: None,
            // With `closed` no answer is a direct connection.
            remembers: !self.settings.closed,
            binds,
        })
    }
}

impl OwnDescriptors {
    fn key(&self, descriptor: RawFd) -> Option<SlotKey> {
        let slot = self.keys.get(usize::try_from(descriptor).ok()?)?;
        SlotKey::from_number(slot.load(Ordering::Acquire))
    }

    fn note(&self, descriptor: RawFd, key: SlotKey) {
        let slot = usize::try_from(descriptor)
            .ok()
            .and_then(|at| self.keys.get(at));
        if let Some(slot) = slot {
            slot.store(key.number(), Ordering::Release);
            self.lowest.fetch_min(descriptor, Ordering::AcqRel);
            self.highest.fetch_max(descriptor, Ordering::AcqRel);
        }
    }

    fn forget(&self, descriptor: RawFd) {
        let slot = usize::try_from(descriptor)
            .ok()
            .and_then(|at| self.keys.get(at));
        if let Some(slot) = slot {
            slot.store(0, Ordering::Release);
        }
    }
}
