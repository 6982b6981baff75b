//! The far end of one connection of the program: a TCP stack with only this connection.
//!
//! Each connection has its own stack, so the cost per packet does not grow with their number, and
//! none waits for another. It has no I/O and no clock: packets come and go as bytes, and the time
//! is passed in.

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
use crate::packet::{AddressPair, TcpSegment};

/// Buffer of each direction in bytes: received bytes that are not read yet (the program's window),
/// and sent bytes that the program has not acknowledged.
pub(crate) const BUFFER_BYTES: usize = 256 * 1024;
/// Time without acknowledgement after which the program's kernel counts as gone.
const ACKNOWLEDGEMENT_TIMEOUT: Duration = Duration::from_secs(180);

/// Minimum time between two calls of [`ConnectionEnd::poll`] without a packet between them.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Maximum distance of a sequence number behind the expected one: a retransmission of received
/// bytes. The program's kernel sends nothing further off. At half of all numbers, before and behind
/// cannot be distinguished.
const MAX_BYTES_BEHIND: i64 = 1 << 24;

/// Output of packets.
pub(crate) trait Wire {
    /// Sends a packet, or loses it.
    fn send(&mut self, packet: &[u8]);
    /// Returns a buffer in which to build one.
    fn room(&mut self) -> &mut Vec<u8>;
}

/// Input that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readable {
    /// Bytes.
    Bytes,
    /// There is nothing for now.
    Nothing,
    /// The program will not send more.
    End,
}

/// One connection.
pub(crate) struct ConnectionEnd {
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
    /// If true, the program has said that it will not send more.
    ended: bool,
    /// If true, [`ConnectionEnd::close`] was called.
    closed: bool,
    /// If true, the stack was told so.
    reported: bool,
    aborted: bool,
    /// Bytes that were unread when both directions had ended, after which the stack drops a
    /// connection.
    rest: VecDeque<u8>,
    /// Next expected sequence number of the program, not counting bytes that wait to be read.
    expected: u32,
    /// Time since which something waits to be acknowledged and nothing was received. (The stack's
    /// own timeout also ends idle connections.)
    silent_since: Option<Duration>,
}

