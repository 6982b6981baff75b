//! Simulation of a mesh of six sites: `cargo run -p longhaul-routing --example mesh -- SEEDS
//! [TRANSFERS]`.

mod simulation;

use simulation::{Totals, Trouble, run};

fn main() {
    let mut arguments = std::env::args()
        .skip(1)
        .filter_map(|text| text.parse::<usize>().ok());
    let seeds = arguments.next().unwrap_or(10);
    let transfers = arguments.next().unwrap_or(200);
    for trouble in [
        Trouble::None,
        Trouble::Depot,
        Trouble::Link,
        Trouble::Forecast,
        Trouble::Forecasts,
        Trouble::All,
    ] {
        println!(
            "{trouble:?}: seeds 1 to {seeds}, {transfers} transfers each; times by the oracle's"
        );
        println!("seed  routed  direct  one depot  bandwidth  LSL   by depots");
        let all: Vec<Totals> = (1..=seeds)
            .map(|seed| run(seed as u64, transfers, trouble))
            .collect();
        for (seed, totals) in all.iter().enumerate() {
            let by = |time: f64| time / totals.oracle;
            println!(
                "{:4}  {:6.3}  {:6.3}  {:9.3}  {:9.3}  {:4.3}  {}",
                seed + 1,
                by(totals.routed),
                by(totals.direct),
                by(totals.best_depot),
                by(totals.by_bandwidth),
                by(totals.lsl),
                totals.by_depots
            );
        }
        for class in 0..8 {
            let sum = |of: fn(&(usize, f64, f64, f64)) -> f64| {
                all.iter()
                    .map(|totals| of(&totals.classes[class]))
                    .sum::<f64>()
            };
            let (routed, direct, best) = (sum(|c| c.1), sum(|c| c.2), sum(|c| c.3));
            if direct > 0.0 {
                println!(
                    "class {class}: {} transfers, routed by direct {:.3}, by the oracle {:.3}",
                    sum(|c| c.0 as f64),
                    routed / direct,
                    routed / best
                );
            }
        }
        let share = all.iter().map(|totals| totals.explored).sum::<u64>() as f64
            / all.iter().map(|totals| totals.bulk).sum::<u64>() as f64;
        println!("explored: {:.2} % of bulk bytes\n", share * 100.0);
    }
}
