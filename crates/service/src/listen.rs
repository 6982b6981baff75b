//! Opening the listeners of a service.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use longhaul_hop::{ListenError, Listener, ListenerConfig};

use crate::Error;

/// Opens the listeners of a service. Sent bytes must be acknowledged within `unacknowledged`.
///
/// # Errors
/// [`Error::NoListener`], [`Error::Listen`] and [`Error::Congestion`].
pub fn open_listeners(
    config: &[ListenerConfig],
    unacknowledged: Duration,
) -> Result<Vec<Listener>, Error> {
    if config.is_empty() {
        return Err(Error::NoListener);
    }
    let open = |at: &ListenerConfig| {
        at.open(unacknowledged).map_err(|error| match error {
            ListenError::Congestion(error) => error.into(),
            ListenError::Io(source) => Error::Listen {
                address: at.address,
                source,
            },
        })
    };
    config.iter().map(open).collect()
}

/// Opens a listener at a port of every local address: one socket for both families, or for IPv4
/// alone if the system has no IPv6.
///
/// # Errors
/// That of `bind` for IPv4.
pub async fn bind_everywhere<L, E, F: Future<Output = Result<L, E>>>(
    port: u16,
    mut bind: impl FnMut(SocketAddr) -> F,
) -> Result<L, E> {
    match bind((Ipv6Addr::UNSPECIFIED, port).into()).await {
        Ok(listener) => Ok(listener),
        Err(_) => bind((Ipv4Addr::UNSPECIFIED, port).into()).await,
    }
}
