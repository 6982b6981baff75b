//! Memory of destinations: their distance, and the size of their connections. Bounded; without a
//! clock of its own.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use longhaul_proto::Host;

use crate::choose::Known;
use crate::destination::Destination;

/// Maximum number of remembered hosts, and of remembered ports: at most a quarter of a mebibyte.
const MAX_REMEMBERED: usize = 2048;
/// Time after which a destination that was not used is forgotten.
///
/// A program's direct connections are not visible here. Forgetting makes a destination try its
/// route again in case its connections have become larger.
const FORGET_AFTER: Duration = Duration::from_secs(3600);
/// Number of recent connections considered, and the minimum number that allows a conclusion.
const RECENT_CONNECTIONS: usize = 16;
const MIN_CONNECTIONS: usize = 4;
/// Inverse of the fraction of recent connections that may have been larger.
const EXCEPTION: usize = 8;
/// Inverse of the weight of a new round-trip time (RFC 6298, section 2).
const RTT_WEIGHT: u32 = 8;

/// Memory of destinations.
#[derive(Debug, Default)]
pub struct Destinations {
    paths: Bounded<IpAddr, Duration>,
    sizes: Bounded<(Host, u16), VecDeque<u64>>,
}

/// Knowledge of a destination, for a report. Sizes are in bytes, both directions together.
#[derive(Debug)]
pub(crate) struct ReportedDestination {
    pub(crate) host: Host,
    pub(crate) port: u16,
    /// Number of recent connections considered.
    pub(crate) connections: usize,
    pub(crate) usually_below: Option<u64>,
    pub(crate) largest: u64,
    /// Time since the last one ended.
    pub(crate) met: Duration,
}

impl Destinations {
    /// Returns what is known of a destination. All times use one clock that never goes back.
    #[must_use]
    pub fn known(&self, destination: &Destination, now: Duration) -> Known {
        Known {
            rtt: destination
                .address()
                .and_then(|address| self.paths.get(&address, now).copied()),
            usually_below: self
                .sizes
                .get(&key(destination), now)
                .and_then(usually_below),
        }
    }

    /// Records the round-trip time of a direct connection to this address.
    pub fn measured(&mut self, address: IpAddr, rtt: Duration, now: Duration) {
        let smoothed = self.paths.entry(address.to_canonical(), now, || rtt);
        *smoothed = (*smoothed * (RTT_WEIGHT - 1) + rtt) / RTT_WEIGHT;
    }

    /// Returns true if the round-trip time of this address was measured within this time.
    #[must_use]
    pub fn was_measured(&self, address: IpAddr, within: Duration, now: Duration) -> bool {
        let met = self
            .paths
            .0
            .get(&address.to_canonical())
            .map(|(_, met)| *met);
        met.is_some_and(|met| now.saturating_sub(met) < within)
    }

    /// Returns the round-trip time of each address with the age of the measurement, and the
    /// knowledge of destinations. Each list is limited, latest first.
    pub(crate) fn reported(
        &self,
        now: Duration,
        most: usize,
    ) -> (Vec<(IpAddr, Duration, Duration)>, Vec<ReportedDestination>) {
        let ago = |met: Duration| now.saturating_sub(met);
        let is_known = |met: &Duration| ago(*met) < FORGET_AFTER;
        let hosts = self.paths.0.iter().filter(|(_, (_, met))| is_known(met));
        let mut hosts: Vec<_> = hosts
            .map(|(address, (rtt, met))| (*address, *rtt, ago(*met)))
            .collect();
        hosts.sort_unstable_by_key(|(address, _, met)| (*met, *address));
        hosts.truncate(most);
        let sizes = self.sizes.0.iter().filter(|(_, (_, met))| is_known(met));
        let mut destinations: Vec<_> = sizes
            .map(|((host, port), (sizes, met))| ReportedDestination {
                host: host.clone(),
                port: *port,
                connections: sizes.len(),
                usually_below: usually_below(sizes),
                largest: sizes.iter().max().copied().unwrap_or(0),
                met: ago(*met),
            })
            .collect();
        destinations.sort_by_key(|reported| (reported.met, reported.port));
        destinations.truncate(most);
        (hosts, destinations)
    }

    /// Records the size of an ended connection, in bytes of both directions together.
    pub fn carried(&mut self, destination: &Destination, bytes: u64, now: Duration) {
        let sizes = self.sizes.entry(key(destination), now, VecDeque::new);
        if sizes.len() >= RECENT_CONNECTIONS {
            sizes.pop_front();
        }
        sizes.push_back(bytes);
    }
}

fn key(destination: &Destination) -> (Host, u16) {
    let host = match destination.name() {
        Some(name) => Host::Name(name.to_ascii_lowercase()),
        None => destination.endpoint().host,
    };
    (host, destination.port())
}

/// Returns the size that all but one in [`EXCEPTION`] connections did not exceed.
fn usually_below(sizes: &VecDeque<u64>) -> Option<u64> {
    if sizes.len() < MIN_CONNECTIONS {
        return None;
    }
    let mut sizes: Vec<u64> = sizes.iter().copied().collect();
    sizes.sort_unstable();
    sizes
        .get(sizes.len() - 1 - sizes.len() / EXCEPTION)
        .copied()
}

