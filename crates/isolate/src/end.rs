//! The far end of one connection of the program's: a TCP stack that has this one connection and
//! nothing else.
//!
//! One for each, so that a packet costs the same however many connections there are, and none has
//! to wait for another's. Without I/O and clock: packets come and go as bytes, time is given.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

use smoltcp::iface::{Config, Interface, PollResult, SocketHandle, SocketSet};
use smoltcp::phy::{
    Checksum, ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken,
};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpCidr, IpListenEndpoint};

use crate::device::MTU;
use crate::packet::{Pair, Segment};

/// Bytes that are kept of each direction while the other side does not take them: what the program
/// has sent (its window), and what it has not acknowledged.
pub(crate) const BUFFER: usize = 256 * 1024;
/// A kernel that does not acknowledge what was sent for so long is not there any more.
const UNACKNOWLEDGED: Duration = Duration::from_secs(180);

/// No less time passes between two calls of [`End::poll`] where nothing has come.
const LEAST_WAIT: Duration = Duration::from_millis(1);
/// How far behind the one that is expected a sequence number may be: what comes again, and was
/// there before. What is further off is nothing that the program's kernel sends, and where half of
/// all numbers lie between two, before and behind cannot be distinguished from each other.
const MAX_BYTES_BEHIND: i64 = 1 << 24;

/// Where packets go.
pub(crate) trait Wire {
    /// Sends a packet, or loses it.
    fn send(&mut self, packet: &[u8]);
    /// Room to write one in.
    fn room(&mut self) -> &mut Vec<u8>;
}

/// What can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readable {
    /// Bytes.
    Bytes,
    /// Nothing for now.
    Nothing,
    /// The program will send no more.
    End,
}

/// One connection.
pub(crate) struct End {
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
    /// Whether the program has said that it will send no more.
    ended: bool,
    /// Whether [`End::close`] was called.
    closed: bool,
    /// Whether that was reported to the stack.
    reported: bool,
    aborted: bool,
    /// What had not been read when both directions had ended: the stack keeps a connection no
    /// longer than that.
    rest: VecDeque<u8>,
    /// The program's sequence number that is expected next, but for what waits to be read.
    expected: u32,
    /// Since when something waits to be acknowledged and nothing was received. (The stack's own
    /// time-out ends idle connections as well.)
    silent_since: Option<Duration>,
}

impl End {
    /// Answers a program that asks for a connection with the packet `syn`. `seed` is nobody else's
    /// to know: sequence numbers follow from it.
    pub(crate) fn answer(
        pair: &Pair,
        (segment, syn): (&Segment, &[u8]),
        seed: u64,
        now: Duration,
        wire: &mut dyn Wire,
    ) -> Self {
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = seed;
        let mut interface = Interface::new(config, &mut Pass::idle(wire), instant(now));
        let ip = match pair.far.ip() {
            IpAddr::V4(ip) => IpCidr::new(ip.into(), 32),
            IpAddr::V6(ip) => IpCidr::new(ip.into(), 128),
        };
        interface.update_ip_addrs(|addresses| {
            let _ = addresses.push(ip);
        });
        let buffer = || SocketBuffer::new(vec![0; BUFFER]);
        let mut socket = Socket::new(buffer(), buffer());
        // Bytes come as the far side has sent them, and are not to wait for more.
        socket.set_nagle_enabled(false);
        let _ = socket.listen(IpListenEndpoint::from(pair.far));
        let mut sockets = SocketSet::new(Vec::with_capacity(1));
        let socket = sockets.add(socket);
        let mut end = Self {
            interface,
            sockets,
            socket,
            ended: false,
            closed: false,
            reported: false,
            aborted: false,
            rest: VecDeque::new(),
            expected: segment.number(),
            silent_since: None,
        };
        end.packet(segment, syn, now, wire);
        end.expected = end.expected.wrapping_add(1);
        end
    }

