use std::time::Duration;

use super::*;
use crate::{Buffers, Congestion, Evidence, Queues, TcpInfo};

const MB: u32 = 1 << 20;
const LOCKED: Option<Locks> = Some(Locks {
    send: true,
    receive: true,
});
const UNLOCKED: Option<Locks> = Some(Locks {
    send: false,
    receive: false,
});

fn host() -> Host {
    Host {
        receive_autotune: 6 * MB,
        receive_explicit: 32 * MB,
        send_autotune: 4 * MB,
        send_explicit: 32 * MB,
        ..Host::default()
    }
}

fn sample(buffer: u32) -> Sample {
    Sample {
        fitted_rate: None,
        at: Duration::ZERO,
        info: TcpInfo {
            receive_window: Some(buffer / 2),
            send_mss: 1000,
            bytes_sent: Some(100_000_000),
            ..TcpInfo::default()
        },
        queues: Queues::default(),
        buffers: Buffers {
            send: buffer,
            receive: buffer,
            ..Buffers::default()
        },
        congestion: Congestion {
            name: CongestionName::from_kernel(b"reno"),
            bbr: None,
        },
    }
}

fn verdict(limit: Limit) -> Verdict {
    Verdict {
        limit,
        evidence: Evidence {
            interval: Duration::from_millis(100),
            rtt: Duration::from_millis(100),
            min_rtt: Duration::from_millis(100),
            goodput_bps: 5e6,
            in_flight: 1_000_000,
            peer_window: 65_535,
            ..Evidence::default()
        },
    }
}

/// Decides on a sample whose buffers have these locks.
fn decide(auto: &mut Auto, sample: &Sample, verdict: &Verdict, locks: Option<Locks>) -> Orders {
    let mut sample = *sample;
    sample.buffers.send_locked = locks.map(|locks| locks.send);
    sample.buffers.receive_locked = locks.map(|locks| locks.receive);
    auto.decide(&sample, verdict)
}

/// Returns the orders after the same verdict `times` times.
fn after(
    auto: &mut Auto,
    times: u32,
    sample: &Sample,
    limit: Limit,
    locks: Option<Locks>,
) -> Orders {
    let mut last = Orders::default();
    for _ in 0..times {
        last = decide(auto, sample, &verdict(limit), locks);
    }
    last
}

fn actions(orders: &Orders) -> Vec<Action> {
    orders.iter().map(|(action, _)| action).collect()
}

#[test]
fn one_verdict_or_another_limit_causes_no_action() {
    let small = sample(64 << 10);
    let mut auto = Auto::new(Side::Receiving, host());
    assert_eq!(
        after(&mut auto, 1, &small, Limit::ReceiveWindow, LOCKED),
        Orders::default()
    );
    for limit in Limit::ALL
        .into_iter()
        .filter(|limit| *limit != Limit::ReceiveWindow)
    {
        let mut auto = Auto::new(Side::Receiving, host());
        assert_eq!(
            after(&mut auto, 20, &small, limit, LOCKED),
            Orders::default(),
            "{limit}"
        );
    }
}

#[test]
fn a_programs_own_small_buffer_goes_back_to_autotuning() {
    let small = sample(64 << 10);
    let mut auto = Auto::new(Side::Receiving, host());
    let orders = after(&mut auto, 2, &small, Limit::ReceiveWindow, LOCKED);
    assert_eq!(
        actions(&orders),
        [
            Action::ReceiveBuffer(64 << 10),
            Action::UnlockReceive,
            Action::WindowClamp(128 << 10)
        ]
    );
    let mut auto = Auto::new(Side::Sending, host());
    let orders = after(&mut auto, 2, &small, Limit::SendBuffer, LOCKED);
    assert_eq!(
        actions(&orders),
        [Action::SendBuffer(64 << 10), Action::UnlockSend]
    );
}

#[test]
fn autotuning_below_its_ceiling_is_left_alone_unless_it_stalls() {
    let growing = sample(MB);
    let mut auto = Auto::new(Side::Receiving, host());
    assert_eq!(
        after(&mut auto, 7, &growing, Limit::ReceiveWindow, UNLOCKED),
        Orders::default()
    );
    let orders = after(&mut auto, 1, &growing, Limit::ReceiveWindow, UNLOCKED);
    assert_eq!(
        actions(&orders),
        [
            Action::ReceiveBuffer(MB),
            Action::UnlockReceive,
            Action::WindowClamp(2 * MB)
        ]
    );
}

