//! Work in flight: the streams that carry it, since when, and what has waited longest.
//!
//! The work of each stream is ordered by the time since which it is in flight, and the streams by
//! their oldest work. The oldest work on other streams is thus found directly. No operation takes
//! more than logarithmic time in the amount of work in flight, except those that end many items.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use super::share::{DeliveryRate, StreamLoad, share};
use super::work::{Part, StreamId, Subject};

/// Maximum number of doublings of the pause between repetitions.
const MAX_DOUBLINGS: u32 = 4;
/// Time after which a stream that carries nothing and has not asked for work has no share of what
/// is left.
const MAX_SINCE_ASKED: Duration = Duration::from_millis(100);

/// All work in flight.
#[derive(Default)]
pub(super) struct InFlight {
    flights: BTreeMap<Subject, Flight>,
    streams: HashMap<StreamId, Carrier>,
    /// Number of items that have nothing to repeat yet.
    unrepeatable: usize,
    /// Number of blocks in flight.
    blocks: usize,
    /// Oldest work of each stream that has any.
    oldest: BTreeSet<(Duration, Subject, StreamId)>,
    /// True if a stream that takes no more work has nothing left in flight.
    drained: bool,
}

#[derive(Debug, Clone, Copy)]
struct Flight {
    carrier: StreamId,
    /// Time since which it is in flight, on any stream.
    first: Duration,
    /// Time from which its age counts for a repetition, or `None` while there is nothing to repeat.
    since: Option<Duration>,
    repeats: u32,
    /// Bytes that its answer stands for: at most one block.
    bytes: u32,
}

/// Work that one stream carries.
#[derive(Default)]
struct Carrier {
    /// Work that another stream may repeat, by the time from which its age counts.
    repeatable: BTreeSet<(Duration, Subject)>,
    others: BTreeSet<Subject>,
    /// Bytes of all work in flight.
    bytes: u64,
    /// Bytes of all answered work.
    answered: u64,
    rate: DeliveryRate,
    /// Time when the stream last asked for work.
    asked: Option<Duration>,
    /// Duration of its latest answer.
    answer_time: Duration,
    /// True if it takes no more work.
    retiring: bool,
}

impl Carrier {
    fn len(&self) -> usize {
        self.repeatable.len() + self.others.len()
    }
}

impl InFlight {
    pub(super) fn add_stream(&mut self, stream: StreamId) {
        self.streams.entry(stream).or_default();
    }

    pub(super) fn has_stream(&self, stream: StreamId) -> bool {
        self.streams.contains_key(&stream)
    }

    /// Gives the stream no more work. Returns false if there is no such stream.
    pub(super) fn retire(&mut self, stream: StreamId) -> bool {
        let Some(carrier) = self.streams.get_mut(&stream) else {
            return false;
        };
        carrier.retiring = true;
        true
    }

    /// Returns the stream that carries `subject`.
    pub(super) fn carrier(&self, subject: Subject) -> Option<StreamId> {
        self.flights.get(&subject).map(|flight| flight.carrier)
    }

    pub(super) fn is_retiring(&self, stream: StreamId) -> bool {
        self.streams
            .get(&stream)
            .is_some_and(|carrier| carrier.retiring)
    }

    /// Returns true if a retiring stream has lost its last work in flight since the last call.
    pub(super) fn take_drained(&mut self) -> bool {
        std::mem::take(&mut self.drained)
    }

    /// Removes a stream, and returns what it carried.
    pub(super) fn remove_stream(&mut self, stream: StreamId) -> Vec<Subject> {
        let Some(carrier) = self.streams.get(&stream) else {
            return Vec::new();
        };
        let repeatable = carrier.repeatable.iter().map(|(_, subject)| *subject);
        let in_flight: Vec<Subject> = repeatable.chain(carrier.others.iter().copied()).collect();
        for subject in &in_flight {
            self.unlink(*subject);
        }
        self.streams.remove(&stream);
        in_flight
    }

    /// Puts `subject` in flight on `stream`. Returns false if there is no such stream.
    pub(super) fn add(
        &mut self,
        subject: Subject,
        stream: StreamId,
        now: Duration,
        repeatable: bool,
        bytes: u32,
    ) -> bool {
        self.unlink(subject);
        let Some(carrier) = self.streams.get_mut(&stream) else {
            return false;
        };
        if carrier.len() == 0 {
            carrier.rate.resume(now);
        }
        let flight = Flight {
            carrier: stream,
            first: now,
            since: repeatable.then_some(now),
            repeats: 0,
            bytes,
        };
        self.link(subject, flight);
        true
    }

    /// Marks `subject` as repeatable.
    pub(super) fn allow_repeat(&mut self, subject: Subject) {
        if let Some(mut flight) = self.unlink(subject) {
            flight.since.get_or_insert(flight.first);
            self.link(subject, flight);
        }
    }

