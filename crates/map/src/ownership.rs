//! Names of depots, and the keys they belong to.
//!
//! A name belongs to the key that the operator gives it, with the map or with the name of a
//! principal. Otherwise it belongs to the first key that registers it, until the operator releases
//! it. It is never an address, a key, or the name of a site or of another's host, because these
//! identify other things. Names are compared without case.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::IpAddr;

use longhaul_policy::HostPattern;
use longhaul_proto::{Host, PublicKey};

use crate::check::shorten;
use crate::model::Map;
use crate::problem::{NameConflict, RegistrationProblem};

/// Maximum number of names that one key may have registered in all. Names stay with their key, so
/// without a limit one key could take all.
pub const MAX_NAMES_OF_KEY: usize = 4;
/// Prefix of a key's text.
const KEY_PREFIX: &str = "lhk1:";

/// Returns a depot's name in the form in which names are compared and stored: without a dot at the
/// end, and in lower case.
#[must_use]
pub fn fold_name(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_lowercase()
}

/// Names of a map that depots may not register, and the owners of all others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DepotNames {
    sites: HashSet<String>,
    hosts: HashSet<String>,
    /// Names that address hosts.
    addresses: HashSet<String>,
    /// Names that address depots of the operator's map, with their keys.
    depots: BTreeSet<(String, PublicKey)>,
    /// Domains in which every name is a host's, each with its leading dot.
    domains: HashSet<String>,
    /// If true, some host has the pattern `*`.
    has_host_of_all_names: bool,
    /// Keys to which the operator gave each name.
    granted: BTreeMap<String, BTreeSet<PublicKey>>,
    /// First key that registered each name, with the name as registered.
    bound: BTreeMap<String, (String, PublicKey)>,
}

impl DepotNames {
    /// Collects the names of an operator's map. Their only owners yet are its depots.
    #[must_use]
    pub fn from_map(map: &Map) -> Self {
        let mut names = Self {
            sites: map.sites.iter().map(|site| fold_name(&site.name)).collect(),
            hosts: map.hosts.iter().map(|host| fold_name(&host.name)).collect(),
            ..Self::default()
        };
        let patterns = map.hosts.iter().flat_map(|host| &host.addresses);
        for pattern in patterns.filter_map(|text| text.parse::<HostPattern>().ok()) {
            match pattern {
                // A depot's name never reads as an address anyway.
                HostPattern::Network(_) => {}
                HostPattern::Name(name) => _ = names.addresses.insert(name),
                HostPattern::Suffix(domain) if domain.is_empty() => {
                    names.has_host_of_all_names = true
                }
                HostPattern::Suffix(domain) => _ = names.domains.insert(domain),
            }
        }
        for depot in &map.depots {
            names.grant(&depot.name, depot.key);
            for address in &depot.addresses {
                if let Host::Name(name) = &address.endpoint.host {
                    names.depots.insert((fold_name(name), depot.key));
                }
            }
        }
        names
    }

    /// Gives a name to a key on behalf of the operator. If several keys have it, the first that
    /// registers it is called so.
    pub fn grant(&mut self, name: &str, key: PublicKey) {
        self.granted.entry(fold_name(name)).or_default().insert(key);
    }

    /// Records which key registered a name first.
    pub fn bind_first(&mut self, name: &str, key: PublicKey) {
        self.bound.insert(fold_name(name), (name.to_owned(), key));
    }

    /// Returns true if a name belongs to a key, or `None` if it has no owner.
    #[must_use]
    pub fn belongs_to(&self, name: &str, key: &PublicKey) -> Option<bool> {
        let name = fold_name(name);
        let first = self.bound.get(&name).map(|(_, first)| first);
        let Some(granted) = self.granted.get(&name) else {
            return first.map(|first| first == key);
        };
        match first.filter(|first| granted.contains(*first)) {
            Some(first) => Some(first == key),
            None => Some(granted.contains(key)),
        }
    }

    /// Returns the names that this key registered first.
    pub fn bound_to<'a>(&'a self, key: &'a PublicKey) -> impl Iterator<Item = &'a str> {
        let bound = self
            .bound
            .iter()
            .filter(move |(_, (_, first))| first == key);
        bound.map(|(_, (shown, _))| shown.as_str())
    }

    /// Returns true if the operator gave this name to the key.
    #[must_use]
    pub fn is_granted(&self, name: &str, key: &PublicKey) -> bool {
        self.granted
            .get(&fold_name(name))
            .is_some_and(|keys| keys.contains(key))
    }

    /// Checks that a depot with this key may have a name, whether or not another depot has it.
    ///
    /// # Errors
    /// [`RegistrationProblem::NameReserved`].
    pub fn check(&self, name: &str, key: &PublicKey) -> Result<(), RegistrationProblem> {
        let Some(conflict) = self.conflict(name, key) else {
            return Ok(());
        };
        Err(RegistrationProblem::NameReserved {
            name: shorten(name),
            conflict,
        })
    }

    fn conflict(&self, name: &str, key: &PublicKey) -> Option<NameConflict> {
        let folded = fold_name(name);
        if folded.starts_with(KEY_PREFIX) {
            return Some(NameConflict::Key);
        }
        if self.sites.contains(&folded) {
            return Some(NameConflict::Site);
        }
        if self.hosts.contains(&folded) {
            return (!self.is_granted(name, key)).then_some(NameConflict::Host);
        }
        let host = folded.as_str();
        let mut dots = host.match_indices('.');
        let is_address = reads_as_address(host)
            || self.addresses.contains(host)
            || self.is_address_of_other(host, key)
            || (self.has_host_of_all_names && host.contains('.'))
            || dots.any(|(at, _)| {
                host.get(at..)
                    .is_some_and(|domain| self.domains.contains(domain))
            });
        is_address.then_some(NameConflict::Address)
    }

    /// Returns true if this name addresses depots of the operator's map, and none of them has this
    /// key.
    fn is_address_of_other(&self, host: &str, key: &PublicKey) -> bool {
        let first = (host.to_owned(), PublicKey::from_bytes([0; 32]));
        let mut keys = self
            .depots
            .range(first..)
            .take_while(|(name, _)| name == host)
            .peekable();
        keys.peek().is_some() && keys.all(|(_, other)| other != key)
    }
}

/// Returns true if a text reads as an address, a network, or an address with a port, in any form
/// that resolvers accept.
fn reads_as_address(text: &str) -> bool {
    let is_ip = |text: &str| {
        let text = text.trim_matches(['[', ']']);
        // Without its zone.
        let text = text.split_once('%').map_or(text, |(address, _)| address);
        text.parse::<IpAddr>().is_ok()
    };
    let is_number = |label: &str| match label.strip_prefix("0x") {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_digit()),
    };
    let has_port = text
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    let is_network = text
        .split_once('/')
        .is_some_and(|(base, length)| is_ip(base) && length.parse::<u8>().is_ok());
    let is_old_form = text.split('.').all(is_number);
    is_ip(text) || has_port || is_network || is_old_form
}