#[test]
fn explicit_buffer_is_set_only_if_larger_than_ceiling() {
    let full = sample(6 * MB);
    let mut auto = Auto::new(Side::Receiving, host());
    let orders = after(&mut auto, 2, &full, Limit::ReceiveWindow, UNLOCKED);
    assert_eq!(
        actions(&orders),
        [Action::ReceiveBuffer(6 * MB), Action::WindowClamp(12 * MB)]
    );
    assert!(matches!(
        orders.iter().next(),
        Some((_, Cause::AutotuneCeiling { ceiling })) if ceiling == 6 * MB
    ));
    // The next step finds a buffer that right-sizing set, not the program.
    let orders = after(&mut auto, 2, &sample(12 * MB), Limit::ReceiveWindow, LOCKED);
    assert!(matches!(
        orders.iter().next(),
        Some((Action::ReceiveBuffer(_), Cause::AutotuneCeiling { ceiling })) if ceiling == 6 * MB
    ));

    let untuned = Host {
        receive_explicit: 425_984,
        ..host()
    };
    let mut auto = Auto::new(Side::Receiving, untuned);
    let orders = after(&mut auto, 2, &full, Limit::ReceiveWindow, UNLOCKED);
    assert_eq!(actions(&orders), []);
    assert!(matches!(
        orders.advice,
        Some(Advice::Raise { sysctl: "net.ipv4.tcp_rmem", bytes, .. }) if bytes == 12 << 20
    ));
}

