//! Comparison of the model with every published run of a copy over a path with known figures:
//! `docs/results/depots.json`, `streams.json` and `first-byte.json`. `cargo test -p
//! longhaul-routing --test published -- --nocapture` prints the table of `docs/routing.md`.

#![allow(clippy::unwrap_used)] // the helpers of a test

use std::collections::BTreeMap;
use std::path::Path;

use longhaul_routing::Quantiles;
use longhaul_routing::route::map::{HopForecast, Node, RouteMap};
use longhaul_routing::route::model::CongestionModel;
use longhaul_routing::route::{NodeId, RouteDepots, Transfer};
use serde_json::Value;

/// Payload share of a packet of 1500 bytes.
const PAYLOAD: f64 = 1448.0 / 1500.0;

/// One hop of a setting: milliseconds, loss, Mbit/s on the wire.
type Link = (f64, f64, f64);

/// A setting of the lab, from its scenario file.
struct Setting {
    direct: Link,
    depots: Vec<Link>,
    /// Buffers of the ends, in bytes; the depots' are larger than any window here.
    window: u64,
    control: CongestionModel,
}

fn setting(name: &str) -> Option<Setting> {
    let lsl_2 = |window| Setting {
        // The loss of 1.3e-3 is divided by delay; the link to Houston is counted in addition.
        direct: (122.0, 1.3e-3, 155.0),
        depots: vec![
            (87.0, 1.3e-3 * 43.5 / 61.0, 155.0),
            (39.0, 1.3e-3 * 19.5 / 61.0, 155.0),
        ],
        window,
        control: CongestionModel::Reno,
    };
    let mnemonic = |lan: f64, wan: f64, window, control| Setting {
        direct: (2.0 * lan + wan, 2e-5, 1000.0),
        depots: vec![(lan, 1e-5, 1000.0), (wan, 0.0, 1000.0), (lan, 1e-5, 1000.0)],
        window,
        control,
    };
    const LARGE: u64 = 64 << 20;
    const UNTUNED: u64 = 64 << 10;
    Some(match name {
        "lsl-anl-utk" => Setting {
            direct: (106.0, 1.25e-3, 155.0),
            depots: vec![
                (75.0, 8.2e-4 * 37.5 / 38.65, 622.0),
                (2.3, 8.2e-4 * 1.15 / 38.65, 155.0),
            ],
            window: 8 << 20,
            control: CongestionModel::Reno,
        },
        "lsl-ucsd-utk" => lsl_2(8 << 20),
        "lsl-ucsd-utk-64k" => lsl_2(UNTUNED),
        "mnemonic-10-50-10-64k" => mnemonic(10.0, 50.0, UNTUNED, CongestionModel::Reno),
        "mnemonic-25-100-25-64k" => mnemonic(25.0, 100.0, UNTUNED, CongestionModel::Reno),
        "mnemonic-10-50-10-reno" => mnemonic(10.0, 50.0, LARGE, CongestionModel::Reno),
        "mnemonic-10-50-10-cubic" => mnemonic(10.0, 50.0, LARGE, CongestionModel::Cubic),
        "mnemonic-10-50-10-bbr" => mnemonic(10.0, 50.0, LARGE, CongestionModel::Bbr),
        "mnemonic-25-100-25-reno" => mnemonic(25.0, 100.0, LARGE, CongestionModel::Reno),
        "mnemonic-25-100-25-cubic" => mnemonic(25.0, 100.0, LARGE, CongestionModel::Cubic),
        "mnemonic-25-100-25-bbr" => mnemonic(25.0, 100.0, LARGE, CongestionModel::Bbr),
        "clean-long" => Setting {
            direct: (120.0, 0.0, 155.0),
            depots: vec![(60.0, 0.0, 155.0), (60.0, 0.0, 155.0)],
            window: LARGE,
            control: CongestionModel::Cubic,
        },
        _ => return None,
    })
}

fn expected(setting: &Setting, by_depots: bool, transfer: &Transfer) -> Quantiles {
    let links = if by_depots {
        setting.depots.clone()
    } else {
        vec![setting.direct]
    };
    let last = links.len() as u32;
    let end = Node {
        window: Some(setting.window),
        control: setting.control,
        ..Node::END
    };
    let depot = Node {
        control: setting.control,
        ..Node::DEPOT
    };
    let nodes = (0..=last).map(|node| {
        if node == 0 || node == last {
            end
        } else {
            depot
        }
    });
    let pairs: Vec<(NodeId, NodeId)> = (0..last)
        .map(|node| (NodeId(node), NodeId(node + 1)))
        .collect();
    let mut map = RouteMap::new(nodes.collect(), &pairs);
    for ((from, to), (rtt, loss, rate)) in pairs.iter().zip(&links) {
        let known = HopForecast {
            rtt: Quantiles::exactly(rtt / 1e3),
            loss: Quantiles::exactly(*loss),
            rate: Quantiles::exactly(rate * 1e6 * PAYLOAD),
            at: 0.0,
            samples: u32::MAX,
        };
        let hop = map.hop(*from, *to).unwrap();
        assert!(map.update(hop, &known));
    }
    let depots: Vec<NodeId> = (1..last).map(NodeId).collect();
    let via = RouteDepots::new(&depots).unwrap();
    map.expected(NodeId(0), &via, NodeId(last), transfer, 0.0)
        .unwrap()
        .time
}

