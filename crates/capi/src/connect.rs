//! `lsl_connect`.
//!
//! The kernel connects the program's own socket to a listener of the on-ramp on loopback, or
//! directly to its destination if the on-ramp says so. `crates/ramp-protocol` specifies the
//! messages between the two.

use std::ffi::{OsString, c_int};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use libc::{sockaddr, socklen_t};
use longhaul_ramp_protocol::{RampReply, RampRequest, RouteQuery};

use crate::address::{self, AF_LSL, ParsedDestination, SockaddrLsl};
use crate::guard::catching_panics;
use crate::system::{
    self, Errno, RawAddress, TCP_CLOSE, check_result, cookie, disconnect, errno, fail,
    is_nonblocking, local_address, option, tcp_family, tcp_state,
};
use crate::table::{self, PendingRoute, SocketState};
use crate::wish::SocketWishes;
use crate::{environment, fill, ramp, resolve, settle};

/// Maximum duration of a connection over loopback, in milliseconds.
const LOOPBACK_TIMEOUT_MS: c_int = 5_000;

/// Action that `connect` has to take.
enum ConnectPlan {
    /// Call the system with the program's arguments.
    Real,
    /// Call the system with each address of the destination, until one answers.
    Direct(Vec<SocketAddr>, c_int),
    /// Return this result.
    Answer(Result<(), Errno>),
    /// Wait for the route.
    Wait(RouteWait),
}

/// A route for which a blocking `connect` waits.
struct RouteWait {
    cookie: u64,
    ramp: Arc<OwnedFd>,
    /// If true, the limit is `LSL_CONNECT_TIMEOUT`, and the attempt ends when it expires.
    gives_up: bool,
}

/// `connect(2)`, for `sockaddr_lsl` too.
///
/// # Safety
/// As for the system call.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn lsl_connect(
    fd: c_int,
    address: *const sockaddr,
    length: socklen_t,
) -> c_int {
    let before = errno();
    // SAFETY: the caller's promise is passed on.
    let plan = catching_panics(ConnectPlan::Real, || unsafe { plan(fd, address, length) });
    system::set_errno(before);
    let result = match plan {
        // SAFETY: the caller's promise is the system call's.
        ConnectPlan::Real => return unsafe { libc::connect(fd, address, length) },
        ConnectPlan::Direct(addresses, family) => direct(fd, &addresses, family),
        ConnectPlan::Answer(result) => result,
        ConnectPlan::Wait(waiting) => wait(fd, &waiting),
    };
    match result {
        Ok(()) => 0,
        Err(errno) => fail(errno),
    }
}

/// # Safety
/// As for the system call.
unsafe fn plan(fd: c_int, address: *const sockaddr, length: socklen_t) -> ConnectPlan {
    if address.is_null() || (length as usize) < size_of::<libc::sa_family_t>() {
        return ConnectPlan::Real;
    }
    // SAFETY: the caller says that `address` has that many bytes.
    let family = c_int::from(unsafe { address.cast::<libc::sa_family_t>().read_unaligned() });
    if family == libc::AF_UNSPEC {
        forget(fd);
        return ConnectPlan::Real;
    }
    if ![libc::AF_INET, libc::AF_INET6, AF_LSL].contains(&family) {
        return ConnectPlan::Real;
    }
    if settle::with_known_entry(fd, |entry| {
        matches!(entry.state(), SocketState::Listening(_)).then_some(())
    })
    .is_some()
    {
        return ConnectPlan::Answer(Err(libc::EISCONN));
    }
    let Some(cookie) = cookie(fd) else {
        return ConnectPlan::Real;
    };
    let Some(socket_family) = tcp_family(fd) else {
        let no_ours = family == AF_LSL;
        return if no_ours {
            ConnectPlan::Answer(Err(libc::EAFNOSUPPORT))
        } else {
            ConnectPlan::Real
        };
    };
    // SAFETY: the caller's promise is passed on.
    let destination = match unsafe { read(address, length, family, socket_family) } {
        Ok(Some(destination)) => destination,
        Ok(None) => return ConnectPlan::Real,
        Err(errno) => return ConnectPlan::Answer(Err(errno)),
    };
    if table::is_used()
        && let Some(plan) = earlier_outcome(fd, cookie)
    {
        return plan;
    }
    if tcp_state(fd).is_some_and(|state| state != TCP_CLOSE) {
        // The socket is connected or connecting without the library, so the kernel knows the right
        // error. It is given an address that it understands.
        let somewhere = SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, 9));
        let address = destination.address.unwrap_or(somewhere);
        return if family == AF_LSL {
            ConnectPlan::Direct(vec![address], socket_family)
        } else {
            ConnectPlan::Real
        };
    }
    let wishes = table::with_table(|table| table.get(cookie).map(|entry| entry.wishes.clone()))
        .unwrap_or_default();
    let attempt = ConnectAttempt {
        fd,
        cookie,
        family: socket_family,
        is_lsl: family == AF_LSL,
        destination,
        wishes,
    };
    attempt
        .begin()
        .unwrap_or_else(|errno| ConnectPlan::Answer(Err(errno)))
}

