//! What a controller's routes are worth to copies of each size: the same copy directly and as the controller has it, one right after the other, in one lab.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use super::conditions::{SITES, Transfer};
use super::page::{CLASSES, class_of};
use super::run::{Files, STARTING_SECONDS, World};
use super::{Cell as MeshCell, MESH, Made, Way};
use crate::experiment::{Cost, Experiment, Here, Network};
use crate::page::{Figure, Page, Table, number};
use crate::runs::Runs;
use crate::stats::{self, Spread};
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
/// Pairs of copies of each size, of one run as it is published.
const PAIRS: usize = 8;
/// For how long a controller and its depots see the links before, in seconds: as in `mesh`. After one minute it knows too little to choose any depot.
const LEARNING_SECONDS: f64 = 300.0;
/// What a pair of copies takes, in seconds: for the estimate.
const PAIR_SECONDS: f64 = 4.0;

/// The experiment.
pub struct Paired;

/// All there is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The network.
    network: Links,
}

/// The links.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Links {
    /// Those of the experiment `mesh`, which change.
    Mesh,
}

/// The same copy by both ways.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pair {
    bytes: u64,
    direct: Made,
    routed: Made,
}

/// All pairs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Seen {
    pairs: Vec<Pair>,
}

impl Pair {
    fn ratio(&self) -> f64 {
        self.routed.seconds / self.direct.seconds
    }
}

/// The pairs of a seed, size after size, so that all sizes meet all times.
fn pairs(seed: u64) -> Vec<Transfer> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed * 1000 + 998);
    let mut all = Vec::new();
    for _ in 0..PAIRS {
        for bytes in SIZES {
            let from = random.random_range(0..SITES.len());
            let to = (from + random.random_range(1..SITES.len())) % SITES.len();
            all.push(Transfer {
                from,
                to,
                bytes,
                at_s: 0.0,
            });
        }
    }
    all
}

impl Experiment for Paired {
    type Cell = Cell;
    type Seen = Seen;
    type Setup = Files;

    fn name(&self) -> &'static str {
        "routed"
    }

    fn title(&self) -> &'static str {
        "What a controller's routes are worth to copies of each size"
    }

    fn cells(&self) -> Vec<Cell> {
        vec![Cell { network: Links::Mesh }]
    }

    fn cost(&self, _cell: &Cell) -> Cost {
        Cost {
            share: 0.5,
            seconds: STARTING_SECONDS + LEARNING_SECONDS + PAIR_SECONDS * (PAIRS * SIZES.len()) as f64,
        }
    }

    fn prepare(&self, tools: &Tools) -> Result<Files> {
        Files::make(tools)
    }

    fn network(&self, tools: &Tools, files: &Files, _cell: &Cell, seed: u64) -> Result<Network> {
        MESH.network(tools, files, &MeshCell { way: Way::Routed }, seed)
    }

    fn run(&self, here: &Here<'_, Files>, _cell: &Cell) -> Result<Seen> {
        let began = Instant::now();
        let world = World::up(here, true)?;
        // The controller is to have seen the links, which takes time whatever is looked at.
        let first = Duration::from_secs_f64(STARTING_SECONDS + LEARNING_SECONDS);
        thread::sleep(first.saturating_sub(began.elapsed()));
        let mut pairs = pairs(here.seed);
        let mut made = Vec::with_capacity(pairs.len());
        for (number, transfer) in pairs.drain(..).enumerate() {
            // Neither way is always the second.
            let ways = match number / SIZES.len() % 2 {
                0 => [Way::Direct, Way::Routed],
                _ => [Way::Routed, Way::Direct],
            };
            let [first, second] = [world.copy(ways[0], &transfer)?, world.copy(ways[1], &transfer)?];
            ensure!(
                first.whole && second.whole,
                "a copy of {} bytes is not whole",
                transfer.bytes
            );
            let (direct, routed) = match ways[0] {
                Way::Direct => (first, second),
                _ => (second, first),
            };
            made.push(Pair {
                bytes: transfer.bytes,
                direct,
                routed,
            });
        }
        Ok(Seen { pairs: made })
    }

    fn outcome(&self, seen: &Seen) -> String {
        let of = |bytes: u64| {
            let of: Vec<f64> = seen
                .pairs
                .iter()
                .filter(|pair| pair.bytes == bytes)
                .map(Pair::ratio)
                .collect();
            Spread::of(&of).map_or_else(String::new, |spread| format!("{:.2}", spread.median))
        };
        format!("by direct, median of each size: {}", SIZES.map(of).join(" "))
    }

    fn under_noise(&self, _cell: &Cell) -> bool {
        false
    }

    fn page(&self, runs: &Runs<'_, Cell, Seen>) -> Result<Page> {
        let mut table = Table::new([
            "size",
            "pairs",
            "direct, s (median)",
            "routed, s (median)",
            "routed by direct: median (quartiles)",
            "sum by sum",
            "passed a depot",
            "promised",
            "kept",
        ]);
        for bytes in SIZES {
            let name = quantities::ByteCount(bytes).to_string();
            table.row(row(name, &all(runs, |pair| pair.bytes == bytes)));
        }
        let mut classes = Table::new([
            "size class",
            "pairs",
            "sum of routed by sum of direct (95 of 100)",
        ]);
        for (class, (_, name)) in CLASSES.iter().enumerate() {
            let pairs = all(runs, |pair| class_of(pair.bytes) == class);
            if let Some((ratio, [low, high])) = sums(&pairs) {
                classes.row([
                    (*name).to_owned(),
                    pairs.len().to_string(),
                    format!("{ratio:.2} ({low:.2}..{high:.2})"),
                ]);
            }
        }
        Ok(Page::new(HEAD)
            .table(&classes)
            .paragraph(OF_CLASSES)
            .table(&table))
    }

    fn figures(&self, runs: &Runs<'_, Cell, Seen>) -> Vec<Figure> {
        let classes = (0..CLASSES.len())
            .filter_map(|class| sums(&all(runs, |pair| class_of(pair.bytes) == class)))
            .map(|(ratio, _)| format!("{ratio:.2}"))
            .collect::<Vec<_>>();
        vec![Figure::new(
            "classes",
            "time of routed copies by that of direct ones right beside them, of each class of sizes",
            classes.join(", "),
        )]
    }
}