    /// Moves `subject` to `stream`, which repeats it. The answer on the earlier stream still
    /// counts. If a stream is lost, only the new carrier decides whether the work returns. Before
    /// the next repetition, it must wait longer by `pause`, which doubles each time.
    pub(super) fn repeat(
        &mut self,
        subject: Subject,
        stream: StreamId,
        now: Duration,
        pause: Duration,
    ) {
        if let Some(mut flight) = self.unlink(subject) {
            let pause = pause * (1 << flight.repeats.min(MAX_DOUBLINGS));
            flight.carrier = stream;
            flight.since = Some(now.saturating_add(pause));
            flight.repeats = flight.repeats.saturating_add(1);
            if let Some(carrier) = self.streams.get_mut(&stream)
                && carrier.len() == 0
            {
                carrier.rate.resume(now);
            }
            self.link(subject, flight);
        }
    }

    /// Returns the work that has waited longest on other streams, and the time from which that
    /// counts.
    pub(super) fn oldest_elsewhere(&self, stream: StreamId) -> Option<(Duration, Subject)> {
        // At most one of them is this stream's own.
        let other = self
            .oldest
            .iter()
            .find(|(.., carrier)| *carrier != stream)?;
        Some((other.0, other.1))
    }

    /// Notes an answer. Returns false if `subject` was not in flight.
    pub(super) fn settle(&mut self, subject: Subject, now: Duration) -> bool {
        let Some(flight) = self.unlink(subject) else {
            return false;
        };
        // After a repetition, it is unknown which one was answered (Karn's rule: RFC 6298, section
        // 3).
        if flight.repeats == 0
            && let Some(carrier) = self.streams.get_mut(&flight.carrier)
        {
            carrier.answer_time = now.saturating_sub(flight.first);
            carrier.rate.delivered(flight.bytes.into(), now);
            carrier.answered = carrier.answered.saturating_add(flight.bytes.into());
        }
        true
    }

    /// Forgets `subject`, as no answer is expected or needed. Returns false if it was not in
    /// flight.
    pub(super) fn forget(&mut self, subject: Subject) -> bool {
        self.unlink(subject).is_some()
    }

    /// Forgets everything about `entry`.
    pub(super) fn forget_entry(&mut self, entry: u64) {
        let of_entry = Subject::block(entry, 0)..=Subject::whole(entry);
        while let Some((&subject, _)) = self.flights.range(of_entry.clone()).next() {
            self.unlink(subject);
        }
    }

    /// Returns true if any stream carries `subject`.
    pub(super) fn carries(&self, subject: Subject) -> bool {
        self.flights.contains_key(&subject)
    }

    /// Returns the number of items that `stream` carries.
    pub(super) fn of(&self, stream: StreamId) -> usize {
        let carrier = self.streams.get(&stream);
        carrier.map_or(0, Carrier::len)
    }

    /// Returns how many of the `unsent` bytes `stream` should take, so that all streams finish
    /// together. A stream that carries nothing and has not asked recently does not take part.
    pub(super) fn share(&mut self, stream: StreamId, unsent: u64, now: Duration) -> u64 {
        if let Some(own) = self.streams.get_mut(&stream) {
            own.asked = Some(now);
        }
        let asked_of_late = |asked: Duration| now.saturating_sub(asked) <= MAX_SINCE_ASKED;
        let takes_part = |carrier: &Carrier| {
            !carrier.retiring && (carrier.len() > 0 || carrier.asked.is_some_and(asked_of_late))
        };
        let load = |carrier: &Carrier| StreamLoad {
            in_flight: carrier.bytes,
            // A stream that carries nothing has nothing to be answered.
            rate: match carrier.len() {
                0 => carrier.rate.latest(),
                _ => carrier.rate.at(now),
            },
        };
        let Some(own) = self.streams.get(&stream) else {
            return 0;
        };
        let others = (self.streams.iter())
            .filter(|(other, carrier)| **other != stream && takes_part(carrier))
            .map(|(_, carrier)| load(carrier));
        share(load(own), others, unsent)
    }

    /// Returns the bytes of answered work of `stream`.
    pub(super) fn answered(&self, stream: StreamId) -> u64 {
        self.streams
            .get(&stream)
            .map_or(0, |carrier| carrier.answered)
    }

    /// Returns the duration of the latest answer on `stream`.
    pub(super) fn answer_time(&self, stream: StreamId) -> Duration {
        let carrier = self.streams.get(&stream);
        carrier.map_or(Duration::ZERO, |carrier| carrier.answer_time)
    }

    /// Returns the longest of the streams' latest answer times.
    pub(super) fn longest_answer_time(&self) -> Duration {
        let times = self.streams.values().map(|carrier| carrier.answer_time);
        times.max().unwrap_or_default()
    }

