//! OPENs: valid ones, forged ones, altered ones, replayed ones, and ones with depots that were
//! never passed.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::BytesMut;
use longhaul_hop::unix_ms;
use longhaul_proto::{
    Endpoint, MAX_PASSED, Open, PublicKey, Route, Service, SessionId, SigningKey,
};
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use crate::socket;
use crate::status::{self, Reported};

/// Time for setup that these OPENs allow.
const BUDGET: Duration = Duration::from_secs(10);

/// Builds a valid OPEN by `key`, as the depot at `depot` receives it, with `destination` as the
/// next hop.
///
/// # Errors
/// The system gives no random numbers, or the library does not sign.
pub fn to_depot(key: &SigningKey, depot: SocketAddr, destination: Endpoint) -> io::Result<Open> {
    signed(key, depot, destination, unix_ms())
}

/// Builds a valid OPEN that is signed at a given time, in milliseconds since 1970.
///
/// # Errors
/// As [`to_depot`].
pub fn signed(
    key: &SigningKey,
    depot: SocketAddr,
    destination: Endpoint,
    at_unix_ms: u64,
) -> io::Result<Open> {
    let route = depot.to_string().parse().map_err(io::Error::other)?;
    fresh(key, route, destination, at_unix_ms)
}

/// Builds a valid OPEN by `key`, as the acceptor at `acceptor` receives it without depots.
///
/// # Errors
/// As [`to_depot`].
pub fn to_acceptor(key: &SigningKey, acceptor: SocketAddr) -> io::Result<Open> {
    fresh(key, Route::direct(), acceptor.into(), unix_ms())
}

/// Builds a valid OPEN by `key`, as the off-ramp at `offramp` receives it without depots, for the
/// ordinary server `server`.
///
/// # Errors
/// As [`to_depot`].
pub fn to_server(key: &SigningKey, offramp: SocketAddr, server: Endpoint) -> io::Result<Open> {
    let mut open = fresh(key, Route::direct(), offramp.into(), unix_ms())?;
    (open.service, open.onward) = (Service::TCP, Some(server));
    open.sign(key, unix_ms()).map_err(io::Error::other)?;
    Ok(open)
}

fn fresh(
    key: &SigningKey,
    route: Route,
    destination: Endpoint,
    at_unix_ms: u64,
) -> io::Result<Open> {
    let id = SessionId::random().map_err(io::Error::other)?;
    let mut open = Open::new(id, Service::COPY, route, destination, BUDGET);
    open.sign(key, at_unix_ms).map_err(io::Error::other)?;
    Ok(open.departing())
}

/// Builds an OPEN in the name of `victim`, whose public key is known, with a signature that is not
/// its own.
///
/// # Errors
/// As [`to_depot`].
pub fn forged(victim: PublicKey, depot: SocketAddr, destination: Endpoint) -> io::Result<Open> {
    let own = SigningKey::generate().map_err(io::Error::other)?;
    forged_by(&own, victim, depot, destination)
}

/// Builds a forged OPEN with the signature of `own`, which is faster for many of them.
///
/// # Errors
/// As [`to_depot`].
pub fn forged_by(
    own: &SigningKey,
    victim: PublicKey,
    depot: SocketAddr,
    destination: Endpoint,
) -> io::Result<Open> {
    let mut open = to_depot(own, depot, destination)?;
    open.principal = victim;
    Ok(open)
}

/// Adds the maximum number of passed depots to `open`; their number is not signed.
///
/// # Errors
/// The system gives no random numbers.
pub fn with_all_depots_passed(mut open: Open) -> io::Result<Open> {
    for _ in 0..MAX_PASSED {
        open.passed
            .push(SigningKey::generate().map_err(io::Error::other)?.public());
    }
    Ok(open)
}

/// Encodes `open`.
///
/// # Errors
/// It breaks a rule that its codec enforces.
pub fn bytes(open: &Open) -> io::Result<Vec<u8>> {
    let mut bytes = BytesMut::new();
    open.encode(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes.to_vec())
}

/// Returns the first `length` bytes of an OPEN that never ends: a header that announces 8 KiB, and
/// zeros.
#[must_use]
pub fn beginning(length: usize) -> Vec<u8> {
    let mut bytes = vec![0xf1, 0x4c, 0x48, 0x4f, 1, 1, 0x20, 0x00, 0, 0, 0, 0];
    bytes.resize(length, 0);
    bytes
}

/// Sends `bytes` to `target` and receives the first STATUS that comes back.
///
/// # Errors
/// The connection fails, or no STATUS comes within `limit`.
pub async fn ask(
    target: SocketAddr,
    source: Option<IpAddr>,
    bytes: &[u8],
    limit: Duration,
) -> io::Result<Reported> {
    let asked = async {
        let mut stream = socket::connect(target, source).await?;
        stream.write_all(bytes).await?;
        status::read(&mut stream).await
    };
    timeout(limit, asked)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

#[cfg(test)]
mod tests {
    use longhaul_proto::OpenDecoder;

    use super::*;

    #[test]
    fn each_open_is_what_it_is_called() {
        let key = SigningKey::generate().unwrap();
        let depot: SocketAddr = "127.0.0.1:7510".parse().unwrap();
        let place = || Endpoint::from(SocketAddr::from(([127, 0, 0, 1], 7511)));
        let good = to_depot(&key, depot, place()).unwrap();
        assert!(good.verify().is_ok());
        assert_eq!(good.next().endpoint(), Some(&place()));
        let all = with_all_depots_passed(good).unwrap();
        assert!(all.verify().is_ok(), "the depots passed are not signed");
        assert_eq!(all.passed.len(), MAX_PASSED);
        assert!(
            forged(key.public(), depot, place())
                .unwrap()
                .verify()
                .is_err()
        );
        let acceptors = to_acceptor(&key, depot).unwrap();
        assert_eq!(acceptors.next().endpoint(), None);
        let servers = to_server(&key, depot, place()).unwrap();
        assert_eq!(
            (servers.next().endpoint(), servers.onward.clone()),
            (None, Some(place()))
        );
        assert!(servers.verify().is_ok());
        assert!(acceptors.verify().is_ok());
    }

    #[test]
    fn incomplete_open_is_not_an_error_yet() {
        let mut decoder = OpenDecoder::new();
        assert!(matches!(decoder.feed(&beginning(200)), Ok(None)));
    }
}
