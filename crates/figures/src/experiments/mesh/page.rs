//! Comparison of the passes.

use anyhow::Result;
use minijinja::{Value, context};

use super::conditions::{SITES, Transfer, links, transfers};
use super::{COPIES, Cell, MESH, MeshCopy, MeshRoute, Observation};
use crate::columns::Columns;
use crate::page::{Figure, Page};
use crate::runs::Runs;
use crate::single::Basis;
use crate::template::page;

/// Relative difference up to which minimax treats rates as equal, so that it adds no depot without
/// a gain: the tolerance of LSL's trees.
const MINIMAX_TOLERANCE: f64 = 0.1;

/// Classes of sizes, each with its exclusive upper bound in bytes.
pub(super) const CLASSES: [(u64, &str); 3] = [
    (1 << 20, "64 KiB to 512 KiB"),
    (16 << 20, "1 MiB to 8 MiB"),
    (u64::MAX, "16 MiB to 256 MiB"),
];

/// One copy on all routes.
struct Compared {
    transfer: Transfer,
    direct: f64,
    /// Times by the depot of each site.
    depots: [f64; SITES.len()],
    routed: f64,
    minimax: f64,
}

impl Compared {
    fn oracle(&self) -> f64 {
        self.depots.iter().copied().fold(self.direct, f64::min)
    }
}

/// Returns the copies of all seeds that succeeded on every route.
fn compared(runs: &Runs<'_, Cell, Observation>) -> Vec<Compared> {
    let of = |way: MeshRoute, seed: u64| -> Option<&[MeshCopy]> {
        let record = runs
            .cell(&Cell { way })
            .into_iter()
            .find(|record| record.cell.seed == seed)?;
        Some(&record.seen.copies)
    };
    let mut all = Vec::new();
    for record in runs.cell(&Cell {
        way: MeshRoute::Routed,
    }) {
        let seed = record.cell.seed;
        let Some(direct) = of(MeshRoute::Direct, seed) else {
            continue;
        };
        for (number, transfer) in transfers(seed, COPIES).into_iter().enumerate() {
            let seconds = |made: &[MeshCopy]| {
                made.get(number)
                    .filter(|made| made.whole)
                    .map(|made| made.seconds)
            };
            // The time by each site's depot. For the copy's own ends, it is that of the direct
            // route.
            let by_depot = |site: usize| {
                if let Some(made) = of(MeshRoute::Depot(site), seed) {
                    return seconds(made);
                }
                match transfer.between().position(|other| other == site) {
                    Some(detour) => seconds(of(MeshRoute::Detour(detour), seed)?),
                    None => seconds(direct),
                }
            };
            let by_depots: Option<Vec<f64>> = (0..SITES.len()).map(by_depot).collect();
            let (Some(direct), Some(routed), Some(by_depots)) =
                (seconds(direct), seconds(&record.seen.copies), by_depots)
            else {
                continue;
            };
            let Ok(depots) = <[f64; SITES.len()]>::try_from(by_depots) else {
                continue;
            };
            let minimax = minimax(seed, &transfer).map_or(direct, |site| depots[site]);
            all.push(Compared {
                transfer,
                direct,
                depots,
                routed,
                minimax,
            });
        }
    }
    all
}

/// Returns the site whose depot maximises the least link rate of a copy's route, by the true rates
/// when the copy begins. `None` if that is the direct route.
fn minimax(seed: u64, transfer: &Transfer) -> Option<usize> {
    let links = links(seed);
    let rate = |from: usize, to: usize| {
        let ends = (from.min(to), from.max(to));
        let link = links.iter().find(|link| link.ends == ends);
        link.map_or(0.0, |link| {
            link.state_at(MESH.first_copy_s() + transfer.at_s).rate_mbps
        })
    };
    let Transfer { from, to, .. } = *transfer;
    let by_depots = (0..SITES.len()).filter(|&site| site != from && site != to);
    let (site, best) = by_depots
        .map(|site| (site, rate(from, site).min(rate(site, to))))
        .max_by(|one, other| one.1.total_cmp(&other.1))?;
    (best > rate(from, to) * (1.0 + MINIMAX_TOLERANCE)).then_some(site)
}

type Seconds = Box<dyn Fn(&Compared) -> f64>;

