//! A route named by a program.

use longhaul_proto::{Endpoint, OFFRAMP_PORT, PublicKey, Route};

/// Route that overrides the rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedRoute {
    /// Depots to pass.
    pub(crate) via: Route,
    /// Off-ramp, and its key if that is named. `None` if the destination speaks the session
    /// protocol, or if the route is direct.
    pub(crate) offramp: Option<(Endpoint, Option<PublicKey>)>,
}

impl NamedRoute {
    /// Parses `direct`, or the text of a route. Towards a destination that speaks plain TCP, its
    /// last hop is the off-ramp.
    pub(crate) fn parse(text: &str, acceptor: bool) -> Result<Self, String> {
        let whole = |text: &str| text.parse::<Route>().map_err(|error| error.to_string());
        if acceptor || text == "direct" {
            return Ok(Self {
                via: whole(text)?,
                offramp: None,
            });
        }
        let (depots, last) = match text.rsplit_once(',') {
            Some((depots, last)) => (whole(depots)?, last),
            None => (Route::direct(), text),
        };
        let (key, at) = match last.split_once('@') {
            Some((key, at)) => (
                Some(key.parse().map_err(|error| format!("{key:?} is {error}"))?),
                at,
            ),
            None => (None, last),
        };
        let at = Endpoint::parse_with_port(at, OFFRAMP_PORT).map_err(|error| error.to_string())?;
        Ok(Self {
            via: depots,
            offramp: Some((at, key)),
        })
    }

    /// Returns true if it is a direct connection.
    pub(crate) const fn is_direct(&self) -> bool {
        self.via.is_direct() && self.offramp.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_hop_is_the_offramp_for_plain_tcp() {
        let read = |text, acceptor| {
            let route = NamedRoute::parse(text, acceptor).unwrap();
            let end = route
                .offramp
                .map(|(at, key)| (at.to_string(), key.is_some()));
            (route.via.to_string(), end)
        };
        assert_eq!(read("direct", false), ("direct".to_owned(), None));
        assert_eq!(read("a,b", true), ("a:7510,b:7510".to_owned(), None));
        assert_eq!(
            read("a,b", false),
            ("a:7510".to_owned(), Some(("b:7512".to_owned(), false)))
        );
        let key = PublicKey::from_bytes([1; 32]);
        let text = format!("{key}@[2001:db8::1]:9");
        assert_eq!(
            read(&text, false),
            (
                "direct".to_owned(),
                Some(("[2001:db8::1]:9".to_owned(), true))
            )
        );
        for wrong in ["", "a,", ",a", "a b", "key@a", "a,direct,"] {
            assert!(NamedRoute::parse(wrong, false).is_err(), "{wrong}");
        }
    }
}
