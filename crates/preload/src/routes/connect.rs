//! `connect`: the replacement of the kernel's, with the same results and the same `errno`, from the
//! program's attempt to its end.
//!
//! A blocking socket waits for the result where a signal can interrupt it and the thread can be
//! cancelled, as in the kernel's `connect`. It waits in a `recv` of the control connection, which
//! the kernel restarts after a handler with `SA_RESTART`. If the wait was interrupted, or
//! `SO_SNDTIMEO` has passed, the attempt must continue without the program, which then learns the
//! result by `poll`. So the attempt is begun again as that of a nonblocking socket.

use std::ffi::c_int;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

use libc::{sockaddr, socklen_t};
use longhaul_ramp::Request;

use super::address::{Destination, Given};
use super::ramp::{self, Way};
use super::socket::{self, SendBuffer};
use super::{Routed, Routes, Stage};
use crate::context::{errno, set_errno};
use crate::filter;
use crate::process::{aside, borrow, process};
use crate::real;

/// Next step of `connect`.
enum Step {
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
    let may_have_route = |given: &Given| matches!(given, Given::To(to) if to.may_have_route());
    if filter::refuses_connections() {
        // SAFETY: the caller's promise.
        let refused = may_have_route(&unsafe { Given::read(address, length) });
        return refused.then(|| {
            set_errno(libc::ENETUNREACH);
            -1
        });
    }
    let routes = process()?.routes.as_ref()?;
    // SAFETY: the caller's promise.
    let given = unsafe { Given::read(address, length) };
    let may_have_route = may_have_route(&given);
    if !may_have_route && !routes.knows(descriptor) {
        return None;
    }
    // As at the entry of the C library's function. Nothing is on the stack that needs cleanup.
    // SAFETY: has no conditions.
    unsafe { pthread_testcancel() };
    let mut step = match aside(|_| routes.connect(descriptor, given)) {
        Some(step) => step,
        // The on-ramp cannot be asked here: on a stack without space, or in a child that borrows
        // its parent's memory.
        None if may_have_route && routes.is_closed() && is_tcp(descriptor) => {
            Step::Fails(libc::ENETUNREACH)
        }
        None => Step::Direct,
    };
    loop {
        match step {
            Step::Direct => return None,
            Step::Connected => return Some(0),
            Step::Fails(number) => {
                set_errno(number);
                return Some(-1);
            }
            Step::Wait(control) => {
                let mut byte = 0_u8;
                // SAFETY: one byte of this function. If the thread is cancelled here, the attempt
                // continues, as it does in the kernel.
                let got = unsafe { real::recv(control, (&raw mut byte).cast(), 1, libc::MSG_PEEK) };
                let error = if got < 0 { errno() } else { 0 };
                step =
                    aside(|_| routes.waited(descriptor, error)).unwrap_or(Step::Fails(libc::EINTR));
            }
        }
    }
}

/// Notes that a direct connection may stand.
pub fn connected(descriptor: RawFd) {
    let routes = process().and_then(|process| process.routes.as_ref());
    if let Some(routes) = routes.filter(|routes| routes.knows(descriptor)) {
        aside(|_| routes.measure(descriptor));
    }
}

fn is_tcp(descriptor: RawFd) -> bool {
    borrow(descriptor).and_then(socket::tcp_inode).is_some()
}

impl Routes {
    /// Handles the program's request to connect.
    fn connect(&self, descriptor: RawFd, given: Given) -> Step {
        let Some(socket) = borrow(descriptor) else {
            return Step::Direct;
        };
        let Some(inode) = socket::tcp_inode(socket) else {
            return Step::Direct;
        };
        if let Some(step) = self.connect_again(descriptor, socket, given) {
            return step;
        }
        let Given::To(destination) = given else {
            return Step::Direct;
        };
        if !destination.may_have_route() || !socket::is_unused(socket) {
            return Step::Direct;
        }
        let waits = !socket::is_nonblocking(socket);
        match self.start(descriptor, inode, destination, !waits) {
            Step::Wait(control) if !waits => {
                let _ = control;
                Step::Fails(libc::EINPROGRESS)
            }
            step => step,
        }
    }