/// Returns the lines of the table: a name, and the time of a copy on that route.
fn ways(all: &[Compared]) -> Vec<(String, Seconds)> {
    let total = |site: usize| all.iter().map(|one| one.depots[site]).sum::<f64>();
    let best = (0..SITES.len())
        .min_by(|&one, &other| total(one).total_cmp(&total(other)))
        .unwrap_or(0);
    let way = |name: &str, seconds: Seconds| (name.to_owned(), seconds);
    vec![
        way("direct", Box::new(|one| one.direct)),
        way(
            &format!("the best fixed depot ({})", SITES[best].0),
            Box::new(move |one| one.depots[best]),
        ),
        way("minimax by bandwidth", Box::new(|one| one.minimax)),
        way("**routed by the controller**", Box::new(|one| one.routed)),
        way(
            "an oracle that tries everything",
            Box::new(Compared::oracle),
        ),
    ]
}

pub(super) fn page(runs: &Runs<'_, Cell, Observation>) -> Result<Page> {
    let all = &compared(runs);
    let sum = |seconds: &Seconds, class: Option<usize>| -> f64 {
        let is_in =
            |one: &&Compared| class.is_none_or(|class| class_of(one.transfer.bytes) == class);
        all.iter().filter(is_in).map(seconds).sum()
    };
    let (direct, oracle): (Seconds, Seconds) =
        (Box::new(|one| one.direct), Box::new(Compared::oracle));
    let mut table = Columns::of(ways(all))
        .text(format!("{} copies", all.len()), |(name, _)| name.clone())
        .number("seconds in all", 1, |(_, seconds)| sum(seconds, None))
        .number("by the oracle's", 2, |(_, seconds)| {
            sum(seconds, None) / sum(&oracle, None)
        });
    for (class, (_, words)) in CLASSES.iter().enumerate() {
        let (class, sum, direct) = (Some(class), &sum, &direct);
        table = table.number(format!("{words}, by direct"), 2, move |(_, seconds)| {
            sum(seconds, class) / sum(direct, class)
        });
    }
    let routed = runs.cell(&Cell {
        way: MeshRoute::Routed,
    });
    let copies = || routed.iter().flat_map(|record| &record.seen.copies);
    let promised: Vec<bool> = copies().filter_map(MeshCopy::keeps_promise).collect();
    page!("mesh", table => table.table(), faults => faults(runs), promised => promised.len(),
        by_depots => copies().filter(|made| !made.depots.is_empty()).count(),
        kept => promised.iter().filter(|kept| **kept).count())
}

/// Returns the index of the class of a copy of `bytes`.
pub(super) fn class_of(bytes: u64) -> usize {
    CLASSES
        .iter()
        .position(|(beyond, _)| bytes < *beyond)
        .unwrap_or(CLASSES.len() - 1)
}

/// Returns the number of copies with faults and of those lost, and their time by that of direct
/// ones without faults.
fn faults(runs: &Runs<'_, Cell, Observation>) -> Value {
    let (mut lost, mut copies) = (0, 0);
    let (mut seconds, mut direct) = (0.0, 0.0);
    let beside = runs.cell(&Cell {
        way: MeshRoute::Direct,
    });
    for record in runs.cell(&Cell {
        way: MeshRoute::Faults,
    }) {
        let same = beside
            .iter()
            .find(|other| other.cell.seed == record.cell.seed);
        let Some(beside) = same else { continue };
        for (made, beside) in record.seen.copies.iter().zip(&beside.seen.copies) {
            copies += 1;
            lost += usize::from(!made.whole);
            seconds += made.seconds;
            direct += beside.seconds;
        }
    }
    context!(lost, copies, by_direct => seconds / direct)
}

pub(super) fn figures(runs: &Runs<'_, Cell, Observation>) -> Vec<Figure> {
    let all = compared(runs);
    let sum = |seconds: fn(&Compared) -> f64| all.iter().map(seconds).sum::<f64>();
    let routed = sum(|one| one.routed);
    let figures = [
        (
            "oracle",
            "that of an oracle that tries everything",
            sum(Compared::oracle),
        ),
        ("direct", "that of direct ones", sum(|one| one.direct)),
    ];
    let figure = |(key, by, seconds): (&str, &str, f64)| {
        let title = format!("time of routed copies by {by}");
        Figure::new(
            key,
            title,
            format!("{:.2}", routed / seconds),
            Basis::Counted,
        )
    };
    let measured = figures.into_iter().filter(|_| !all.is_empty());
    measured.map(figure).collect()
}
