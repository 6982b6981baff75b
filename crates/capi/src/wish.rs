//! Wishes of a program for a connection: options of the level `SOL_LSL`.

use std::ffi::OsString;

use longhaul_ramp_protocol::ConnectionWish;

/// Wishes of a program for a connection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SocketWishes {
    /// Text for the logs and policies of depots.
    pub purpose: Option<String>,
    /// Bytes that will be sent.
    pub size: Option<u64>,
    /// Rate in bit/s.
    pub rate: Option<u64>,
    /// Maximum duration, in seconds.
    pub duration: Option<u64>,
    /// Route in its text form; if `None`, the rules decide.
    pub route: Option<String>,
    /// Milliseconds after which a blocking `connect` gives up.
    pub connect_timeout: Option<u32>,
    /// If true, the connection fails if there is no route.
    pub closed: bool,
    /// If true, the destination speaks the session protocol itself.
    pub acceptor: bool,
    /// Key that the destination must show.
    pub key: Option<[u8; 32]>,
    /// Socket of the on-ramp to use, which determines the identity that is shown.
    pub onramp: Option<OsString>,
}

impl SocketWishes {
    /// Returns the wishes in the form that is sent to the on-ramp.
    pub fn to_message(&self) -> ConnectionWish<'_> {
        ConnectionWish {
            purpose: self.purpose.as_deref(),
            size: self.size,
            rate: self.rate,
            duration: self.duration,
        }
    }
}
