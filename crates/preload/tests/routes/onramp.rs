//! An on-ramp for these tests, built on `longhaul_ramp_protocol`. The last octet of a destination
//! decides what it does, and it echoes the bytes on a route.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use longhaul_ramp_protocol::{MAX_MESSAGE_BYTES, RampReply, RampRequest};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};

/// Sources of the program that connects to this on-ramp's destinations and prints everything it
/// sees. They are also found from the command's crate, whose tests share this file.
pub fn routed_sources() -> [PathBuf; 5] {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../preload/tests/routes");
    [
        "routed.c",
        "seen.c",
        "connects.c",
        "disturbed.c",
        "questions.c",
    ]
    .map(|name| folder.join(name))
}

/// State of the on-ramp while it runs. It ends with the process.
pub struct OnRamp {
    pub socket: PathBuf,
    state: Arc<State>,
    _folder: tempfile::TempDir,
}

#[derive(Default)]
struct State {
    /// Requests as text.
    asked: Mutex<Vec<String>>,
    /// Number of connections that programs have made to the socket.
    conversations: AtomicUsize,
    wishes: Mutex<Vec<String>>,
    /// Destinations whose round-trip time programs have reported.
    measured: Mutex<Vec<IpAddr>>,
    changed_measured: Condvar,
    /// Number of reported connections that were made without a question.
    remembered: Mutex<u64>,
    changed_remembered: Condvar,
    waiting: Mutex<Waiting>,
    changed_waiting: Condvar,
    /// Destinations of connections, by the program's address.
    peers: Mutex<Vec<(SocketAddr, SocketAddr)>>,
    arrived: Mutex<Vec<TcpStream>>,
    changed: Condvar,
}

/// Attempts that wait for others.
#[derive(Default)]
struct Waiting {
    streams: Vec<TcpStream>,
    /// Number of releases.
    released: u64,
}

impl OnRamp {
    pub fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let state = Arc::new(State::default());
        let listeners = ["127.0.0.1:0", "[::1]:0"].map(|at| {
            let listener = TcpListener::bind(at).unwrap();
            sockopt::set_socket_recv_buffer_size(&listener, 2304).unwrap();
            let address = listener.local_addr().unwrap();
            let state = Arc::clone(&state);
            thread::spawn(move || {
                for stream in listener.incoming() {
                    state.arrived.lock().unwrap().push(stream.unwrap());
                    state.changed.notify_all();
                }
            });
            address
        });
        let unix = rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        rustix::net::bind(&unix, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&unix, 64).unwrap();
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            loop {
                let control = rustix::net::accept_with(&unix, SocketFlags::CLOEXEC).unwrap();
                let state = Arc::clone(&shared);
                state.conversations.fetch_add(1, Ordering::SeqCst);
                thread::spawn(move || state.converse(&control, listeners));
            }
        });
        Self {
            socket: path,
            state,
            _folder: folder,
        }
    }

    /// Returns the number of connections that programs have made to the socket.
    pub fn conversations(&self) -> usize {
        self.state.conversations.load(Ordering::SeqCst)
    }

    /// Waits until programs have reported `count` round-trip times. Returns their destinations.
    pub fn measured(&self, count: usize) -> Vec<IpAddr> {
        let mut measured = self.state.measured.lock().unwrap();
        while measured.len() < count {
            measured = self.state.changed_measured.wait(measured).unwrap();
        }
        measured.clone()
    }

    /// Waits until programs have reported `count` connections that were made without a question.
    /// Returns the number reported.
    pub fn remembered(&self, count: u64) -> u64 {
        let mut remembered = self.state.remembered.lock().unwrap();
        while *remembered < count {
            remembered = self.state.changed_remembered.wait(remembered).unwrap();
        }
        *remembered
    }

    /// Returns the wishes of the connections, in order.
    pub fn wishes(&self) -> Vec<String> {
        self.state.wishes.lock().unwrap().clone()
    }

    /// Returns the requests of programs, in order.
    pub fn asked(&self) -> Vec<String> {
        self.state.asked.lock().unwrap().clone()
    }
}

