//! Changes of the path and of the application while a flow runs.

use std::time::Duration;

use crate::{
    link::{Link, PAYLOAD_BYTES},
    network::Network,
};

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// Returns the payload rate of the only flow in some seconds, as a part of the possible rate.
fn utilisation(network: &mut Network, time: f64) -> f64 {
    let rates = network.measure(seconds(time));
    rates[0] / network.link.goodput_bps()
}

#[test]
fn a_tenth_of_the_rate_and_its_return_are_followed() {
    for (mbps, round_trip_ms, loss) in [(500.0, 40, 0.0), (1000.0, 60, 0.001), (155.0, 90, 0.01)] {
        let full = Link::new(mbps, round_trip_ms, loss);
        let mut network = Network::with_one_flow(full, 1);
        network.run_until(seconds(5.0));
        network.link.bps /= 10.0;
        // Ten rounds with a queue that now takes ten times as long.
        let rounds = full.round_trip.as_secs_f64() * 11.0 * 10.0;
        let falling = utilisation(&mut network, rounds);
        let estimate = network.flows[0].controller().bandwidth() as f64 * 8.0 / network.link.bps;
        let sent = (network.flows[0].sent, network.flows[0].lost);
        let low = utilisation(&mut network, 5.0);
        let lost =
            (network.flows[0].lost - sent.1) as f64 / (network.flows[0].sent - sent.0) as f64;
        network.link.bps *= 10.0;
        network.run_until(network.now + seconds(3.0));
        let recovered = utilisation(&mut network, 1.0);
        println!(
            "{mbps} Mbit/s {round_trip_ms} ms: while falling {falling:.2}, estimate {estimate:.2}, \
             at a tenth {low:.2} (lost {lost:.3}), 3 s after its return {recovered:.2}"
        );
        assert!(falling > 0.85, "{falling}");
        assert!((0.8..1.5).contains(&estimate), "{estimate}");
        assert!(low > 0.85, "{low}");
        assert!(recovered > 0.9, "{recovered}");
    }
}

#[test]
fn an_outage_is_survived() {
    for outage in [1.0, 10.0] {
        let link = Link::new(500.0, 40, 0.001);
        let mut network = Network::with_one_flow(link, 1);
        network.run_until(seconds(5.0));
        network.link.loss = 1.0;
        network.run_until(network.now + seconds(outage));
        let window = network.flows[0].controller().window_bytes();
        network.link.loss = link.loss;
        network.run_until(network.now + seconds(outage + 2.0));
        let recovered = utilisation(&mut network, 2.0);
        println!("after an outage of {outage} s: window {window}, then {recovered:.2} of the rate");
        assert!(recovered > 0.9, "{recovered}");
    }
}

#[test]
fn an_idle_minute_costs_neither_rate_nor_loss() {
    let mut network = Network::with_one_flow(Link::new(500.0, 40, 0.0), 1);
    network.run_until(seconds(5.0));
    network.flows[0].supply = Some(0);
    network.run_until(network.now + seconds(60.0));
    let lost = network.flows[0].lost;
    network.flows[0].supply = None;
    network.wake(0);
    let share = utilisation(&mut network, 1.0);
    println!("after an idle minute: {share:.2} of the rate in the first second");
    assert!(share > 0.9, "{share}");
    assert_eq!(network.flows[0].lost, lost);
}

#[test]
fn an_application_with_little_data_keeps_the_estimate() {
    let mut network = Network::with_one_flow(Link::new(500.0, 40, 0.0), 1);
    network.run_until(seconds(5.0));
    let before = network.flows[0].controller().bandwidth() as f64;
    // 20 packets every 10 ms are 23 Mbit/s.
    network.flows[0].supply = Some(0);
    for _ in 0..2_000 {
        network.flows[0].supply = Some(20);
        network.wake(0);
        network.run_until(network.now + Duration::from_millis(10));
    }
    let after = network.flows[0].controller().bandwidth() as f64;
    println!(
        "app-limited for 20 s: the estimate is {:.2} of the one before",
        after / before
    );
    assert!(after > 0.95 * before, "{after} of {before}");
}

