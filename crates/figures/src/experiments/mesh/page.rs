//! Comparison of the passes.

use anyhow::Result;

use super::conditions::{SITES, Transfer, links, transfers};
use super::{COPIES, Cell, MESH, MeshCopy, MeshRoute, Observation};
use crate::page::{Figure, Page, Table};
use crate::runs::Runs;
use crate::single::Basis;

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
    vec![
        (
            "direct".to_owned(),
            Box::new(|one: &Compared| one.direct) as Seconds,
        ),
        (
            format!("the best fixed depot ({})", SITES[best].0),
            Box::new(move |one| one.depots[best]),
        ),
        (
            "minimax by bandwidth".to_owned(),
            Box::new(|one| one.minimax),
        ),
        (
            "**routed by the controller**".to_owned(),
            Box::new(|one| one.routed),
        ),
        (
            "an oracle that tries everything".to_owned(),
            Box::new(Compared::oracle),
        ),
    ]
}

pub(super) fn page(runs: &Runs<'_, Cell, Observation>) -> Result<Page> {
    let all = compared(runs);
    let mut heads = vec![
        format!("{} copies", all.len()),
        "seconds in all".to_owned(),
        "by the oracle's".to_owned(),
    ];
    heads.extend(CLASSES.map(|(_, words)| format!("{words}, by direct")));
    let mut table = Table::new(heads);
    let sum = |seconds: &Seconds, class: Option<usize>| -> f64 {
        let chosen = all
            .iter()
            .filter(|one| class.is_none_or(|class| class_of(one.transfer.bytes) == class));
        chosen.map(seconds).sum()
    };
    let ways = ways(&all);
    if let (Some((_, direct)), Some((_, oracle))) = (ways.first(), ways.last()) {
        for (name, seconds) in &ways {
            let mut row = vec![
                name.clone(),
                format!("{:.1}", sum(seconds, None)),
                format!("{:.2}", sum(seconds, None) / sum(oracle, None)),
            ];
            row.extend((0..CLASSES.len()).map(|class| {
                format!(
                    "{:.2}",
                    sum(seconds, Some(class)) / sum(direct, Some(class))
                )
            }));
            table.row(row);
        }
    }
    Ok(Page::new(HEAD)
        .table(&table)
        .paragraph(&promises(runs))
        .paragraph(&faults(runs)))
}

/// Returns the index of the class of a copy of `bytes`.
pub(super) fn class_of(bytes: u64) -> usize {
    CLASSES
        .iter()
        .position(|(beyond, _)| bytes < *beyond)
        .unwrap_or(CLASSES.len() - 1)
}

/// Returns the text on the accuracy of promised finishing times.
fn promises(runs: &Runs<'_, Cell, Observation>) -> String {
    let routed = runs.cell(&Cell {
        way: MeshRoute::Routed,
    });
    let copies = || routed.iter().flat_map(|record| &record.seen.copies);
    let promised = copies().filter_map(|made| Some((made.promised?, made.seconds)));
    let (mut within, mut all) = (0_usize, 0_usize);
    for ((p10, p90), seconds) in promised {
        all += 1;
        within += usize::from(seconds >= p10 && seconds <= p90);
    }
    let by_depots = copies().filter(|made| !made.depots.is_empty()).count();
    format!(
        "Of the routed copies {by_depots} passed a depot. A finishing time was promised (p10 to \
         p90, meant to hold for 80 of 100) for {all} of them, and {within} kept to it."
    )
}

fn faults(runs: &Runs<'_, Cell, Observation>) -> String {
    let (mut lost, mut all) = (0, 0);
    let (mut seconds, mut direct) = (0.0, 0.0);
    for record in runs.cell(&Cell {
        way: MeshRoute::Faults,
    }) {
        let beside = runs.cell(&Cell {
            way: MeshRoute::Direct,
        });
        let Some(beside) = beside
            .iter()
            .find(|other| other.cell.seed == record.cell.seed)
        else {
            continue;
        };
        for (made, beside) in record.seen.copies.iter().zip(&beside.seen.copies) {
            all += 1;
            lost += usize::from(!made.whole);
            seconds += made.seconds;
            direct += beside.seconds;
        }
    }
    if all == 0 {
        return String::new();
    }
    format!(
        "With faults (a third of the way through, the depot that was passed most dies and stays \
         away; at half, the link from Denver to New York carries nothing for a minute; at two \
         thirds, somebody who may has the controller believe that the link from San Diego to New \
         York \
         carries ten times its rate and more): {lost} of {all} copies lost; {:.2} times what the \
         direct way takes without faults.",
        seconds / direct
    )
}

pub(super) fn figures(runs: &Runs<'_, Cell, Observation>) -> Vec<Figure> {
    let all = compared(runs);
    let sum = |seconds: fn(&Compared) -> f64| all.iter().map(seconds).sum::<f64>();
    if all.is_empty() {
        return Vec::new();
    }
    let by_oracle = sum(|one| one.routed) / sum(Compared::oracle);
    let by_direct = sum(|one| one.routed) / sum(|one| one.direct);
    vec![
        Figure::new(
            "oracle",
            "time of routed copies by that of an oracle that tries everything",
            format!("{by_oracle:.2}"),
            Basis::Counted,
        ),
        Figure::new(
            "direct",
            "time of routed copies by that of direct ones",
            format!("{by_direct:.2}"),
            Basis::Counted,
        ),
    ]
}

const HEAD: &str = "Six sites of ESnet's map, a link between any two of them. Delays are \
    stretched over the great circle, rates of 50 to 200 Mbit/s and losses of 0.0003 to 0.03 % \
    change every 5 s a little, and for a minute or two at a time by \
    much, each link by itself, from a seed. At each site a depot and a server; a controller at \
    one of them, which knows the sites, hosts and depots, is told nothing of the links, and has \
    seen them for five minutes when the first copy is made. One after the other, at the same \
    moments by each way, files of 64 KiB \
    to 256 MiB are fetched from one site to another by `longhaul cp`, and every byte is compared. \
    Times are of the whole command. The oracle has the best of direct and the six depots for each \
    copy; minimax takes the way whose least rate is greatest, by the rates that the links \
    really have at that moment. The passes of two ways are made at other times and beside other \
    passes, which is felt by small copies; [routed](routed.md) compares those in pairs, each made \
    one right after the other in one lab.";
