//! A relay between a controller and the database that can be cut: then it silently carries nothing.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// State of the cut, and the threads that wait for its end.
#[derive(Default)]
struct Cut {
    is_cut: Mutex<bool>,
    changed: Condvar,
}

impl Cut {
    /// Waits while the relay is cut.
    fn pass(&self) {
        let is_cut = self.is_cut.lock().unwrap();
        drop(self.changed.wait_while(is_cut, |is_cut| *is_cut).unwrap());
    }
}

/// Relay to the database's socket.
pub struct Relay {
    pub address: SocketAddr,
    cut: Arc<Cut>,
}

impl Relay {
    /// Listens on loopback, and relays to the database's socket. Its threads end with the test's
    /// process.
    pub fn start(socket: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let cut = Arc::<Cut>::default();
        let (of_thread, socket) = (cut.clone(), socket.to_owned());
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (cut, socket) = (of_thread.clone(), socket.clone());
                thread::spawn(move || connect(client, &socket, &cut));
            }
        });
        Self { address, cut }
    }

    /// Cuts the relay, or repairs it: then delayed data arrives.
    pub fn cut(&self, is_cut: bool) {
        *self.cut.is_cut.lock().unwrap() = is_cut;
        self.cut.changed.notify_all();
    }
}

fn connect(client: TcpStream, socket: &PathBuf, cut: &Arc<Cut>) {
    cut.pass();
    // A refused connection looks like a closed one.
    let Ok(server) = UnixStream::connect(socket) else {
        return;
    };
    let (from_client, to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    let of_thread = cut.clone();
    thread::spawn(move || {
        carry(from_client, &to_server, &of_thread);
        let _ = to_server.shutdown(Shutdown::Both);
    });
    carry(server, &client, cut);
    let _ = client.shutdown(Shutdown::Both);
}

/// Relays one direction to its end.
fn carry(mut from: impl Read, mut to: impl Write, cut: &Cut) {
    let mut buffer = [0; 16 << 10];
    loop {
        let read = from.read(&mut buffer);
        // The end of the stream is delayed by a cut as well.
        cut.pass();
        match read {
            Ok(length @ 1..) if to.write_all(&buffer[..length]).is_ok() => {}
            _ => return,
        }
    }
}
