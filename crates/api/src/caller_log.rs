//! Log of a service's requests.

use std::net::Ipv4Addr;

use longhaul_hop::{EventLog, Payer};

use crate::caller::Caller;

/// Bounded log of requests. Each caller has its own allowance of lines, so a busy caller does not
/// silence the others.
#[derive(Debug, Default)]
pub struct CallerLog(EventLog);

impl CallerLog {
    /// Writes `line` on the account of `caller`, or of unknown callers together, unless the
    /// allowance is used up. The closure receives the number of lines omitted since the last one,
    /// if any.
    pub fn log(&self, caller: Option<&Caller>, line: impl FnOnce(Option<u64>)) {
        let payer = caller.map(|caller| match caller.key {
            Some(key) => Payer::Key(key),
            // The user that the service runs as.
            None => Payer::from_address(Ipv4Addr::LOCALHOST.into()),
        });
        self.0.log(payer, line);
    }
}