/// Reads the destination. Returns `None` if the kernel has to report its error, or if only the
/// kernel can connect to it.
///
/// # Safety
/// `address` has `length` bytes.
unsafe fn read(
    address: *const sockaddr,
    length: socklen_t,
    family: c_int,
    socket_family: c_int,
) -> Result<Option<ParsedDestination>, Errno> {
    if family == AF_LSL {
        // SAFETY: the caller's promise.
        let destination = unsafe { SockaddrLsl::read(address, length) }?.destination()?;
        return if destination.port == 0
            || (destination.address.is_none() && destination.name.is_none())
        {
            Err(libc::EADDRNOTAVAIL)
        } else {
            Ok(Some(destination))
        };
    }
    // SAFETY: the caller's promise.
    let Some(to) = (unsafe { system::read_address(address, length) }) else {
        return Ok(None);
    };
    let ip = to.ip().to_canonical();
    let broadcast = ip == IpAddr::V4(std::net::Ipv4Addr::BROADCAST);
    if family != socket_family
        || to.port() == 0
        || ip.is_unspecified()
        || ip.is_multicast()
        || broadcast
    {
        return Ok(None);
    }
    Ok(Some(ParsedDestination {
        address: Some(SocketAddr::new(ip, to.port()))
            .filter(SocketAddr::is_ipv4)
            .or(Some(to)),
        name: None,
        port: to.port(),
        route: None,
        flags: 0,
    }))
}

fn forget(fd: c_int) {
    if table::is_used()
        && let Some(cookie) = cookie(fd)
    {
        table::with_table(|table| {
            if let SocketState::Connecting(pending) = table.set_state(cookie, SocketState::Idle)
                && let Some(buffer) = pending.buffer
            {
                buffer.restore(fd);
            }
            if let Some(entry) = table.get(cookie) {
                (entry.peer, entry.peer_name, entry.carried) = (None, None, false);
            }
        });
    }
}

/// Returns the outcome of an earlier attempt, or `None` if there was no such attempt.
fn earlier_outcome(fd: c_int, cookie: u64) -> Option<ConnectPlan> {
    if let Some(result) = settle::result(fd, cookie) {
        return Some(ConnectPlan::Answer(result));
    }
    enum KnownState {
        Connecting(Arc<OwnedFd>, Option<u32>),
        Connected,
        Spent,
    }
    let known = table::with_table(|table| {
        let entry = table.get(cookie)?;
        match entry.state() {
            SocketState::Connecting(pending) => {
                let limit = entry.wishes.connect_timeout;
                Some(KnownState::Connecting(Arc::clone(&pending.ramp), limit))
            }
            SocketState::Connected { .. } => Some(KnownState::Connected),
            SocketState::Spent => Some(KnownState::Spent),
            _ => None,
        }
    });
    match known? {
        KnownState::Connecting(..) if is_nonblocking(fd) => {
            Some(ConnectPlan::Answer(Err(libc::EALREADY)))
        }
        KnownState::Connecting(ramp, limit) => {
            Some(ConnectPlan::Wait(route_wait(fd, cookie, ramp, limit)))
        }
        KnownState::Connected => Some(ConnectPlan::Answer(Err(libc::EISCONN))),
        KnownState::Spent => {
            disconnect(fd);
            forget(fd);
            None
        }
    }
}

/// Limits the wait to `SO_SNDTIMEO` or the program's own limit, whichever is less.
fn route_wait(fd: c_int, cookie: u64, ramp: Arc<OwnedFd>, limit: Option<u32>) -> RouteWait {
    let sending: Option<libc::timeval> = option(fd, libc::SOL_SOCKET, libc::SO_SNDTIMEO).ok();
    let sending =
        sending.map(|time| time.tv_sec.saturating_mul(1000) + (time.tv_usec + 999) / 1000);
    let sending = sending.filter(|milliseconds| *milliseconds > 0);
    let own = limit.map(i64::from).filter(|limit| *limit > 0);
    let gives_up = own.is_some_and(|own| sending.is_none_or(|sending| own <= sending));
    let least = [sending, own].into_iter().flatten().min();
    ramp::set_receive_timeout(ramp.as_raw_fd(), least.unwrap_or(0));
    RouteWait {
        cookie,
        ramp,
        gives_up,
    }
}

