//! What a program wishes of a connection: options of the level `SOL_LSL`.

use std::ffi::OsString;

use longhaul_ramp::Wish;

/// What a program wishes of a connection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wishes {
    /// Words for the logs and policies of depots.
    pub purpose: Option<String>,
    /// Bytes that will be sent.
    pub size: Option<u64>,
    /// Bits a second.
    pub rate: Option<u64>,
    /// Seconds that it may take.
    pub duration: Option<u64>,
    /// The route, in its text form; the rules decide if `None`.
    pub route: Option<String>,
    /// Milliseconds after which a `connect` that waits gives up.
    pub connect_timeout: Option<u32>,
    /// No connection where there is no route.
    pub closed: bool,
    /// The destination speaks the session protocol itself.
    pub acceptor: bool,
    /// The key that the destination must show.
    pub key: Option<[u8; 32]>,
    /// The socket of the on-ramp to go by, and so the identity to show.
    pub onramp: Option<OsString>,
}

impl Wishes {
    /// As it is reported to the on-ramp.
    pub fn reported(&self) -> Wish<'_> {
        Wish {
            purpose: self.purpose.as_deref(),
            size: self.size,
            rate: self.rate,
            duration: self.duration,
        }
    }
}
