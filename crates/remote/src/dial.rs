//! Connects to one of several addresses. Attempts overlap, each starting a little after the one
//! before (RFC 8305, section 5), and the first that proves to be the right host is taken. An
//! address may also belong to another machine in another network: only the key proves the host.

use std::fmt;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

/// Delay between attempts: the connection attempt delay of RFC 8305.
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// Maximum number of addresses tried.
const MAX_ADDRESSES: usize = 16;
/// Time limit for resolving one name.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum attempts listed in an error.
const MAX_LISTED_ATTEMPTS: usize = 4;

/// An address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressFamily {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl AddressFamily {
    /// Returns the flag of ssh(1) for it.
    #[must_use]
    pub fn flag(self) -> &'static str {
        match self {
            Self::V4 => "-4",
            Self::V6 => "-6",
        }
    }

    /// Returns true if `address` belongs to this family.
    pub(crate) fn contains(self, address: &IpAddr) -> bool {
        match self {
            Self::V4 => address.is_ipv4(),
            Self::V6 => address.is_ipv6(),
        }
    }
}

/// A failed attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedAttempt {
    /// The address; `None` if the name has none.
    pub address: Option<SocketAddr>,
    /// The reason, in one line.
    pub reason: String,
}

/// All failed attempts, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FailedAttempts(pub Vec<FailedAttempt>);

impl fmt::Display for FailedAttempts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("no address");
        }
        for (at, attempt) in self.0.iter().take(MAX_LISTED_ATTEMPTS).enumerate() {
            if at > 0 {
                f.write_str(", ")?;
            }
            match attempt.address {
                // The reason contains the address, or names another.
                Some(address) if !attempt.reason.contains(&address.to_string()) => {
                    write!(f, "{address}: {}", attempt.reason)?;
                }
                _ => f.write_str(&attempt.reason)?,
            }
        }
        match self.0.len().saturating_sub(MAX_LISTED_ATTEMPTS) {
            0 => Ok(()),
            more => write!(f, ", and {more} more"),
        }
    }
}

/// Removes duplicates, keeping the order.
pub(crate) fn distinct<T: PartialEq>(all: Vec<T>) -> Vec<T> {
    let mut kept: Vec<T> = Vec::new();
    for one in all {
        if !kept.contains(&one) {
            kept.push(one);
        }
    }
    kept
}

/// Returns the addresses of `hosts`, in order, limited to `family` if given. Names that do not
/// resolve are skipped.
pub(crate) async fn addresses(
    hosts: &[String],
    port: u16,
    family: Option<AddressFamily>,
) -> Vec<SocketAddr> {
    let mut found = Vec::new();
    for host in hosts {
        if let Ok(address) = host.parse::<IpAddr>() {
            found.push(SocketAddr::new(address.to_canonical(), port));
        } else if let Ok(Ok(resolved)) = timeout(
            RESOLVE_TIMEOUT,
            tokio::net::lookup_host((host.as_str(), port)),
        )
        .await
        {
            found.extend(resolved);
        }
    }
    found.retain(|address| family.is_none_or(|family| family.contains(&address.ip())));
    let mut found = distinct(found);
    found.truncate(MAX_ADDRESSES);
    found
}

/// Returns this host's own addresses by which another host may reach it.
pub(crate) fn own_addresses() -> Vec<IpAddr> {
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let usable = |address: &IpAddr| match address {
        IpAddr::V4(address) => !address.is_loopback() && !address.is_link_local(),
        IpAddr::V6(address) => !address.is_loopback() && !address.is_unicast_link_local(),
    };
    interfaces
        .iter()
        .map(if_addrs::Interface::ip)
        .filter(usable)
        .collect()
}

/// Returns the result for the first of `addresses` for which `attempt` succeeds within `limit`.
pub(crate) async fn race<T, F>(
    addresses: Vec<SocketAddr>,
    limit: Duration,
    attempt: impl Fn(SocketAddr) -> F,
) -> Result<(T, SocketAddr), FailedAttempts>
where
    T: Send + 'static,
    F: Future<Output = Result<T, String>> + Send + 'static,
{
    let deadline = Instant::now() + limit;
    let mut failed = FailedAttempts::default();
    let mut waiting = addresses.into_iter();
    let mut under_way = JoinSet::new();
    let mut next = waiting.next();
    let mut start_at = Instant::now();
    loop {
        if let Some(address) = next.filter(|_| under_way.is_empty() || start_at <= Instant::now()) {
            let attempt = attempt(address);
            under_way.spawn(async move {
                match tokio::time::timeout_at(deadline, attempt).await {
                    Ok(done) => (address, done),
                    Err(_) => (address, Err("no answer in time".into())),
                }
            });
            next = waiting.next();
            start_at = Instant::now() + ATTEMPT_DELAY;
        }
        tokio::select! {
            ended = under_way.join_next() => match ended {
                Some(Ok((address, Ok(done)))) => return Ok((done, address)),
                Some(Ok((address, Err(reason)))) => failed.0.push(FailedAttempt {
                    address: Some(address), reason
                }),
                Some(Err(_)) => {}
                None if next.is_none() => return Err(failed),
                None => {}
            },
            () = sleep_until(start_at), if next.is_some() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loopback(n: u8) -> SocketAddr {
        SocketAddr::new([192, 0, 2, n].into(), 7)
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_address_delays_the_right_one_briefly() {
        let begun = Instant::now();
        let (found, address) = race(
            vec![loopback(1), loopback(2), loopback(3)],
            Duration::from_secs(5),
            |address| async move {
                match address {
                    one if one == loopback(1) => std::future::pending().await,
                    one if one == loopback(2) => Err("refused".to_owned()),
                    _ => Ok("here"),
                }
            },
        )
        .await
        .unwrap();
        assert_eq!((found, address), ("here", loopback(3)));
        assert!(
            begun.elapsed() <= 2 * ATTEMPT_DELAY,
            "{:?}",
            begun.elapsed()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn failures_are_reported_and_come_in_time() {
        let begun = Instant::now();
        let limit = Duration::from_secs(3);
        let failed = race(
            vec![loopback(1), loopback(2)],
            limit,
            |address| async move {
                if address == loopback(1) {
                    std::future::pending::<()>().await;
                }
                Err::<(), _>("Connection refused".to_owned())
            },
        )
        .await
        .unwrap_err();
        assert_eq!(begun.elapsed(), limit);
        assert_eq!(
            failed.to_string(),
            "192.0.2.2:7: Connection refused, 192.0.2.1:7: no answer in time"
        );
        let none = race(vec![], limit, |_| async { Ok::<(), _>(()) }).await;
        assert_eq!(none.unwrap_err().to_string(), "no address");
    }
}
