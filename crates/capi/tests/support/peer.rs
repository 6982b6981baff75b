//! A small on-ramp: speaks `crates/ramp`, and connects and listens with plain TCP in place of sessions. Threads that wait, nothing else.

#![allow(unsafe_code)] // options of sockets, and descriptors that are passed on

use std::collections::HashMap;
use std::io::{Read, Write};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use longhaul_ramp::{MAX_MESSAGE, Reply, Request};

/// Bytes of the receive buffer for connections of programs, until their route stands.
const RECEIVE_BUFFER: i32 = 4096;

#[derive(Default)]
struct State {
    tickets: HashMap<u64, Vec<SocketAddr>>,
    connections: HashMap<SocketAddr, TcpStream>,
    peers: HashMap<SocketAddr, SocketAddr>,
    last: u64,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    come: Condvar,
}

/// Serves at a path; never returns.
pub fn serve(path: &Path) -> ! {
    let shared = Arc::new(Shared::default());
    let listeners = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()].map(|ip: IpAddr| {
        let listener = TcpListener::bind((ip, 0)).unwrap();
        set(listener.as_raw_fd(), libc::SO_RCVBUF, RECEIVE_BUFFER);
        let address = listener.local_addr().unwrap();
        let shared = Arc::clone(&shared);
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let from = connection.peer_addr().unwrap();
                shared.state.lock().unwrap().connections.insert(from, connection);
                shared.come.notify_all();
            }
        });
        address
    });
    // SAFETY: sockets and addresses of the lengths that are given.
    unsafe {
        let socket = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
        let mut address: libc::sockaddr_un = MaybeUninit::zeroed().assume_init();
        address.sun_family = libc::AF_UNIX as u16;
        for (place, byte) in address
            .sun_path
            .iter_mut()
            .zip(path.as_os_str().as_encoded_bytes())
        {
            *place = byte.cast_signed();
        }
        let length = size_of::<libc::sockaddr_un>() as u32;
        assert_eq!(libc::bind(socket, (&raw const address).cast(), length), 0);
        assert_eq!(libc::listen(socket, 128), 0);
        println!("ready");
        loop {
            let program = libc::accept4(
                socket,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                libc::SOCK_CLOEXEC,
            );
            assert!(program >= 0);
            let program = OwnedFd::from_raw_fd(program);
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || talk(&shared, &Arc::new(program), listeners));
        }
    }
}

fn set(fd: RawFd, option: i32, value: i32) {
    // SAFETY: a number of the length that is given.
    let set = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, option, (&raw const value).cast(), 4) };
    assert_eq!(set, 0);
}

fn answer(program: &OwnedFd, reply: &Reply<'_>) {
    let bytes = reply.encode();
    let bytes = bytes.finished().unwrap();
    // SAFETY: bytes of the length that is given. Whether the program is there still is its affair.
    unsafe {
        libc::send(
            program.as_raw_fd(),
            bytes.as_ptr().cast(),
            bytes.len(),
            libc::MSG_NOSIGNAL,
        )
    };
}

fn talk(shared: &Arc<Shared>, program: &Arc<OwnedFd>, listeners: [SocketAddr; 2]) {
    loop {
        let mut packet = [0u8; MAX_MESSAGE];
        // SAFETY: room of the length that is given.
        let length = unsafe { libc::recv(program.as_raw_fd(), packet.as_mut_ptr().cast(), packet.len(), 0) };
        let Some(length) = usize::try_from(length).ok().filter(|length| *length > 0) else {
            return;
        };
        match Request::decode(&packet[..length]).unwrap() {
            Request::Ask(ask) => {
                let to: Vec<SocketAddr> = match (ask.address, ask.name) {
                    (Some(ip), _) => vec![(ip, ask.port).into()],
                    (None, name) => {
                        let found = (name.unwrap(), ask.port).to_socket_addrs();
                        found.map(Iterator::collect).unwrap_or_default()
                    }
                };
                if ask.route == Some("direct") && !ask.acceptor {
                    answer(
                        program,
                        &Reply::Direct {
                            reason: "as asked for",
                        },
                    );
                    continue;
                }
                let mut state = shared.state.lock().unwrap();
                state.last += 1;
                let ticket = state.last;
                state.tickets.insert(ticket, to);
                let listener = listeners[usize::from(ask.v6)];
                let wish = ask.wish;
                let reason = format!(
                    "purpose {:?} size {:?} rate {:?} duration {:?} route {:?} name {:?}",
                    wish.purpose, wish.size, wish.rate, wish.duration, ask.route, ask.name
                );
                answer(
                    program,
                    &Reply::Via {
                        listener,
                        ticket,
                        reason: &reason,
                    },
                );
            }
            Request::Begin { ticket, local, fill } => {
                let (shared, program) = (Arc::clone(shared), Arc::clone(program));
                std::thread::spawn(move || begin(&shared, &program, ticket, local, fill));
            }
            Request::Peer { local } => {
                let peer = shared.state.lock().unwrap().peers.get(&local).copied();
                match peer {
                    Some(address) => answer(program, &Reply::Peer { address }),
                    None => answer(
                        program,
                        &Reply::Refuse {
                            errno: libc::ENOTCONN,
                            reason: "no connection of mine",
                        },
                    ),
                }
            }
            Request::Listen { at } => match TcpListener::bind(at) {
                Ok(listener) => {
                    let at = listener.local_addr().unwrap();
                    let (program, shared) = (Arc::clone(program), Arc::clone(shared));
                    answer(&program, &Reply::Listening { at });
                    take(&shared, &program, &listener);
                    return;
                }
                Err(error) => {
                    let errno = error.raw_os_error().unwrap();
                    answer(
                        program,
                        &Reply::Refuse {
                            errno,
                            reason: "cannot listen there",
                        },
                    );
                }
            },
        }
    }
}

