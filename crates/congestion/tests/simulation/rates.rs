//! Rates of one flow under random loss, and what it retransmits.

use std::time::Duration;

use crate::{
    link::{Link, PAYLOAD_BYTES},
    network::Network,
};

const MIB: u64 = 1 << 20;

/// Results of one transfer.
struct Transfer {
    /// Payload rate of the whole transfer, in Mbit/s.
    whole: f64,
    /// Payload rate after the start-up, in Mbit/s.
    steady: f64,
    /// Part of the packets that was retransmitted after the start-up.
    retransmitted: f64,
}

/// Transfers some payload. The start-up counts as over after thirty round trips.
fn transfer(link: Link, payload_bytes: u64, seed: u64) -> Transfer {
    let mut network = Network::with_one_flow(link, seed);
    network.run_until(link.round_trip * 30);
    let start_up = network.now.as_secs_f64();
    let (sent, lost) = (network.flows[0].sent, network.flows[0].lost);
    let left = payload_bytes - network.flows[0].delivered * PAYLOAD_BYTES;
    let seconds = network.run_until_delivered(0, left);
    let flow = &network.flows[0];
    Transfer {
        whole: (payload_bytes * 8) as f64 / (start_up + seconds) / 1e6,
        steady: (left * 8) as f64 / seconds / 1e6,
        retransmitted: (flow.lost - lost) as f64 / (flow.sent - sent) as f64,
    }
}

/// Transfers some payload and prints the result.
fn measure(link: Link, mib: u64, seed: u64) -> Transfer {
    let transfer = transfer(link, mib * MIB, seed);
    let possible = link.goodput_bps() / 1e6;
    println!(
        "{:5} Mbit/s {:3} ms {:5} % queue {:5} kB {mib:4} MiB: steady {:4.0} ({:.3}), whole {:4.0} \
         ({:.3}), retransmitted {:.2} %",
        link.bps / 1e6,
        link.round_trip.as_millis(),
        link.loss * 100.0,
        link.queue_bytes / 1000,
        transfer.steady,
        transfer.steady / possible,
        transfer.whole,
        transfer.whole / possible,
        transfer.retransmitted * 100.0,
    );
    transfer
}

/// Asserts the rate after the start-up, as a share of the possible rate, with several seeds.
fn assert_steady(link: Link, mib: u64, min_share: f64) {
    for seed in 2..=3 {
        let steady = measure(link, mib, seed).steady;
        assert!(
            steady * 1e6 >= min_share * link.goodput_bps(),
            "{steady} Mbit/s"
        );
    }
}

/// Asserts the rates of 1 GiB, as shares of the possible rate.
fn assert_whole(link: Link, min_share: f64) {
    let Transfer { whole, steady, .. } = measure(link, 1024, 1);
    assert!(
        steady * 1e6 >= min_share * link.goodput_bps(),
        "{steady} Mbit/s"
    );
    assert!(
        whole * 1e6 >= min_share * link.goodput_bps(),
        "{whole} Mbit/s"
    );
}

#[test]
fn random_loss_at_155_mbit_hardly_slows_a_flow() {
    for (round_trip_ms, loss) in [(10, 0.001), (90, 0.01), (150, 0.02), (200, 0.02)] {
        let link = Link::new(155.0, round_trip_ms, loss);
        assert_whole(link, 0.86);
        assert_steady(link, 256, 0.86);
    }
}

#[test]
fn five_percent_of_loss_leaves_most_of_the_rate() {
    let link = Link::new(155.0, 550, 0.05);
    assert_whole(link, 0.7);
    assert_steady(link, 512, 0.7);
}

#[test]
fn random_loss_at_1_gbit_hardly_slows_a_flow() {
    for loss in [0.0, 0.0001, 0.001, 0.01] {
        let link = Link::new(1000.0, 60, loss);
        assert_steady(link, 512, 0.9);
        assert_steady(
            Link {
                queue_bytes: 1_000_000,
                ..link
            },
            512,
            0.9,
        );
    }
}

#[test]
fn a_gibibyte_with_little_loss_takes_ten_seconds() {
    let link = Link::new(1000.0, 60, 0.001);
    for queue_bytes in [link.queue_bytes, 1_000_000] {
        let whole = measure(
            Link {
                queue_bytes,
                ..link
            },
            1024,
            1,
        )
        .whole;
        assert!(whole >= 868.0, "{whole} Mbit/s");
    }
}

#[test]
fn clean_paths_retransmit_less_than_one_percent() {
    for (mbps, round_trip_ms) in [(10.0, 30), (155.0, 10), (1000.0, 60), (500.0, 200)] {
        let mut network = Network::with_one_flow(Link::new(mbps, round_trip_ms, 0.0), 1);
        network.run_until(network.link.round_trip * 40);
        let (sent, lost) = (network.flows[0].sent, network.flows[0].lost);
        network.run_until(network.now + Duration::from_secs(10));
        let flow = &network.flows[0];
        let retransmitted = (flow.lost - lost) as f64 / (flow.sent - sent) as f64;
        println!("{mbps} Mbit/s {round_trip_ms} ms clean: retransmitted {retransmitted:.4}");
        assert!(retransmitted < 0.01, "{retransmitted}");
    }
}