impl State {
    fn converse(self: &Arc<Self>, control: &OwnedFd, listeners: [SocketAddr; 2]) {
        let mut destination = None;
        loop {
            let mut room = [0; MAX_MESSAGE_BYTES];
            let length = rustix::net::recv(control, &mut room, RecvFlags::empty())
                .map_or(0, |(_, length)| length);
            if length == 0 {
                return;
            }
            let say = |reply: RampReply<'_>| {
                let bytes = reply.encode();
                let _ = rustix::net::send(
                    control.as_fd(),
                    bytes.finish().unwrap(),
                    SendFlags::NOSIGNAL,
                );
            };
            match RampRequest::decode(&room[..length]).unwrap() {
                RampRequest::Ask(ask) => {
                    let address = SocketAddr::new(ask.address.unwrap(), ask.port);
                    let words = format!(
                        "{address} {} {:?} {}",
                        ask.name.unwrap_or("-"),
                        ask.wish.purpose,
                        ask.route_required
                    );
                    self.asked.lock().unwrap().push(words);
                    let wish = ask.wish;
                    self.wishes.lock().unwrap().push(format!(
                        "{}, {:?} bytes, {:?} bit/s, {:?} s",
                        wish.purpose.unwrap_or("-"),
                        wish.size,
                        wish.rate,
                        wish.duration
                    ));
                    destination = Some(address);
                    if address.port() != 80 {
                        say(RampReply::Direct {
                            reason: "another port",
                            measure: true,
                            remember: None,
                        });
                        continue;
                    }
                    match last_octet(address) {
                        3 => say(RampReply::Refuse {
                            errno: libc::EHOSTUNREACH,
                            reason: "no route",
                        }),
                        4 => say(RampReply::Direct {
                            reason: "near",
                            measure: false,
                            remember: None,
                        }),
                        // Answers to be remembered, and forgotten before or after.
                        octet @ 10..=12 => {
                            assert!(ask.remembers);
                            if octet == 11 {
                                say(RampReply::Forget);
                            }
                            say(RampReply::Direct {
                                reason: "no rule",
                                measure: false,
                                remember: Some(3_600_000),
                            });
                            if octet == 12 {
                                say(RampReply::Forget);
                            }
                        }
                        // Like an on-ramp that is stopped once it has answered.
                        9 => {
                            say(RampReply::Refuse {
                                errno: libc::EHOSTUNREACH,
                                reason: "no route",
                            });
                            return;
                        }
                        _ => say(RampReply::Via {
                            listener: listeners[usize::from(ask.v6)],
                            ticket: 7,
                            reason: "a test",
                        }),
                    }
                }
                RampRequest::Begin {
                    ticket,
                    local,
                    fill,
                } => {
                    assert_eq!(ticket, 7);
                    let to = destination.unwrap();
                    let stream = self.arrival(local);
                    self.peers.lock().unwrap().push((canonical(local), to));
                    let errno = match last_octet(to) {
                        2 => libc::ECONNREFUSED,
                        5 => self.wait(&stream, 0),
                        6 => self.release(),
                        7 => self.wait(&stream, libc::ECONNREFUSED),
                        // Ends without an answer.
                        8 => return,
                        _ => 0,
                    };
                    say(RampReply::Done { errno, reason: "" });
                    if errno != 0 {
                        sockopt::set_socket_linger(&stream, Some(std::time::Duration::ZERO))
                            .unwrap();
                        return;
                    }
                    thread::spawn(move || echo(stream, fill));
                }
                RampRequest::Peer { local } => {
                    let peers = self.peers.lock().unwrap();
                    let known = peers
                        .iter()
                        .rev()
                        .find(|(known, _)| *known == canonical(local));
                    match known {
                        Some((_, address)) => say(RampReply::Peer { address: *address }),
                        None => say(RampReply::Refuse {
                            errno: libc::ENOTCONN,
                            reason: "unknown",
                        }),
                    }
                }
                RampRequest::Measured {
                    address,
                    round_trip,
                } => {
                    assert!(round_trip > 0);
                    self.measured.lock().unwrap().push(address);
                    self.changed_measured.notify_all();
                }
                RampRequest::Remembered { connections } => {
                    *self.remembered.lock().unwrap() += connections;
                    self.changed_remembered.notify_all();
                }
                RampRequest::Listen { .. } | RampRequest::Status => return,
            }
        }
    }

    /// Returns the connection that was announced.
    fn arrival(&self, local: SocketAddr) -> TcpStream {
        let mut arrived = self.arrived.lock().unwrap();
        loop {
            let at = arrived.iter().position(|stream| {
                stream
                    .peer_addr()
                    .is_ok_and(|peer| canonical(peer) == canonical(local))
            });
            if let Some(at) = at {
                return arrived.swap_remove(at);
            }
            arrived = self.changed.wait(arrived).unwrap();
        }
    }

    fn wait(&self, stream: &TcpStream, errno: i32) -> i32 {
        let mut waiting = self.waiting.lock().unwrap();
        let number = waiting.released;
        waiting.streams.push(stream.try_clone().unwrap());
        self.changed_waiting.notify_all();
        while waiting.released == number {
            waiting = self.changed_waiting.wait(waiting).unwrap();
        }
        errno
    }

    /// Releases the waiting attempts, after waiting for one that its program has not given up.
    fn release(&self) -> i32 {
        let mut waiting = self.waiting.lock().unwrap();
        while !std::mem::take(&mut waiting.streams).iter().any(stands) {
            waiting = self.changed_waiting.wait(waiting).unwrap();
        }
        waiting.released += 1;
        self.changed_waiting.notify_all();
        0
    }
}

fn stands(stream: &TcpStream) -> bool {
    let mut polled = [PollFd::new(stream, PollFlags::empty())];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut polled, Some(&now)) == Ok(0)
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn last_octet(address: SocketAddr) -> u8 {
    match address {
        SocketAddr::V4(address) => address.ip().octets()[3],
        SocketAddr::V6(address) => address.ip().octets()[15],
    }
}

/// Discards the filler bytes, whose number must be as announced, and echoes all others.
fn echo(mut stream: TcpStream, fill: u32) {
    let mut front = vec![1; fill as usize];
    if stream.read_exact(&mut front).is_err() {
        return;
    }
    assert!(front.iter().all(|byte| *byte == 0));
    let mut room = [0; 4096];
    while let Ok(length @ 1..) = stream.read(&mut room) {
        if stream.write_all(&room[..length]).is_err() {
            return;
        }
    }
}
