//! Moments at which full links free up.

use crate::ledger::View;
use crate::network::LinkId;
use crate::time::{BitsPerSecond, MomentMs, Window};

/// Maximum number of moments to examine. If there are more, the returned moment is only a lower
/// bound.
const MAX_MOMENTS: usize = 250;

/// Returns the earliest start, not before that of the window, at which `paths` of these links have
/// `rate` left for the length of the window. Returns `None` if they never have.
///
/// The rate left on a link within a window cannot rise before the window has moved past the last of
/// the link's highest steps. So only the ends of these steps have to be examined.
pub(super) fn earliest_free_start(
    view: &View<'_>,
    links: &[LinkId],
    paths: usize,
    rate: BitsPerSecond,
    window: Window,
) -> Option<MomentMs> {
    let mut start = window.start;
    for _ in 0..MAX_MOMENTS {
        let peaks: Vec<(BitsPerSecond, MomentMs)> = links
            .iter()
            .map(|link| {
                let peak = view.peak(*link, window.starting_at(start));
                (
                    view.ceiling(*link).saturating_sub(peak.rate),
                    if peak.rate == 0 {
                        MomentMs::MAX
                    } else {
                        peak.until
                    },
                )
            })
            .collect();
        let mut rooms: Vec<BitsPerSecond> = peaks.iter().map(|(room, _)| *room).collect();
        rooms.sort_unstable_by(|one, other| other.cmp(one));
        if rooms
            .into_iter()
            .take(paths)
            .fold(0, BitsPerSecond::saturating_add)
            >= rate
        {
            return Some(start);
        }
        let next = peaks
            .into_iter()
            .map(|(_, until)| until)
            .min()
            .unwrap_or(MomentMs::MAX);
        if next == MomentMs::MAX {
            return None;
        }
        start = next;
    }
    Some(start)
}

/// Returns the earliest moment at which any of these links has more left than from the start of the
/// window on.
pub(super) fn next_change(
    view: &View<'_>,
    links: impl Iterator<Item = LinkId>,
    window: Window,
) -> Option<MomentMs> {
    let untils = links
        .map(|link| view.peak(link, window))
        .filter(|peak| peak.rate > 0)
        .map(|peak| peak.until);
    untils.min().filter(|until| *until < MomentMs::MAX)
}
