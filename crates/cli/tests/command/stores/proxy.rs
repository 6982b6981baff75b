//! A proxy that stops in the middle of a copy.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

/// A proxy that carries a number of bytes from the client, or from the server, and then nothing any
/// more until it is released.
pub struct StallingProxy {
    pub address: String,
    limit: Arc<Limit>,
}

/// Direction whose bytes are limited.
#[derive(Clone, Copy, PartialEq)]
pub enum Limited {
    FromClient,
    FromServer,
}

/// Bytes that may still pass. `None` if it was released.
struct Limit {
    left: Mutex<Option<usize>>,
    released: Condvar,
}

impl StallingProxy {
    pub fn new(server: &str, limited: Limited, bytes: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let limit = |bytes| {
            Arc::new(Limit {
                left: Mutex::new(bytes),
                released: Condvar::new(),
            })
        };
        let (server, limit, unlimited) = (server.to_owned(), limit(Some(bytes)), limit(None));
        let shared = limit.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(&server) else {
                    return;
                };
                let [up, down] = match limited {
                    Limited::FromClient => [shared.clone(), unlimited.clone()],
                    Limited::FromServer => [unlimited.clone(), shared.clone()],
                };
                let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                std::thread::spawn(move || carry(from, to, &up));
                std::thread::spawn(move || carry(server, client, &down));
            }
        });
        Self { address, limit }
    }

    /// Carries everything from now on.
    pub fn release(&self) {
        *self.limit.left.lock().unwrap() = None;
        self.limit.released.notify_all();
    }
}

impl Limit {
    /// Waits until `bytes` may pass.
    fn take(&self, bytes: usize) {
        let mut left = self.left.lock().unwrap();
        loop {
            match &mut *left {
                None => return,
                Some(left) if *left > bytes => {
                    *left -= bytes;
                    return;
                }
                Some(left) => *left = 0,
            }
            left = self.released.wait(left).unwrap();
        }
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, limit: &Limit) {
    let mut data = vec![0; 64 << 10];
    loop {
        let read = from.read(&mut data).unwrap_or(0);
        // A connection without room stays open and silent.
        limit.take(read);
        if read == 0 || to.write_all(&data[..read]).is_err() {
            let _ = to.shutdown(Shutdown::Write);
            return;
        }
    }
}
