use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

use proptest::prelude::*;
use smoltcp::wire::{IpEndpoint, Ipv4Address};

use super::*;
use crate::packet::Packet;

const NOW: Duration = Duration::from_secs(5);

fn pair() -> AddressPair {
    AddressPair {
        program: "192.0.0.2:40000".parse().unwrap(),
        far: "192.0.2.1:80".parse().unwrap(),
    }
}

fn segment(packet: &[u8]) -> TcpSegment {
    match Packet::read(packet) {
        Packet::Tcp(_, segment) => segment,
        other => panic!("{other:?}"),
    }
}

/// Packets in flight.
#[derive(Default)]
struct Pipe {
    packets: VecDeque<Vec<u8>>,
    room: Vec<u8>,
}

impl Wire for Pipe {
    fn send(&mut self, packet: &[u8]) {
        self.packets.push_back(packet.to_vec());
    }

    fn room(&mut self) -> &mut Vec<u8> {
        &mut self.room
    }
}

/// The program and its kernel.
struct Program {
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
    out: Pipe,
}

impl Program {
    fn connecting() -> Self {
        let mut out = Pipe::default();
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = 3;
        let mut interface = Interface::new(config, &mut PacketDevice::idle(&mut out), instant(NOW));
        interface.update_ip_addrs(|addresses| {
            addresses
                .push(IpCidr::new(Ipv4Address::new(192, 0, 0, 2).into(), 24))
                .unwrap();
        });
        interface
            .routes_mut()
            .add_default_ipv4_route(Ipv4Address::new(192, 0, 0, 1))
            .unwrap();
        let buffer = || SocketBuffer::new(vec![0; 100_000]);
        let mut socket = Socket::new(buffer(), buffer());
        let to: IpEndpoint = pair().far.into();
        socket.connect(interface.context(), to, 40000).unwrap();
        let mut sockets = SocketSet::new(Vec::new());
        let socket = sockets.add(socket);
        let mut program = Self {
            interface,
            sockets,
            socket,
            out,
        };
        program.poll(NOW);
        program
    }

    fn tcp(&mut self) -> &mut Socket<'static> {
        self.sockets.get_mut(self.socket)
    }

    fn poll(&mut self, now: Duration) {
        while self.interface.poll_egress(
            instant(now),
            &mut PacketDevice::idle(&mut self.out),
            &mut self.sockets,
        ) == PollResult::SocketStateChanged
        {}
    }

    fn packet(&mut self, packet: &[u8], now: Duration) {
        let mut pass = PacketDevice {
            incoming: Some(packet),
            wire: &mut self.out,
        };
        self.interface
            .poll_ingress_single(instant(now), &mut pass, &mut self.sockets);
        self.poll(now);
    }

    fn next(&mut self, now: Duration) -> Option<Duration> {
        let at = self.interface.poll_at(instant(now), &self.sockets)?;
        Some(Duration::from_micros(at.total_micros() as u64))
    }
}

/// Both ends, and the time.
struct Link {
    program: Program,
    end: ConnectionEnd,
    out: Pipe,
    now: Duration,
    /// For each packet: whether it is lost, and whether it is duplicated.
    fate: Box<dyn FnMut() -> (bool, bool)>,
}

impl Link {
    fn up() -> Self {
        Self::with(Box::new(|| (false, false)))
    }

    fn with(fate: Box<dyn FnMut() -> (bool, bool)>) -> Self {
        let mut program = Program::connecting();
        let syn = program.out.packets.pop_front().unwrap();
        let mut out = Pipe::default();
        let end = ConnectionEnd::accept(&pair(), (&segment(&syn), &syn), 9, NOW, &mut out);
        Self {
            program,
            end,
            out,
            now: NOW,
            fate,
        }
    }

    /// Moves packets until there are none.
    fn settle(&mut self) {
        self.end.poll(self.now, &mut self.out);
        self.program.poll(self.now);
        loop {
            if let Some(packet) = self.out.packets.pop_front() {
                let (lost, twice) = (self.fate)();
                for _ in 0..usize::from(!lost) + usize::from(twice) {
                    self.program.packet(&packet, self.now);
                }
            } else if let Some(packet) = self.program.out.packets.pop_front() {
                let (lost, twice) = (self.fate)();
                for _ in 0..usize::from(!lost) + usize::from(twice) {
                    self.end
                        .packet(&segment(&packet), &packet, self.now, &mut self.out);
                }
            } else {
                return;
            }
        }
    }

    /// Advances time until something happens.
    fn pass(&mut self) {
        let next = [self.end.next_poll(self.now), self.program.next(self.now)];
        let next = next.into_iter().flatten().min().unwrap_or(self.now);
        self.now = next.max(self.now + Duration::from_millis(1));
        self.settle();
    }

