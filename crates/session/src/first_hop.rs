//! The first hop of a session: its OPEN, and the connection to it.

use std::{io, sync::LazyLock, time::Duration};

use longhaul_hop::{DialledConnection, HopOptions, Resolver, dial, dial_stream};
use longhaul_proto::{Endpoint, Open, Route, SessionId, Transport, payload_rate};
use tokio::time::{Instant, timeout_at};

use crate::{AddressFilter, ConnectOptions, Error, FirstHop};

/// Cache of resolved names, shared by all sessions of this process.
static RESOLVER: LazyLock<Resolver> = LazyLock::new(Resolver::new);

/// Connects to the first hop of `route`.
pub(crate) async fn dial_first_hop(
    options: &ConnectOptions,
    route: &Route,
    deadline: Instant,
) -> Result<DialledConnection, Error> {
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

/// Connects to the first address of `endpoint` that answers and that the filter admits.
async fn dial_endpoint(
    endpoint: &Endpoint,
    options: &ConnectOptions,
    route: &Route,
    filter: Option<&AddressFilter>,
    deadline: Instant,
) -> io::Result<DialledConnection> {
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
    let (transport, key) = route.hops().first().map_or(
        (options.destination_transport, options.server.pinned()),
        |hop| (hop.transport, hop.key),
    );
    if transport == Some(Transport::Quic) {
        let Some(dialler) = &options.quic else {
            let unsupported = "this program does not dial by QUIC: leave the transport out";
            return Err(io::Error::new(io::ErrorKind::Unsupported, unsupported));
        };
        return Ok(dial_stream(&addresses, dialler.as_ref(), key, deadline).await?);
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
    Ok(dialled)
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
