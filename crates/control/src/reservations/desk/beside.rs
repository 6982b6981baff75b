//! Index of the reservations that share addresses and time.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_circuits::ledger::ReservationId;
use longhaul_circuits::time::{MomentMs, Window};
use longhaul_provisioning::streams::Prefix;

/// Streams of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReservationStreams {
    /// Source addresses.
    pub(super) from: Prefix,
    /// Destination addresses.
    pub(super) to: Prefix,
    /// Window.
    pub(super) span: Window,
}

/// Reservations between the same two ends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct SharedEnds {
    /// Ends and starts of their windows, ordered by end.
    spans: BTreeSet<(MomentMs, MomentMs, ReservationId)>,
    /// Length of the longest window ever seen, in milliseconds. It bounds how long after its start
    /// a window ends.
    longest: u64,
}

/// Reservations by the addresses of their ends, and by time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct StreamIndex {
    by_ends: BTreeMap<Prefix, BTreeMap<Prefix, SharedEnds>>,
    streams: BTreeMap<ReservationId, ReservationStreams>,
}

impl StreamIndex {
    /// Updates the streams of a reservation; `None` removes it.
    pub(super) fn put(&mut self, id: ReservationId, streams: Option<ReservationStreams>) {
        let before = match streams {
            Some(streams) => self.streams.insert(id, streams),
            None => self.streams.remove(&id),
        };
        if before == streams {
            return;
        }
        if let Some(ReservationStreams { from, to, span }) = before
            && let Some(to_all) = self.by_ends.get_mut(&from)
        {
            if let Some(alike) = to_all.get_mut(&to) {
                alike.spans.remove(&(span.end, span.start, id));
                if alike.spans.is_empty() {
                    to_all.remove(&to);
                }
            }
            if to_all.is_empty() {
                self.by_ends.remove(&from);
            }
        }
        if let Some(ReservationStreams { from, to, span }) = streams {
            let alike = self.by_ends.entry(from).or_default().entry(to).or_default();
            alike.spans.insert((span.end, span.start, id));
            alike.longest = alike.longest.max(span.length());
        }
    }

    /// Returns the reservations that share addresses with both ends and time with any of the
    /// windows.
    pub(super) fn overlapping_reservations(
        &self,
        from: Prefix,
        to: Prefix,
        windows: &[Window],
    ) -> BTreeSet<ReservationId> {
        let mut found = BTreeSet::new();
        let ends = overlapping(&self.by_ends, from).flat_map(|all| overlapping(all, to));
        for alike in ends {
            for window in windows {
                let first = (
                    window.start.saturating_add(1),
                    MomentMs::MIN,
                    ReservationId(0),
                );
                let last = window.end.saturating_add_unsigned(alike.longest);
                let near = alike
                    .spans
                    .range(first..)
                    .take_while(|(end, ..)| *end <= last);
                let beside =
                    near.filter(|(end, start, _)| window.overlaps(Window::new(*start, *end)));
                found.extend(beside.map(|(.., id)| *id));
            }
        }
        found
    }
}

/// Returns the values of all prefixes that overlap one: those that contain it, and those that it
/// contains, which follow it in order.
fn overlapping<T>(all: &BTreeMap<Prefix, T>, prefix: Prefix) -> impl Iterator<Item = &T> {
    let wider = prefix.supernets().filter_map(|wider| all.get(&wider));
    let within = all
        .range(prefix..)
        .take_while(move |(other, _)| prefix.contains(**other));
    wider.chain(within.map(|(_, of)| of))
}

#[cfg(test)]
mod tests {
    //! Comparison with a linear search.

    use proptest::prelude::*;

    use super::*;

    fn prefix() -> impl Strategy<Value = Prefix> {
        let text = prop_oneof![
            Just("10.0.0.0/8"),
            Just("10.0.0.0/16"),
            Just("10.0.0.0"),
            Just("10.0.7.0/24"),
            Just("10.0.7.9"),
            Just("10.1.0.0/16"),
            Just("0.0.0.0/0"),
            Just("11.0.0.1"),
            Just("::/0"),
            Just("2001:db8::/32"),
            Just("2001:db8::1"),
        ];
        text.prop_map(|text| text.parse().unwrap())
    }

    fn window() -> impl Strategy<Value = Window> {
        (0..40_i64, 0..20_i64).prop_map(|(start, length)| Window::new(start, start + length))
    }

    fn streams() -> impl Strategy<Value = ReservationStreams> {
        let ends = (prefix(), prefix(), window());
        ends.prop_map(|(from, to, span)| ReservationStreams { from, to, span })
    }

    proptest! {
        #[test]
        fn index_matches_a_linear_search(
            puts in prop::collection::vec(
                (0..12_u64, prop::option::weighted(0.8, streams())),
                0..40
            ),
            (from, to) in (prefix(), prefix()),
            windows in prop::collection::vec(window(), 1..4),
        ) {
            let (mut beside, mut all) = (StreamIndex::default(), BTreeMap::new());
            for (id, streams) in puts {
                let id = ReservationId(id);
                beside.put(id, streams);
                all.insert(id, streams);
            }
            let shares = |streams: &ReservationStreams| {
                let is_in_time = windows.iter().any(|window| window.overlaps(streams.span));
                is_in_time && streams.from.overlaps(from) && streams.to.overlaps(to)
            };
            let found = all.iter().filter(|(_, streams)| streams.is_some_and(|one| shares(&one)));
            let found: BTreeSet<ReservationId> = found.map(|(id, _)| *id).collect();
            prop_assert_eq!(beside.overlapping_reservations(from, to, &windows), found);
            for id in all.keys() {
                beside.put(*id, None);
            }
            prop_assert_eq!(beside, StreamIndex::default());
        }
    }
}