    fn read(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        while self.end.readable() == Readable::Bytes {
            self.end.read(|bytes| {
                all.extend_from_slice(bytes);
                bytes.len()
            });
        }
        all
    }

    fn write(&mut self, bytes: &[u8]) -> usize {
        let mut written = 0;
        while self.end.has_room() && written < bytes.len() {
            self.end.write(|room| {
                let length = room.len().min(bytes.len() - written);
                room[..length].copy_from_slice(&bytes[written..written + length]);
                written += length;
                length
            });
        }
        written
    }

    fn program_read(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        while self.program.tcp().can_recv() {
            self.program
                .tcp()
                .recv(|bytes| {
                    all.extend_from_slice(bytes);
                    (bytes.len(), ())
                })
                .unwrap();
        }
        all
    }
}

#[test]
fn each_direction_ends_by_itself() {
    for program_first in [true, false] {
        let mut link = Link::up();
        link.settle();
        assert!(link.program.tcp().may_send());
        assert_eq!(link.end.readable(), Readable::Nothing);
        link.program.tcp().send_slice(b"question").unwrap();
        link.settle();
        assert_eq!(link.read(), b"question");
        if program_first {
            link.program.tcp().close();
            link.settle();
            assert_eq!(link.end.readable(), Readable::End);
            assert!(!link.end.is_over() && !link.end.is_reset());
            assert_eq!(link.write(b"answer"), 6);
            link.settle();
            assert_eq!(link.program_read(), b"answer");
            link.end.close();
        } else {
            assert_eq!(link.write(b"answer"), 6);
            link.end.close();
            assert!(!link.end.has_room());
            link.settle();
            assert_eq!(link.program_read(), b"answer");
            assert!(!link.program.tcp().may_recv());
            link.program.tcp().send_slice(b"thanks").unwrap();
            link.settle();
            assert_eq!(link.read(), b"thanks");
            assert!(!link.end.is_over());
            link.program.tcp().close();
        }
        link.settle();
        link.pass();
        assert!(link.end.is_over() && !link.end.is_reset());
    }
}

#[test]
fn resets_pass_in_each_direction() {
    let mut link = Link::up();
    link.settle();
    link.program.tcp().abort();
    link.settle();
    assert!(link.end.is_over() && link.end.is_reset());
    assert_ne!(link.end.readable(), Readable::End);

    let mut link = Link::up();
    link.settle();
    link.end.abort();
    link.settle();
    assert_eq!(link.program.tcp().state(), State::Closed);
    assert!(
        link.end.is_over() && !link.end.is_reset(),
        "it was this end"
    );

    // The program ends while it is being answered.
    let mut program = Program::connecting();
    let syn = program.out.packets.pop_front().unwrap();
    let mut out = Pipe::default();
    let mut end = ConnectionEnd::accept(&pair(), (&segment(&syn), &syn), 9, NOW, &mut out);
    program.tcp().abort();
    program.packet(&out.packets.pop_front().unwrap(), NOW);
    for packet in program.out.packets.drain(..) {
        end.packet(&segment(&packet), &packet, NOW, &mut out);
    }
    assert!(end.is_over() && end.is_reset());
}

#[test]
fn unread_bytes_fill_a_bounded_buffer() {
    let mut link = Link::up();
    link.settle();
    let mut sent = 0;
    for _ in 0..1000 {
        sent += link.program.tcp().send_slice(&[7; 9999]).unwrap();
        link.settle();
        link.pass();
    }
    assert!(
        sent <= BUFFER_BYTES + 100_000 && sent > BUFFER_BYTES,
        "its window, and the program's own buffer: {sent}"
    );
    let mut read = 0;
    let mut rounds = 0;
    while read < sent {
        rounds += 1;
        assert!(rounds < 1000);
        let some = link.read();
        read += some.len();
        link.settle();
        if some.is_empty() {
            link.pass();
        }
    }
    assert_eq!(read, sent);

    let mut link = Link::up();
    link.settle();
    let mut written = 0;
    loop {
        let some = link.write(&[8; 9999]);
        written += some;
        link.settle();
        if some == 0 && link.now > NOW + Duration::from_secs(5) {
            break;
        }
        link.pass();
    }
    assert!(
        (BUFFER_BYTES..=BUFFER_BYTES + 100_000).contains(&written),
        "what is kept, and the program's window: {written}"
    );
}

#[test]
fn last_bytes_can_be_read_after_the_end() {
    for end_first in [true, false] {
        let mut link = Link::up();
        link.settle();
        if end_first {
            link.end.close();
            link.settle();
        }
        link.program.tcp().send_slice(&[7; 50_000]).unwrap();
        link.program.tcp().close();
        link.settle();
        link.end.close();
        for _ in 0..20 {
            link.pass();
            link.now += Duration::from_secs(60);
        }
        assert!(!link.end.is_over());
        assert_eq!(link.read().len(), 50_000);
        assert!(link.end.is_over() && !link.end.is_reset());
        assert_eq!(link.end.readable(), Readable::End);
    }
}

