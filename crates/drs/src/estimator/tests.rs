//! Verdicts on synthetic samples: one scenario per limit, each with what distinguishes it from
//! similar ones. Recorded traces of real kernels are in `tests/replay.rs`.

mod noise;

use std::time::Duration;

use super::*;
use crate::{Bbr, Buffers, Congestion, CongestionName, Queues, SAMPLE_PERIOD, TcpInfo};

const MS: Duration = Duration::from_millis(1);
const MSS: u32 = 1000;

/// A bulk flow over 50 ms at 8 Mbit/s (50 KB in flight), without any other limit.
fn bulk(congestion: &[u8]) -> Sample {
    Sample {
        at: Duration::ZERO,
        info: TcpInfo {
            rtt: 50 * MS,
            receive_rtt: 50 * MS,
            min_rtt: Some(50 * MS),
            send_mss: MSS,
            congestion_window: 50,
            send_window: Some(10_000_000),
            receive_window: Some(1_000_000),
            bytes_acked: Some(0),
            bytes_received: Some(0),
            busy: Some(Duration::ZERO),
            receive_window_limited: Some(Duration::ZERO),
            send_buffer_limited: Some(Duration::ZERO),
            pacing_rate: Some(1_200_000),
            out_of_order: Some(0),
            ..TcpInfo::default()
        },
        queues: Queues {
            unacknowledged: 250_000,
            unsent: 200_000,
            unread: 0,
        },
        buffers: Buffers {
            send: 300_000,
            send_used: 280_000,
            receive: 2_000_000,
            receive_used: 0,
            send_locked: Some(false),
            receive_locked: Some(false),
        },
        congestion: Congestion {
            name: CongestionName::from_kernel(congestion),
            bbr: None,
        },
        fitted_rate: None,
    }
}

/// Continues from `from` for `time`, and returns the verdicts. Time and busy time advance, a
/// megabyte per second moves, and `change` does the rest.
fn go_on(
    estimator: &mut Estimator,
    from: &mut Sample,
    time: Duration,
    mut change: impl FnMut(&mut Sample),
) -> Vec<Limit> {
    let end = from.at + time;
    let mut limits = vec![];
    while from.at < end {
        from.at += SAMPLE_PERIOD;
        from.info.busy = from.info.busy.map(|busy| busy + SAMPLE_PERIOD);
        from.info.bytes_acked = from.info.bytes_acked.map(|bytes| bytes + 20_000);
        from.info.bytes_received = from.info.bytes_received.map(|bytes| bytes + 20_000);
        change(from);
        limits.extend(estimator.observe(from).map(|verdict| verdict.limit));
    }
    limits
}

fn only(side: Side, mut sample: Sample, change: impl FnMut(&mut Sample)) -> Limit {
    let limits = go_on(
        &mut Estimator::new(side),
        &mut sample,
        Duration::from_secs(3),
        change,
    );
    assert!(limits.len() >= 25, "{}", limits.len());
    assert!(limits.iter().all(|limit| *limit == limits[0]), "{limits:?}");
    limits[0]
}

fn grow(counter: &mut Option<Duration>, by: Duration) {
    *counter = counter.map(|time| time + by);
}

#[test]
fn slow_program_is_the_limit() {
    let mut sample = bulk(b"cubic");
    sample.queues.unsent = 0;
    sample.queues.unacknowledged = 20_000;
    sample.buffers.send_used = 25_000;
    assert_eq!(
        only(Side::Sending, sample, |_| ()),
        Limit::SendingApplication
    );
}

#[test]
fn idle_program_is_the_limit() {
    let mut sample = bulk(b"reno");
    sample.queues = Queues::default();
    sample.buffers.send_used = 0;
    let idle = |sample: &mut Sample| {
        sample.info.busy = Some(Duration::ZERO);
        sample.info.bytes_acked = Some(0);
    };
    assert_eq!(only(Side::Sending, sample, idle), Limit::SendingApplication);
}