#[test]
fn a_longer_round_trip_is_learnt() {
    let mut network = Network::with_one_flow(Link::new(200.0, 20, 0.001), 1);
    network.run_until(seconds(5.0));
    network.link = Link::new(200.0, 80, 0.001);
    network.run_until(network.now + seconds(15.0));
    let share = utilisation(&mut network, 3.0);
    println!("round trip of 20 ms, then 80 ms: {share:.2} of the rate");
    assert!(share > 0.9, "{share}");
}

#[test]
fn jitter_hardly_slows_a_flow() {
    // Long jitter looks like a queue that never drains, so loss counts as congestion rather early.
    for (jitter_ms, loss, min_share) in [
        (1, 0.0, 0.9),
        (5, 0.0, 0.9),
        (5, 0.01, 0.9),
        (10, 0.01, 0.9),
        (10, 0.001, 0.5),
    ] {
        let jitter = Duration::from_millis(jitter_ms);
        let mut network = Network::with_one_flow(
            Link {
                jitter,
                ..Link::new(155.0, 60, loss)
            },
            1,
        );
        network.run_until(seconds(3.0));
        let (sent, lost) = (network.flows[0].sent, network.flows[0].lost);
        let share = utilisation(&mut network, 20.0);
        let lost = (network.flows[0].lost - lost) as f64 / (network.flows[0].sent - sent) as f64;
        println!("jitter of {jitter_ms} ms, loss {loss}: {share:.2} of the rate, lost {lost:.4}");
        assert!(share > min_share, "{share}");
        assert!(lost < loss + 0.01, "{lost}");
    }
}

#[test]
fn short_queues_are_not_taken_for_random_loss() {
    for (mbps, round_trip_ms) in [(155.0, 10), (155.0, 60), (500.0, 20), (500.0, 100)] {
        let link = Link::new(mbps, round_trip_ms, 0.0).with_queue(0.1);
        let mut network = Network::with_one_flow(link, 1);
        network.run_until(link.round_trip * 40);
        let (sent, lost) = (network.flows[0].sent, network.flows[0].lost);
        let began_at = (network.now, network.flows[0].delivered);
        network.run_until(network.now + link.round_trip * 400);
        let flow = &network.flows[0];
        let lost = (flow.lost - lost) as f64 / (flow.sent - sent) as f64;
        let bps = ((flow.delivered - began_at.1) * PAYLOAD_BYTES * 8) as f64
            / (network.now - began_at.0).as_secs_f64();
        let share = bps / link.goodput_bps();
        println!("{mbps} Mbit/s {round_trip_ms} ms, 0.1 products: {share:.2}, lost {lost:.4}");
        assert!(share > 0.85, "{share}");
        assert!(lost < 0.03, "{lost}");
    }
}

#[test]
fn late_loss_and_bursts_of_acks_hardly_slow_a_flow() {
    for (late_loss, ack_interval_ms) in [(0.0, 5), (0.001, 10), (0.01, 0), (0.05, 0), (0.01, 20)] {
        let ack_interval = Duration::from_millis(ack_interval_ms);
        let link = Link {
            late_loss,
            ack_interval,
            ..Link::new(155.0, 60, 0.0)
        };
        let mut network = Network::with_one_flow(link, 1);
        network.run_until(seconds(3.0));
        let (sent, lost) = (network.flows[0].sent, network.flows[0].lost);
        let share = utilisation(&mut network, 20.0);
        let lost = (network.flows[0].lost - lost) as f64 / (network.flows[0].sent - sent) as f64;
        println!(
            "late loss {late_loss}, acks every {ack_interval_ms} ms: {share:.2} of the rate, \
             lost {lost:.4}"
        );
        assert!(share > 0.9, "{share}");
        assert!(lost < late_loss + 0.01, "{lost}");
    }
}
