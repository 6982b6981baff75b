//! The current map, and the sites and ends of its hosts and depots. Built from the store's content,
//! without I/O.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use longhaul_control_api::map::{Depot, DepotState, KnownMap, Map, Registration};
use longhaul_map::{DepotNames, DepotSource, RegistrationPolicy, merge};
use longhaul_policy::HostPattern;
use longhaul_proto::PublicKey;
use longhaul_provisioning::streams::Prefix;

use crate::authority::Subject;
use crate::reservations::wanted::ReservationEnd;

/// Milliseconds in a second.
const SECOND_MS: f64 = 1000.0;

/// The operator's map with registered depots, and indexes of it.
#[derive(Debug, Clone, Default)]
pub struct MapIndex {
    /// The map.
    pub known: KnownMap,
    /// Names of depots, with the keys that own them.
    names: DepotNames,
    /// Names of depots by key: those on the operator's map, and those with a valid registration.
    depots: BTreeMap<PublicKey, String>,
    /// Names of depots by key, including those whose registration has expired.
    known_depots: BTreeMap<PublicKey, String>,
    /// Sites of depots and hosts by name.
    sites: HashMap<String, Option<String>>,
    hosts: BTreeSet<String>,
    /// Time when the next depot becomes stale, in seconds since the Unix epoch.
    stale_at: Option<f64>,
}

/// Caller, as far as the map knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Speaker {
    /// Ends of paths that it speaks for; the first one is its name.
    pub ends: Vec<String>,
}

impl Speaker {
    /// Returns true if it speaks for that end.
    #[must_use]
    pub fn speaks_for(&self, end: &str) -> bool {
        self.ends.iter().any(|own| own == end)
    }

    /// Returns the caller's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.ends.first().map_or("", String::as_str)
    }
}

impl MapIndex {
    /// Builds the map from the store's content. `version` is its number; `names` are those of
    /// `map`, with their owners.
    #[must_use]
    pub fn build(
        map: &Map,
        registrations: &[Registration],
        names: DepotNames,
        now_ms: u64,
        policy: &RegistrationPolicy,
        version: u64,
    ) -> Self {
        let merged = merge(map, registrations, &names, seconds(now_ms), policy);
        let map = merged.map;
        let problems = merged
            .problems
            .iter()
            .map(|(key, problem)| format!("{key}: {problem}"));
        let problems = problems.collect();
        let until = map.depots.iter().filter_map(|depot| match depot.state {
            DepotState::Live { until, .. } => Some(until),
            _ => None,
        });
        let stale_at = until.min_by(f64::total_cmp);
        let all_depots = map
            .depots
            .iter()
            .map(|depot| (depot.key, depot.name.clone()));
        let known_depots = all_depots.collect();
        let in_force = map.depots.iter().filter(|depot| is_in_force(depot));
        let depots = in_force
            .clone()
            .map(|depot| (depot.key, depot.name.clone()))
            .collect();
        let of_hosts = map
            .hosts
            .iter()
            .map(|host| (host.name.clone(), Some(host.site.clone())));
        let of_depots = in_force.map(|depot| (depot.name.clone(), depot.site.clone()));
        // If a host and a depot have the same name, the host's site counts, as the operator named
        // it.
        let sites = of_depots.chain(of_hosts).collect();
        let hosts = map.hosts.iter().map(|host| host.name.clone()).collect();
        Self {
            known: KnownMap {
                version,
                made_ms: now_ms,
                map,
                problems,
            },
            names,
            depots,
            known_depots,
            sites,
            hosts,
            stale_at,
        }
    }

    /// Returns true if a depot has become stale since this was built.
    #[must_use]
    pub fn is_outdated(&self, now_ms: u64) -> bool {
        self.stale_at
            .is_some_and(|stale_at| stale_at <= seconds(now_ms))
    }

    /// Returns the name of the depot with that key, if it is on the operator's map or has a valid
    /// registration.
    #[must_use]
    pub fn depot(&self, key: &PublicKey) -> Option<&str> {
        self.depots.get(key).map(String::as_str)
    }

    /// Returns the ends that a principal with that key and name speaks for: the depot of that key,
    /// the host of that name, and the key itself.
    #[must_use]
    pub fn speaker(&self, key: &PublicKey, name: &str) -> Speaker {
        let depot = self.depot(key).map(str::to_owned);
        let host = self.hosts.contains(name).then(|| name.to_owned());
        Speaker {
            ends: depot
                .into_iter()
                .chain(host)
                .chain([key.to_string()])
                .collect(),
        }
    }

    /// Returns the ends that a key spoke for when it reported, even if its registration has
    /// expired. Its measurements stay its own when it registers again, falls silent or loses its
    /// role.
    #[must_use]
    pub fn reporter(&self, key: &PublicKey, name: &str) -> Speaker {
        let mut speaker = self.speaker(key, name);
        let known = self.known_depots.get(key).map(String::as_str);
        for name in known.into_iter().chain(self.names.bound_to(key)) {
            if !speaker.speaks_for(name) {
                speaker.ends.push(name.to_owned());
            }
        }
        speaker
    }