struct Run {
    group: String,
    took: f64,
    expected: Quantiles,
}

fn runs() -> Vec<Run> {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
    let mut all = Vec::new();
    for file in ["depots", "streams", "first-byte"] {
        let text = std::fs::read_to_string(results.join(format!("{file}.json"))).unwrap();
        let runs: Vec<Value> = serde_json::from_str(&text).unwrap();
        for run in &runs {
            let (cell, seen) = (&run["cell"], &run["seen"]);
            // Excluded are runs with which the lab did not keep up, noise that the model does not
            // know, and copies that changed their streams.
            let fixed = &cell["fixed"];
            let steady = file == "depots" || fixed.is_number();
            if run["gate"]["valid"] != true || cell["noise"] != "none" || !steady {
                continue;
            }
            let name = cell["setting"].as_str().unwrap();
            let Some(setting) = setting(name).or_else(|| setting(&format!("{name}-reno"))) else {
                continue;
            };
            let bytes = seen["bytes"].as_u64().unwrap();
            let streams = seen["streams"].as_u64().unwrap() as u16;
            let by_depots = cell["way"] == "depots";
            let size = if bytes >= 1 << 20 {
                "from 1 MiB"
            } else {
                "below 1 MiB"
            };
            let path = match name {
                name if name.starts_with("lsl") => "LSL's paths",
                name if name.ends_with("64k") => "MNEMONIC, 64 KB hosts",
                name if name.ends_with("bbr") => "MNEMONIC, BBR",
                name if name.starts_with("mnemonic") => "MNEMONIC, Reno and CUBIC",
                _ => "clean path",
            };
            let way = if by_depots { "depots" } else { "direct" };
            all.push(Run {
                group: format!(
                    "{path}, {size}, {way}{}",
                    if streams > 1 { ", 2 to 16 streams" } else { "" }
                ),
                took: seen["seconds"].as_f64().unwrap(),
                expected: expected(&setting, by_depots, &Transfer { bytes, streams }),
            });
        }
    }
    all
}

/// Returns the median, the ninth decile and the maximum of the absolute logarithms of actual times
/// relative to expected ones.
fn errors<'a>(runs: impl Iterator<Item = &'a Run>) -> [f64; 3] {
    let mut errors: Vec<f64> = runs
        .map(|run| (run.took / run.expected.p50).ln().abs())
        .collect();
    errors.sort_by(f64::total_cmp);
    let at = |part: f64| errors[((errors.len() - 1) as f64 * part).round() as usize];
    [at(0.5), at(0.9), at(1.0)]
}

fn inside<'a>(runs: impl Iterator<Item = &'a Run>) -> usize {
    runs.filter(|run| run.took >= run.expected.p10 && run.took <= run.expected.p90)
        .count()
}

#[test]
fn the_model_is_close_to_all_published_runs() {
    let runs = runs();
    let mut groups: BTreeMap<&str, Vec<&Run>> = BTreeMap::new();
    for run in &runs {
        groups.entry(&run.group).or_default().push(run);
    }
    println!(
        "| runs | number | median error | nine in ten below | greatest | within p10 to p90 \
        |\n|---|---|---|---|---|---|"
    );
    let line = |name: &str, [median, ninth, greatest]: [f64; 3], inside: usize, count: usize| {
        let percent = |log: f64| (log.exp() - 1.0) * 100.0;
        println!(
            "| {name} | {count} | {:.1} % | {:.1} % | {:.1} % | {inside} |",
            percent(median),
            percent(ninth),
            percent(greatest)
        );
    };
    for (name, group) in &groups {
        line(
            name,
            errors(group.iter().copied()),
            inside(group.iter().copied()),
            group.len(),
        );
    }
    let [median, ninth, greatest] = errors(runs.iter());
    line(
        "all",
        [median, ninth, greatest],
        inside(runs.iter()),
        runs.len(),
    );
    if std::env::var_os("EACH").is_some() {
        for run in &runs {
            println!("{} {:.3} {:?}", run.group, run.took, run.expected);
        }
    }
    assert!(runs.len() > 150, "{}", runs.len());
    // As stated in docs/routing.md.
    assert!(median < 0.07_f64, "{median}");
}
