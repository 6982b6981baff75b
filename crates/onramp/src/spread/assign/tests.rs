#![allow(clippy::unwrap_used, clippy::panic)]

use proptest::prelude::*;

use super::*;

fn candidates(weights: &[f64]) -> Vec<PathCandidate> {
    let paths = weights.iter().map(|&weight| PathCandidate {
        weight,
        connections: 0,
        has_port: true,
    });
    paths.collect()
}

/// Returns the connections of each path after `count` new ones.
fn spread(weights: &[f64], count: usize) -> Vec<usize> {
    let mut paths = candidates(weights);
    for _ in 0..count {
        let chosen = choose_path(&paths).unwrap();
        paths[chosen].connections += 1;
    }
    paths.iter().map(|path| path.connections).collect()
}

#[test]
fn connections_are_in_proportion() {
    assert_eq!(spread(&[400.0, 100.0], 10), [8, 2]);
    assert_eq!(spread(&[400.0, 100.0, 400.0], 9), [4, 1, 4]);
    assert_eq!(spread(&[1.0, 1.0], 10), [5, 5]);
    assert_eq!(spread(&[70.0, 30.0], 10), [7, 3]);
    assert_eq!(spread(&[30.0, 70.0], 1), [0, 1]);
}

#[test]
fn unusable_paths_are_left_out() {
    assert_eq!(spread(&[0.0, 1.0, f64::NAN], 3), [0, 3, 0]);
    let mut paths = candidates(&[2.0, 1.0]);
    paths[0].has_port = false;
    assert_eq!(choose_path(&paths), Some(1));
    paths[1].has_port = false;
    assert_eq!(choose_path(&paths), None);
    assert_eq!(choose_path(&[]), None);
}

#[test]
fn shares_are_parsed_and_written() {
    for text in ["rate", "even", "70:30", "1:0:1", "5"] {
        assert_eq!(text.parse::<PathShares>().unwrap().to_string(), text);
    }
    for wrong in [
        "",
        "0",
        "0:0",
        "70:",
        ":30",
        "-1:1",
        "a:b",
        "1000001",
        "1:1:1:1:1:1:1:1:1",
        "Rate",
    ] {
        assert_eq!(wrong.parse::<PathShares>(), Err(SharesError), "{wrong}");
    }
}

#[test]
fn paths_beyond_the_stated_shares_are_not_used() {
    let shares: PathShares = "3:1".parse().unwrap();
    let weights = [0, 1, 2].map(|place| shares.weight(place, 1e9));
    assert_eq!(weights, [3.0, 1.0, 0.0]);
    assert_eq!(PathShares::Even.weight(7, 5.0), 1.0);
    assert_eq!(PathShares::Rate.weight(7, 5.0), 5.0);
}

proptest! {
    /// No connection of one path would gain by moving to another one.
    #[test]
    fn no_connection_would_gain_by_moving(
        weights in prop::collection::vec(1.0_f64..1e11, 1..8), count in 1_usize..200
    ) {
        let paths = spread(&weights, count);
        prop_assert_eq!(paths.iter().sum::<usize>(), count);
        for (own, of_own) in weights.iter().zip(&paths) {
            for (other, of_other) in weights.iter().zip(&paths) {
                let moved = other / (*of_other as f64 + 1.0);
                prop_assert!(*of_own == 0 || own / *of_own as f64 >= moved * (1.0 - 1e-9));
            }
        }
    }

    /// The number of each path differs from its exact share by less than the number of paths.
    #[test]
    fn numbers_are_near_the_exact_shares(
        weights in prop::collection::vec(1.0_f64..1e3, 1..8), count in 1_usize..200
    ) {
        let total: f64 = weights.iter().sum();
        for (weight, connections) in weights.iter().zip(spread(&weights, count)) {
            let exact = count as f64 * weight / total;
            let difference = (connections as f64 - exact).abs();
            prop_assert!(difference < weights.len() as f64, "{} of {}", connections, exact);
        }
    }

    /// After any endings, new connections bring the paths back into proportion.
    #[test]
    fn endings_are_made_up_for(
        weights in prop::collection::vec(1.0_f64..10.0, 2..8),
        open in prop::collection::vec(0_usize..20, 8),
    ) {
        let mut paths = candidates(&weights);
        for (path, connections) in paths.iter_mut().zip(open) {
            path.connections = connections;
        }
        let mut count: usize = paths.iter().map(|path| path.connections).sum();
        // With so many new ones, every surplus is gone.
        for _ in 0..4_000 {
            let chosen = choose_path(&paths).unwrap();
            paths[chosen].connections += 1;
            count += 1;
        }
        let total: f64 = weights.iter().sum();
        for path in &paths {
            let exact = count as f64 * path.weight / total;
            prop_assert!((path.connections as f64 - exact).abs() < weights.len() as f64);
        }
    }
}