#[test]
fn no_action_ever_asks_for_less_than_there_is() {
    for buffer in [1u32, 4096, 425_984, 6 * MB, 31 * MB, 32 * MB, u32::MAX] {
        for explicit in [425_984, 8 * MB, 32 * MB, u32::MAX] {
            for autotune in [0, 6 * MB, 64 * MB, u32::MAX] {
                for locks in [None, LOCKED, UNLOCKED] {
                    let host = Host {
                        receive_autotune: autotune,
                        receive_explicit: explicit,
                        ..host()
                    };
                    let mut auto = Auto::new(Side::Receiving, host);
                    for _ in 0..12 {
                        let orders = decide(
                            &mut auto,
                            &sample(buffer),
                            &verdict(Limit::ReceiveWindow),
                            locks,
                        );
                        for action in actions(&orders) {
                            if let Action::ReceiveBuffer(bytes) = action {
                                assert!(bytes >= buffer / 2, "{bytes} for {buffer}");
                                assert!(bytes <= explicit / 2 + 1);
                            }
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn unscaled_window_needs_streams_or_beyond_16_a_depot() {
    let host = Host {
        scales_windows: false,
        ..host()
    };
    let mut auto = Auto::new(Side::Receiving, host);
    let advice =
        |auto: &mut Auto| after(auto, 2, &sample(64 << 10), Limit::ReceiveWindow, LOCKED).advice;
    assert!(matches!(
        advice(&mut auto),
        Some(Advice::Streams { streams: 2, .. })
    ));
    auto.aim_bps = Some(36_000_000);
    assert!(matches!(
        advice(&mut auto),
        Some(Advice::Streams { streams: 8, .. })
    ));
    auto.aim_bps = Some(1_000_000_000);
    assert!(matches!(advice(&mut auto), Some(Advice::Depot { .. })));
}

#[test]
fn the_sender_can_only_advise_about_the_peers_window() {
    let mut auto = Auto::new(Side::Sending, host());
    let orders = after(&mut auto, 2, &sample(MB), Limit::ReceiveWindow, LOCKED);
    assert_eq!(actions(&orders), []);
    let cause = Cause::PeerWindow { window: 65_535 };
    assert_eq!(orders.advice, Some(Advice::Streams { streams: 2, cause }));
}

#[test]
fn random_losses_want_bbr_or_else_a_depot() {
    let mut lossy = sample(MB);
    lossy.info.retransmits = 80; // of 100,000 segments: 8e-4
    let mut auto = Auto::new(Side::Sending, host());
    assert_eq!(
        after(&mut auto, 4, &lossy, Limit::Loss, None),
        Orders::default()
    );
    let orders = after(&mut auto, 1, &lossy, Limit::Loss, None);
    // Mathis: sqrt(3/2) * 8000 bit / (0.1 s * sqrt(8e-4)) = 3.464 Mbit/s.
    let Some(Advice::Depot {
        cause: Cause::RandomLoss {
            per_million,
            mathis_bps,
        },
    }) = orders.advice
    else {
        panic!("{orders:?}")
    };
    assert_eq!(per_million, 800);
    assert!((3_464_000..3_464_200).contains(&mathis_bps), "{mathis_bps}");
    let host = Host {
        may_use_bbr: true,
        ..host()
    };
    let orders = after(
        &mut Auto::new(Side::Sending, host),
        5,
        &lossy,
        Limit::Loss,
        None,
    );
    assert_eq!(
        actions(&orders),
        [Action::CongestionControl(CongestionName::from_kernel(
            b"bbr"
        ))]
    );
}

#[test]
fn reservation_is_paced_once_and_other_pacing_reported() {
    let mut auto = Auto::new(Side::Sending, host());
    auto.reserved = Some(125_000_000);
    let orders = after(&mut auto, 1, &sample(MB), Limit::Growing, None);
    assert_eq!(actions(&orders), [Action::PacingRate(125_000_000)]);
    assert_eq!(
        after(&mut auto, 9, &sample(MB), Limit::Pacing, None),
        Orders::default()
    );
    let orders = after(
        &mut Auto::new(Side::Sending, host()),
        2,
        &sample(MB),
        Limit::Pacing,
        None,
    );
    assert!(matches!(orders.advice, Some(Advice::LiftPacing { .. })));
}

#[test]
fn a_large_unsent_backlog_is_cut_once() {
    let mut auto = Auto::new(Side::Sending, host());
    let mut path = verdict(Limit::Path);
    path.evidence.unsent = 3_000_000;
    let mut given = vec![];
    for _ in 0..9 {
        given.extend(actions(&decide(&mut auto, &sample(MB), &path, None)));
    }
    assert_eq!(given, [Action::UnsentLimit(500_000)]);
    path.evidence.unsent = 1_000_000;
    let mut auto = Auto::new(Side::Sending, host());
    for _ in 0..9 {
        assert_eq!(
            decide(&mut auto, &sample(MB), &path, None),
            Orders::default()
        );
    }
}

#[test]
fn a_window_at_the_end_of_its_scaling_takes_streams() {
    let mut capped = sample(4 * MB);
    capped.info.receive_window_shift = Some(1);
    capped.info.receive_window = Some(131_070);
    let mut auto = Auto::new(Side::Receiving, host());
    let orders = after(&mut auto, 9, &capped, Limit::ReceiveWindow, LOCKED);
    let cause = Cause::WindowScale { largest: 131_070 };
    assert_eq!(
        orders,
        Orders::advise(Advice::Streams { streams: 2, cause })
    );
}

#[test]
fn trimming_stops_when_the_window_binds() {
    let excessive = sample(14 * MB);
    let mut auto = Auto::new(Side::Receiving, host());
    let held = after(&mut auto, 20, &excessive, Limit::Path, UNLOCKED);
    assert!(matches!(actions(&held)[..], [Action::WindowClamp(bytes)] if bytes < MB));
    let orders = after(&mut auto, 1, &excessive, Limit::ReceiveWindow, UNLOCKED);
    assert_eq!(actions(&orders), [Action::WindowClamp(14 * MB)]);
}

#[test]
fn an_excessive_buffer_is_cut_when_what_was_offered_fits() {
    let mut excessive = sample(14 * MB);
    let mut auto = Auto::new(Side::Receiving, host());
    let mut path = verdict(Limit::Path);
    path.evidence.goodput_bps = 36e6; // 450 KB in 100 ms
    let step = |auto: &mut Auto, sample: &Sample| actions(&decide(auto, sample, &path, UNLOCKED));
    for _ in 0..18 {
        assert_eq!(step(&mut auto, &excessive), []);
    }
    // A moment with fewer bytes does not count.
    let mut moment = path;
    moment.evidence.goodput_bps = 1e6;
    assert_eq!(
        actions(&decide(&mut auto, &excessive, &moment, UNLOCKED)),
        []
    );
    assert_eq!(step(&mut auto, &excessive), [Action::WindowClamp(900_000)]);
    // The window on offer has not shrunk: the clamp was lifted.
    assert_eq!(step(&mut auto, &excessive), [Action::WindowClamp(900_000)]);
    excessive.info.receive_window = Some(6 * MB);
    assert_eq!(step(&mut auto, &excessive), []);
    excessive.info.receive_window = Some(900_000);
    assert_eq!(
        step(&mut auto, &excessive),
        [Action::ReceiveBuffer(900_000), Action::UnlockReceive]
    );
    let cut = sample(1_800_000);
    for _ in 0..9 {
        assert_eq!(step(&mut auto, &cut), []);
    }
    // When the path becomes faster, the buffer grows back without delay.
    let orders = after(&mut auto, 2, &cut, Limit::ReceiveWindow, UNLOCKED);
    assert_eq!(
        actions(&orders).first(),
        Some(&Action::ReceiveBuffer(1_800_000))
    );
}
