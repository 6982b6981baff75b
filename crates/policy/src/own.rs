//! Reads the addresses of the machine from the kernel, for the policy.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::OwnAddresses;

/// Addresses that were read longer ago are read again before they are used.
const MAX_AGE: Duration = Duration::from_secs(2);

/// The addresses of this machine's interfaces, at most [`MAX_AGE`] old: for so long an address that
/// the machine has just got passes for another's.
///
/// Only what the interfaces have is known: not a public address that a router in front translates
/// to this machine, nor addresses that routes alone make local (`ip route add local`). A policy
/// that grants networks with such addresses grants this machine with them.
#[derive(Debug)]
pub struct OwnAddressReader(Mutex<Latest>);

#[derive(Debug)]
struct Latest {
    addresses: Arc<OwnAddresses>,
    read: Instant,
}

impl OwnAddressReader {
    /// Reads for the first time.
    ///
    /// # Errors
    /// The kernel's, as when there are no descriptors left.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Mutex::new(Latest {
            addresses: Arc::new(read()?),
            read: Instant::now(),
        })))
    }

    /// The addresses. When they cannot be read again, the last that were read stay.
    pub fn addresses(&self) -> Arc<OwnAddresses> {
        let mut latest = self.0.lock();
        if latest.read.elapsed() >= MAX_AGE {
            match read() {
                Ok(addresses) => latest.addresses = Arc::new(addresses),
                Err(error) => {
                    tracing::warn!(%error, "cannot read this machine's addresses; using those from before")
                }
            }
            latest.read = Instant::now();
        }
        Arc::clone(&latest.addresses)
    }
}

/// A few system calls and no disk: short enough for any thread. It has to be the caller's, which
/// says whose network namespace this is.
fn read() -> io::Result<OwnAddresses> {
    let interfaces = if_addrs::get_if_addrs()?;
    Ok(interfaces.iter().map(if_addrs::Interface::ip).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn addresses_are_read_again_once_they_are_old() {
        let reader = OwnAddressReader::new().expect("addresses");
        let first = reader.addresses();
        assert!(
            Arc::ptr_eq(&first, &reader.addresses()),
            "not read each time"
        );
        tokio::time::advance(MAX_AGE).await;
        assert!(!Arc::ptr_eq(&first, &reader.addresses()), "read again");
    }
}
