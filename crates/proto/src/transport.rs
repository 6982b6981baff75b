//! Transport of a hop.

use std::{fmt, str::FromStr};

/// Transport by which a hop of a route is dialled.
///
/// Text: `tcp` or `quic`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Transport {
    /// TCP, one connection for each session.
    Tcp,
    /// QUIC, one stream for each session of a connection that they share.
    Quic,
}

impl Transport {
    /// Every transport.
    pub const ALL: [Self; 2] = [Self::Tcp, Self::Quic];

    /// Returns the name, as in texts and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Quic => "quic",
        }
    }

    /// Returns the number in an OPEN (LH-OPEN-17).
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Tcp => 1,
            Self::Quic => 2,
        }
    }

    /// Returns the transport with this number in an OPEN.
    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|transport| transport.code() == code)
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

/// Error: the text names no transport. Write `tcp` or `quic`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a transport: write tcp or quic")]
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