/// Waits for the route. Signals interrupt it as they interrupt `connect`: the kernel restarts the
/// system call that waits in the same cases.
fn wait(fd: c_int, waiting: &RouteWait) -> Result<(), Errno> {
    loop {
        if let Some(result) = catching_panics(None, || settle::result(fd, waiting.cookie)) {
            return result;
        }
        let mut byte = 0u8;
        // SAFETY: the buffer holds one byte.
        let come = unsafe {
            libc::recv(
                waiting.ramp.as_raw_fd(),
                (&raw mut byte).cast(),
                1,
                libc::MSG_PEEK,
            )
        };
        match errno() {
            _ if come >= 0 => {}
            libc::EAGAIN if waiting.gives_up => {
                catching_panics((), || {
                    disconnect(fd);
                    forget(fd);
                });
                return Err(libc::ETIMEDOUT);
            }
            libc::EAGAIN => return Err(libc::EINPROGRESS),
            error => return Err(error),
        }
    }
}

/// Calls the system with each address until one answers. A nonblocking socket tries the first
/// address only.
fn direct(fd: c_int, addresses: &[SocketAddr], family: c_int) -> Result<(), Errno> {
    let mut result = Err(libc::EHOSTUNREACH);
    for address in addresses {
        let raw = RawAddress::for_family(*address, family);
        // SAFETY: the address has the length that is given.
        result = check_result(unsafe { libc::connect(fd, raw.as_ptr(), raw.length()) }).map(drop);
        match result {
            Ok(()) | Err(libc::EINPROGRESS | libc::EALREADY | libc::EISCONN | libc::EINTR) => break,
            Err(_) => {}
        }
    }
    result
}

/// An attempt to connect.
struct ConnectAttempt {
    fd: c_int,
    cookie: u64,
    family: c_int,
    is_lsl: bool,
    destination: ParsedDestination,
    wishes: SocketWishes,
}

impl ConnectAttempt {
    fn closed(&self) -> bool {
        self.wishes.closed
            || self.destination.flags & address::CLOSED != 0
            || environment::variable("LONGHAUL_CLOSED").is_some()
    }

    fn acceptor(&self) -> bool {
        self.wishes.acceptor
            || self.wishes.key.is_some()
            || self.destination.flags & address::ACCEPTOR != 0
    }

    /// Asks the on-ramp, and follows its answer.
    fn begin(&self) -> Result<ConnectPlan, Errno> {
        let path: Option<&OsString> = self.wishes.onramp.as_ref();
        let answer = ramp::dial(path.map(OsString::as_os_str), true).and_then(|ramp| {
            let packet = self.ask(ramp.as_raw_fd())?;
            Ok((ramp, packet))
        });
        let (ramp, packet) = match answer {
            Ok(answer) => answer,
            // A route that is too long for a message, for example, is the program's mistake.
            Err(libc::ENAMETOOLONG) if path.is_none() && self.destination.route.is_some() => {
                return Err(libc::EINVAL);
            }
            Err(_) => return self.connect_without_onramp("no on-ramp answers"),
        };
        match packet.reply() {
            Ok(RampReply::Direct { reason, .. }) if self.acceptor() => {
                self.record(reason, false);
                Err(libc::ENETUNREACH)
            }
            Ok(RampReply::Direct { reason, .. }) => self.direct(reason),
            Ok(RampReply::Refuse { errno, reason }) => {
                self.record(reason, false);
                Err(errno)
            }
            Ok(RampReply::Via {
                listener,
                ticket,
                reason,
            }) => self.connect_via_onramp(ramp, listener, ticket, reason),
            _ => self.connect_without_onramp("the on-ramp sent an unexpected answer"),
        }
    }

    fn ask(&self, ramp: c_int) -> Result<ramp::Packet, Errno> {
        let ip = self
            .destination
            .address
            .map(|address| address.ip().to_canonical());
        let remembered =
            ip.and_then(|ip| table::with_table(|table| table.names.name_of(ip).map(str::to_owned)));
        let v6_only = self.family == libc::AF_INET6
            && option::<c_int>(self.fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY).unwrap_or(0) != 0;
        let v6 = self.family == libc::AF_INET6 && (v6_only || ip.is_some_and(|ip| ip.is_ipv6()));
        ramp::ask(
            ramp,
            &RampRequest::Ask(RouteQuery {
                address: ip,
                name: self.destination.name.as_deref().or(remembered.as_deref()),
                port: self.destination.port,
                route: self
                    .destination
                    .route
                    .as_deref()
                    .or(self.wishes.route.as_deref()),
                wish: self.wishes.to_message(),
                v6,
                route_required: self.closed(),
                acceptor: self.acceptor(),
                key: self.wishes.key,
                remembers: false,
                binds: false,
            }),
        )
    }

