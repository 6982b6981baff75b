//! `connect`: the replacement of the kernel's, with the same results and the same `errno`, from the
//! program's attempt to its end.
//!
//! A blocking socket waits for the result where a signal can interrupt it and the thread can be
//! cancelled, as in the kernel's `connect`. It waits in a `recv` of the control connection, which
//! the kernel restarts after a handler with `SA_RESTART`. If the wait was interrupted, or
//! `SO_SNDTIMEO` has passed, the attempt must continue without the program, which then learns the
//! result by `poll`. So the attempt is begun again as that of a nonblocking socket.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

use libc::{sockaddr, socklen_t};
use longhaul_ramp_protocol::RampRequest;

use super::address::{ConnectArgument, SocketDestination};
use super::ramp::{self, RampAnswer};
use super::socket::{self, SendBuffer};
use super::{RouteStage, RoutedSocket, Routes};
use crate::context::{errno, set_errno};
use crate::descriptor::{self, borrow};
use crate::filter;
use crate::process::{process, run_unnoticed};
use crate::real;

/// Maximum number of source ports that are tried for one connection.
const MAX_SOURCE_PORTS_TRIED: u32 = 3;

/// Next step of `connect`.
enum ConnectStep {
    /// Call the C library.
    Direct,
    /// Return 0.
    Connected,
    /// Return -1 with this error.
    Fails(c_int),
    /// Wait for a message on this control connection.
    Wait(RawFd),
}

unsafe extern "C-unwind" {
    fn pthread_testcancel();
}

/// `connect(2)` for a socket that may have a route. Returns `None` if the C library has to do it.
///
/// # Safety
/// As for `connect`.
pub unsafe fn connect(
    descriptor: RawFd,
    address: *const sockaddr,
    length: socklen_t,
) -> Option<c_int> {
    let may_have_route =
        |given: &ConnectArgument| matches!(given, ConnectArgument::To(to) if to.may_have_route());
    if filter::refuses_connections() {
        // SAFETY: the caller's promise.
        let refused = may_have_route(&unsafe { ConnectArgument::read(address, length) });
        return refused.then(|| {
            set_errno(libc::ENETUNREACH);
            -1
        });
    }
    let routes = process()?.routes.as_ref()?;
    // SAFETY: the caller's promise.
    let given = unsafe { ConnectArgument::read(address, length) };
    let may_have_route = may_have_route(&given);
    if !may_have_route && !routes.knows(descriptor) {
        return None;
    }
    // As at the entry of the C library's function. Nothing is on the stack that needs cleanup.
    // SAFETY: has no conditions.
    unsafe { pthread_testcancel() };
    let mut step = match run_unnoticed(|_| routes.connect(descriptor, given)) {
        Some(step) => step,
        // The on-ramp cannot be asked here: on a stack without space, or in a child that borrows
        // its parent's memory.
        None if may_have_route && routes.is_closed() && is_tcp(descriptor) => {
            ConnectStep::Fails(libc::ENETUNREACH)
        }
        None => ConnectStep::Direct,
    };
    loop {
        match step {
            ConnectStep::Direct => return None,
            ConnectStep::Connected => return Some(0),
            ConnectStep::Fails(number) => {
                set_errno(number);
                return Some(-1);
            }
            ConnectStep::Wait(control) => {
                let mut byte = 0_u8;
                // SAFETY: one byte of this function. If the thread is cancelled here, the attempt
                // continues, as it does in the kernel.
                let got = unsafe { real::recv(control, (&raw mut byte).cast(), 1, libc::MSG_PEEK) };
                let error = if got < 0 { errno() } else { 0 };
                step = run_unnoticed(|_| routes.finish_wait(descriptor, error))
                    .unwrap_or(ConnectStep::Fails(libc::EINTR));
            }
        }
    }
}

/// Notes that a direct connection may stand.
pub fn connected(descriptor: RawFd) {
    let routes = process().and_then(|process| process.routes.as_ref());
    if let Some(routes) = routes.filter(|routes| routes.knows(descriptor)) {
        run_unnoticed(|_| routes.measure(descriptor));
    }
}

