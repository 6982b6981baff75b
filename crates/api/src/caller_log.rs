//! Log of a service's requests.

use std::net::Ipv4Addr;

use longhaul_hop::{EventLog, Payer};

use crate::access::Caller;

/// Bounded log of what callers have a service do. Each has lines of its own, so one that asks
/// without end does not silence the others.
#[derive(Debug, Default)]
pub struct CallerLog(EventLog);

impl CallerLog {
    /// Writes `line` on the account of `caller`, or of all whose name is not known, unless there
    /// were too many. It is given the number of lines left out since the last, if there were any.
    pub fn log(&self, caller: Option<&Caller>, line: impl FnOnce(Option<u64>)) {
        let payer = caller.map(|caller| match caller.key {
            Some(key) => Payer::Key(key),
            // The user that the service runs for.
            None => Payer::source(Ipv4Addr::LOCALHOST.into()),
        });
        self.0.log(payer, line);
    }
}
