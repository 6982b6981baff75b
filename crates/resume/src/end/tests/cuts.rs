//! Cuts at any moment: what is delivered, and how the ends finish.

use proptest::prelude::*;

use super::super::*;
use super::world::{STEP, WITHIN, World, bytes};

/// Event between two steps.
#[derive(Debug, Clone, Copy)]
enum Event {
    /// Nothing happens for this many steps.
    Quiet(u8),
    /// The connection is cut; the flags say who notices.
    Cut(bool, bool),
    /// The attempt under way fails; the flag says if its messages still arrive later.
    GiveUp(bool),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (1u8..60).prop_map(Event::Quiet),
        2 => any::<(bool, bool)>().prop_map(|(near, far)| Event::Cut(near, far)),
        1 => any::<bool>().prop_map(Event::GiveUp),
    ]
}

fn finish(world: &mut World) {
    // A black hole that nobody notices is found by silence.
    for _ in 0..200_000 {
        if world.is_over() && world.sides.iter().all(|side| side.saw_end) {
            return;
        }
        world.step([true; 2], 64 * 1024);
        world.check_memory();
    }
    panic!("no end: {:?} {:?}", world.sides[0].end, world.sides[1].end);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Whatever is cut, and whenever: each byte arrives once and in order, both directions end, and
    /// both ends know it.
    #[test]
    fn bytes_arrive_once_and_in_order(
        forward in 0usize..400_000,
        backward in 0usize..400_000,
        delay in 0u32..40,
        room in 200usize..40_000,
        reads in prop::collection::vec(any::<(bool, bool)>(), 1..8),
        events in prop::collection::vec(event(), 0..30),
        duplicates: bool,
    ) {
        let (there, back) = (bytes(forward, 1), bytes(backward, 2));
        let mut world = World::new(&there, &back, STEP * delay);
        world.duplicates = duplicates;
        for (index, event) in events.into_iter().enumerate() {
            let (near, far) = reads[index % reads.len()];
            match event {
                Event::Quiet(steps) => for _ in 0..steps {
                    world.step([near, far], room);
                    world.check_memory();
                },
                Event::Cut(near, far) => world.cut([near, far]),
                Event::GiveUp(late) => world.give_attempt_up(late),
            }
        }
        finish(&mut world);
        prop_assert_eq!(world.reasons(), [const { Some(CloseReason::Finished) }; 2]);
        prop_assert!(world.sides[1].read == there && world.sides[0].read == back);
        prop_assert!(world.sides.iter().all(|side| side.saw_end));
    }

    /// Without any route, both ends fail at the stated time, with a reason that says so.
    #[test]
    fn without_a_route_the_ends_fail_in_time(
        forward in 300_000usize..400_000,
        before in 0u16..200,
        noticed in any::<(bool, bool)>(),
    ) {
        let mut world = World::new(&bytes(forward, 1), &bytes(forward, 2), STEP * 2);
        // Nobody reads at the acceptor, so nothing can be complete.
        for _ in 0..before {
            world.step([true, false], 1000);
        }
        world.isolated = true;
        world.cut([noticed.0, noticed.1]);
        let began = world.now;
        while !world.is_over() {
            world.step([true, false], 1000);
            // Silence is found in time, and the limit counts from then on.
            prop_assert!(world.now < began + WITHIN + Duration::from_secs(8));
        }
        prop_assert!(world.now >= began + WITHIN);
        for reason in world.reasons() {
            let is_typed = matches!(reason, Some(CloseReason::NotResumed { within: WITHIN, .. }));
            prop_assert!(is_typed, "{reason:?}");
        }
    }

    /// A reset at any moment reaches the peer, also over a further connection.
    #[test]
    fn a_reset_reaches_the_peer(
        forward in 0usize..100_000,
        before in 0u16..100,
        side in 0usize..2,
        cut_before in any::<bool>(),
        cut_after in any::<bool>(),
    ) {
        let mut world = World::new(&bytes(forward, 1), &bytes(100_000, 2), STEP * 2);
        for _ in 0..before {
            // The initiator does not read everything, so neither can be finished.
            world.step([false, true], 500);
        }
        if cut_before {
            world.cut([true, false]);
        }
        world.sides[side].end.abandon();
        world.sides[side].dropped = true;
        if cut_after {
            world.step([true; 2], 500);
            world.cut([false, true]);
        }
        for _ in 0..200_000 {
            if world.is_over() {
                break;
            }
            world.step([true; 2], 500);
        }
        let mut expected = [const { Some(CloseReason::ResetByPeer) }; 2];
        expected[side] = Some(CloseReason::ResetHere);
        prop_assert_eq!(world.reasons(), expected);
    }
}

#[test]
fn a_silent_path_is_left_within_seconds() {
    for direction in 0..2 {
        let data = bytes(20_000_000, 1);
        let (there, back): (&[u8], &[u8]) = match direction {
            0 => (&data, &[]),
            _ => (&[], &data),
        };
        let mut world = World::new(there, back, STEP * 4);
        while world.now < Duration::from_secs(1) {
            world.step([true; 2], 4000);
        }
        world.cut([false, false]);
        let cut = world.now;
        let epoch = world.sides[0].end.epoch();
        while world.sides[0].end.epoch() == epoch || !world.sides[0].end.is_attached() {
            world.step([true; 2], 4000);
            assert!(
                world.now < cut + Duration::from_secs(4),
                "direction {direction}"
            );
        }
    }
}

#[test]
fn an_idle_stream_finds_a_dead_path() {
    let mut world = World::new(b"question", b"answer", STEP);
    for side in &mut world.sides {
        // More will come, but not now.
        side.dropped = true;
    }
    while world.now < Duration::from_secs(120) {
        world.step([true; 2], 100);
    }
    assert!(world.sides.iter().all(|side| side.end.epoch() == 0));
    world.cut([false, false]);
    while world.sides[0].end.epoch() == 0 {
        world.step([true; 2], 100);
        assert!(world.now < Duration::from_secs(120 + 15 + 3));
    }
}
