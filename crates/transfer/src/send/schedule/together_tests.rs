//! A file over streams of different speeds, in virtual time. No stream is left at the end with work
//! that the others could have carried.

use std::collections::VecDeque;

use super::*;
use crate::tree_hash::BlockHasher;

const TICK: Duration = Duration::from_millis(5);
const BLOCK_LOG2: u32 = 18;
/// Number of batches that a stream takes ahead: one is being written, one waits, one is being
/// filled.
const BATCHES_AHEAD: usize = 3;

/// A stream that delivers in the order in which it took.
struct Line {
    id: StreamId,
    /// Offsets and bytes still to be delivered, by batch.
    batches: VecDeque<VecDeque<(u64, f64)>>,
    /// Rate in bytes per second, by the time since the start.
    rate: Box<dyn Fn(Duration) -> f64>,
}

impl Line {
    fn new(id: StreamId, rate: impl Fn(Duration) -> f64 + 'static) -> Self {
        Self {
            id,
            batches: VecDeque::new(),
            rate: Box::new(rate),
        }
    }

    fn take(&mut self, schedule: &mut Schedule, size: u64, now: Duration) {
        while self.batches.len() < BATCHES_AHEAD
            && let Next::Send(work) = schedule.next(self.id, now, MAX_BATCH_ENTRIES)
        {
            let mut block = |work: &Work| match work {
                Work::Open { .. } => {
                    assert!(schedule.opened(0, size, BLOCK_LOG2, false));
                    Some((0, f64::from(1 << BLOCK_LOG2)))
                }
                Work::Block { offset, .. } => Some((*offset, f64::from(1 << BLOCK_LOG2))),
                _ => None,
            };
            let blocks: Vec<_> = work.iter().filter_map(&mut block).collect();
            self.batches.push_back(blocks.into());
        }
    }

    fn deliver(&mut self, schedule: &mut Schedule, size: u64, now: Duration) {
        let mut bytes = (self.rate)(now) * TICK.as_secs_f64();
        while let Some(batch) = self.batches.front_mut() {
            let Some((offset, left)) = batch.front_mut() else {
                self.batches.pop_front();
                continue;
            };
            let delivered = left.min(bytes);
            *left -= delivered;
            bytes -= delivered;
            if *left > 0.0 {
                return;
            }
            let mut hasher = BlockHasher::new(*offset, 1 << BLOCK_LOG2, size);
            hasher.update(b"x");
            schedule.block_read(0, *offset, hasher.finish());
            schedule.acknowledged(0, *offset, now);
            batch.pop_front();
        }
    }
}

/// Returns the duration of the copy relative to one whose bytes are divided without blocks.
fn over_ideal(mut lines: Vec<Line>, size: u64) -> f64 {
    let mut schedule = Schedule::default();
    for line in &lines {
        schedule.add_stream(line.id);
    }
    let path = RelPath::from_bytes(b"f").unwrap();
    schedule.found(0, path, Meta::default(), Found::File { size });
    schedule.walk_ended(true);
    let (mut now, mut could, mut ideal) = (Duration::ZERO, 0.0, None);
    while schedule.bytes_done() < size {
        for line in &mut lines {
            line.take(&mut schedule, size, now);
        }
        now += TICK;
        for line in &mut lines {
            could += (line.rate)(now) * TICK.as_secs_f64();
            line.deliver(&mut schedule, size, now);
        }
        if could >= size as f64 {
            ideal.get_or_insert(now);
        }
        assert!(now < Duration::from_secs(600), "it stands still");
    }
    now.as_secs_f64() / ideal.unwrap_or(now).as_secs_f64()
}

#[test]
fn streams_of_different_speeds_end_together() {
    // 0.5 to 20 MB/s: a block takes the slowest stream half a second, and the file takes all of
    // them nine.
    let lines = (1..=8u32).map(|n| Line::new(n, move |_| 20e6 / f64::from(n * n).min(40.0)));
    let ratio = over_ideal(lines.collect(), 256 << 20);
    assert!(ratio < 1.1, "{ratio}");
}

#[test]
fn slowing_streams_hardly_delay_the_others() {
    let slow_from = |n: u32| Duration::from_millis(200 * u64::from(n));
    let rate = move |n: u32, now| if now < slow_from(n) { 8e6 } else { 1e6 };
    let lines = (1..=8u32).map(|n| Line::new(n, move |now| rate(n, now)));
    let ratio = over_ideal(lines.collect(), 64 << 20);
    assert!(ratio < 1.2, "{ratio}");
}

#[test]
fn one_stream_is_never_refused() {
    let ratio = over_ideal(vec![Line::new(1, |_| 10e6)], 32 << 20);
    assert!(ratio < 1.02, "{ratio}");
}
