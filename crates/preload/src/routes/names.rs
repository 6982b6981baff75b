//! Names and the addresses that they resolved to, so that rules may name destinations: the last
//! ones that the program resolved.

use std::cell::UnsafeCell;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use longhaul_ramp_protocol::MAX_NAME_BYTES;

use crate::claim::ThreadClaim;

/// Number of addresses in one set; a set contains addresses of the same hash.
const SET_SIZE: usize = 8;
/// Number of sets.
const SET_COUNT: usize = 128;
/// State of an entry that no thread uses. Zero, as fresh memory is.
const FREE: u64 = 0;

/// Memory of fixed size: a new address replaces the oldest of its set.
pub struct NameCache {
    entries: Box<[NameEntry]>,
    clock: AtomicU32,
}

struct NameEntry {
    state: ThreadClaim,
    /// A part of the address's hash and the time when it was remembered, checked before an entry is
    /// held.
    tag: AtomicU64,
    known: UnsafeCell<KnownName>,
}

#[derive(Clone, Copy)]
struct KnownName {
    address: [u8; 16],
    length: u8,
    name: [u8; MAX_NAME_BYTES],
}

// SAFETY: only the holder of `state` touches `known`; it contains only numbers.
unsafe impl Sync for NameEntry {}

/// A name, on the stack.
pub struct NameBuffer {
    length: u8,
    bytes: [u8; MAX_NAME_BYTES],
}

impl NameBuffer {
    /// Returns it as text.
    pub fn as_str(&self) -> Option<&str> {
        std::str::from_utf8(self.bytes.get(..usize::from(self.length))?).ok()
    }
}

impl NameCache {
    /// Returns an empty memory.
    pub fn new() -> Self {
        Self {
            // SAFETY: zero bytes are FREE, an empty tag, and numbers.
            entries: unsafe { Box::new_zeroed_slice(SET_SIZE * SET_COUNT).assume_init() },
            clock: AtomicU32::new(1),
        }
    }

    /// Remembers that a name resolved to an address. A name that is itself an address, or not a
    /// valid DNS name, is ignored.
    pub fn remember(&self, name: &[u8], address: IpAddr) {
        let name = name.strip_suffix(b".").unwrap_or(name);
        let is_address = std::str::from_utf8(name).is_ok_and(|text| text.parse::<IpAddr>().is_ok());
        let Some(length) = u8::try_from(name.len()).ok().filter(|length| *length > 0) else {
            return;
        };
        if is_address || name.len() > MAX_NAME_BYTES || !name.iter().all(u8::is_ascii_graphic) {
            return;
        }
        let octets = octets(address);
        let (set, hash) = self.set(&octets);
        let time = |entry: &NameEntry| entry.tag.load(Ordering::Relaxed) >> 32;
        let same = set.iter().find(|entry| {
            entry.tag.load(Ordering::Relaxed) & 0xffff_ffff == hash
                && Self::with(entry, |known| known.address == octets) == Some(true)
        });
        let Some(entry) = same.or_else(|| set.iter().min_by_key(|entry| time(entry))) else {
            return;
        };
        Self::with(entry, |known| {
            known.address = octets;
            known.length = length;
            if let Some(room) = known.name.get_mut(..name.len()) {
                room.copy_from_slice(name);
            }
        });
        let now = u64::from(self.clock.fetch_add(1, Ordering::Relaxed));
        entry.tag.store(now << 32 | hash, Ordering::Release);
    }

    /// Returns the last name that resolved to an address.
    pub fn name_of(&self, address: IpAddr) -> Option<NameBuffer> {
        let octets = octets(address);
        let (set, hash) = self.set(&octets);
        let alike = set
            .iter()
            .filter(|entry| entry.tag.load(Ordering::Acquire) & 0xffff_ffff == hash);
        alike
            .filter_map(|entry| {
                Self::with(entry, |known| {
                    (known.length > 0 && known.address == octets).then_some(NameBuffer {
                        length: known.length,
                        bytes: known.name,
                    })
                })?
            })
            .next()
    }

    /// Frees the entries of other threads in the child of a fork.
    pub fn after_fork(&self) {
        for entry in self.entries.iter().filter(|entry| entry.state.is_orphan()) {
            entry.state.release(FREE);
        }
    }

    fn with<T>(entry: &NameEntry, body: impl FnOnce(&mut KnownName) -> T) -> Option<T> {
        if !entry.state.take_with_timeout(FREE) {
            return None;
        }
        // SAFETY: this thread holds the entry.
        let result = body(unsafe { &mut *entry.known.get() });
        entry.state.release(FREE);
        Some(result)
    }

    fn set(&self, octets: &[u8; 16]) -> (&[NameEntry], u64) {
        // FNV-1a suffices to spread addresses from one program's own lookups.
        let hash = octets.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let first = usize::try_from(hash >> 48).unwrap_or(0) % SET_COUNT * SET_SIZE;
        (
            self.entries
                .get(first..first + SET_SIZE)
                .unwrap_or_default(),
            hash & 0xffff_ffff,
        )
    }
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(names: &NameCache, address: &str) -> Option<String> {
        Some(
            names
                .name_of(address.parse().unwrap())?
                .as_str()?
                .to_owned(),
        )
    }

    #[test]
    fn the_last_name_of_an_address_is_known() {
        let names = NameCache::new();
        let remember =
            |name: &str, address: &str| names.remember(name.as_bytes(), address.parse().unwrap());
        remember("one.example", "192.0.2.1");
        remember("two.example.", "2001:db8::1");
        assert_eq!(name(&names, "192.0.2.1").as_deref(), Some("one.example"));
        assert_eq!(
            name(&names, "::ffff:192.0.2.1").as_deref(),
            Some("one.example")
        );
        assert_eq!(name(&names, "2001:db8::1").as_deref(), Some("two.example"));
        assert_eq!(name(&names, "192.0.2.2"), None);
        remember("other.example", "192.0.2.1");
        assert_eq!(name(&names, "192.0.2.1").as_deref(), Some("other.example"));
        for none in [
            "192.0.2.1",
            "::1",
            "",
            ".",
            "a b",
            &"x".repeat(254),
            "\u{fc}.example",
        ] {
            remember(none, "192.0.2.9");
            assert_eq!(name(&names, "192.0.2.9"), None, "{none}");
        }
    }

    #[test]
    fn remembered_addresses_are_bounded() {
        let names = NameCache::new();
        let address = |number: u32| IpAddr::from(std::net::Ipv4Addr::from(0x0a00_0000 + number));
        for number in 0..5000 {
            names.remember(format!("host-{number}.example").as_bytes(), address(number));
        }
        let known = (0..5000)
            .filter(|number| names.name_of(address(*number)).is_some())
            .count();
        assert!(
            (SET_COUNT..=SET_COUNT * SET_SIZE).contains(&known),
            "{known}"
        );
        assert_eq!(
            names.name_of(address(4999)).unwrap().as_str(),
            Some("host-4999.example")
        );
    }
}
