//! Ports that each lead to one destination, and connections that a firewall redirects here with
//! their own destination.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;

use longhaul_hop::Conn;
use longhaul_proto::Host;
use rustix::net::sockopt;
use socket2::SockRef;

use crate::config::Forward;
use crate::destination::{OnrampDestination, SessionWish};
use crate::door::{AcceptedConnection, local_address};
use crate::engine::ConnectionRequest;

/// Names of these entries in the log.
pub(crate) const FORWARD: &str = "forward";
pub(crate) const REDIRECT: &str = "redirect";
pub(crate) const TPROXY: &str = "tproxy";

/// Serves one connection to a port that leads to one destination.
pub(crate) async fn serve(guest: AcceptedConnection, forward: Forward) {
    let is_configured = matches!(forward.to.host, Host::Ip(_));
    let request = ConnectionRequest::new(
        FORWARD,
        guest.asker,
        OnrampDestination::from_endpoint(forward.to),
        forward.wish,
    );
    carry(
        guest,
        ConnectionRequest {
            is_configured,
            ..request
        },
    )
    .await;
}

/// Serves one connection that a firewall has redirected (nftables `redirect`).
pub(crate) async fn serve_redirected(guest: AcceptedConnection) {
    let meant = original_destination(&guest.conn).ok();
    serve_transparent(guest, REDIRECT, meant).await;
}

/// Serves one connection that a firewall has handed over unchanged (nftables `tproxy`): its local
/// address is the intended destination.
pub(crate) async fn serve_tproxy(guest: AcceptedConnection) {
    let meant = local_address(&guest.conn);
    serve_transparent(guest, TPROXY, meant).await;
}

/// Allows a listener to accept connections to addresses that are not this machine's. Needs
/// CAP_NET_ADMIN.
pub(crate) fn set_transparent(listener: BorrowedFd<'_>, address: SocketAddr) -> io::Result<()> {
    let socket = SockRef::from(&listener);
    match address {
        SocketAddr::V4(_) => socket.set_ip_transparent_v4(true),
        SocketAddr::V6(_) => {
            // An unspecified address accepts both families.
            if address.ip().is_unspecified() {
                socket.set_ip_transparent_v4(true)?;
            }
            socket.set_ip_transparent_v6(true)
        }
    }
}

async fn serve_transparent(
    guest: AcceptedConnection,
    entry: &'static str,
    meant: Option<SocketAddr>,
) {
    // A connection to this very listener would be connected to it in an endless loop.
    let Some(meant) = meant.filter(|meant| meant.port() != 0 && !is_listener(*meant, &guest))
    else {
        guest.engine.events.log(None, |left_out| {
            tracing::warn!(
                entry,
                left_out,
                "reset a connection that no firewall redirected here"
            );
        });
        return;
    };
    let request = ConnectionRequest::new(
        entry,
        guest.asker,
        OnrampDestination::from_address(meant),
        SessionWish::default(),
    );
    carry(guest, request).await;
}

fn is_listener(meant: SocketAddr, guest: &AcceptedConnection) -> bool {
    let listens = guest.listener;
    meant.port() == listens.port()
        && (meant.ip() == listens.ip()
            || listens.ip().is_unspecified() && is_local_address(meant.ip()))
}

/// Returns true if an address is this machine's, so that a socket can be bound to it.
fn is_local_address(address: IpAddr) -> bool {
    std::net::UdpSocket::bind(SocketAddr::new(address, 0)).is_ok()
}

/// Returns the destination that a connection had before it was redirected.
fn original_destination(conn: &Conn) -> io::Result<SocketAddr> {
    let socket = conn.tcp().ok_or(io::ErrorKind::Unsupported)?;
    // An IPv6 socket may carry an IPv4 connection.
    match local_address(conn) {
        Some(SocketAddr::V6(_)) => Ok(sockopt::ipv6_original_dst(socket)?.into()),
        _ => Ok(sockopt::ip_original_dst(socket)?.into()),
    }
}

async fn carry(guest: AcceptedConnection, request: ConnectionRequest) {
    let AcceptedConnection {
        conn,
        engine,
        permit: held,
        ..
    } = guest;
    if let Err(failed) = held.admit() {
        return engine.log_turned_away(&request, &failed);
    }
    // If it cannot be connected, it is dropped, and so reset.
    if let Some(Ok(opened)) = engine.open_for(&request, &conn).await {
        engine.carry(&request, conn, opened, &[]).await;
    }
}
