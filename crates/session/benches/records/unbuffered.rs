//! Both ends of a connection by rustls's unbuffered API.

use std::sync::Arc;

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, UnbufferedStatus};
use rustls::{ClientConfig, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Data that is encrypted before it is written, in bytes; a session does the same.
const SEALED_BYTES: usize = 128 << 10;
/// Maximum size of a record, in bytes (RFC 8446, section 5.2).
const RECORD_BYTES: usize = 5 + (1 << 14) + 256;

/// Processes `$incoming` until the connection waits or may carry data. Returns true if it may.
macro_rules! step {
    ($connection:expr, $incoming:expr, $outgoing:expr) => {
        loop {
            let UnbufferedStatus { discard, state } = $connection.process_tls_records($incoming);
            let established = match state.unwrap() {
                ConnectionState::EncodeTlsData(mut message) => {
                    let mut bytes = [0; RECORD_BYTES];
                    let length = message.encode(&mut bytes).unwrap();
                    $outgoing.extend_from_slice(&bytes[..length]);
                    None
                }
                ConnectionState::TransmitTlsData(message) => {
                    message.done();
                    None
                }
                ConnectionState::BlockedHandshake => Some(false),
                ConnectionState::WriteTraffic(_) => Some(true),
                other => panic!("{other:?} during the handshake"),
            };
            $incoming.drain(..discard);
            if let Some(established) = established {
                break established;
            }
        }
    };
}

/// Performs the handshake in memory.
pub fn establish(client: Arc<ClientConfig>, server: Arc<ServerConfig>) -> (Sender, Receiver) {
    let name = ServerName::try_from("longhaul").unwrap();
    let mut client = UnbufferedClientConnection::new(client, name).unwrap();
    let mut server = UnbufferedServerConnection::new(server).unwrap();
    let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
    loop {
        let client_done = step!(client, &mut to_client, to_server);
        let server_done = step!(server, &mut to_server, to_client);
        if client_done && server_done && to_server.is_empty() && to_client.is_empty() {
            return (Sender(client), Receiver(server));
        }
    }
}

/// The end that writes.
pub struct Sender(UnbufferedClientConnection);

impl Sender {
    /// Sends `bytes` bytes in parts of `part` bytes.
    pub async fn send(mut self, mut socket: TcpStream, bytes: usize, part: usize) -> TcpStream {
        let data = vec![0x5a; part];
        let mut records = vec![0; SEALED_BYTES + SEALED_BYTES / 64];
        let mut left = bytes;
        while left > 0 {
            let part = &data[..left.min(part)];
            for part in part.chunks(SEALED_BYTES) {
                let status = self.0.process_tls_records(&mut []);
                let Ok(ConnectionState::WriteTraffic(mut traffic)) = status.state else {
                    panic!("the connection cannot send");
                };
                let length = traffic.encrypt(part, &mut records).unwrap();
                socket.write_all(&records[..length]).await.unwrap();
            }
            left -= part.len();
        }
        socket
    }
}

/// The end that reads.
pub struct Receiver(UnbufferedServerConnection);

impl Receiver {
    /// Receives `bytes` bytes into memory of `room` bytes, and reads as many ahead.
    pub async fn receive(mut self, mut socket: TcpStream, bytes: usize, room: usize) {
        let (mut incoming, mut filled) = (vec![0; room], 0);
        let mut data = vec![0; room];
        let (mut received, mut at) = (0, 0);
        while received < bytes {
            let read = socket.read(&mut incoming[filled..]).await.unwrap();
            assert!(read > 0, "the stream ended early");
            filled += read;
            let mut start = 0;
            loop {
                let records = &mut incoming[start..filled];
                let UnbufferedStatus { mut discard, state } = self.0.process_tls_records(records);
                let waits = match state.unwrap() {
                    ConnectionState::ReadTraffic(mut traffic) => {
                        while let Some(record) = traffic.next_record() {
                            let record = record.unwrap();
                            let length = record.payload.len();
                            if at + length > data.len() {
                                at = 0;
                            }
                            data[at..at + length].copy_from_slice(record.payload);
                            at += length;
                            received += length;
                            discard += record.discard;
                        }
                        false
                    }
                    ConnectionState::WriteTraffic(_) => true,
                    other => panic!("{other:?} while it carries data"),
                };
                start += discard;
                if waits {
                    break;
                }
            }
            incoming.copy_within(start..filled, 0);
            filled -= start;
        }
    }
}
