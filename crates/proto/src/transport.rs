//! Transport of a hop.

use std::{fmt, str::FromStr};

use strum::FromRepr;

/// Transport by which a hop of a route is dialled.
///
/// Text: `tcp`, `quic` or `paced`. The number is that in an OPEN (LH-OPEN-17).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, FromRepr)]
#[repr(u8)]
pub enum Transport {
    /// TCP, one connection for each session.
    Tcp = 1,
    /// QUIC, one stream for each session of a connection that they share.
    Quic = 2,
    /// TCP that sends no faster than the rate of the session. It leaves room in the queues of the
    /// hop for others, and loses no packets to overshooting.
    Paced = 3,
}

impl Transport {
    /// Every transport.
    pub const ALL: [Self; 3] = [Self::Tcp, Self::Quic, Self::Paced];

    /// Returns the name, as in texts and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Quic => "quic",
            Self::Paced => "paced",
        }
    }

    /// Splits `transport:rest` into the transport and the rest. A port is not taken for the rest,
    /// so `quic:7510` is a host of that name.
    #[must_use]
    pub fn split_prefix(text: &str) -> (Option<Self>, &str) {
        let is_port = |rest: &str| rest.bytes().all(|byte| byte.is_ascii_digit());
        text.split_once(':')
            .filter(|(_, rest)| !is_port(rest))
            .and_then(|(name, rest)| Some((Some(name.parse().ok()?), rest)))
            .unwrap_or((None, text))
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Error: the text names no transport. Write `tcp`, `quic` or `paced`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a transport: write tcp, quic or paced")]
pub struct UnknownTransport;

impl FromStr for Transport {
    type Err = UnknownTransport;

    fn from_str(text: &str) -> Result<Self, UnknownTransport> {
        Self::ALL
            .into_iter()
            .find(|transport| transport.as_str() == text)
            .ok_or(UnknownTransport)
    }
}
