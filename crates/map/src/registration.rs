//! Registrations of depots, and their effect on a map. The caller authorizes registrations, and
//! verifies that each was signed by the key that it names.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use longhaul_proto::PublicKey;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::check::{MAX_ADDRESSES, MAX_ITEMS, shorten};
use crate::model::{Depot, DepotAddress, DepotLimits, DepotSource, DepotState, Map};
use crate::names::{MAX_NAME_BYTES, is_name};
use crate::ownership::{DepotNames, NameConflict, fold_name};
use crate::{Moment, text_form};

/// Maximum length of a depot's software version, in bytes.
const MAX_VERSION_BYTES: usize = 64;
/// Minimum number of characters of a key that distinguish depots of the same name, after its
/// `lhk1:`.
const MIN_KEY_CHARS: usize = 8;
/// Separator between name and key. Depots may not register names that contain it.
const NAME_SEPARATOR: char = '~';

/// Self-description of a depot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Registration {
    /// Public key, which identifies the depot.
    #[serde(with = "text_form::text")]
    #[schema(
        value_type = String,
        example = "lhk1:aeaqcaibaeaqcaibaeaqcaibaeaqcaibaeaqcaibaeaqcaibaeaq"
    )]
    pub key: PublicKey,
    /// Desired name.
    #[schema(min_length = 1, max_length = 128, example = "starlight")]
    pub name: String,
    /// Name of its site on the map.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// Addresses on which it listens, the best first.
    #[schema(min_items = 1, max_items = 64)]
    pub addresses: Vec<DepotAddress>,
    /// Limits of what it relays.
    #[serde(default)]
    pub limits: DepotLimits,
    /// Version of its software.
    #[schema(max_length = 64, example = "0.1.0")]
    pub version: String,
    /// Time of sending, in seconds since the Unix epoch.
    #[schema(value_type = f64)]
    pub sent_at: Moment,
    /// Duration of its validity, in seconds.
    #[serde(rename = "valid_for_seconds", with = "text_form::seconds")]
    #[schema(value_type = f64, example = 90)]
    pub valid_for: Duration,
}

/// Policy for registrations.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RegistrationPolicy {
    /// Maximum validity, whatever a registration states.
    pub max_valid_for: Duration,
    /// Maximum time by which a depot's clock may be ahead.
    pub max_clock_ahead: Duration,
    /// Time for which a silent depot stays on the map as stale. After that it is removed, or
    /// reverts to its entry in the file.
    pub keep_stale: Duration,
}

impl Default for RegistrationPolicy {
    /// Returns the default policy: ten minutes, half a minute, a week.
    fn default() -> Self {
        Self {
            max_valid_for: Duration::from_secs(600),
            max_clock_ahead: Duration::from_secs(30),
            keep_stale: Duration::from_secs(7 * 86_400),
        }
    }
}

/// Reason why a registration is rejected or changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RegistrationProblem {
    /// The name is invalid: write 1 to 128 printable characters, without blanks at the ends and
    /// without `~`.
    #[error(
        "the name of a depot has 1 to 128 printable characters, with no space at either end and no \
         \"~\""
    )]
    Name,
    /// The version is invalid: write at most 64 printable characters.
    #[error("the version of a depot's software has at most 64 printable characters")]
    Version,
    /// There is no address, or more than 64: state 1 to 64, each with a transport.
    #[error("a depot has 1 to 64 addresses, each with a transport")]
    Addresses,
    /// A limit is 0: a depot that relays nothing does not register.
    #[error("a depot's limits must be more than 0")]
    Limits,
    /// The times are invalid: state a time of sending, and a validity above zero.
    #[error("a registration needs the time when it was sent, and a lifetime of more than 0 s")]
    Times,
    /// The registration is in the future: set the depot's clock.
    #[error("the registration is from {ahead:.0} s in the future: set the depot's clock")]
    Clock {
        /// Time by which it is ahead, in seconds.
        ahead: f64,
    },
    /// Its site is not on the map: the depot appears without a site.
    #[error("there is no site {site:?} on the map: add it, or correct the depot's settings")]
    NoSite {
        /// The name, shortened and printable.
        site: String,
    },
    /// The name is reserved: register another, or have the operator grant this key the name of its
    /// host.
    #[error(
        "a depot cannot be called {name:?}, which is {conflict}; register it under another name, \
         or have the operator grant this key the name of its host \
         (longhaul control grant KEY depot --name HOST)"
    )]
    NameReserved {
        /// The name, shortened and printable.
        name: String,
        /// Reason.
        conflict: NameConflict,
    },
    /// The name belongs to another key: the depot appears with a part of its own key.
    #[error("the name {name:?} belongs to another key: the depot is shown as {shown_as:?}")]
    NameTaken {
        /// The name.
        name: String,
        /// Name on the map.
        shown_as: String,
    },
    /// The map is full.
    #[error("the map is full: it holds at most {MAX_ITEMS} depots")]
    Full,
}

