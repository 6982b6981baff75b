//! Value of a controller's routes for copies of each size. The same copy is made directly and on
//! the controller's route, one right after the other, in one lab. It is also made directly in
//! another lab in which nothing is measured.

use std::time::Instant;

use anyhow::{Result, ensure};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use super::conditions::{Transfer, ends, slot_seconds};
use super::page::{CLASSES, class_of};
use super::run::{MeshFiles, World, wait_until};
use super::{Cell as MeshCell, MESH, MeshCopy, MeshRoute};
use crate::columns::Columns;
use crate::experiment::{Cost, Experiment, Here};
use crate::network::Network;
use crate::page::{Figure, Page};
use crate::runs::Runs;
use crate::single::Basis;
use crate::stats::{self, Spread};
use crate::template::page;
use crate::tools::Tools;

/// The sizes, in bytes.
const SIZES: [u64; 8] = [
    64 << 10,
    256 << 10,
    512 << 10,
    1 << 20,
    2 << 20,
    4 << 20,
    8 << 20,
    32 << 20,
];
/// Pairs of copies of each size in a published run.
const PAIRS: usize = 8;
/// Rate of the slots, of which each copy of a pair has one. Both labs keep the same times, so that
/// a pair meets the same state of the links in each.
const SLOT_MBPS: f64 = 40.0;

/// The experiment.
pub struct Paired;

/// One of the two labs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The network.
    network: Lab,
}

/// The changing links of the experiment `mesh`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Lab {
    /// With a controller, whose depots measure them.
    Mesh,
    /// Without any measurements.
    Unmeasured,
}

/// The same copy on both routes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pair {
    bytes: u64,
    direct: MeshCopy,
    routed: MeshCopy,
}

/// All pairs of a lab.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Observation {
    /// Pairs of a lab with a controller.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pairs: Vec<Pair>,
    /// Pairs of the other lab, whose copies are both direct.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    unmeasured: Vec<[MeshCopy; 2]>,
}

/// A pair, and the same copy in the lab without measurements.
struct ComparedPair<'a> {
    pair: &'a Pair,
    /// Mean time of two direct copies.
    unmeasured_seconds: Option<f64>,
}

/// Two compared times of a pair, in seconds: the reference, and the one that is divided by it.
type Compared = fn(&ComparedPair<'_>) -> Option<(f64, f64)>;

/// Returns the times of the direct and the routed copy.
const fn of_pair(one: &ComparedPair<'_>) -> Option<(f64, f64)> {
    Some((one.pair.direct.seconds, one.pair.routed.seconds))
}

/// Returns the times of direct copies without measurements and of the routed copy.
fn routed_unmeasured(one: &ComparedPair<'_>) -> Option<(f64, f64)> {
    Some((one.unmeasured_seconds?, one.pair.routed.seconds))
}

/// Returns the times of direct copies without and with measurements.
fn direct_unmeasured(one: &ComparedPair<'_>) -> Option<(f64, f64)> {
    Some((one.unmeasured_seconds?, one.pair.direct.seconds))
}

impl Pair {
    fn ratio(&self) -> f64 {
        self.routed.seconds / self.direct.seconds
    }
}

/// Returns the pairs of a seed. Sizes alternate, so that all sizes meet all times.
fn pairs(seed: u64) -> Vec<Transfer> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed * 1000 + 998);
    let (mut all, mut at_s) = (Vec::new(), 0.0);
    for _ in 0..PAIRS {
        for bytes in SIZES {
            let (from, to) = ends(&mut random);
            all.push(Transfer {
                from,
                to,
                bytes,
                at_s,
            });
            at_s += 2.0 * slot_seconds(bytes, SLOT_MBPS);
        }
    }
    all
}

impl Experiment for Paired {
    type Cell = Cell;
    type Observation = Observation;
    type Setup = MeshFiles;

