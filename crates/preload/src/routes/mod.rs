//! Mode *routes*: the program's connections are brought to the on-ramp of this machine, as it says,
//! and look to the program as if they led to their destinations.
//!
//! The program's socket stays its own. Where the on-ramp knows a route, it is really connected, to
//! a listener of the on-ramp's on loopback in place of its destination, and over a Unix socket (the
//! *control*) the on-ramp learns which destination is meant, and reports when the route stands.
//! Questions go over a connection that the process keeps (the *line*), which becomes the control of
//! what takes a route. Until then a socket whose program does not wait is kept from being writable
//! by what is put in front of it (`fill`), so `poll`, `select` and `epoll` say what they would.
//! `errno`, `SO_ERROR` and the peer's address are the destination's, and the socket's own address
//! is what it would be for that.

mod address;
mod connect;
mod line;
mod names;
mod ramp;
mod remembered;
mod socket;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use longhaul_ramp::{Ask, Request, Wish};
use rustix::io::Errno;

pub use address::{Destination, Given};
pub use connect::{connect, connected};

use crate::process::borrow;
use crate::settings::RouteSettings;
use crate::table::{DESCRIPTORS, Held, Kept, Key, Table};
use names::Names;
use ramp::Ramp;

/// All that this mode keeps.
pub struct Routes {
    ramp: Ramp,
    settings: RouteSettings,
    table: Table<Routed>,
    names: Names,
    own: Own,
}

/// What is kept of a socket.
#[derive(Clone, Copy)]
pub struct Routed {
    inode: u64,
    destination: Destination,
    stage: Stage,
    /// The control's descriptor, while the route does not stand; -1 else.
    control: RawFd,
    /// Whether something was put in front of the program's bytes.
    is_filled: bool,
    buffer: socket::SendBuffer,
}

/// How far a socket has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Stage {
    /// It is no socket of the on-ramp's.
    Elsewhere = 0,
    /// It is being connected.
    Connecting = 1,
    /// It is connected.
    Connected = 2,
    /// It is no socket of the on-ramp's, which would know how far its destination is.
    Unmeasured = 3,
}

