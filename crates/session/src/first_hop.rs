//! The first hop of a session: its OPEN, and the connection to it.

use std::{io, net::SocketAddr, sync::LazyLock, time::Duration};

use longhaul_hop::{Conn, DialledConnection, HopOptions, Resolver, dial, dial_stream};
use longhaul_proto::{Endpoint, Open, Route, SessionId, Transport, payload_rate};
use tokio::time::{Instant, timeout, timeout_at};

use crate::unanswered::move_unanswered_last;
use crate::{AddressFilter, ConnectOptions, Error, FirstHop};

/// Cache of resolved names, shared by all sessions of this process.
static RESOLVER: LazyLock<Resolver> = LazyLock::new(Resolver::new);

/// Maximum size of a server's voucher that is asked for, in bytes. With the server's part of the
/// handshake, it fits an initial window of ten segments.
pub(crate) const MAX_SERVER_VOUCHER_BYTES: u16 = 8192;

/// Time limit for resolving a name to learn the number of its addresses.
const COUNT_TIMEOUT: Duration = Duration::from_secs(2);

/// Connection to the first hop of a route.
pub(crate) struct FirstHopConnection {
    pub(crate) conn: Conn,
    /// Address of the peer.
    pub(crate) address: SocketAddr,
    /// True if the endpoint has another address, at which no set-up was left unanswered lately.
    pub(crate) has_alternative: bool,
}

impl FirstHopConnection {
    /// Converts a connection to one of `addresses`, of which the first `answering` have no
    /// unanswered set-up.
    fn new(dialled: DialledConnection, addresses: &[SocketAddr], answering: usize) -> Self {
        let DialledConnection { conn, address } = dialled;
        let mut answering = addresses.iter().take(answering);
        Self {
            conn,
            address,
            has_alternative: answering.any(|other| *other != address),
        }
    }
}

/// Returns true if `endpoint` is known to have several addresses of one family.
pub async fn has_several_addresses(endpoint: &Endpoint) -> bool {
    let found = timeout(COUNT_TIMEOUT, RESOLVER.addresses(endpoint)).await;
    let addresses = found.ok().and_then(Result::ok).unwrap_or_default();
    let ipv4 = addresses.iter().filter(|at| at.is_ipv4()).count();
    ipv4 > 1 || addresses.len().saturating_sub(ipv4) > 1
}

/// Connects to the first hop of `route`.
pub(crate) async fn dial_first_hop(
    options: &ConnectOptions,
    route: &Route,
    deadline: Instant,
) -> Result<FirstHopConnection, Error> {
    let first = route
        .hops()
        .first()
        .map_or(&options.destination, |hop| &hop.endpoint);
    let filter = match (route.is_direct(), &options.onward) {
        (true, None) => options.destination_filter.as_ref(),
        _ => None,
    };
    dial_endpoint(first, options, route, filter, deadline)
        .await
        .map_err(|source| Error::NotConnected {
            endpoint: first.clone(),
            place: match (route.is_direct(), &options.onward) {
                (false, _) => FirstHop::Depot,
                (true, Some(_)) => FirstHop::Offramp,
                (true, None) => FirstHop::Server,
            },
            source,
        })
}

