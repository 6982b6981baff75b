//! Reading of the machine's addresses from the kernel, for the policy.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::OwnAddresses;

/// Maximum age of the addresses; older ones are read again before use.
const MAX_AGE: Duration = Duration::from_secs(2);

/// Addresses of this machine's interfaces, at most [`MAX_AGE`] old. For that long, a newly assigned
/// address is treated as another machine's.
///
/// Only addresses of interfaces are known. A public address that a router translates to this
/// machine is not, nor are addresses that only routes make local (`ip route add local`). A policy
/// that grants networks with such addresses grants this machine, too.
#[derive(Debug)]
pub struct OwnAddressReader(Mutex<Latest>);

#[derive(Debug)]
struct Latest {
    addresses: Arc<OwnAddresses>,
    read: Instant,
}

impl OwnAddressReader {
    /// Creates a reader and reads the addresses.
    ///
    /// # Errors
    /// The kernel's error, for example when no descriptors are left.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Mutex::new(Latest {
            addresses: Arc::new(read()?),
            read: Instant::now(),
        })))
    }

    /// Returns the addresses. If they cannot be read again, the last ones stay.
    pub fn addresses(&self) -> Arc<OwnAddresses> {
        let mut latest = self.0.lock();
        if latest.read.elapsed() >= MAX_AGE {
            match read() {
                Ok(addresses) => latest.addresses = Arc::new(addresses),
                Err(error) => {
                    tracing::warn!(
                        %error,
                        "cannot read this machine's addresses; using those from before"
                    )
                }
            }
            latest.read = Instant::now();
        }
        Arc::clone(&latest.addresses)
    }
}

/// Takes a few system calls and no disk access, so any thread may call it. The calling thread must
/// read them itself, as it determines the network namespace.
fn read() -> io::Result<OwnAddresses> {
    let interfaces = if_addrs::get_if_addrs()?;
    Ok(interfaces.iter().map(if_addrs::Interface::ip).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn outdated_addresses_are_read_again() {
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
