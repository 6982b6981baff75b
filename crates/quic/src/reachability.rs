//! Servers that did not answer by QUIC, so that each later session does not wait for them again.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

/// Time for which a server that did not answer by QUIC is dialled by TCP at once.
const RETRY_AFTER: Duration = Duration::from_secs(600);
/// Maximum number of servers remembered. One more replaces the oldest.
const MAX_SERVERS: usize = 1024;

/// Servers that did not answer by QUIC recently. Times are since an arbitrary origin.
#[derive(Debug, Default)]
pub(crate) struct Reachability {
    failed_at: HashMap<SocketAddr, Duration>,
}

impl Reachability {
    /// Returns true if the server may be dialled by QUIC.
    pub(crate) fn may_dial(&self, server: SocketAddr, now: Duration) -> bool {
        self.failed_at
            .get(&server)
            .is_none_or(|failed| now.saturating_sub(*failed) >= RETRY_AFTER)
    }

    /// Records a server that did not answer. Returns true if that was not known, and should be
    /// reported.
    pub(crate) fn record_failure(&mut self, server: SocketAddr, now: Duration) -> bool {
        let is_new = !self.failed_at.contains_key(&server);
        if is_new && self.failed_at.len() >= MAX_SERVERS {
            let oldest = self.failed_at.iter().min_by_key(|(_, failed)| **failed);
            if let Some(oldest) = oldest.map(|(server, _)| *server) {
                self.failed_at.remove(&oldest);
            }
        }
        self.failed_at.insert(server, now);
        is_new
    }

    /// Records a server that answers.
    pub(crate) fn record_success(&mut self, server: SocketAddr) {
        self.failed_at.remove(&server);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(port: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], port))
    }

    #[test]
    fn a_silent_server_is_left_alone_for_ten_minutes() {
        let mut known = Reachability::default();
        let at = Duration::from_secs;
        assert!(known.may_dial(server(1), at(0)));
        assert!(known.record_failure(server(1), at(5)));
        assert!(!known.may_dial(server(1), at(604)));
        assert!(known.may_dial(server(1), at(605)));
        assert!(!known.record_failure(server(1), at(606)));
        known.record_success(server(1));
        assert!(known.may_dial(server(1), at(607)));
        assert!(known.record_failure(server(1), at(608)));
    }

    #[test]
    fn the_memory_is_bounded() {
        let mut known = Reachability::default();
        for port in 0..=MAX_SERVERS as u16 {
            known.record_failure(server(port), Duration::from_millis(port.into()));
        }
        assert_eq!(known.failed_at.len(), MAX_SERVERS);
        assert!(known.may_dial(server(0), Duration::from_secs(1)));
    }
}
