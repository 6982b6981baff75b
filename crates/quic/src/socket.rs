//! The UDP socket of an endpoint.

use std::io;
use std::net::UdpSocket;

use rustix::net::sockopt;
use s2n_quic::provider::io::tokio::Provider;
use tokio::runtime::Handle;

/// Largest IP packet that path MTU discovery tries, in bytes.
const MAX_MTU: u16 = 9000;
/// Requested size of the socket's buffers, in bytes. The kernel grants less to ordinary users,
/// which suffices for 1 Gbit/s.
const SOCKET_BUFFER_BYTES: usize = 8 * 1024 * 1024;

/// Prepares `socket` for an endpoint that `runtime` runs.
pub(crate) fn endpoint_io(socket: UdpSocket, runtime: &Handle) -> io::Result<Provider> {
    socket.set_nonblocking(true)?;
    // Smaller buffers only cost packets.
    let _ = sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BUFFER_BYTES);
    let _ = sockopt::set_socket_send_buffer_size(&socket, SOCKET_BUFFER_BYTES);
    Provider::builder()
        .with_handle(runtime.clone())
        .with_rx_socket(socket)?
        .with_max_mtu(MAX_MTU)?
        .build()
}