    /// Returns true if `stream` should deliver all its bytes within `bound`, at the rate of its
    /// answers. A stream without answers delivers nothing.
    pub(super) fn delivers_within(&self, stream: StreamId, bound: Duration) -> bool {
        self.streams.get(&stream).is_some_and(|carrier| {
            let rate = carrier.rate.latest().unwrap_or_default();
            carrier.bytes == 0 || carrier.bytes as f64 <= rate * bound.as_secs_f64()
        })
    }

    pub(super) fn len(&self) -> usize {
        self.flights.len()
    }

    /// Returns the number of items that have nothing to repeat yet.
    pub(super) fn unrepeatable(&self) -> usize {
        self.unrepeatable
    }

    /// Returns the number of blocks in flight, of all files.
    pub(super) fn blocks(&self) -> usize {
        self.blocks
    }

    /// Returns the offset of the first block of `entry` in flight.
    pub(super) fn first_block(&self, entry: u64) -> Option<u64> {
        let blocks = Subject::block(entry, 0)..Subject::whole(entry);
        match self.flights.range(blocks).next()?.0.part {
            Part::Block(offset) => Some(offset),
            Part::Whole => None,
        }
    }

    pub(super) fn streams(&self) -> usize {
        self.streams.len()
    }

    fn link(&mut self, subject: Subject, flight: Flight) {
        self.flights.insert(subject, flight);
        self.unrepeatable += usize::from(flight.since.is_none());
        self.blocks += usize::from(subject.is_block());
        self.change(flight, |carrier| {
            carrier.bytes += u64::from(flight.bytes);
            match flight.since {
                Some(since) => carrier.repeatable.insert((since, subject)),
                None => carrier.others.insert(subject),
            }
        });
    }

    fn unlink(&mut self, subject: Subject) -> Option<Flight> {
        let flight = self.flights.remove(&subject)?;
        self.unrepeatable -= usize::from(flight.since.is_none());
        self.blocks -= usize::from(subject.is_block());
        self.change(flight, |carrier| {
            carrier.bytes -= u64::from(flight.bytes);
            match flight.since {
                Some(since) => carrier.repeatable.remove(&(since, subject)),
                None => carrier.others.remove(&subject),
            }
        });
        Some(flight)
    }

    /// Changes the work of the carrier of `flight`, and updates its rank among the streams.
    fn change(&mut self, flight: Flight, change: impl FnOnce(&mut Carrier) -> bool) {
        let stream = flight.carrier;
        let Some(carrier) = self.streams.get_mut(&stream) else {
            return;
        };
        let before = carrier.repeatable.first().copied();
        change(carrier);
        self.drained |= carrier.retiring && carrier.len() == 0;
        let after = carrier.repeatable.first().copied();
        if before == after {
            return;
        }
        if let Some((since, subject)) = before {
            self.oldest.remove(&(since, subject, stream));
        }
        if let Some((since, subject)) = after {
            self.oldest.insert((since, subject, stream));
        }
    }
}

#[cfg(test)]
impl InFlight {
    /// Returns the offsets of the blocks of `entry` in flight.
    pub(super) fn blocks_of(&self, entry: u64) -> Vec<u64> {
        let blocks = Subject::block(entry, 0)..Subject::whole(entry);
        let offset = |(subject, _): (&Subject, _)| match subject.part {
            Part::Block(offset) => Some(offset),
            Part::Whole => None,
        };
        self.flights.range(blocks).filter_map(offset).collect()
    }

    /// Checks all invariants.
    pub(super) fn check(&self) {
        for (subject, flight) in &self.flights {
            let carrier = &self.streams[&flight.carrier];
            match flight.since {
                Some(since) => assert!(carrier.repeatable.contains(&(since, *subject))),
                None => assert!(carrier.others.contains(subject)),
            }
        }
        let unrepeatable = self
            .flights
            .values()
            .filter(|flight| flight.since.is_none());
        assert_eq!(self.unrepeatable, unrepeatable.count());
        let blocks = self.flights.keys().filter(|subject| subject.is_block());
        assert_eq!(self.blocks, blocks.count());
        for (stream, carrier) in &self.streams {
            let flights = self
                .flights
                .values()
                .filter(|flight| flight.carrier == *stream);
            let bytes: u64 = flights.map(|flight| u64::from(flight.bytes)).sum();
            assert_eq!(carrier.bytes, bytes);
        }
        let in_flight: usize = self.streams.keys().map(|stream| self.of(*stream)).sum();
        assert_eq!(in_flight, self.flights.len());
        let oldest = self.streams.iter().filter_map(|(stream, carrier)| {
            let (since, subject) = carrier.repeatable.first()?;
            Some((*since, *subject, *stream))
        });
        assert_eq!(self.oldest, oldest.collect());
        for stream in self.streams.keys() {
            let elsewhere = self
                .flights
                .iter()
                .filter(|(_, flight)| flight.carrier != *stream);
            let found = elsewhere.filter_map(|(subject, flight)| Some((flight.since?, *subject)));
            assert_eq!(self.oldest_elsewhere(*stream), found.min());
        }
    }
}