#[test]
fn an_idle_connection_stays() {
    let mut link = Link::up();
    link.settle();
    for _ in 0..50 {
        link.now += Duration::from_secs(3600);
        link.settle();
    }
    link.program.tcp().send_slice(b"still here").unwrap();
    link.settle();
    assert_eq!(link.read(), b"still here");
    // A program that reads nothing for hours stays connected, too.
    while link.write(&[8; 9999]) > 0 {
        link.settle();
    }
    for _ in 0..500 {
        link.pass();
    }
    assert!(link.now > NOW + Duration::from_secs(3 * 3600) && !link.end.is_over());
}

#[test]
fn a_kernel_that_has_gone_is_noticed() {
    let mut link = Link::up();
    link.settle();
    link.fate = Box::new(|| (true, false));
    assert_eq!(link.write(b"lost"), 4);
    link.settle();
    let began = link.now;
    while !link.end.is_over() {
        link.pass();
        assert!(link.now < began + Duration::from_secs(400));
    }
    assert!(link.end.is_reset());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn bytes_arrive_once_and_in_order(
        to_far in 0_usize..200_000,
        to_program in 0_usize..400_000,
        seed: u64,
        loss in 0_u64..20,
    ) {
        let bytes = |length: usize| (0..length).map(|at| (at % 251) as u8).collect::<Vec<u8>>();
        let (to_far, to_program) = (bytes(to_far), bytes(to_program));
        let mut state = seed | 1;
        // The stack does not recover from the loss of a FIN when both ends close at once. The
        // device loses nothing.
        let lossy = Rc::new(Cell::new(true));
        let losing = Rc::clone(&lossy);
        let fate = move || {
            // xorshift64 (Marsaglia, 2003)
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (losing.get() && state % 100 < loss, (state >> 20) % 100 < 5)
        };
        let mut link = Link::with(Box::new(fate));
        let (mut sent, mut written, mut reported) = (0, 0, false);
        let (mut far, mut program) = (Vec::new(), Vec::new());
        let mut rounds = 0;
        while !link.end.is_over() || link.program.tcp().is_open() {
            if link.program.tcp().may_send() {
                sent += link.program.tcp().send_slice(&to_far[sent..]).unwrap();
                // As in `ConnectionEnd::report_close`: this kernel is the same stack.
                let waits = link.program.tcp().state() == State::CloseWait
                    && link.program.tcp().send_queue() > 0;
                if far.len() == to_far.len() && !reported && !waits {
                    reported = true;
                    link.program.tcp().close();
                }
            }
            written += link.write(&to_program[written..]);
            if program.len() == to_program.len() && link.program.tcp().state() != State::SynSent {
                link.end.close();
            }
            link.settle();
            far.extend(link.read());
            program.extend(link.program_read());
            lossy.set(far.len() < to_far.len() || program.len() < to_program.len());
            link.pass();
            rounds += 1;
            prop_assert!(
                rounds < 20_000,
                "no end: {} {}, {} and {} bytes, {} {}, after {:?}",
                link.end.socket().state(),
                link.program.tcp().state(),
                far.len(),
                program.len(),
                link.end.socket().send_queue(),
                link.program.tcp().send_queue(),
                link.now - NOW
            );
        }
        program.extend(link.program_read());
        prop_assert!(far == to_far, "{} of {}", far.len(), to_far.len());
        let (state, reset, time) = (link.end.socket().state(), link.end.is_reset(), link.now - NOW);
        let program_state = link.program.tcp().state();
        prop_assert!(program == to_program, "{} of {} {state} {reset} {program_state} after \
            {time:?}", program.len(), to_program.len());
        prop_assert!(!link.end.is_reset(), "{} {} {}", link.end.socket().state(), link.end.ended,
            link.end.closed);
    }

    #[test]
    fn corrupted_packets_are_harmless(
        places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), any::<bool>()),
            1..30),
    ) {
        let mut link = Link::up();
        link.settle();
        link.program.tcp().send_slice(b"some bytes").unwrap();
        link.program.poll(link.now);
        let packet = link.program.out.packets.pop_front().unwrap();
        let mut spoilt = packet.clone();
        for (at, byte, anew) in places {
            if anew {
                spoilt.clone_from(&packet);
            }
            spoilt[at.index(packet.len())] = byte;
            for cut in [spoilt.len(), at.index(packet.len())] {
                if let Packet::Tcp(_, segment) = Packet::read(&spoilt[..cut]) {
                    link.end.packet(&segment, &spoilt[..cut], link.now, &mut link.out);
                    let _ = link.end.next_poll(link.now);
                    let _ = link.read();
                }
            }
        }
        prop_assert!(link.out.packets.len() < 1000);
    }
}