fn is_tcp(descriptor: RawFd) -> bool {
    borrow(descriptor).and_then(socket::tcp_inode).is_some()
}

impl Routes {
    /// Handles the program's request to connect.
    fn connect(&self, descriptor: RawFd, given: ConnectArgument) -> ConnectStep {
        let Some(socket) = borrow(descriptor) else {
            return ConnectStep::Direct;
        };
        let Some(inode) = socket::tcp_inode(socket) else {
            return ConnectStep::Direct;
        };
        if let Some(step) = self.connect_again(descriptor, socket, given) {
            return step;
        }
        let ConnectArgument::To(destination) = given else {
            return ConnectStep::Direct;
        };
        if !destination.may_have_route() || !socket::is_unused(socket) {
            return ConnectStep::Direct;
        }
        let waits = !socket::is_nonblocking(socket);
        match self.start(descriptor, inode, destination, !waits) {
            ConnectStep::Wait(control) if !waits => {
                let _ = control;
                ConnectStep::Fails(libc::EINPROGRESS)
            }
            step => step,
        }
    }

    /// Handles a request to connect a socket that is known.
    fn connect_again(
        &self,
        descriptor: RawFd,
        socket: BorrowedFd<'_>,
        given: ConnectArgument,
    ) -> Option<ConnectStep> {
        let mut held = self.state_of(descriptor)?;
        match (held.value().stage, given) {
            (RouteStage::Elsewhere | RouteStage::Unmeasured, _) | (_, ConnectArgument::Nothing) => {
                // Its further state is not known.
                self.forget(held, descriptor);
                None
            }
            // It is connected, as the kernel will say.
            (RouteStage::Connected, _) => Some(ConnectStep::Direct),
            (RouteStage::Connecting, _) => Some(match self.poll_route(&mut held) {
                ramp::AttemptProgress::Stands => {
                    socket::settle(socket);
                    ConnectStep::Connected
                }
                ramp::AttemptProgress::Pending if socket::is_nonblocking(socket) => {
                    ConnectStep::Fails(libc::EALREADY)
                }
                ramp::AttemptProgress::Pending => ConnectStep::Wait(held.value().control),
                ramp::AttemptProgress::Failed(number) => {
                    self.give_up(held, descriptor);
                    ConnectStep::Fails(number)
                }
                ramp::AttemptProgress::Gone => {
                    self.give_up(held, descriptor);
                    self.step_without_ramp()
                }
            }),
        }
    }

    /// Handles the end of a thread's wait for the result: the result, or an error.
    fn finish_wait(&self, descriptor: RawFd, error: c_int) -> ConnectStep {
        // Another thread closed it meanwhile.
        let Some(mut held) = self.state_of(descriptor) else {
            return ConnectStep::Fails(libc::EBADF);
        };
        if held.value().stage == RouteStage::Connected {
            return ConnectStep::Connected;
        }
        match self.poll_route(&mut held) {
            ramp::AttemptProgress::Stands => ConnectStep::Connected,
            ramp::AttemptProgress::Failed(number) => {
                self.give_up(held, descriptor);
                ConnectStep::Fails(number)
            }
            ramp::AttemptProgress::Gone => {
                self.give_up(held, descriptor);
                self.step_without_ramp()
            }
            ramp::AttemptProgress::Pending => {
                let RoutedSocket {
                    inode, destination, ..
                } = *held.value();
                let is_filled = held.value().is_filled;
                let reported = if error == libc::EINTR {
                    libc::EINTR
                } else {
                    libc::EINPROGRESS
                };
                if is_filled {
                    return ConnectStep::Fails(reported);
                }
                // From now on `poll` reports the result.
                self.give_up(held, descriptor);
                match self.start(descriptor, inode, destination, true) {
                    ConnectStep::Wait(_) | ConnectStep::Direct => ConnectStep::Fails(reported),
                    step => step,
                }
            }
        }
    }