    fn name(&self) -> &'static str {
        "routed"
    }

    fn title(&self) -> &'static str {
        "What a controller's routes are worth to copies of each size"
    }

    fn cells(&self) -> Vec<Cell> {
        [Lab::Mesh, Lab::Unmeasured]
            .map(|network| Cell { network })
            .to_vec()
    }

    fn cost(&self, cell: &Cell) -> Cost {
        let last = pairs(1).last().map_or(0.0, |transfer| transfer.at_s);
        Cost::new(0.5, MESH.first_after_s(cell.network.way()) + last)
    }

    fn prepare(&self, tools: &Tools) -> Result<MeshFiles> {
        MeshFiles::make(tools)
    }

    fn network(&self, tools: &Tools, files: &MeshFiles, cell: &Cell, seed: u64) -> Result<Network> {
        let way = cell.network.way();
        MESH.network(tools, files, &MeshCell { way }, seed)
    }

    fn run(&self, here: &Here<'_, MeshFiles>, cell: &Cell) -> Result<Observation> {
        let began = Instant::now();
        let way = cell.network.way();
        let (world, first_s) = (World::up(here, way.is_routed())?, MESH.first_after_s(way));
        let mut seen = Observation {
            pairs: Vec::new(),
            unmeasured: Vec::new(),
        };
        for (number, transfer) in pairs(here.seed).into_iter().enumerate() {
            wait_until(began, first_s + transfer.at_s);
            // The order of the routes alternates.
            let ways = match (cell.network, number / SIZES.len() % 2) {
                (Lab::Unmeasured, _) => [MeshRoute::Direct, MeshRoute::Direct],
                (Lab::Mesh, 0) => [MeshRoute::Direct, MeshRoute::Routed],
                (Lab::Mesh, _) => [MeshRoute::Routed, MeshRoute::Direct],
            };
            let [first, second] = [
                world.copy(ways[0], &transfer)?,
                world.copy(ways[1], &transfer)?,
            ];
            ensure!(
                first.whole && second.whole,
                "a copy of {} bytes is not whole",
                transfer.bytes
            );
            let bytes = transfer.bytes;
            match ways {
                [MeshRoute::Direct, MeshRoute::Direct] => seen.unmeasured.push([first, second]),
                [MeshRoute::Direct, _] => seen.pairs.push(Pair {
                    bytes,
                    direct: first,
                    routed: second,
                }),
                _ => seen.pairs.push(Pair {
                    bytes,
                    direct: second,
                    routed: first,
                }),
            }
        }
        Ok(seen)
    }

    fn outcome(&self, seen: &Observation) -> String {
        if !seen.unmeasured.is_empty() {
            let made = seen.unmeasured.iter().flatten();
            let seconds: f64 = made.map(|made| made.seconds).sum();
            return format!("{seconds:.1} s in all, directly");
        }
        let of = |bytes: u64| {
            let pairs: Vec<&Pair> = seen
                .pairs
                .iter()
                .filter(|pair| pair.bytes == bytes)
                .collect();
            let ratio = spread(&pairs, Pair::ratio);
            ratio.map_or_else(String::new, |ratio| format!("{:.2}", ratio.median))
        };
        let medians = SIZES.map(of).join(" ");
        format!("by direct, median of each size: {medians}")
    }

    fn page(&self, runs: &Runs<'_, Cell, Observation>) -> Result<Page> {
        let all = &all(runs);
        let of_size = |bytes: u64| {
            let pairs = all.iter().map(|one| one.pair);
            (
                bytes,
                pairs.filter(|pair| pair.bytes == bytes).collect::<Vec<_>>(),
            )
        };
        let median = |pairs: &[&Pair], of: fn(&Pair) -> f64| Some(spread(pairs, of)?.median);
        let sum = |pairs: &[&Pair], of: fn(&Pair) -> f64| -> f64 {
            pairs.iter().map(|pair| of(pair)).sum()
        };
        let promised = |pairs: &[&Pair]| {
            let kept = pairs.iter().filter_map(|pair| pair.routed.keeps_promise());
            kept.collect::<Vec<_>>()
        };
        let table = Columns::of(SIZES.map(of_size))
            .text("size", |(bytes, _)| quantities::ByteCount(*bytes))
            .text("pairs", |(_, pairs)| pairs.len())
            .number("direct, s (median)", 3, |(_, pairs)| {
                median(pairs, |pair| pair.direct.seconds)
            })
            .number("routed, s (median)", 3, |(_, pairs)| {
                median(pairs, |pair| pair.routed.seconds)
            })
            .text("routed by direct: median (quartiles)", |(_, pairs)| {
                let ratio = spread(pairs, Pair::ratio);
                bounded(ratio.map(|ratio| (ratio.median, [ratio.lower, ratio.upper])))
            })
            .number("sum by sum", 2, |(_, pairs)| {
                sum(pairs, |pair| pair.routed.seconds) / sum(pairs, |pair| pair.direct.seconds)
            })
            .text("passed a depot", |(_, pairs)| {
                pairs
                    .iter()
                    .filter(|pair| !pair.routed.depots.is_empty())
                    .count()
            })
            .text("promised", |(_, pairs)| promised(pairs).len())
            .text("kept", |(_, pairs)| {
                promised(pairs).into_iter().filter(|kept| *kept).count()
            })
            .table();
        let count = |class: usize| {
            all.iter()
                .filter(|one| class_of(one.pair.bytes) == class)
                .count()
        };
        let ratio = |class: usize, compared| bounded(stats::sums(&of_class(all, class, compared)));
        let measured = (0..CLASSES.len()).filter(|class| count(*class) > 0);
        let classes = Columns::of(measured)
            .text("size class", |class| CLASSES[*class].1)
            .text("pairs", |class| count(*class))
            .text("routed by direct of the pair", |class| {
                ratio(*class, of_pair)
            })
            .text("routed by direct where nobody measures", |class| {
                ratio(*class, routed_unmeasured)
            })
            .text("direct by direct where nobody measures", |class| {
                ratio(*class, direct_unmeasured)
            })
            .table();
        page!("routed", classes, table)
    }

    fn figures(&self, runs: &Runs<'_, Cell, Observation>) -> Vec<Figure> {
        let all = all(runs);
        let figure = |key, title, compared: Compared| {
            let sums = |class| Some(stats::sums(&of_class(&all, class, compared))?.0);
            let ratios = (0..CLASSES.len()).filter_map(sums);
            let ratios: Vec<String> = ratios.map(|ratio| format!("{ratio:.2}")).collect();
            Figure::new(key, title, ratios.join(", "), Basis::Counted)
        };
        vec![
            figure(
                "classes",
                "time of routed copies by that of direct ones right beside them, of each class \
                 of sizes",
                of_pair,
            ),
            figure(
                "unmeasured",
                "the same by that of direct ones where nobody measures anything",
                routed_unmeasured,
            ),
        ]
    }
}

