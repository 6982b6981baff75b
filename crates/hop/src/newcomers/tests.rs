//! Crowds of every shape, and the connections evicted from them.

use proptest::prelude::*;

use super::*;

const HEADER: Duration = Duration::from_secs(10);
const LEAST: Duration = Duration::from_secs(2);

fn room(max: usize) -> PendingConnections {
    PendingConnections::new(max, HEADER, LEAST)
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Fills the room with connections of `sources` in turn, and returns their numbers.
fn crowd(room: &mut PendingConnections, sources: &[IpAddr], count: usize) -> Vec<u64> {
    (0..count)
        .map(|n| room.admit(sources[n % sources.len()]).number)
        .collect()
}

#[test]
fn the_oldest_of_the_fullest_source_is_evicted() {
    let mut room = room(4);
    let first = room.admit(ip("192.0.2.1"));
    let second = room.admit(ip("198.51.100.1"));
    let third = room.admit(ip("::ffff:198.51.100.1"));
    assert_eq!(
        (first.evicted, second.evicted, third.evicted),
        (None, None, None)
    );
    room.admit(ip("203.0.113.1"));
    assert_eq!(room.admit(ip("192.0.2.9")).evicted, Some(second.number));
    assert_eq!(room.len(), 4);
}

/// Four addresses, or four /64, fill the room: a connection from elsewhere stays until it is
/// served.
#[test]
fn a_few_sources_cannot_keep_others_out() {
    for (crowding, honest) in [
        (
            ["192.0.2.1", "198.51.100.1", "203.0.113.1", "192.0.2.2"],
            "192.0.2.77",
        ),
        (
            [
                "2001:db8::1",
                "2001:db8:0:1::1",
                "2001:db8:0:2::1",
                "2001:db8:0:3::1",
            ],
            "2001:db8:9::1",
        ),
    ] {
        let mut room = room(512);
        let crowding = crowding.map(ip);
        crowd(&mut room, &crowding, 2000);
        let newcomer = room.admit(ip(honest));
        assert!(newcomer.evicted.is_some());
        for n in 0..5000 {
            let evicted = room.admit(crowding[n % 4]).evicted;
            assert!(evicted.is_some() && evicted != Some(newcomer.number));
        }
    }
}

/// One party with a /48 has 65,536 sources of one connection each; a /32, as many /48.
#[test]
fn wider_networks_are_counted_too() {
    let within_48 = |n: u32| ip(&format!("2001:db8:7:{:x}::1", n & 0xffff));
    let within_32 = |n: u32| ip(&format!("2001:db8:{:x}::1", n & 0xffff));
    for (source, honest) in [
        (within_48 as fn(u32) -> IpAddr, "2001:db8:8::1"),
        (within_32, "2001:db9::1"),
    ] {
        let mut room = room(512);
        for n in 0..1000 {
            room.admit(source(n));
        }
        let newcomer = room.admit(ip(honest));
        for n in 0..5000 {
            assert_ne!(room.admit(source(n)).evicted, Some(newcomer.number));
        }
    }
}

/// A campus with many users does not count as fuller than one address that holds more than any of
/// them.
#[test]
fn one_crowding_address_is_evicted_before_a_busy_network() {
    let mut room = room(128);
    let users: Vec<u64> = (1..=64u8)
        .map(|n| room.admit(ip(&format!("10.1.0.{n}"))).number)
        .collect();
    for _ in 0..1000 {
        if let Some(evicted) = room.admit(ip("192.0.2.1")).evicted {
            assert!(!users.contains(&evicted));
        }
    }
}

#[test]
fn the_time_for_an_open_shrinks_as_the_room_fills() {
    let mut room = room(8);
    let times: Vec<Duration> = (0..20)
        .map(|_| room.admit(ip("192.0.2.1")).header)
        .collect();
    assert!(times[..4].iter().all(|&time| time == HEADER), "{times:?}");
    assert!(times.is_sorted_by(|a, b| a >= b), "{times:?}");
    assert_eq!(times[19], LEAST);
}

proptest! {
    /// For any sequence of arrivals and departures, the bound holds and only present connections
    /// are evicted. A source with one connection is never the victim while another has two.
    #[test]
    fn the_bound_holds_and_only_crowds_are_evicted(
        steps in prop::collection::vec(
            (any::<bool>(), 0u8..6, any::<prop::sample::Index>()), 0..300),
        max in 1usize..20,
    ) {
        let mut room = room(max);
        let mut model: Vec<(u64, u8)> = Vec::new();
        for (leaves, source, which) in steps {
            if leaves && !model.is_empty() {
                let (number, _) = model.remove(which.index(model.len()));
                room.remove(number);
            } else {
                let came = room.admit(ip(&format!("{}.0.0.1", 11 + source)));
                model.push((came.number, source));
                if let Some(evicted) = came.evicted {
                    let (came, before) = model.split_last().unwrap();
                    let of = before
                        .iter()
                        .find(|(number, _)| *number == evicted)
                        .map(|(_, of)| *of);
                    let held = |of: u8| before.iter().filter(|(_, source)| *source == of).count();
                    let of = of.expect("who is evicted was there before");
                    prop_assert!((0..6).all(|other| held(other) <= held(of)));
                    prop_assert!(
                        before.iter().all(|(number, source)| *source != of || *number >= evicted),
                        "the oldest"
                    );
                    prop_assert_ne!(came.0, evicted);
                    model.retain(|(number, _)| *number != evicted);
                }
            }
            prop_assert_eq!(room.len(), model.len());
            prop_assert!(
                !model.is_empty() || (room.networks.is_empty() && room.fullest.is_empty()),
                "nothing is kept of who left"
            );
            prop_assert!(room.len() <= max);
            prop_assert!(room.networks.len() <= PREFIX_WEIGHTS_V6.len() * room.len());
            prop_assert_eq!(room.fullest.len(), room.networks.len());
        }
    }
}
