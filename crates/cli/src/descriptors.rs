//! Limit on open descriptors of this process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit on open descriptors as far as possible without privileges, and returns it. The
/// ordinary limit is low for the sake of `select(2)`, which nothing here uses.
pub fn raise() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let highest = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    match setrlimit(Resource::Nofile, highest) {
        Ok(()) => limit.maximum.unwrap_or(u64::MAX),
        Err(_) => limit.current.unwrap_or(u64::MAX),
    }
}