    /// A packet of this connection has come.
    pub(crate) fn packet(
        &mut self,
        segment: &Segment,
        packet: &[u8],
        now: Duration,
        wire: &mut dyn Wire,
    ) {
        if !self.may_come(segment) {
            return;
        }
        self.silent_since = None;
        let mut pass = Pass {
            incoming: Some(packet),
            wire,
        };
        self.interface
            .poll_ingress_single(instant(now), &mut pass, &mut self.sockets);
        self.poll(now, wire);
    }

    /// Whether it is something that the program's kernel may send: it has received a window, and
    /// the stack takes it on trust that nothing lies beyond the end of its buffer.
    fn may_come(&self, segment: &Segment) -> bool {
        let waiting = u32::try_from(self.socket().recv_queue()).unwrap_or(u32::MAX);
        let expected = self.expected.wrapping_add(waiting);
        let ahead = i64::from(segment.number().wrapping_sub(expected).cast_signed());
        // The end of all bytes takes a number, and no room.
        let room = i64::try_from(BUFFER).unwrap_or(0) - i64::from(waiting) + 1;
        ahead >= -MAX_BYTES_BEHIND && ahead + i64::from(segment.length()) <= room
    }

    /// Sends what is to be sent by now. To be called after anything else, and at [`End::next`].
    pub(crate) fn poll(&mut self, now: Duration, wire: &mut dyn Wire) {
        self.report_close();
        let mut pass = Pass::idle(wire);
        while self
            .interface
            .poll_egress(instant(now), &mut pass, &mut self.sockets)
            == PollResult::SocketStateChanged
        {}
        if !self.waits_for_program() {
            self.silent_since = None;
        } else if now
            >= self
                .silent_since
                .get_or_insert(now)
                .saturating_add(UNACKNOWLEDGED)
        {
            self.socket_mut().abort();
        }
        let state = self.socket().state();
        self.ended |= matches!(
            state,
            State::CloseWait | State::LastAck | State::Closing | State::TimeWait
        );
        if matches!(state, State::TimeWait | State::Closed) && !self.is_reset() {
            self.keep_rest();
        }
    }

    fn keep_rest(&mut self) {
        let Self {
            sockets,
            socket,
            rest,
            ..
        } = self;
        let socket = sockets.get_mut::<Socket<'static>>(*socket);
        while socket.can_recv() {
            let kept = socket.recv(|bytes| {
                rest.extend(&*bytes);
                (bytes.len(), ())
            });
            if kept.is_err() {
                return;
            }
        }
    }

    /// Whether the program's kernel has something to acknowledge.
    fn waits_for_program(&self) -> bool {
        let socket = self.socket();
        let state = socket.state();
        socket.is_active() && socket.send_queue() > 0
            || matches!(
                state,
                State::SynReceived | State::FinWait1 | State::Closing | State::LastAck
            )
    }

    /// When [`End::poll`] is to be called again, if nothing comes before.
    pub(crate) fn next(&mut self, now: Duration) -> Option<Duration> {
        let at = self.interface.poll_at(instant(now), &self.sockets);
        let at = at.map(|at| Duration::from_micros(u64::try_from(at.total_micros()).unwrap_or(0)));
        let gone = self
            .silent_since
            .map(|since| since.saturating_add(UNACKNOWLEDGED));
        // The stack may want to be called at once though it has nothing to do.
        let soon = now.saturating_add(LEAST_WAIT);
        let next = at.into_iter().chain(gone).min();
        next.map(|next| next.max(soon))
    }

    /// What there is to read.
    pub(crate) fn readable(&self) -> Readable {
        let socket = self.socket();
        if socket.can_recv() || !self.rest.is_empty() {
            Readable::Bytes
        } else if self.ended && !self.is_reset() {
            Readable::End
        } else {
            Readable::Nothing
        }
    }