impl Routed {
    /// Of a socket that is no socket of the on-ramp's, or is its program's already.
    const fn not_ours(inode: u64, destination: Destination, stage: Stage) -> Self {
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

// SAFETY: numbers, and a stage, of which zero is one. It is one byte, so no copy has half of one.
unsafe impl Kept for Routed {}

/// Which descriptors are the mode's own, and not the program's: for each the key of the socket that
/// it serves.
struct Own {
    keys: Box<[AtomicU64]>,
    lowest: AtomicI32,
    highest: AtomicI32,
}

impl Routes {
    /// Nothing is known yet.
    pub fn new(settings: RouteSettings, socket: Option<&Path>) -> Self {
        Self {
            ramp: Ramp::at(socket),
            settings,
            table: Table::new(),
            names: Names::new(),
            own: Own {
                // SAFETY: an atomic number of zero bytes is zero.
                keys: unsafe { Box::new_zeroed_slice(DESCRIPTORS).assume_init() },
                lowest: AtomicI32::new(i32::MAX),
                highest: AtomicI32::new(-1),
            },
        }
    }

    /// Whether there is to be no connection where there is no route.
    pub fn is_closed(&self) -> bool {
        self.settings.closed
    }

    /// Whether anything is known of a descriptor.
    pub fn knows(&self, descriptor: RawFd) -> bool {
        self.table.find(descriptor).is_some()
    }

    /// Remembers that a name was resolved to an address.
    pub fn named(&self, name: &[u8], address: IpAddr) {
        self.names.remember(name, address);
    }

    /// The lowest descriptor from `first` to `last` that is this mode's own.
    pub fn own_between(&self, first: u32, last: u32) -> Option<u32> {
        let bound = |number: &AtomicI32| i64::from(number.load(Ordering::Acquire));
        let from = i64::from(first).max(bound(&self.own.lowest));
        let to = i64::from(last).min(bound(&self.own.highest));
        let control = (from..=to)
            .filter_map(|descriptor| u32::try_from(descriptor).ok())
            .find(|descriptor| RawFd::try_from(*descriptor).is_ok_and(|own| self.is_own(own)));
        let line = u32::try_from(self.ramp.line.descriptor()).ok();
        let line = line.filter(|own| (first..=last).contains(own) && self.ramp.line.stands());
        control.into_iter().chain(line).min()
    }

    /// Whether a descriptor is this mode's own, and still what it was.
    pub fn is_own(&self, descriptor: RawFd) -> bool {
        if descriptor >= 0 && descriptor == self.ramp.line.descriptor() {
            return self.ramp.line.stands();
        }
        let key = self
            .own
            .key(descriptor)
            .and_then(|key| self.table.hold(key));
        key.is_some_and(|mut held| held.kept().control == descriptor && socket::is_unix(descriptor))
    }

    /// Moves out of the way of a program that wants this very number.
    pub fn make_way(&self, wanted: RawFd) {
        self.ramp.line.make_way(wanted);
        let Some(mut held) = self.own.key(wanted).and_then(|key| self.table.hold(key)) else {
            return;
        };
        if held.kept().control != wanted {
            return;
        }
        let moved = borrow(wanted)
            .and_then(|control| rustix::io::fcntl_dupfd_cloexec(control, wanted + 1).ok());
        self.own.forget(wanted);
        let moved = moved.map_or(-1, ramp::keep);
        self.own.note(moved, held.key());
        held.kept().control = moved;
    }

    /// In the child of a fork.
    pub fn after_fork(&self) {
        self.table.after_fork();
        self.names.after_fork();
        self.ramp.line.after_fork();
    }

    /// When the process ends in order.
    pub fn ending(&self) {
        self.ramp.account();
    }

    /// A descriptor is about to be closed.
    pub fn closing(&self, descriptor: RawFd) {
        if self.knows(descriptor) {
            self.measure(descriptor);
            self.table
                .close(descriptor, |_, routed| self.hang_up(routed));
        }
    }

    /// `new` has become a copy of `old`.
    pub fn duplicated(&self, old: RawFd, new: RawFd) {
        let Some(key) = self.table.find(old) else {
            return;
        };
        let inode = borrow(new).and_then(socket::tcp_inode);
        if self
            .table
            .hold(key)
            .is_some_and(|mut held| Some(held.kept().inode) == inode)
        {
            self.table.alias(old, new);
        }
    }

    /// What a socket's pending error is to the program, for `getsockopt(SO_ERROR)`. `None` where
    /// the kernel has it.
    pub fn error(&self, descriptor: RawFd) -> Option<i32> {
        self.measure(descriptor);
        let mut held = self.held(descriptor)?;
        if held.kept().stage != Stage::Connecting {
            return None;
        }
        match self.look(&mut held) {
            ramp::Result::Pending => Some(0),
            ramp::Result::Stands => None,
            ramp::Result::Failed(errno) => {
                self.give_up(held, descriptor);
                Some(errno)
            }
            ramp::Result::Gone => {
                self.give_up(held, descriptor);
                Some(libc::ENETUNREACH)
            }
        }
    }

    /// What a socket is connected to, as the program means it. `None` where the kernel knows.
    pub fn peer(&self, descriptor: RawFd) -> Option<Result<Destination, Errno>> {
        let socket = borrow(descriptor)?;
        if let Some(mut held) = self.held(descriptor) {
            let stage = held.kept().stage;
            return match stage {
                Stage::Elsewhere | Stage::Unmeasured => None,
                Stage::Connecting if self.look(&mut held) != ramp::Result::Stands => {
                    Some(Err(Errno::NOTCONN))
                }
                // Not any more, it may be.
                _ => socket::peer(socket).map(|_| Ok(held.kept().destination)),
            };
        }
        // It came with an exec, or from another process; or it is a local connection of the
        // program's own.
        let peer = socket::peer(socket)?;
        if !peer.ip().to_canonical().is_loopback() {
            return None;
        }
        let inode = socket::tcp_inode(socket)?;
        let leads = socket::local(socket).and_then(|local| self.ramp.peer(local));
        let known = Destination::new(leads.unwrap_or(peer), peer.is_ipv6());
        let stage = if leads.is_some() {
            Stage::Connected
        } else {
            Stage::Elsewhere
        };
        self.table
            .open(descriptor, Routed::not_ours(inode, known, stage));
        leads.map(|_| Ok(known))
    }

    /// Reports to the on-ramp how far the destination of a direct connection is, once that stands,
    /// if it would know.
    pub fn measure(&self, descriptor: RawFd) {
        let Some(mut held) = self.held(descriptor) else {
            return;
        };
        let routed = held.kept();
        if routed.stage != Stage::Unmeasured {
            return;
        }
        if let Some(round_trip) = borrow(descriptor).and_then(socket::round_trip) {
            routed.stage = Stage::Elsewhere;
            let address = routed.destination.ip();
            drop(held);
            self.ramp.report(&Request::Measured {
                address,
                round_trip,
            });
        }
    }

    /// The address of a socket's own end, as the program means it: that which the kernel would
    /// choose for the destination, with the socket's port. `None` where the kernel knows.
    pub fn local(&self, descriptor: RawFd) -> Option<Destination> {
        let own = borrow(descriptor).and_then(socket::local)?;
        if !own.ip().to_canonical().is_loopback() {
            return None;
        }
        let known = self
            .held(descriptor)
            .map(|mut held| (held.kept().stage, held.kept().destination));
        let destination = match known {
            Some((Stage::Elsewhere | Stage::Unmeasured, _)) => return None,
            Some((_, destination)) => destination,
            None => self.peer(descriptor)?.ok()?,
        };
        let source = socket::source(SocketAddr::new(destination.ip(), destination.port()))?;
        Some(Destination::new(
            SocketAddr::new(source, own.port()),
            own.is_ipv6(),
        ))
    }

    /// What is known of a descriptor, if it still stands for the same socket.
    fn held(&self, descriptor: RawFd) -> Option<Held<'_, Routed>> {
        let mut held = self.table.hold(self.table.find(descriptor)?)?;
        if borrow(descriptor).and_then(socket::tcp_inode) == Some(held.kept().inode) {
            return Some(held);
        }
        // Its end was not seen.
        if !held.lost(descriptor) {
            self.hang_up(held.kept());
            held.free();
        }
        None
    }

    /// How far a socket that is being connected has come. Where the route stands, it is the
    /// program's from here on.
    fn look(&self, held: &mut Held<'_, Routed>) -> ramp::Result {
        let descriptor = held.descriptor();
        let routed = held.kept();
        let Some(control) = borrow(routed.control) else {
            return ramp::Result::Gone;
        };
        let result = ramp::result(control);
        if result == ramp::Result::Stands {
            if let Some(socket) = descriptor.and_then(borrow) {
                routed.buffer.restore(socket);
            }
            routed.stage = Stage::Connected;
            self.hang_up(routed);
        }
        result
    }

    /// An attempt has failed: the socket is as it was before, and may be connected again.
    fn give_up(&self, mut held: Held<'_, Routed>, descriptor: RawFd) {
        let routed = held.kept();
        self.hang_up(routed);
        if let Some(socket) = borrow(descriptor) {
            socket::disconnect(socket);
            routed.buffer.restore(socket);
        }
        routed.stage = Stage::Elsewhere;
        self.forget(held, descriptor);
    }

    /// Nothing is known of a socket any more.
    fn forget(&self, mut held: Held<'_, Routed>, descriptor: RawFd) {
        self.hang_up(held.kept());
        if !held.lost(descriptor) {
            held.free();
        }
    }

    /// Closes the control.
    fn hang_up(&self, routed: &mut Routed) {
        let control = std::mem::replace(&mut routed.control, -1);
        self.own.forget(control);
        if socket::is_unix(control) {
            // SAFETY: it was the table's, and is gone from there.
            unsafe { ramp::drop_kept(control) };
        }
    }

    /// What is asked of the on-ramp for a destination.
    fn ask(&self, destination: &Destination) -> Option<ramp::Way> {
        let name = self.names.of(destination.ip());
        self.ramp.way(Ask {
            address: Some(destination.ip()),
            name: name.as_ref().and_then(names::Name::as_str),
            port: destination.port(),
            route: None,
            wish: Wish {
                purpose: self.settings.purpose.as_deref(),
                size: self.settings.size,
                rate: self.settings.rate,
                duration: self.settings.duration,
            },
            v6: destination.is_v6(),
            closed: self.settings.closed,
            acceptor: false,
            key: None,
            // With `closed` there is none that is direct.
            remembers: !self.settings.closed,
        })
    }
}

impl Own {
    fn key(&self, descriptor: RawFd) -> Option<Key> {
        let slot = self.keys.get(usize::try_from(descriptor).ok()?)?;
        Key::from_number(slot.load(Ordering::Acquire))
    }

    fn note(&self, descriptor: RawFd, key: Key) {
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
