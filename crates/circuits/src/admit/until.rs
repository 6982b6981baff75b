//! Until when links are too full.

use crate::ledger::View;
use crate::network::LinkId;
use crate::time::{Moment, Rate, Window};

/// Moments that are looked at, at most; with more, links may be free earlier than is said to be
/// known.
const MAX_MOMENTS: usize = 250;

/// The earliest start, not before the window's, from which so many of these links have this rate
/// left for as long as the window is: before it, they never have. None where they never have at
/// all.
///
/// What a link has left within a window can't rise before the window has moved past the last of the
/// steps that are the fullest of it; so those ends are all the moments that have to be looked at.
pub(super) fn frees(
    view: &View<'_>,
    links: &[LinkId],
    paths: usize,
    rate: Rate,
    window: Window,
) -> Option<Moment> {
    let mut start = window.start;
    for _ in 0..MAX_MOMENTS {
        let peaks: Vec<(Rate, Moment)> = links
            .iter()
            .map(|link| {
                let peak = view.peak(*link, window.from_start(start));
                (
                    view.ceiling(*link).saturating_sub(peak.rate),
                    if peak.rate == 0 {
                        Moment::MAX
                    } else {
                        peak.until
                    },
                )
            })
            .collect();
        let mut rooms: Vec<Rate> = peaks.iter().map(|(room, _)| *room).collect();
        rooms.sort_unstable_by(|one, other| other.cmp(one));
        if rooms.into_iter().take(paths).fold(0, Rate::saturating_add) >= rate {
            return Some(start);
        }
        let next = peaks
            .into_iter()
            .map(|(_, until)| until)
            .min()
            .unwrap_or(Moment::MAX);
        if next == Moment::MAX {
            return None;
        }
        start = next;
    }
    Some(start)
}

/// The earliest moment at which any link that a request may use has more left than it has from the
/// window's start on.
pub(super) fn changes(
    view: &View<'_>,
    links: impl Iterator<Item = LinkId>,
    window: Window,
) -> Option<Moment> {
    let untils = links
        .map(|link| view.peak(link, window))
        .filter(|peak| peak.rate > 0)
        .map(|peak| peak.until);
    untils.min().filter(|until| *until < Moment::MAX)
}