#[test]
fn small_send_buffer_is_the_limit() {
    let mut sample = bulk(b"reno");
    sample.queues.unsent = 0;
    sample.queues.unacknowledged = 20_000;
    sample.buffers.send = 30_000;
    sample.buffers.send_used = 25_000;
    let stall = |sample: &mut Sample| grow(&mut sample.info.send_buffer_limited, 15 * MS);
    assert_eq!(only(Side::Sending, sample, stall), Limit::SendBuffer);
    // Without the kernel's count, the queues show it if someone set the size. A buffer that the
    // kernel sizes would have grown.
    assert_eq!(
        only(Side::Sending, sample, |_| ()),
        Limit::SendingApplication
    );
    sample.buffers.send_locked = Some(true);
    assert_eq!(only(Side::Sending, sample, |_| ()), Limit::SendBuffer);
}

#[test]
fn peer_window_at_ceiling_differs_from_closing_one() {
    let mut sample = bulk(b"cubic");
    sample.info.send_window = Some(20_000);
    sample.queues.unacknowledged = 220_000;
    let stall = |sample: &mut Sample| grow(&mut sample.info.receive_window_limited, 19 * MS);
    assert_eq!(only(Side::Sending, sample, stall), Limit::ReceiveWindow);
    let mut estimator = Estimator::new(Side::Sending);
    let wide = Sample {
        info: TcpInfo {
            send_window: Some(60_000),
            ..sample.info
        },
        ..sample
    };
    estimator.observe(&wide);
    let limits = go_on(&mut estimator, &mut sample, Duration::from_secs(1), stall);
    assert!(
        limits
            .iter()
            .all(|limit| *limit == Limit::ReceivingApplication),
        "{limits:?}"
    );
}

#[test]
fn a_window_wider_than_the_path_is_the_paths_limit() {
    let mut sample = bulk(b"cubic");
    sample.info.send_window = Some(20_000);
    sample.info.rtt = 80 * MS;
    sample.queues.unacknowledged = 220_000;
    let stall = |sample: &mut Sample| grow(&mut sample.info.receive_window_limited, 19 * MS);
    assert_eq!(only(Side::Sending, sample, stall), Limit::Path);
}

#[test]
fn a_rate_that_someone_set_limits_only_when_reached() {
    let mut sample = bulk(b"reno");
    sample.info.max_pacing_rate = Some(1_000_000);
    sample.info.pacing_rate = Some(1_000_000);
    assert_eq!(only(Side::Sending, sample, |_| ()), Limit::Pacing);
    sample.info.max_pacing_rate = Some(100_000_000);
    sample.info.pacing_rate = Some(1_200_000);
    assert_eq!(only(Side::Sending, sample, |_| ()), Limit::Growing);
}

#[test]
fn a_rate_fitted_to_the_path_is_the_paths_limit() {
    for congestion in [b"reno".as_slice(), b"bbr"] {
        let mut sample = bulk(congestion);
        sample.info.max_pacing_rate = Some(1_000_000);
        sample.info.pacing_rate = Some(1_000_000);
        sample.fitted_rate = Some(1_000_000);
        assert_eq!(only(Side::Sending, sample, |_| ()), Limit::Path);
        let mut estimator = Estimator::new(Side::Sending);
        let verdict = (0..10).find_map(|_| {
            sample.at += 50 * MS;
            estimator.observe(&sample)
        });
        assert_eq!(verdict.unwrap().evidence.fitted_bps, Some(8e6));
        // Someone else limits the flow to a lower rate.
        sample.fitted_rate = Some(2_000_000);
        assert_eq!(only(Side::Sending, sample, |_| ()), Limit::Pacing);
    }
}

#[test]
fn a_fitted_rate_that_is_not_reached_does_not_limit() {
    let mut sample = bulk(b"reno");
    sample.info.max_pacing_rate = Some(100_000_000);
    sample.info.pacing_rate = Some(1_200_000);
    sample.fitted_rate = Some(100_000_000);
    assert_eq!(only(Side::Sending, sample, |_| ()), Limit::Growing);
    // A window of twice what the rate needs, half of it unused because of the pacing.
    sample.info.max_pacing_rate = Some(1_000_000);
    sample.info.pacing_rate = Some(1_000_000);
    sample.fitted_rate = Some(1_000_000);
    sample.info.congestion_window = 200;
    assert_eq!(only(Side::Sending, sample, |_| ()), Limit::Path);
}