    /// Reads: as many bytes as `take` says are gone then.
    pub(crate) fn read(&mut self, take: impl FnOnce(&[u8]) -> usize) {
        if !self.rest.is_empty() {
            let taken = take(self.rest.as_slices().0);
            self.rest.drain(..taken.min(self.rest.len()));
            return;
        }
        let taken = self.socket_mut().recv(|bytes| {
            let taken = take(bytes).min(bytes.len());
            (taken, taken)
        });
        let taken = u32::try_from(taken.unwrap_or(0)).unwrap_or(0);
        self.expected = self.expected.wrapping_add(taken);
    }

    /// Whether there is room for bytes to the program.
    pub(crate) fn has_room(&self) -> bool {
        !self.closed && self.socket().can_send()
    }

    /// Writes: as many bytes of the room as `fill` says are sent.
    pub(crate) fn write(&mut self, fill: impl FnOnce(&mut [u8]) -> usize) {
        let _ = self.socket_mut().send(|room| {
            let filled = fill(room).min(room.len());
            (filled, ())
        });
    }

    /// No more bytes will be written.
    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    /// Reports to the stack that no more bytes will be written. Where both ends have said so it
    /// takes no notice of windows that open, so that is left until all was acknowledged.
    fn report_close(&mut self) {
        let waits = self.socket().state() == State::CloseWait && self.socket().send_queue() > 0;
        if self.closed && !self.reported && !waits {
            self.reported = true;
            self.socket_mut().close();
        }
    }

    /// Resets the connection.
    pub(crate) fn abort(&mut self) {
        self.aborted = true;
        self.socket_mut().abort();
    }

    /// Whether it is over, and both kernels know.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(
            self.socket().state(),
            State::Closed | State::TimeWait | State::Listen
        )
    }

    /// Whether it is over, and all was read.
    pub(crate) fn is_over(&self) -> bool {
        self.has_ended() && self.rest.is_empty()
    }

    /// Whether it is over because the program's side has reset it, or is not there any more.
    pub(crate) fn is_reset(&self) -> bool {
        let socket = self.socket();
        let cut = matches!(socket.state(), State::Closed | State::Listen);
        cut && !self.aborted && !(self.ended && self.reported)
    }

    fn socket(&self) -> &Socket<'static> {
        self.sockets.get(self.socket)
    }

    fn socket_mut(&mut self) -> &mut Socket<'static> {
        self.sockets.get_mut(self.socket)
    }
}

fn instant(now: Duration) -> Instant {
    Instant::from_micros(i64::try_from(now.as_micros()).unwrap_or(i64::MAX))
}

/// One packet in, any number out.
struct Pass<'a> {
    incoming: Option<&'a [u8]>,
    wire: &'a mut dyn Wire,
}

impl<'a> Pass<'a> {
    fn idle(wire: &'a mut dyn Wire) -> Self {
        Self {
            incoming: None,
            wire,
        }
    }
}

struct In<'a>(&'a [u8]);
struct Out<'a>(&'a mut dyn Wire);

impl Device for Pass<'_> {
    type RxToken<'b>
        = In<'b>
    where
        Self: 'b;
    type TxToken<'b>
        = Out<'b>
    where
        Self: 'b;

    fn receive(&mut self, _: Instant) -> Option<(In<'_>, Out<'_>)> {
        Some((In(self.incoming.take()?), Out(self.wire)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Out<'_>> {
        Some(Out(self.wire))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = MTU;
        // What comes out of the device was made in this machine's memory.
        let mut checksum = ChecksumCapabilities::default();
        checksum.tcp = Checksum::Tx;
        checksum.ipv4 = Checksum::Tx;
        capabilities.checksum = checksum;
        capabilities
    }
}

impl RxToken for In<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0)
    }
}

impl TxToken for Out<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, f: F) -> R {
        let mut room = std::mem::take(self.0.room());
        // What it held before is written over.
        room.resize(length, 0);
        let result = f(&mut room);
        self.0.send(&room);
        *self.0.room() = room;
        result
    }
}

#[cfg(test)]
mod tests;