fn begin(shared: &Arc<Shared>, program: &OwnedFd, ticket: u64, local: SocketAddr, fill: u32) {
    let (near, to) = {
        let state = shared.state.lock().unwrap();
        let (mut state, _) = shared
            .come
            .wait_timeout_while(state, Duration::from_secs(30), |state| {
                !state.connections.contains_key(&local)
            })
            .unwrap();
        (
            state.connections.remove(&local).unwrap(),
            state.tickets.remove(&ticket).unwrap(),
        )
    };
    match TcpStream::connect(to.as_slice()) {
        Ok(far) => {
            shared
                .state
                .lock()
                .unwrap()
                .peers
                .insert(local, far.peer_addr().unwrap());
            println!("carried");
            answer(program, &Reply::Done { errno: 0, reason: "" });
            let mut left = vec![0; fill as usize];
            if (&near).read_exact(&mut left).is_ok() {
                assert!(left.iter().all(|byte| *byte == 0));
                join(near, far);
            }
        }
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or(libc::EHOSTUNREACH);
            answer(
                program,
                &Reply::Done {
                    errno,
                    reason: &error.to_string(),
                },
            );
            reset(&near);
        }
    }
}

/// Resets a connection at once.
fn reset(stream: &TcpStream) {
    // SAFETY: zeros are an address of no family.
    let nowhere: libc::sockaddr = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: an address of the length that is given.
    unsafe {
        libc::connect(
            stream.as_raw_fd(),
            &raw const nowhere,
            size_of::<libc::sockaddr>() as u32,
        )
    };
}

fn join(near: TcpStream, far: TcpStream) {
    let (near, far) = (Arc::new(near), Arc::new(far));
    let back = (Arc::clone(&far), Arc::clone(&near));
    std::thread::spawn(move || pump(&back.0, &back.1));
    pump(&near, &far);
}

fn pump(from: &TcpStream, to: &TcpStream) {
    let mut bytes = [0u8; 16 * 1024];
    loop {
        match (&*from).read(&mut bytes) {
            Ok(0) => {
                let _ = to.shutdown(Shutdown::Write);
                return;
            }
            Ok(count) => {
                if (&*to).write_all(&bytes[..count]).is_err() {
                    reset(from);
                    reset(to);
                    return;
                }
            }
            Err(_) => {
                reset(to);
                return;
            }
        }
    }
}

/// Takes connections for a program until it is gone.
fn take(shared: &Shared, program: &OwnedFd, listener: &TcpListener) {
    let watched = |fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    loop {
        let mut both = [watched(listener.as_raw_fd()), watched(program.as_raw_fd())];
        // SAFETY: as many as said.
        assert!(unsafe { libc::poll(both.as_mut_ptr(), 2, -1) } > 0);
        if both[1].revents != 0 {
            return;
        }
        let (far, peer) = listener.accept().unwrap();
        let loopback = TcpListener::bind("127.0.0.1:0").unwrap();
        let theirs = TcpStream::connect(loopback.local_addr().unwrap()).unwrap();
        let near = loopback.accept().unwrap().0;
        let local = theirs.local_addr().unwrap();
        shared.state.lock().unwrap().peers.insert(local, peer);
        pass(program, &Reply::Accepted { peer, key: [7; 32] }, &theirs);
        drop(theirs);
        println!("carried");
        std::thread::spawn(move || join(near, far));
    }
}

fn pass(program: &OwnedFd, reply: &Reply<'_>, socket: &TcpStream) {
    let bytes = reply.encode();
    let bytes = bytes.finished().unwrap();
    let mut part = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let mut room = [0u64; 4];
    // SAFETY: the parts are as large as they say; the room is large enough for one descriptor.
    unsafe {
        let mut message: libc::msghdr = MaybeUninit::zeroed().assume_init();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = room.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(4) as _;
        let head = libc::CMSG_FIRSTHDR(&raw const message);
        (*head).cmsg_level = libc::SOL_SOCKET;
        (*head).cmsg_type = libc::SCM_RIGHTS;
        (*head).cmsg_len = libc::CMSG_LEN(4) as _;
        libc::CMSG_DATA(head)
            .cast::<i32>()
            .write_unaligned(socket.as_raw_fd());
        libc::sendmsg(program.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL);
    }
}