    /// Continues without an on-ramp: directly, unless that was ruled out.
    fn connect_without_onramp(&self, reason: &str) -> Result<ConnectPlan, Errno> {
        if self.closed() || self.acceptor() {
            self.record(reason, false);
            return Err(libc::ENETUNREACH);
        }
        self.direct(reason)
    }

    fn direct(&self, reason: &str) -> Result<ConnectPlan, Errno> {
        // An ordinary connection is recorded only if something may ask about it later.
        if self.is_lsl || table::is_used() {
            self.record(reason, false);
        }
        if !self.is_lsl {
            return Ok(ConnectPlan::Real);
        }
        let addresses = match (self.destination.address, &self.destination.name) {
            (Some(address), _) => vec![address],
            (None, Some(name)) => resolve::addresses(name, self.destination.port, self.family)?,
            (None, None) => return Err(libc::EADDRNOTAVAIL),
        };
        let count = if is_nonblocking(self.fd) {
            1
        } else {
            addresses.len()
        };
        Ok(ConnectPlan::Direct(
            addresses.into_iter().take(count).collect(),
            self.family,
        ))
    }

    /// Records where the connection leads.
    fn record(&self, reason: &str, carried: bool) {
        table::with_table(|table| {
            let entry = table.entry(self.cookie);
            entry.reason = reason.to_owned();
            entry.carried = carried;
            if carried || self.is_lsl {
                entry.peer = self.destination.address;
                entry.peer_name.clone_from(&self.destination.name);
            }
        });
    }

    /// Connects to the on-ramp's listener, and tells the on-ramp to begin.
    fn connect_via_onramp(
        &self,
        ramp: OwnedFd,
        listener: SocketAddr,
        ticket: u64,
        reason: &str,
    ) -> Result<ConnectPlan, Errno> {
        let nonblocking = is_nonblocking(self.fd);
        if self.to_loopback(listener).is_err() {
            disconnect(self.fd);
            return self.connect_without_onramp(
                "cannot connect the socket to the on-ramp: it is bound to another address or \
                 device",
            );
        }
        let Some(local) = local_address(self.fd) else {
            disconnect(self.fd);
            return Err(libc::ENETUNREACH);
        };
        let local = SocketAddr::new(local.ip().to_canonical(), local.port());
        let (fill, buffer) = fill::fill(self.fd);
        self.record(reason, true);
        let ramp = Arc::new(ramp);
        let begun = ramp::send(
            ramp.as_raw_fd(),
            &RampRequest::Begin {
                ticket,
                local,
                fill,
            },
        );
        if let Err(errno) = begun {
            if let Some(buffer) = buffer {
                buffer.restore(self.fd);
            }
            disconnect(self.fd);
            return Err(errno);
        }
        let pending = PendingRoute {
            ramp: Arc::clone(&ramp),
            buffer,
        };
        table::with_table(|table| table.set_state(self.cookie, SocketState::Connecting(pending)));
        if nonblocking {
            return Ok(ConnectPlan::Answer(Err(libc::EINPROGRESS)));
        }
        Ok(ConnectPlan::Wait(route_wait(
            self.fd,
            self.cookie,
            ramp,
            self.wishes.connect_timeout,
        )))
    }

    fn to_loopback(&self, listener: SocketAddr) -> Result<(), Errno> {
        if !listener.ip().to_canonical().is_loopback() {
            return Err(libc::EPROTO);
        }
        let raw = RawAddress::for_family(listener, self.family);
        let connect = || {
            // SAFETY: the address has the length that is given.
            check_result(unsafe { libc::connect(self.fd, raw.as_ptr(), raw.length()) }).map(drop)
        };
        match connect() {
            Err(libc::EINPROGRESS | libc::EINTR) => {}
            other => return other,
        }
        if system::wait(self.fd, libc::POLLOUT, LOOPBACK_TIMEOUT_MS) == 0 {
            return Err(libc::ETIMEDOUT);
        }
        // Reads the outcome, and thereby tells the kernel that it was reported to the program.
        match connect() {
            Err(libc::EISCONN) => Ok(()),
            other => other,
        }
    }
}