    /// Begins an attempt. Returns [`ConnectStep::Wait`] if it is in progress.
    fn start(
        &self,
        descriptor: RawFd,
        inode: u64,
        destination: SocketDestination,
        is_filled: bool,
    ) -> ConnectStep {
        let Some(socket) = borrow(descriptor) else {
            return ConnectStep::Direct;
        };
        let binds = !socket::is_bound(socket);
        match self.ask_route(&destination, binds) {
            None => self.step_without_ramp(),
            Some(RampAnswer::DirectFrom(source)) => self.leave_from(socket, &destination, source),
            Some(RampAnswer::Direct { measure }) => {
                if measure {
                    self.table.open(
                        descriptor,
                        RoutedSocket::without_route(inode, destination, RouteStage::Unmeasured),
                    );
                }
                ConnectStep::Direct
            }
            Some(RampAnswer::Refused(number)) => ConnectStep::Fails(number),
            Some(RampAnswer::Via(listener, ticket, control)) => {
                let buffer = if is_filled {
                    SendBuffer::shrink(socket)
                } else {
                    SendBuffer::untouched()
                };
                let mut routed = RoutedSocket {
                    inode,
                    destination,
                    stage: RouteStage::Connecting,
                    control: -1,
                    is_filled,
                    buffer,
                };
                let begun = socket::join(socket, listener)
                    .and_then(|()| self.begin(socket, ticket, control.as_fd(), is_filled));
                if begun.is_none() || !self.record(descriptor, routed, control) {
                    socket::disconnect(socket);
                    routed.buffer.restore(socket);
                    return self.step_without_ramp();
                }
                self.control(descriptor)
                    .map_or(ConnectStep::Fails(libc::EBADF), ConnectStep::Wait)
            }
        }
    }

    /// Binds a socket to the source port of a reserved path. If another program took the port
    /// meanwhile, asks for another one.
    fn leave_from(
        &self,
        socket: BorrowedFd<'_>,
        destination: &SocketDestination,
        source: SocketAddr,
    ) -> ConnectStep {
        let mut source = source;
        for _ in 0..MAX_SOURCE_PORTS_TRIED {
            if socket::bind(socket, source, destination.is_v6()) {
                return ConnectStep::Direct;
            }
            match self.ask_route(destination, true) {
                Some(RampAnswer::DirectFrom(next)) => source = next,
                Some(RampAnswer::Refused(number)) => return ConnectStep::Fails(number),
                _ => break,
            }
        }
        self.step_without_ramp()
    }

    fn begin(
        &self,
        socket: BorrowedFd<'_>,
        ticket: u64,
        control: BorrowedFd<'_>,
        is_filled: bool,
    ) -> Option<()> {
        let local = socket::local(socket)?;
        let fill = if is_filled { socket::fill(socket) } else { 0 };
        ramp::set_result_timeout(control, socket::connect_timeout(socket));
        ramp::send_request(
            control,
            &RampRequest::Begin {
                ticket,
                local,
                fill,
            },
        )
    }

    /// Records an attempt. Returns false if there is no space for it.
    fn record(&self, descriptor: RawFd, routed: RoutedSocket, control: OwnedFd) -> bool {
        let control = descriptor::keep(control);
        let routed = RoutedSocket { control, ..routed };
        match self.table.open(descriptor, routed) {
            Some(key) => {
                self.own.note(control, key);
                true
            }
            None => {
                // SAFETY: the table did not take it.
                unsafe { descriptor::drop_kept(control) };
                false
            }
        }
    }

    fn control(&self, descriptor: RawFd) -> Option<RawFd> {
        let key = self.table.find(descriptor)?;
        Some(self.table.hold(key)?.value().control)
    }

    /// Returns the step without an answer of the on-ramp.
    fn step_without_ramp(&self) -> ConnectStep {
        if self.is_closed() {
            ConnectStep::Fails(libc::ENETUNREACH)
        } else {
            ConnectStep::Direct
        }
    }
}