/// A map with the registered depots.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MergedMap {
    /// The map.
    pub map: Map,
    /// Problems of registrations, by key.
    pub problems: Vec<(PublicKey, RegistrationProblem)>,
}

impl Registration {
    /// Checks that the registration is well-formed, regardless of map and time.
    ///
    /// # Errors
    /// [`RegistrationProblem`] if it must not be stored.
    pub fn check(&self) -> Result<(), RegistrationProblem> {
        if !is_name(&self.name) || self.name.contains(NAME_SEPARATOR) {
            return Err(RegistrationProblem::Name);
        }
        if self.version.len() > MAX_VERSION_BYTES
            || !(self.version.is_empty() || is_name(&self.version))
        {
            return Err(RegistrationProblem::Version);
        }
        let bare = self
            .addresses
            .iter()
            .any(|address| address.transports.is_empty());
        let named = self
            .site
            .as_ref()
            .is_none_or(|site| site.len() <= MAX_NAME_BYTES);
        if bare || !(1..=MAX_ADDRESSES).contains(&self.addresses.len()) {
            return Err(RegistrationProblem::Addresses);
        }
        if !named {
            let site = shorten(self.site.as_deref().unwrap_or_default());
            return Err(RegistrationProblem::NoSite { site });
        }
        let no_rate = self
            .limits
            .max_rate
            .is_some_and(|rate| rate.bits_per_second() == 0.0);
        if no_rate || self.limits.max_sessions == Some(0) {
            return Err(RegistrationProblem::Limits);
        }
        if !self.sent_at.is_finite() || self.sent_at < 0.0 || self.valid_for.is_zero() {
            return Err(RegistrationProblem::Times);
        }
        Ok(())
    }

    /// Returns the end of its validity.
    #[must_use]
    pub fn valid_until(&self, policy: &RegistrationPolicy) -> Moment {
        self.sent_at + self.valid_for.min(policy.max_valid_for).as_secs_f64()
    }

    /// Returns true if it replaces another one of the same key: the later one does. Of two with the
    /// same time, a fixed order decides, whichever came first.
    fn replaces(&self, other: &Self) -> bool {
        let order = |this: &Self| {
            (
                this.valid_for,
                this.name.clone(),
                format!("{:?}", this.addresses),
            )
        };
        match self.sent_at.total_cmp(&other.sent_at) {
            std::cmp::Ordering::Equal => order(self) > order(other),
            order => order.is_gt(),
        }
    }
}

