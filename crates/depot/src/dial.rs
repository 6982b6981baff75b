//! From an OPEN that has been verified to a connection with the next hop: what the policy says, one look-up, one of the
//! addresses that passed.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use longhaul_proto::{Endpoint, Host, Next, Open, StatusCode};
use rustix::io::Errno;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::config::{NextCongestion, Timeouts};
use crate::conn::Conn;
use crate::own::OwnAddressReader;
use crate::policy::{Policy, Rule};
use crate::refusal::Refused;
use crate::socket;

/// Addresses of a name that are looked at, and those of them that are dialled.
const MAX_ADDRESSES: usize = 32;
const MAX_ATTEMPTS: usize = 4;

/// Where an OPEN may go on to.
#[derive(Debug)]
pub(crate) struct Way {
    pub(crate) rule: Arc<Rule>,
    pub(crate) endpoint: Endpoint,
    /// What passed the policy, in the order of the look-up; never empty.
    pub(crate) addresses: Vec<SocketAddr>,
}

/// What dialling needs from its depot.
#[derive(Debug)]
pub(crate) struct Dialler {
    lookups: Arc<Semaphore>,
    next_congestion: Vec<NextCongestion>,
    timeouts: Timeouts,
    own: OwnAddressReader,
}

impl Dialler {
    pub(crate) fn new(
        lookups: usize,
        next_congestion: Vec<NextCongestion>,
        timeouts: Timeouts,
        own: OwnAddressReader,
    ) -> Self {
        Self {
            lookups: Arc::new(Semaphore::new(lookups.max(1))),
            next_congestion,
            timeouts,
            own,
        }
    }

    /// Asks the policy where `open` may go (LH-ADMIT-3). No name is resolved unless some rule might allow what it leads to.
    pub(crate) async fn authorise(
        &self,
        policy: &Policy,
        open: &Open,
        deadline: Instant,
    ) -> Result<Way, Refused> {
        let next = open.next();
        let Some(endpoint) = next.endpoint() else {
            return Err(Refused::new(
                StatusCode::Misrouted,
                "an OPEN for the acceptor came to a depot",
            ));
        };
        let own = self.own.addresses();
        let candidates = policy
            .candidates(&open.principal, &open.destination, next, &own)
            .rules;
        if candidates.is_empty() {
            let to = match next {
                Next::Hop(hop) => format!("{} by way of {}", open.destination, hop.endpoint),
                _ => open.destination.to_string(),
            };
            return Err(Refused::new(
                StatusCode::Refused,
                format!("no rule allows {to} for this key"),
            ));
        }
        let addresses = self.resolve(endpoint, deadline).await?;
        // Asked again: a look-up can take long.
        let own = self.own.addresses();
        let allowed = candidates.into_iter().find_map(|rule| {
            let mut addresses = rule.allowed(next, &addresses, &own);
            addresses.truncate(MAX_ATTEMPTS);
            (!addresses.is_empty()).then_some((rule, addresses))
        });
        let Some((rule, addresses)) = allowed else {
            let detail = format!("no rule allows the addresses of {endpoint} for this key");
            return Err(Refused::new(StatusCode::Refused, detail));
        };
        Ok(Way {
            rule,
            endpoint: endpoint.clone(),
            addresses,
        })
    }

    /// Connects to the first address of `way` that answers.
    pub(crate) async fn dial(&self, way: &Way, deadline: Instant) -> Result<Conn, Refused> {
        let mut failure = Refused::new(StatusCode::DialUnreachable, "no address");
        for (index, &address) in way.addresses.iter().enumerate() {
            // Each address gets its share of what is left, so that one black hole does not use up everything.
            let left = deadline.saturating_duration_since(Instant::now());
            let others = u32::try_from(way.addresses.len() - index).unwrap_or(1);
            let attempt = Conn::connect(address, |fd| self.prepare(fd, way, address));
            failure = match tokio::time::timeout(left / others.max(1), attempt).await {
                Ok(Ok(conn)) => return Ok(conn),
                Ok(Err(error)) => Refused::new(code_of(&error), format!("{address}: {error}")),
                Err(_) => Refused::new(StatusCode::DialTimeout, format!("{address}: no answer in time")),
            };
        }
        Err(failure)
    }

    fn prepare(&self, fd: BorrowedFd<'_>, way: &Way, address: SocketAddr) -> io::Result<()> {
        socket::prepare(fd, self.timeouts.unacknowledged)?;
        match self
            .next_congestion
            .iter()
            .find(|choice| choice.applies(&way.endpoint, address))
        {
            Some(choice) => socket::set_congestion(fd, &choice.name),
            None => Ok(()),
        }
    }

    async fn resolve(&self, endpoint: &Endpoint, deadline: Instant) -> Result<Vec<SocketAddr>, Refused> {
        let name = match &endpoint.host {
            Host::Ip(address) => return Ok(vec![SocketAddr::new(address.to_canonical(), endpoint.port)]),
            Host::Name(name) => name.clone(),
        };
        let port = endpoint.port;
        let look_up = async {
            let permit = Arc::clone(&self.lookups)
                .acquire_owned()
                .await
                .map_err(io::Error::other)?;
            let task = tokio::task::spawn_blocking(move || {
                // Held until the look-up is over, not until its asker has given up: it bounds the threads.
                let _permit = permit;
                let found: Vec<SocketAddr> = (name.as_str(), port)
                    .to_socket_addrs()?
                    .take(MAX_ADDRESSES)
                    .collect();
                Ok::<_, io::Error>(found)
            });
            task.await.map_err(io::Error::other)?
        };
        match tokio::time::timeout_at(deadline, look_up).await {
            Ok(Ok(addresses)) if !addresses.is_empty() => Ok(addresses),
            Ok(Ok(_)) => Err(Refused::new(
                StatusCode::NameNotFound,
                format!("{endpoint}: no address"),
            )),
            Ok(Err(error)) => Err(Refused::new(
                StatusCode::NameNotFound,
                format!("{endpoint}: {error}"),
            )),
            Err(_) => Err(Refused::new(
                StatusCode::DialTimeout,
                format!("{endpoint}: no answer to the look-up in time"),
            )),
        }
    }
}

/// How long an OPEN may still take here.
pub(crate) fn deadline(open: &Open, since: Instant, dial: Duration) -> Instant {
    (since + open.setup_budget).min(Instant::now() + dial)
}

fn code_of(error: &io::Error) -> StatusCode {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::CONNREFUSED | Errno::CONNRESET) => StatusCode::DialRefused,
        Some(Errno::TIMEDOUT) => StatusCode::DialTimeout,
        Some(
            Errno::MFILE
            | Errno::NFILE
            | Errno::NOBUFS
            | Errno::NOMEM
            | Errno::ADDRNOTAVAIL
            | Errno::AGAIN
            | Errno::NOSPC,
        ) => StatusCode::Overloaded,
        _ => StatusCode::DialUnreachable,
    }
}