fn all<'a>(runs: &Runs<'a, Cell, Seen>, wanted: impl Fn(&Pair) -> bool) -> Vec<&'a Pair> {
    let records = runs.pick(|_| true);
    let pairs = records.into_iter().flat_map(|record| &record.seen.pairs);
    pairs.filter(|pair| wanted(pair)).collect()
}

fn sums(pairs: &[&Pair]) -> Option<(f64, [f64; 2])> {
    let seconds: Vec<_> = pairs
        .iter()
        .map(|pair| (pair.direct.seconds, pair.routed.seconds))
        .collect();
    stats::sums(&seconds)
}

fn row(name: String, pairs: &[&Pair]) -> Vec<String> {
    let spread = |of: fn(&Pair) -> f64| Spread::of(&pairs.iter().map(|pair| of(pair)).collect::<Vec<_>>());
    let ratio = spread(Pair::ratio).map_or_else(
        || "-".to_owned(),
        |ratio| format!("{:.2} ({:.2}..{:.2})", ratio.median, ratio.lower, ratio.upper),
    );
    let promised: Vec<bool> = pairs
        .iter()
        .filter_map(|pair| {
            let (p10, p90) = pair.routed.promised?;
            Some((p10..=p90).contains(&pair.routed.seconds))
        })
        .collect();
    vec![
        name,
        pairs.len().to_string(),
        number(spread(|pair| pair.direct.seconds).map(|spread| spread.median), 3),
        number(spread(|pair| pair.routed.seconds).map(|spread| spread.median), 3),
        ratio,
        number(sums(pairs).map(|(ratio, _)| ratio), 2),
        pairs
            .iter()
            .filter(|pair| !pair.routed.depots.is_empty())
            .count()
            .to_string(),
        promised.len().to_string(),
        promised.iter().filter(|kept| **kept).count().to_string(),
    ]
}

const HEAD: &str = "The six sites, links, servers, depots and the controller of [mesh](mesh.md), whose links change. Each copy is made twice, one right after the other, by \
    `longhaul cp --route direct` and by `longhaul cp` with nothing said, which asks the controller, at a site that has none and at one that has; every other time the other way round. So both meet the same links, the same measurements of the depots, and the same machine. Times are of the whole command.";

const OF_CLASSES: &str = "In brackets, between which values that lies in 95 of 100 samples drawn from the pairs. Of the largest class there are copies of 32 MiB only.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_makes_the_same_pairs_again_of_all_sizes_between_two_sites() {
        assert_eq!(pairs(7), pairs(7));
        assert_ne!(pairs(7), pairs(8));
        assert_eq!(pairs(7).len(), PAIRS * SIZES.len());
        assert!(pairs(7).iter().all(|one| one.from != one.to));
    }
}