/// Adds registrations to a map. The result depends only on the arguments, and not on the order of
/// registrations.
///
/// - The latest registration of each key counts. An invalid one, or one further in the future than
///   the policy allows, does not count.
/// - It is valid from the time of sending, for as long as it states and the policy allows. After
///   that its depot is stale, and later removed.
/// - A file's description of a depot stays: name, site and addresses. The registration provides
///   state and version; of the limits, the tighter ones count.
/// - A name always stays with the key that it belongs to, according to `names`. Other depots of
///   that name are distinguished by their keys. A registration with a reserved name does not count.
#[must_use]
pub fn merge(
    map: &Map,
    registrations: &[Registration],
    names: &DepotNames,
    now: Moment,
    policy: &RegistrationPolicy,
) -> MergedMap {
    let mut problems = Vec::new();
    let mut latest: BTreeMap<PublicKey, &Registration> = BTreeMap::new();
    for registration in registrations {
        if let Err(problem) = check_time(registration, now, policy) {
            problems.push((registration.key, problem));
            continue;
        }
        match latest.get(&registration.key) {
            Some(other) if !registration.replaces(other) => {}
            _ => drop(latest.insert(registration.key, registration)),
        }
    }
    latest.retain(|_, registration| {
        now < registration.valid_until(policy) + policy.keep_stale.as_secs_f64()
    });

    let mut merged = map.clone();
    for depot in &mut merged.depots {
        if let Some(registration) = latest.remove(&depot.key) {
            depot.state = depot_state(registration, now, policy);
            depot.source = DepotSource::Both;
            depot.version = Some(registration.version.clone());
            depot.limits = tighter_limits(depot.limits, registration.limits);
        }
    }
    latest.retain(|key, registration| {
        let checked = names.check(&registration.name, key);
        checked
            .map_err(|problem| problems.push((*key, problem)))
            .is_ok()
    });
    let sites: HashSet<&str> = map.sites.iter().map(|site| site.name.as_str()).collect();
    let host_sites: HashMap<String, &str> = match latest.is_empty() {
        true => HashMap::new(),
        false => map
            .hosts
            .iter()
            .map(|host| (fold_name(&host.name), host.site.as_str()))
            .collect(),
    };
    let mut wanted: HashMap<String, usize> = HashMap::new();
    for registration in latest.values() {
        *wanted.entry(fold_name(&registration.name)).or_default() += 1;
    }
    let mut taken: HashSet<String> = map
        .depots
        .iter()
        .map(|depot| fold_name(&depot.name))
        .collect();
    for (key, registration) in &latest {
        if merged.depots.len() >= MAX_ITEMS {
            problems.push((*key, RegistrationProblem::Full));
            continue;
        }
        let mut depot = depot_entry(registration, depot_state(registration, now, policy));
        let name = fold_name(&depot.name);
        let is_own = names
            .belongs_to(&name, key)
            .unwrap_or_else(|| wanted.get(&name) == Some(&1));
        if let Some(site) = host_sites.get(&name) {
            // A depot on a host of the map is located at that host's site.
            depot.site = Some((*site).to_owned());
        }
        if !is_own || taken.contains(&name) {
            let shown_as = distinguish_by_key(&depot.name, key, &taken);
            let name = std::mem::replace(&mut depot.name, shown_as.clone());
            problems.push((*key, RegistrationProblem::NameTaken { name, shown_as }));
        }
        taken.insert(fold_name(&depot.name));
        if let Some(site) = depot.site.take_if(|site| !sites.contains(site.as_str())) {
            let site = shorten(&site);
            problems.push((*key, RegistrationProblem::NoSite { site }));
        }
        merged.depots.push(depot);
    }
    problems.sort_by_key(|(key, problem)| (*key, problem.to_string()));
    MergedMap {
        map: merged,
        problems,
    }
}

fn check_time(
    registration: &Registration,
    now: Moment,
    policy: &RegistrationPolicy,
) -> Result<(), RegistrationProblem> {
    registration.check()?;
    let ahead = registration.sent_at - now;
    if ahead > policy.max_clock_ahead.as_secs_f64() {
        return Err(RegistrationProblem::Clock { ahead });
    }
    Ok(())
}

/// Returns the lesser of each limit.
fn tighter_limits(a: DepotLimits, b: DepotLimits) -> DepotLimits {
    DepotLimits {
        max_rate: match (a.max_rate, b.max_rate) {
            (Some(a), Some(b)) => Some(if b < a { b } else { a }),
            (a, b) => a.or(b),
        },
        max_sessions: match (a.max_sessions, b.max_sessions) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        },
    }
}

fn depot_state(
    registration: &Registration,
    now: Moment,
    policy: &RegistrationPolicy,
) -> DepotState {
    let (heard, until) = (registration.sent_at, registration.valid_until(policy));
    if now < until {
        DepotState::Live { heard, until }
    } else {
        DepotState::Stale { heard, until }
    }
}

fn depot_entry(registration: &Registration, state: DepotState) -> Depot {
    Depot {
        name: registration.name.clone(),
        key: registration.key,
        site: registration.site.clone(),
        addresses: registration.addresses.clone(),
        limits: registration.limits,
        version: Some(registration.version.clone()),
        source: DepotSource::Registered,
        state,
    }
}

/// Returns the name followed by a part of the key, long enough to be unique, at most the whole key.
fn distinguish_by_key(name: &str, key: &PublicKey, taken: &HashSet<String>) -> String {
    let key = key.to_string();
    let digits = key
        .split_once(':')
        .map_or(key.as_str(), |(_, digits)| digits);
    let room = name.floor_char_boundary(MAX_NAME_BYTES.saturating_sub(digits.len() + 1));
    let base = name.get(..room).unwrap_or_default();
    (MIN_KEY_CHARS..digits.len())
        .filter_map(|end| digits.get(..end))
        .map(|digits| format!("{base}{NAME_SEPARATOR}{digits}"))
        .find(|name| !taken.contains(&fold_name(name)))
        .unwrap_or_else(|| format!("{base}{NAME_SEPARATOR}{digits}"))
}
