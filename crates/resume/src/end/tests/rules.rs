//! Single rules: fencing, windows, memory, malformed input.

use super::super::*;
use super::world::{MAX_WINDOW, STEP, World, bytes, end};
use crate::frame::Frame;

const NOW: Duration = Duration::from_secs(1);

fn wire(frames: &[Frame]) -> Vec<u8> {
    let mut out = Vec::new();
    frames.iter().for_each(|frame| frame.encode(&mut out));
    out
}

#[test]
fn an_older_connection_is_fenced_off() {
    let (mut acceptor, _) = end(Role::Acceptor);
    assert_eq!(acceptor.attach(NOW, 0, 0), Err(AttachError::Stale));
    assert_eq!(acceptor.attach(NOW, 2, 0), Ok(()));
    for epoch in [0, 1, 2] {
        assert_eq!(acceptor.attach(NOW, epoch, 0), Err(AttachError::Stale));
    }
    assert_eq!(acceptor.attach(NOW, 3, 0), Ok(()));
    assert_eq!((acceptor.epoch(), acceptor.counts().resumed), (3, 2));
}

#[test]
fn an_impossible_position_ends_the_stream() {
    let (mut acceptor, _) = end(Role::Acceptor);
    acceptor.write(NOW, b"abc");
    assert_eq!(acceptor.attach(NOW, 1, 1), Err(AttachError::Contradiction));
    assert!(matches!(
        acceptor.close_reason(),
        Some(CloseReason::Violation(_))
    ));
    assert_eq!(acceptor.attach(NOW, 2, 0), Err(AttachError::Closed));
}

#[test]
fn broken_rules_end_the_stream() {
    let beyond = INITIAL_WINDOW_BYTES + 1;
    let cases = [
        wire(&[Frame::Data { offset: 1, len: 1 }]),
        wire(&[Frame::Ack {
            received: 1,
            limit: 0,
        }]),
        wire(&[Frame::Fin { offset: 1 }]),
        wire(&[Frame::Fin { offset: 0 }, Frame::Fin { offset: 0 }]),
        wire(&[Frame::Fin { offset: 0 }, Frame::Data { offset: 0, len: 1 }]),
        wire(&[Frame::Data {
            offset: 0,
            len: beyond as u32,
        }]),
        vec![99],
    ];
    for input in cases {
        let (mut acceptor, _) = end(Role::Acceptor);
        acceptor.on_input(NOW, &input, &mut []);
        let reason = acceptor.close_reason();
        assert!(
            matches!(reason, Some(CloseReason::Violation(_))),
            "{input:?}"
        );
        assert_eq!(
            acceptor.read(NOW, &mut [0]),
            match input.first() {
                Some(3) if input.get(8) == Some(&0) => ReadOutcome::End,
                _ => ReadOutcome::Closed,
            }
        );
    }
}

#[test]
fn a_reader_that_waits_bounds_what_arrives() {
    let data = bytes(3_000_000, 1);
    let mut world = World::new(&data, b"", STEP);
    for _ in 0..2000 {
        world.step([true, false], 100_000);
        world.check_memory();
    }
    let acceptor = &world.sides[1];
    assert_eq!(acceptor.end.queue.len() as u64, INITIAL_WINDOW_BYTES);
    assert!(acceptor.end.is_attached(), "a full window is not silence");
    while !world.is_over() {
        world.step([true; 2], 100_000);
    }
    assert!(world.sides[1].read == data);
}

#[test]
fn acknowledgements_pass_a_reader_that_waits() {
    let (there, back) = (bytes(3_000_000, 1), bytes(3_000_000, 2));
    let mut world = World::new(&there, &back, STEP);
    // The initiator sends everything before it reads anything.
    while world.sides[1].read.len() < there.len() {
        world.step([false, true], 100_000);
        assert!(
            world.now < Duration::from_secs(60),
            "{}",
            world.sides[1].read.len()
        );
    }
    while !world.is_over() {
        world.step([true; 2], 100_000);
    }
    assert!(world.sides[0].read == back);
}

#[test]
fn windows_grow_with_the_path_and_shrink_when_idle() {
    let data = bytes(30_000_000, 1);
    let mut world = World::new(&data, b"", STEP * 10);
    while world.sides[1].read.len() < data.len() / 2 {
        world.step([true; 2], 1 << 20);
        world.check_memory();
    }
    assert_eq!(world.sides[1].end.window, MAX_WINDOW);
    assert_eq!(world.sides[0].end.replay_room, MAX_WINDOW);
    world.sides[0].to_write.clear();
    world.sides[0].dropped = true;
    world.sides[0].end.finished = false;
    for _ in 0..10_000 {
        world.step([true; 2], 1 << 20);
    }
    assert_eq!(world.sides[0].end.replay_room, INITIAL_WINDOW_BYTES);
}

#[test]
fn pings_become_rare_on_an_idle_stream() {
    let (mut one, _) = end(Role::Initiator);
    let mut pings = 0;
    let mut now = Duration::ZERO;
    while now < Duration::from_secs(300) {
        now = one.next_timeout(now).unwrap();
        one.on_timeout(now);
        let written: usize = one.output(now).iter().map(|part| part.len()).sum();
        one.on_written(now, written);
        if written > 0 {
            pings += 1;
            let number = pings;
            one.on_input(now + STEP, &wire(&[Frame::Pong { number }]), &mut []);
        }
    }
    assert!((20..=28).contains(&pings), "{pings}");
    assert_eq!(one.round_trip(), Some(STEP));
}