/// A map that forgets the entries that were not used for the longest time.
#[derive(Debug)]
struct Bounded<K, V>(HashMap<K, (V, Duration)>);

impl<K, V> Default for Bounded<K, V> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: std::hash::Hash + Eq + Clone, V> Bounded<K, V> {
    fn get(&self, key: &K, now: Duration) -> Option<&V> {
        let (value, met) = self.0.get(key)?;
        (now.saturating_sub(*met) < FORGET_AFTER).then_some(value)
    }

    fn entry(&mut self, key: K, now: Duration, fresh: impl FnOnce() -> V) -> &mut V {
        if self.get(&key, now).is_none() {
            self.0.remove(&key);
            self.make_room(now);
        }
        let (value, met) = self.0.entry(key).or_insert_with(|| (fresh(), now));
        *met = now;
        value
    }

    fn make_room(&mut self, now: Duration) {
        if self.0.len() < MAX_REMEMBERED {
            return;
        }
        self.0
            .retain(|_, (_, met)| now.saturating_sub(*met) < FORGET_AFTER);
        if self.0.len() >= MAX_REMEMBERED {
            // Removes half of them at once: searching for the oldest each time would cost every new
            // entry a walk through all.
            let mut times: Vec<Duration> = self.0.values().map(|(_, met)| *met).collect();
            let (_, &mut middle, _) = times.select_nth_unstable(MAX_REMEMBERED / 2);
            self.0.retain(|_, (_, met)| *met > middle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(10);

    fn at(port: u16) -> Destination {
        Destination::at(([192, 0, 2, 1], port).into())
    }

    #[test]
    fn usual_size_tolerates_one_large_connection() {
        let mut memory = Destinations::default();
        for _ in 0..MIN_CONNECTIONS {
            assert_eq!(memory.known(&at(1), NOW).usually_below, None);
            memory.carried(&at(1), 100, NOW);
        }
        assert_eq!(memory.known(&at(1), NOW).usually_below, Some(100));
        assert_eq!(
            memory.known(&at(2), NOW).usually_below,
            None,
            "another port"
        );
        for _ in 0..4 {
            memory.carried(&at(1), 90, NOW);
        }
        memory.carried(&at(1), 1 << 30, NOW);
        assert_eq!(memory.known(&at(1), NOW).usually_below, Some(100));
        memory.carried(&at(1), 1 << 30, NOW);
        assert_eq!(memory.known(&at(1), NOW).usually_below, Some(1 << 30));
    }

    #[test]
    fn old_destinations_are_forgotten() {
        let mut memory = Destinations::default();
        for _ in 0..MIN_CONNECTIONS {
            memory.carried(&at(1), 100, NOW);
        }
        memory.measured(at(1).address().unwrap(), Duration::from_millis(3), NOW);
        assert_ne!(
            memory.known(&at(1), NOW + FORGET_AFTER / 2),
            Known::default()
        );
        assert_eq!(memory.known(&at(1), NOW + FORGET_AFTER), Known::default());
        memory.carried(&at(1), 7, NOW + FORGET_AFTER);
        assert_eq!(
            memory.known(&at(1), NOW + FORGET_AFTER).usually_below,
            None,
            "it begins anew"
        );
    }

    #[test]
    fn the_latest_are_reported_first() {
        let mut memory = Destinations::default();
        for port in [1, 2, 3] {
            memory.carried(&at(port), u64::from(port), NOW * u32::from(port));
        }
        let address = at(1).address().unwrap();
        memory.measured(address, Duration::from_millis(80), NOW);
        assert!(memory.was_measured(address, NOW, NOW + NOW / 2));
        assert!(!memory.was_measured(address, NOW, NOW * 2));
        let (hosts, destinations) = memory.reported(NOW * 3, 2);
        assert_eq!(hosts, [(address, Duration::from_millis(80), NOW * 2)]);
        let ports: Vec<(u16, u64)> = destinations
            .iter()
            .map(|reported| (reported.port, reported.largest))
            .collect();
        assert_eq!(ports, [(3, 3), (2, 2)]);
        assert!(memory.reported(NOW + FORGET_AFTER * 2, 2).1.is_empty());
    }

    #[test]
    fn round_trips_are_smoothed() {
        let mut memory = Destinations::default();
        let address = at(1).address().unwrap();
        memory.measured(address, Duration::from_millis(80), NOW);
        assert_eq!(
            memory.known(&at(1), NOW).rtt,
            Some(Duration::from_millis(80))
        );
        memory.measured(address, Duration::from_millis(160), NOW);
        assert_eq!(
            memory.known(&at(9), NOW).rtt,
            Some(Duration::from_millis(90))
        );
    }

    #[test]
    fn endless_destinations_cost_bounded_memory() {
        let mut memory = Destinations::default();
        for number in 0..3 * MAX_REMEMBERED as u64 {
            let now = NOW + Duration::from_millis(number);
            let octets = u32::try_from(number).unwrap().to_be_bytes();
            let destination = Destination::at((octets, 80).into());
            memory.carried(&destination, 1, now);
            memory.measured(octets.into(), NOW, now);
            assert_eq!(
                memory.known(&destination, now).rtt,
                Some(NOW),
                "the newest is kept"
            );
        }
        assert!(memory.sizes.0.len() <= MAX_REMEMBERED && memory.paths.0.len() <= MAX_REMEMBERED);
    }
}
