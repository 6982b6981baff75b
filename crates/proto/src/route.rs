//! The hop list, chosen by the initiator.

use std::{fmt, str::FromStr};

use bytes::BufMut;

use crate::{
    DEPOT_PORT, Endpoint, EndpointError, KeyError, MAX_HOPS, PublicKey, Transport,
    tlv::{FieldReader, FieldResult},
};

const FLAG_STRICT: u8 = 1;
const FLAG_KEYED: u8 = 2;

/// One depot of a route.
///
/// Text: `host[:port]`, preceded by its key and `@` if the key is named (`lhk1:...@host`), before
/// that by the transport and `:` if it is named (`quic:host`), and by `~` if the hop is loose.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hop {
    /// Endpoint of the depot.
    pub endpoint: Endpoint,
    /// True if the hop must follow directly. Before a loose hop, depots may add others (LH-ROUTE-2,
    /// LH-ROUTE-3).
    pub strict: bool,
    /// Key that the depot must prove (LH-ROUTE-8, LH-STATUS-8); any if `None`.
    pub key: Option<PublicKey>,
    /// Transport by which the hop must be dialled; chosen by the dialler if `None`. It has its own
    /// option in an OPEN (LH-OPEN-17).
    pub transport: Option<Transport>,
}

/// Depots to pass, in order; empty means direct. Text: `direct`, or hops separated by commas.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Route {
    hops: Vec<Hop>,
}

impl Route {
    /// Returns the route without depots.
    #[must_use]
    pub const fn direct() -> Self {
        Self { hops: Vec::new() }
    }

    /// Returns the route through these depots.
    ///
    /// # Errors
    /// [`RouteError::TooLong`] beyond [`MAX_HOPS`] (LH-ROUTE-4).
    pub fn new(hops: Vec<Hop>) -> Result<Self, RouteError> {
        if hops.len() > MAX_HOPS {
            return Err(RouteError::TooLong(hops.len()));
        }
        Ok(Self { hops })
    }

    /// Returns the depots, in order.
    #[must_use]
    pub fn hops(&self) -> &[Hop] {
        &self.hops
    }

    /// Returns true if the route names the key of any depot.
    #[must_use]
    pub fn names_keys(&self) -> bool {
        self.hops.iter().any(|hop| hop.key.is_some())
    }

    /// Returns true if the route has no depots.
    #[must_use]
    pub const fn is_direct(&self) -> bool {
        self.hops.is_empty()
    }

    pub(crate) fn encode(&self, out: &mut impl BufMut) {
        out.put_u8(u8::try_from(self.hops.len()).unwrap_or(u8::MAX)); // `new` has limited it to 16
        for hop in &self.hops {
            let strict = if hop.strict { FLAG_STRICT } else { 0 };
            out.put_u8(strict | if hop.key.is_some() { FLAG_KEYED } else { 0 });
            hop.endpoint.encode(out);
            if let Some(key) = &hop.key {
                out.put_slice(key.as_bytes());
            }
        }
    }

    pub(crate) fn decode(reader: &mut FieldReader<'_>) -> FieldResult<Self> {
        let count = usize::from(reader.u8()?);
        if count > MAX_HOPS {
            return Err("more hops than a route may list");
        }
        let mut hops = Vec::new();
        for _ in 0..count {
            let flags = reader.u8()?;
            if flags & !(FLAG_STRICT | FLAG_KEYED) != 0 {
                return Err("unknown flags of a hop");
            }
            let endpoint = Endpoint::decode(reader)?;
            let key = match flags & FLAG_KEYED {
                0 => None,
                _ => Some(PublicKey::from_bytes(reader.array()?)),
            };
            hops.push(Hop {
                endpoint,
                strict: flags & FLAG_STRICT != 0,
                key,
                transport: None,
            });
        }
        Ok(Self { hops })
    }

    /// Returns the route with this transport at each hop.
    #[must_use]
    pub fn over(mut self, transport: Transport) -> Self {
        self.set_transports(std::iter::repeat(Some(transport)));
        self
    }