#[test]
fn data_waiting_with_open_windows_is_held_by_this_host() {
    let mut sample = bulk(b"cubic");
    sample.info.congestion_window = 200;
    assert_eq!(only(Side::Sending, sample, |_| ()), Limit::Pacing);
}

#[test]
fn flow_without_limit_is_growing() {
    let sample = bulk(b"reno");
    let double = |sample: &mut Sample| {
        sample.info.congestion_window += 10;
        sample.queues.unacknowledged += 10_000;
    };
    assert_eq!(only(Side::Sending, sample, double), Limit::Growing);
}

/// Loses a segment, which halves the window.
fn lose(sample: &mut Sample) {
    sample.info.retransmits += 1;
    sample.info.congestion_window /= 2;
    sample.info.slow_start_threshold = Some(sample.info.congestion_window);
    let window = sample.congestion_window() as u32;
    sample.queues.unacknowledged = sample.queues.unsent + window;
}

#[test]
fn random_loss_is_distinguished_from_queue_overflow() {
    for (queue, expected) in [(false, Limit::Loss), (true, Limit::Path)] {
        let mut estimator = Estimator::new(Side::Sending);
        let mut sample = bulk(b"reno");
        let mut limits = vec![];
        for _ in 0..4 {
            let fill = |sample: &mut Sample| {
                if queue {
                    sample.info.rtt = 70 * MS;
                }
            };
            limits.extend(go_on(&mut estimator, &mut sample, 300 * MS, fill));
            lose(&mut sample);
            sample.info.rtt = 50 * MS;
            limits.extend(go_on(&mut estimator, &mut sample, 900 * MS, |sample| {
                sample.info.congestion_window += 1;
                sample.queues.unacknowledged += MSS;
            }));
        }
        let right = limits.iter().filter(|limit| **limit == expected).count();
        // Before the first loss, nothing has limited it.
        assert!(right + 4 >= limits.len(), "{expected}: {limits:?}");
        assert_eq!(limits.last(), Some(&expected));
    }
}

#[test]
fn a_path_that_became_wider_is_room_to_grow() {
    let mut estimator = Estimator::new(Side::Sending);
    let mut sample = bulk(b"cubic");
    go_on(
        &mut estimator,
        &mut sample,
        Duration::from_secs(1),
        |sample| sample.info.rtt = 80 * MS,
    );
    lose(&mut sample);
    sample.info.rtt = 50 * MS;
    let limits = go_on(
        &mut estimator,
        &mut sample,
        Duration::from_secs(3),
        |sample| {
            sample.info.congestion_window += 1;
            sample.queues.unacknowledged += MSS;
        },
    );
    assert_eq!(limits[2], Limit::Path);
    assert_eq!(limits.last(), Some(&Limit::Growing));
}

#[test]
fn congestion_mark_counts_as_queue() {
    let mut estimator = Estimator::new(Side::Sending);
    let mut sample = bulk(b"cubic");
    sample.info.delivered_ce = Some(0);
    go_on(&mut estimator, &mut sample, 200 * MS, |_| ());
    sample.info.delivered_ce = Some(1);
    sample.info.congestion_window -= 15;
    sample.queues.unacknowledged -= 15_000;
    let limits = go_on(&mut estimator, &mut sample, Duration::from_secs(1), |_| ());
    assert_eq!(limits.last(), Some(&Limit::Path));
}