/// Connects to the first address of `endpoint` that answers and that the filter admits. Addresses
/// at which a set-up was left unanswered lately are dialled last.
async fn dial_endpoint(
    endpoint: &Endpoint,
    options: &ConnectOptions,
    route: &Route,
    filter: Option<&AddressFilter>,
    deadline: Instant,
) -> io::Result<FirstHopConnection> {
    let mut addresses = timeout_at(deadline, RESOLVER.addresses(endpoint))
        .await
        .map_err(|_| {
            io::Error::new(io::ErrorKind::TimedOut, "the name did not resolve in time")
        })??;
    if let Some(filter) = filter {
        addresses.retain(|address| filter.admits(*address));
        if addresses.is_empty() {
            let denied = "it has no address that may be connected to";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, denied));
        }
    }
    if route.is_direct() && options.address_turn > 0 {
        take_turns(&mut addresses, options.address_turn);
    }
    let answering = move_unanswered_last(&mut addresses);
    let (transport, key) = route.hops().first().map_or(
        (options.destination_transport, options.server.pinned()),
        |hop| (hop.transport, hop.key),
    );
    if transport == Some(Transport::Quic) {
        let Some(dialler) = &options.quic else {
            let unsupported = "this program does not dial by QUIC: leave the transport out";
            return Err(io::Error::new(io::ErrorKind::Unsupported, unsupported));
        };
        let dialled = dial_stream(&addresses, dialler.as_ref(), key, deadline).await?;
        return Ok(FirstHopConnection::new(dialled, &addresses, answering));
    }
    let hop = HopOptions::with_congestion(options.congestion.clone())
        .with_source(options.source)
        .with_source_ports(options.source_ports.clone());
    let granted = options.grant.as_ref().map(|grant| grant.rate);
    if transport == Some(Transport::Paced) && options.rate.or(granted).is_none() {
        let no_rate = "a paced hop needs a rate: state one, or leave the transport out";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, no_rate));
    }
    let dialled = dial(&addresses, |_| hop.clone(), deadline).await?;
    if transport == Some(Transport::Paced)
        && let Some(rate) = options.rate
    {
        dialled.conn.pace(payload_rate(rate));
    }
    Ok(FirstHopConnection::new(dialled, &addresses, answering))
}

/// Moves the first `turn` addresses of each family behind the others of that family. The first
/// family stays the first.
fn take_turns(addresses: &mut Vec<SocketAddr>, turn: usize) {
    let is_ipv4 = addresses.first().is_some_and(SocketAddr::is_ipv4);
    let (mut first, mut other): (Vec<SocketAddr>, Vec<SocketAddr>) = addresses
        .drain(..)
        .partition(|address| address.is_ipv4() == is_ipv4);
    for family in [&mut first, &mut other] {
        let turn = turn.checked_rem(family.len()).unwrap_or(0);
        family.rotate_left(turn);
    }
    addresses.append(&mut first);
    addresses.append(&mut other);
}

/// Returns the OPEN of a session along `route`, with a new session id, unsigned.
pub(crate) fn new_open(
    options: &ConnectOptions,
    route: &Route,
    deadline: Instant,
) -> Result<Open, Error> {
    let budget = deadline
        .saturating_duration_since(Instant::now())
        .max(Duration::from_millis(1));
    let mut open = Open::new(
        SessionId::random()?,
        options.service.clone(),
        route.clone(),
        options.destination.clone(),
        budget,
    );
    open.destination_transport = options.destination_transport;
    open.purpose = options.purpose.clone();
    open.size = options.size;
    open.rate = options.rate;
    open.duration = options.duration;
    open.onward = options.onward.clone();
    open.grant = options.grant.clone();
    open.delegation = options.delegation.clone();
    if let Err(error) = open.set_delegations(&options.delegations) {
        tracing::warn!(%error, "no depot can reserve in this key's name");
    }
    Ok(open)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_rotate_each_family_by_itself() {
        let at = |text: &str| -> Vec<SocketAddr> {
            let addresses = text.split_whitespace();
            addresses.map(|one| one.parse().unwrap()).collect()
        };
        let given = "[2001:db8::1]:1 192.0.2.1:1 [2001:db8::2]:1 192.0.2.2:1 192.0.2.3:1";
        for (turn, expected) in [
            (
                0,
                "[2001:db8::1]:1 [2001:db8::2]:1 192.0.2.1:1 192.0.2.2:1 192.0.2.3:1",
            ),
            (
                1,
                "[2001:db8::2]:1 [2001:db8::1]:1 192.0.2.2:1 192.0.2.3:1 192.0.2.1:1",
            ),
            (
                5,
                "[2001:db8::2]:1 [2001:db8::1]:1 192.0.2.3:1 192.0.2.1:1 192.0.2.2:1",
            ),
        ] {
            let mut addresses = at(given);
            take_turns(&mut addresses, turn);
            assert_eq!(addresses, at(expected), "{turn}");
        }
        let mut none = Vec::new();
        take_turns(&mut none, 1);
        assert!(none.is_empty());
    }
}
