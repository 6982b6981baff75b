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
use crate::destination::{Destination, Wish};
use crate::door::{Guest, local};
use crate::engine::Request;

/// Names of these entries in the log.
pub(crate) const FORWARD: &str = "forward";
pub(crate) const REDIRECT: &str = "redirect";
pub(crate) const TPROXY: &str = "tproxy";

/// Serves one connection to a port that leads to one destination.
pub(crate) async fn serve(guest: Guest, forward: Forward) {
    let is_configured = matches!(forward.to.host, Host::Ip(_));
    let request = Request::new(
        FORWARD,
        guest.asker,
        Destination::of(forward.to),
        forward.wish,
    );
    carry(
        guest,
        Request {
            is_configured,
            ..request
        },
    )
    .await;
}

/// Serves one connection that a firewall has redirected (nftables `redirect`).
pub(crate) async fn redirected(guest: Guest) {
    let meant = original(&guest.conn).ok();
    transparent(guest, REDIRECT, meant).await;
}

/// Serves one connection that a firewall has handed over unchanged (nftables `tproxy`): its local
/// address is the intended destination.
pub(crate) async fn handed_over(guest: Guest) {
    let meant = local(&guest.conn);
    transparent(guest, TPROXY, meant).await;
}

/// Allows a listener to accept connections to addresses that are not this machine's. Needs
/// CAP_NET_ADMIN.
pub(crate) fn let_take_any(listener: BorrowedFd<'_>, address: SocketAddr) -> io::Result<()> {
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

async fn transparent(guest: Guest, entry: &'static str, meant: Option<SocketAddr>) {
    // A connection to this very listener would be connected to it in an endless loop.
    let Some(meant) = meant.filter(|meant| meant.port() != 0 && !is_listener(*meant, &guest))
    else {
        guest.engine.events.log(None, |left_out| {
            tracing::warn!(
                entry,
                left_out,
                "reset a connection that no firewall has brought here"
            );
        });
        return;
    };
    let request = Request::new(entry, guest.asker, Destination::at(meant), Wish::default());
    carry(guest, request).await;
}

fn is_listener(meant: SocketAddr, guest: &Guest) -> bool {
    let listens = guest.listener;
    meant.port() == listens.port()
        && (meant.ip() == listens.ip() || listens.ip().is_unspecified() && is_own(meant.ip()))
}

/// Returns true if an address is this machine's, so that a socket can be bound to it.
fn is_own(address: IpAddr) -> bool {
    std::net::UdpSocket::bind(SocketAddr::new(address, 0)).is_ok()
}

/// Returns the destination that a connection had before it was redirected.
fn original(conn: &Conn) -> io::Result<SocketAddr> {
    // An IPv6 socket may carry an IPv4 connection.
    match local(conn) {
        Some(SocketAddr::V6(_)) => Ok(sockopt::ipv6_original_dst(conn)?.into()),
        _ => Ok(sockopt::ip_original_dst(conn)?.into()),
    }
}

async fn carry(guest: Guest, request: Request) {
    let Guest {
        conn, engine, held, ..
    } = guest;
    if let Err(failed) = held.admit() {
        return engine.turned_away(&request, &failed);
    }
    // If it cannot be connected, it is dropped, and so reset.
    if let Some(Ok(opened)) = engine.open_for(&request, &conn).await {
        engine.carry(&request, conn, opened, &[]).await;
    }
}