    /// Returns true if the operator's map has the depot with that key.
    #[must_use]
    pub fn is_listed(&self, key: &PublicKey) -> bool {
        let mut depots = self.known.map.depots.iter();
        depots.any(|depot| depot.key == *key && depot.source != DepotSource::Registered)
    }

    /// Returns the names of depots, with the keys that own them.
    #[must_use]
    pub const fn names(&self) -> &DepotNames {
        &self.names
    }

    /// Returns the subject of a request about a path. It is the speaker's own if the speaker is one
    /// of its ends, and a site's if both ends are at that site.
    #[must_use]
    pub fn path(&self, speaker: Option<&Speaker>, from: &str, to: &str) -> Subject {
        let own = speaker.is_some_and(|speaker| speaker.speaks_for(from) || speaker.speaks_for(to));
        let both = self.site(from).filter(|site| self.site(to) == Some(site));
        Subject {
            own,
            sites: both.map(str::to_owned).into_iter().collect(),
        }
    }

    /// Returns the subject of a request about one end.
    #[must_use]
    pub fn end(&self, speaker: Option<&Speaker>, end: &str) -> Subject {
        Subject {
            own: speaker.is_some_and(|speaker| speaker.speaks_for(end)),
            sites: self.site(end).map(str::to_owned).into_iter().collect(),
        }
    }

    /// Returns the site of a host or a depot.
    #[must_use]
    pub fn site(&self, end: &str) -> Option<&str> {
        self.sites.get(end)?.as_deref()
    }

    /// Returns an end of a reservation: a host or a depot by its name or by an address of a host,
    /// otherwise the site of that name.
    #[must_use]
    pub fn place(&self, name: &str) -> Option<ReservationEnd> {
        let map = &self.known.map;
        let end = self
            .resolve_end(name)
            .filter(|end| self.sites.contains_key(*end));
        let Some(end) = end else {
            return map.site(name).map(|site| ReservationEnd {
                name: site.name.clone(),
                site: site.name.clone(),
                access: None,
                address: None,
                path_site: None,
            });
        };
        let of_depot = || map.depot(end).and_then(|depot| depot.limits.max_rate);
        let access = map.host(end).map_or_else(of_depot, |host| host.access);
        Some(ReservationEnd {
            name: end.to_owned(),
            site: self.site(end)?.to_owned(),
            access: access.map(|rate| rate.bits_per_second() as u64),
            address: None,
            path_site: None,
        })
    }

    /// Returns the addresses of a host or a depot, the best first, without resolving names.
    /// Addresses that a depot registered do not count, as addresses distinguish its streams from
    /// those of others.
    #[must_use]
    pub fn addresses(&self, end: &str) -> Vec<Prefix> {
        let map = &self.known.map;
        if let Some(host) = map.host(end) {
            let texts = host.addresses.iter();
            // IPv6 addresses may be in brackets, as in URLs.
            return texts
                .filter_map(|text| text.trim_matches(['[', ']']).parse().ok())
                .collect();
        }
        let listed = map
            .depot(end)
            .filter(|depot| depot.source != DepotSource::Registered);
        let endpoints = listed.into_iter().flat_map(|depot| &depot.addresses);
        let ips = endpoints.filter_map(|address| match address.endpoint.host {
            longhaul_proto::Host::Ip(ip) => Some(Prefix::single(ip)),
            longhaul_proto::Host::Name(_) => None,
        });
        ips.collect()
    }

    /// Returns the end with a name or an address: the name itself for a host, a depot or a key,
    /// otherwise the host that is known by it.
    #[must_use]
    pub fn resolve_end<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        if self.sites.contains_key(name) || name.parse::<PublicKey>().is_ok() {
            return Some(name);
        }
        let ip = name.parse().ok();
        let host_name = Some(name).filter(|_| ip.is_none());
        let is_known_by = |address: &String| {
            let pattern = address.parse::<HostPattern>();
            pattern.is_ok_and(|pattern| pattern.matches(ip, host_name))
        };
        let mut hosts = self.known.map.hosts.iter();
        let host = hosts.find(|host| host.addresses.iter().any(is_known_by));
        host.map(|host| host.name.as_str())
    }
}

/// Returns true if a depot speaks for its name: on the operator's map, or while its registration is
/// valid.
fn is_in_force(depot: &Depot) -> bool {
    depot.source != DepotSource::Registered || depot.state.is_usable()
}

/// Converts milliseconds to seconds since the Unix epoch.
pub(crate) fn seconds(ms: u64) -> f64 {
    ms as f64 / SECOND_MS
}

#[cfg(test)]
mod tests;
