//! Rates of one flow under random loss, and what it retransmits.

use std::time::Duration;

use crate::{link::Link, network::Network};

const GIB: u64 = 1 << 30;

/// Results of one transfer.
struct Transfer {
    /// Payload rate of the whole transfer, in Mbit/s.
    whole: f64,
    /// Payload rate after the start-up, in Mbit/s.
    steady: f64,
    /// Part of the packets that was retransmitted after the start-up.
    retransmitted: f64,
}

/// Transfers 1 GiB. The start-up counts as over after forty round trips.
fn transfer(link: Link, seed: u64) -> Transfer {
    let mut network = Network::with_one_flow(link, seed);
    network.run_until(link.round_trip * 40);
    let start_up = network.now.as_secs_f64();
    let (sent, lost) = (network.flows[0].sent, network.flows[0].lost);
    let early = network.flows[0].delivered * crate::link::PAYLOAD_BYTES;
    let seconds = network.run_until_delivered(0, GIB - early);
    let flow = &network.flows[0];
    Transfer {
        whole: (GIB * 8) as f64 / (start_up + seconds) / 1e6,
        steady: ((GIB - early) * 8) as f64 / seconds / 1e6,
        retransmitted: (flow.lost - lost) as f64 / (flow.sent - sent) as f64,
    }
}

/// Transfers 1 GiB with several seeds, and asserts bounds of the shares of the possible rate.
fn assert_rates(link: Link, seeds: u64, min_steady: f64, min_whole: f64) {
    for seed in 1..=seeds {
        let Transfer {
            whole,
            steady,
            retransmitted,
        } = transfer(link, seed);
        let possible = link.goodput_bps() / 1e6;
        println!(
            "{:5} Mbit/s {:3} ms {:5} % queue {:5} kB: steady {steady:4.0} ({:.3}), \
             whole {whole:4.0} ({:.3}), retransmitted {:.2} %",
            link.bps / 1e6,
            link.round_trip.as_millis(),
            link.loss * 100.0,
            link.queue_bytes / 1000,
            steady / possible,
            whole / possible,
            retransmitted * 100.0,
        );
        assert!(
            steady >= min_steady * possible,
            "steady {steady} of {possible}"
        );
        assert!(whole >= min_whole * possible, "whole {whole} of {possible}");
    }
}

#[test]
fn random_loss_at_155_mbit_hardly_slows_a_flow() {
    for (round_trip_ms, loss) in [(10, 0.001), (90, 0.01), (150, 0.02), (200, 0.02)] {
        assert_rates(Link::new(155.0, round_trip_ms, loss), 2, 0.86, 0.86);
    }
}

#[test]
fn five_percent_of_loss_at_550_ms_leaves_most_of_the_rate() {
    assert_rates(Link::new(155.0, 550, 0.05), 2, 0.7, 0.7);
}

#[test]
fn random_loss_at_1_gbit_hardly_slows_a_flow() {
    for loss in [0.0, 0.0001, 0.001, 0.01] {
        assert_rates(Link::new(1000.0, 60, loss), 2, 0.9, 0.88);
    }
}

#[test]
fn short_queues_at_1_gbit_hardly_slow_a_flow() {
    for loss in [0.0, 0.0001, 0.001, 0.01] {
        let link = Link {
            queue_bytes: 1_000_000,
            ..Link::new(1000.0, 60, loss)
        };
        assert_rates(link, 2, 0.9, 0.88);
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