impl Lab {
    /// Returns the route of `mesh` whose lab this is.
    const fn way(self) -> MeshRoute {
        match self {
            Self::Mesh => MeshRoute::Routed,
            Self::Unmeasured => MeshRoute::Direct,
        }
    }
}

/// Returns all pairs of all seeds.
fn all<'a>(runs: &Runs<'a, Cell, Observation>) -> Vec<ComparedPair<'a>> {
    let of = |network: Lab| runs.cell(&Cell { network });
    let unmeasured = of(Lab::Unmeasured);
    let mut all = Vec::new();
    for record in of(Lab::Mesh) {
        let beside = unmeasured
            .iter()
            .find(|other| other.cell.seed == record.cell.seed)
            .map_or(&[][..], |other| &other.seen.unmeasured);
        let pairs = record.seen.pairs.iter().enumerate();
        all.extend(pairs.map(|(number, pair)| {
            ComparedPair {
                pair,
                unmeasured_seconds: beside
                    .get(number)
                    .map(|[one, other]| f64::midpoint(one.seconds, other.seconds)),
            }
        }));
    }
    all
}

/// Returns the compared values of each pair of a class that has them.
fn of_class(all: &[ComparedPair<'_>], class: usize, compared: Compared) -> Vec<(f64, f64)> {
    all.iter()
        .filter(|one| class_of(one.pair.bytes) == class)
        .filter_map(compared)
        .collect()
}

/// Formats a value with its bounds.
fn bounded(value: Option<(f64, [f64; 2])>) -> String {
    value.map_or_else(
        || "-".to_owned(),
        |(value, [low, high])| format!("{value:.2} ({low:.2}..{high:.2})"),
    )
}

fn spread(pairs: &[&Pair], of: fn(&Pair) -> f64) -> Option<Spread> {
    Spread::from_samples(&pairs.iter().map(|pair| of(pair)).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_makes_same_pairs_of_all_sizes() {
        assert_eq!(pairs(7), pairs(7));
        assert_ne!(pairs(7), pairs(8));
        assert_eq!(pairs(7).len(), PAIRS * SIZES.len());
        assert!(pairs(7).iter().all(|one| one.from != one.to));
    }
}