#[test]
fn bbr_is_limited_by_its_model_and_not_by_losses() {
    let mut sample = bulk(b"bbr");
    sample.info.congestion_window = 100;
    let lossy = |gain| {
        move |sample: &mut Sample| {
            sample.info.retransmits += 1;
            sample.congestion.bbr = Some(Bbr {
                bandwidth: 1_000_000,
                min_rtt: 50 * MS,
                pacing_gain: gain,
                window_gain: 739,
            });
        }
    };
    assert_eq!(only(Side::Sending, sample, lossy(739)), Limit::Growing);
    assert_eq!(only(Side::Sending, sample, lossy(256)), Limit::Path);
}

#[test]
fn bbr_that_paces_just_below_the_peers_window_is_limited_by_it() {
    let mut sample = bulk(b"bbr");
    sample.info.congestion_window = 100;
    sample.info.send_window = Some(60_000);
    sample.queues.unacknowledged = 240_000;
    assert_eq!(only(Side::Sending, sample, |_| ()), Limit::ReceiveWindow);
    sample.info.send_window = Some(90_000);
    assert_eq!(only(Side::Sending, sample, |_| ()), Limit::Path);
}

#[test]
fn receiver_verdicts_of_each_limit() {
    let sample = bulk(b"cubic");
    assert_eq!(only(Side::Receiving, sample, |_| ()), Limit::Sender);
    let unread = |sample: &mut Sample| {
        sample.queues.unread = 100_000;
        sample.info.receive_window = Some(20_000);
    };
    assert_eq!(
        only(Side::Receiving, sample, unread),
        Limit::ReceivingApplication
    );
    let narrow = |sample: &mut Sample| sample.info.receive_window = Some(52_000);
    assert_eq!(only(Side::Receiving, sample, narrow), Limit::ReceiveWindow);
    let queue = |sample: &mut Sample| sample.info.receive_rtt = 90 * MS;
    assert_eq!(only(Side::Receiving, sample, queue), Limit::Path);
    let gaps =
        |sample: &mut Sample| sample.info.out_of_order = Some(sample.at.as_millis() as u32 / 100);
    assert_eq!(only(Side::Receiving, sample, gaps), Limit::Loss);
}

#[test]
fn interval_lasts_a_round_trip_within_its_bounds() {
    for (rtt, least, most) in [(1, 100, 120), (250, 250, 270), (5000, 1000, 1020)] {
        let mut sample = bulk(b"reno");
        sample.info.rtt = rtt * MS;
        sample.info.min_rtt = Some(rtt * MS);
        let mut estimator = Estimator::new(Side::Sending);
        estimator.observe(&sample);
        let verdict = std::iter::repeat_with(|| {
            sample.at += SAMPLE_PERIOD;
            estimator.observe(&sample)
        })
        .find_map(|verdict| verdict)
        .unwrap();
        assert!(
            (least * MS..=most * MS).contains(&verdict.evidence.interval),
            "{verdict:?}"
        );
    }
}

#[test]
fn one_interval_alone_does_not_change_the_verdict_and_two_do() {
    let mut smoothing = Smoothing::default();
    let settled = [
        Limit::Path,
        Limit::Loss,
        Limit::Path,
        Limit::Pacing,
        Limit::Pacing,
        Limit::Path,
    ]
    .map(|limit| smoothing.settle(limit));
    assert_eq!(
        settled,
        [
            Limit::Path,
            Limit::Path,
            Limit::Path,
            Limit::Path,
            Limit::Pacing,
            Limit::Pacing
        ]
    );
}

#[test]
fn decreasing_time_or_counters_reset_the_estimator() {
    let mut estimator = Estimator::new(Side::Sending);
    let mut sample = bulk(b"reno");
    go_on(&mut estimator, &mut sample, 300 * MS, |_| ());
    let fresh = bulk(b"reno");
    assert_eq!(estimator.observe(&fresh), None);
    let mut backwards = fresh;
    backwards.at = 150 * MS;
    backwards.info.bytes_acked = None;
    backwards.info.busy = None;
    let evidence = estimator.observe(&backwards).unwrap().evidence;
    assert_eq!(evidence.goodput_bps, 0.0);
    assert_eq!(estimator.observe(&Sample::default()), None);
}