    /// Sets the transport of each hop.
    pub(crate) fn set_transports(&mut self, transports: impl Iterator<Item = Option<Transport>>) {
        for (hop, transport) in self.hops.iter_mut().zip(transports) {
            hop.transport = transport;
        }
    }
}

impl fmt::Display for Hop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.strict { "" } else { "~" })?;
        if let Some(transport) = self.transport {
            write!(f, "{transport}:")?;
        }
        if let Some(key) = &self.key {
            write!(f, "{key}@")?;
        }
        self.endpoint.fmt(f)
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_direct() {
            return f.write_str("direct");
        }
        for (index, hop) in self.hops.iter().enumerate() {
            write!(f, "{}{hop}", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl FromStr for Route {
    type Err = RouteError;

    fn from_str(text: &str) -> Result<Self, RouteError> {
        if text == "direct" {
            return Ok(Self::direct());
        }
        let mut hops = Vec::new();
        for part in text.split(',') {
            let (strict, rest) = match part.strip_prefix('~') {
                Some(rest) => (false, rest),
                None => (true, part),
            };
            let (transport, rest) = Transport::split_prefix(rest);
            let (key, endpoint) = match rest.split_once('@') {
                Some((key, endpoint)) => (Some(key.parse()?), endpoint),
                None => (None, rest),
            };
            hops.push(Hop {
                endpoint: Endpoint::parse_with_port(endpoint, DEPOT_PORT)?,
                strict,
                key,
                transport,
            });
        }
        Self::new(hops)
    }
}

/// Error in a route.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// A hop is ill-formed. `--route` takes `HOST`, `HOST:PORT` or `KEY@HOST`, separated by commas,
    /// each optionally after `tcp:` or `quic:`.
    #[error("invalid hop in the route: {0}")]
    Hop(#[from] EndpointError),
    /// The text before an `@` is not a key.
    #[error("invalid key of a depot in the route: {0}")]
    Key(#[from] KeyError),
    /// The route has too many hops: leave some out.
    #[error("the route lists {0} hops: at most {MAX_HOPS} are allowed")]
    TooLong(usize),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        let route: Route = "h1,~192.0.2.1:99,[::1]".parse().unwrap();
        assert_eq!(route.to_string(), "h1:7510,~192.0.2.1:99,[::1]:7510");
        assert_eq!(
            route
                .hops()
                .iter()
                .map(|hop| hop.strict)
                .collect::<Vec<_>>(),
            [true, false, true]
        );
        let key = PublicKey::from_bytes([3; 32]);
        let keyed: Route = format!("{key}@h1,~{key}@[::1]:9").parse().unwrap();
        assert_eq!(keyed.to_string(), format!("{key}@h1:7510,~{key}@[::1]:9"));
        assert!(keyed.hops().iter().all(|hop| hop.key == Some(key)));
        let text = format!("quic:h1:7510,~tcp:{key}@[::1]:9,quic:7510");
        let pinned: Route = text.parse().unwrap();
        assert_eq!(pinned.to_string(), text);
        let transports: Vec<_> = pinned.hops().iter().map(|hop| hop.transport).collect();
        assert_eq!(
            transports,
            [Some(Transport::Quic), Some(Transport::Tcp), None]
        );
        assert_eq!(
            route.over(Transport::Quic).to_string(),
            "quic:h1:7510,~quic:192.0.2.1:99,quic:[::1]:7510"
        );
        assert_eq!("direct".parse::<Route>().unwrap(), Route::direct());
        assert_eq!(Route::direct().to_string(), "direct");
    }

    #[test]
    fn ill_formed_routes_are_refused() {
        assert!(matches!(
            "lhk1:x@h".parse::<Route>(),
            Err(RouteError::Key(_))
        ));
        for text in ["", "h1,", "~", "~~h", "h1,,h2", "h1 ,h2"] {
            assert!(
                matches!(text.parse::<Route>(), Err(RouteError::Hop(_))),
                "{text}"
            );
        }
        assert_eq!(
            vec!["h"; 17].join(",").parse::<Route>(),
            Err(RouteError::TooLong(17))
        );
    }
}