impl ConnectionEnd {
    /// Answers a program that asks for a connection with the packet `syn`. `seed` must be secret,
    /// because sequence numbers are derived from it.
    pub(crate) fn accept(
        pair: &AddressPair,
        (segment, syn): (&TcpSegment, &[u8]),
        seed: u64,
        now: Duration,
        wire: &mut dyn Wire,
    ) -> Self {
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = seed;
        let mut interface = Interface::new(config, &mut PacketDevice::idle(wire), instant(now));
        let ip = match pair.far.ip() {
            IpAddr::V4(ip) => IpCidr::new(ip.into(), 32),
            IpAddr::V6(ip) => IpCidr::new(ip.into(), 128),
        };
        interface.update_ip_addrs(|addresses| {
            let _ = addresses.push(ip);
        });
        let buffer = || SocketBuffer::new(vec![0; BUFFER_BYTES]);
        let mut socket = Socket::new(buffer(), buffer());
        // Bytes are passed on as the far side has sent them, without waiting for more.
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

    /// Handles a packet of this connection.
    pub(crate) fn packet(
        &mut self,
        segment: &TcpSegment,
        packet: &[u8],
        now: Duration,
        wire: &mut dyn Wire,
    ) {
        if !self.is_acceptable(segment) {
            return;
        }
        self.silent_since = None;
        let mut pass = PacketDevice {
            incoming: Some(packet),
            wire,
        };
        self.interface
            .poll_ingress_single(instant(now), &mut pass, &mut self.sockets);
        self.poll(now, wire);
    }

    /// Returns true if the program's kernel may send this segment. The kernel knows its window, and
    /// the stack assumes that nothing lies beyond the end of its buffer.
    fn is_acceptable(&self, segment: &TcpSegment) -> bool {
        let waiting = u32::try_from(self.socket().recv_queue()).unwrap_or(u32::MAX);
        let expected = self.expected.wrapping_add(waiting);
        let ahead = i64::from(segment.number().wrapping_sub(expected).cast_signed());
        // The end of the stream takes a number, but no space.
        let room = i64::try_from(BUFFER_BYTES).unwrap_or(0) - i64::from(waiting) + 1;
        ahead >= -MAX_BYTES_BEHIND && ahead + i64::from(segment.length()) <= room
    }

    /// Sends what is due. To be called after any other call, and at [`ConnectionEnd::next_poll`].
    pub(crate) fn poll(&mut self, now: Duration, wire: &mut dyn Wire) {
        self.report_close();
        let mut pass = PacketDevice::idle(wire);
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
                .saturating_add(ACKNOWLEDGEMENT_TIMEOUT)
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

    /// Returns true if the program's kernel has something to acknowledge.
    fn waits_for_program(&self) -> bool {
        let socket = self.socket();
        let state = socket.state();
        socket.is_active() && socket.send_queue() > 0
            || matches!(
                state,
                State::SynReceived | State::FinWait1 | State::Closing | State::LastAck
            )
    }

    /// Returns the time of the next call of [`ConnectionEnd::poll`], if nothing comes before.
    pub(crate) fn next_poll(&mut self, now: Duration) -> Option<Duration> {
        let at = self.interface.poll_at(instant(now), &self.sockets);
        let at = at.map(|at| Duration::from_micros(u64::try_from(at.total_micros()).unwrap_or(0)));
        let gone = self
            .silent_since
            .map(|since| since.saturating_add(ACKNOWLEDGEMENT_TIMEOUT));
        // The stack may ask to be called immediately although it has nothing to do.
        let soon = now.saturating_add(MIN_POLL_INTERVAL);
        let next = at.into_iter().chain(gone).min();
        next.map(|next| next.max(soon))
    }

    /// Returns what can be read.
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

    /// Reads bytes; `take` returns how many it consumed.
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

    /// Returns true if there is space for bytes to the program.
    pub(crate) fn has_room(&self) -> bool {
        !self.closed && self.socket().can_send()
    }

    /// Writes bytes; `fill` returns how many it put into the buffer.
    pub(crate) fn write(&mut self, fill: impl FnOnce(&mut [u8]) -> usize) {
        let _ = self.socket_mut().send(|room| {
            let filled = fill(room).min(room.len());
            (filled, ())
        });
    }

    /// Ends the direction to the program.
    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    /// Tells the stack that no more bytes will be written. Once both ends have said so, the stack
    /// ignores windows that open, so this waits until everything was acknowledged.
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

    /// Returns true if it is over, and both kernels know.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(
            self.socket().state(),
            State::Closed | State::TimeWait | State::Listen
        )
    }

    /// Returns true if it is over, and everything was read.
    pub(crate) fn is_over(&self) -> bool {
        self.has_ended() && self.rest.is_empty()
    }

    /// Returns true if it is over because the program's side has reset it, or is gone.
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

/// A device for the stack: one packet in, any number out.
struct PacketDevice<'a> {
    incoming: Option<&'a [u8]>,
    wire: &'a mut dyn Wire,
}

impl<'a> PacketDevice<'a> {
    fn idle(wire: &'a mut dyn Wire) -> Self {
        Self {
            incoming: None,
            wire,
        }
    }
}

struct In<'a>(&'a [u8]);
struct Out<'a>(&'a mut dyn Wire);

impl Device for PacketDevice<'_> {
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
        // Packets from the device were built in this machine's memory, so checksums need not be
        // verified.
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
        // The previous content is overwritten.
        room.resize(length, 0);
        let result = f(&mut room);
        self.0.send(&room);
        *self.0.room() = room;
        result
    }
}

#[cfg(test)]
mod tests;
