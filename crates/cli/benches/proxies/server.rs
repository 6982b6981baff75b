//! The server behind the proxies: repeatedly sends as many bytes as requested.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

/// Starts the server, for as long as the program runs.
pub fn start() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(stream));
        }
    });
    at
}

/// Serves until the client closes the connection.
fn serve(mut stream: TcpStream) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let data = vec![7; 1 << 18];
    loop {
        let mut asked = [0; 8];
        stream.read_exact(&mut asked).ok()?;
        let mut left = u64::from_be_bytes(asked);
        while left > 0 {
            let piece = left.min(data.len() as u64);
            stream.write_all(&data[..piece as usize]).ok()?;
            left -= piece;
        }
    }
}
