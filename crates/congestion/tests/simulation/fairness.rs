//! Shares of flows on one path.

use std::time::Duration;

use crate::{flow::Flow, link::Link, network::Network};

fn second(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn a_cubic_flow_keeps_its_share() {
    for products in [1.0, 4.0] {
        for seed in 1..=3 {
            let mut network = Network::new(Link::new(500.0, 40, 0.0).with_queue(products), seed);
            network.add(Flow::cubic(Duration::ZERO));
            network.run_until(second(5) + Duration::from_millis(700 * seed));
            network.add(Flow::longhaul(seed, network.now));
            network.run_until(network.now + second(5));
            let rates = network.measure(second(30));
            let share = rates[1] / (rates[0] + rates[1]);
            println!(
                "beside CUBIC, queue of {products} products: share {share:.2}, together {:.0}",
                (rates[0] + rates[1]) / 1e6
            );
            assert!((0.2..=0.6).contains(&share), "share {share}");
        }
    }
}

#[test]
fn two_flows_share_a_path() {
    for products in [0.5, 1.0] {
        for seed in 1..=3 {
            let mut network = Network::new(Link::new(500.0, 40, 0.0).with_queue(products), seed);
            network.add(Flow::longhaul(seed, Duration::ZERO));
            network.run_until(second(3));
            network.add(Flow::longhaul(seed + 100, network.now));
            network.run_until(network.now + second(20));
            let rates = network.measure(second(20));
            let share = rates[1] / (rates[0] + rates[1]);
            println!(
                "beside its like, queue of {products} products: share {share:.2}, together {:.0}",
                (rates[0] + rates[1]) / 1e6
            );
            assert!((0.3..=0.7).contains(&share), "share {share}");
        }
    }
}