    /// Handles a request to connect a socket that is known.
    fn connect_again(
        &self,
        descriptor: RawFd,
        socket: BorrowedFd<'_>,
        given: Given,
    ) -> Option<Step> {
        let mut held = self.held(descriptor)?;
        match (held.kept().stage, given) {
            (Stage::Elsewhere | Stage::Unmeasured, _) | (_, Given::Nothing) => {
                // Its further state is not known.
                self.forget(held, descriptor);
                None
            }
            // It is connected, as the kernel will say.
            (Stage::Connected, _) => Some(Step::Direct),
            (Stage::Connecting, _) => Some(match self.look(&mut held) {
                ramp::Result::Stands => {
                    socket::settle(socket);
                    Step::Connected
                }
                ramp::Result::Pending if socket::is_nonblocking(socket) => {
                    Step::Fails(libc::EALREADY)
                }
                ramp::Result::Pending => Step::Wait(held.kept().control),
                ramp::Result::Failed(number) => {
                    self.give_up(held, descriptor);
                    Step::Fails(number)
                }
                ramp::Result::Gone => {
                    self.give_up(held, descriptor);
                    self.without_ramp()
                }
            }),
        }
    }

    /// Handles the end of a thread's wait for the result: the result, or an error.
    fn waited(&self, descriptor: RawFd, error: c_int) -> Step {
        // Another thread closed it meanwhile.
        let Some(mut held) = self.held(descriptor) else {
            return Step::Fails(libc::EBADF);
        };
        if held.kept().stage == Stage::Connected {
            return Step::Connected;
        }
        match self.look(&mut held) {
            ramp::Result::Stands => Step::Connected,
            ramp::Result::Failed(number) => {
                self.give_up(held, descriptor);
                Step::Fails(number)
            }
            ramp::Result::Gone => {
                self.give_up(held, descriptor);
                self.without_ramp()
            }
            ramp::Result::Pending => {
                let Routed {
                    inode, destination, ..
                } = *held.kept();
                let is_filled = held.kept().is_filled;
                let reported = if error == libc::EINTR {
                    libc::EINTR
                } else {
                    libc::EINPROGRESS
                };
                if is_filled {
                    return Step::Fails(reported);
                }
                // From now on `poll` reports the result.
                self.give_up(held, descriptor);
                match self.start(descriptor, inode, destination, true) {
                    Step::Wait(_) | Step::Direct => Step::Fails(reported),
                    step => step,
                }
            }
        }
    }

    /// Begins an attempt. Returns [`Step::Wait`] if it is in progress.
    fn start(
        &self,
        descriptor: RawFd,
        inode: u64,
        destination: Destination,
        is_filled: bool,
    ) -> Step {
        let Some(socket) = borrow(descriptor) else {
            return Step::Direct;
        };
        match self.ask(&destination) {
            None => self.without_ramp(),
            Some(Way::Direct { measure }) => {
                if measure {
                    self.table.open(
                        descriptor,
                        Routed::not_ours(inode, destination, Stage::Unmeasured),
                    );
                }
                Step::Direct
            }
            Some(Way::Refused(number)) => Step::Fails(number),
            Some(Way::Via(listener, ticket, control)) => {
                let buffer = if is_filled {
                    SendBuffer::shrink(socket)
                } else {
                    SendBuffer::untouched()
                };
                let mut routed = Routed {
                    inode,
                    destination,
                    stage: Stage::Connecting,
                    control: -1,
                    is_filled,
                    buffer,
                };
                let begun = socket::join(socket, listener)
                    .and_then(|()| self.begin(socket, ticket, control.as_fd(), is_filled));
                if begun.is_none() || !self.note(descriptor, routed, control) {
                    socket::disconnect(socket);
                    routed.buffer.restore(socket);
                    return self.without_ramp();
                }
                self.control(descriptor)
                    .map_or(Step::Fails(libc::EBADF), Step::Wait)
            }
        }
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
        ramp::say(
            control,
            &Request::Begin {
                ticket,
                local,
                fill,
            },
        )
    }

    /// Records an attempt. Returns false if there is no space for it.
    fn note(&self, descriptor: RawFd, routed: Routed, control: OwnedFd) -> bool {
        let control = ramp::keep(control);
        let routed = Routed { control, ..routed };
        match self.table.open(descriptor, routed) {
            Some(key) => {
                self.own.note(control, key);
                true
            }
            None => {
                // SAFETY: the table did not take it.
                unsafe { ramp::drop_kept(control) };
                false
            }
        }
    }

    fn control(&self, descriptor: RawFd) -> Option<RawFd> {
        let key = self.table.find(descriptor)?;
        Some(self.table.hold(key)?.kept().control)
    }

    /// Returns the step without an answer of the on-ramp.
    fn without_ramp(&self) -> Step {
        if self.is_closed() {
            Step::Fails(libc::ENETUNREACH)
        } else {
            Step::Direct
        }
    }
}
