use super::*;

const MS: f64 = 1e-3;

fn received(delays: impl IntoIterator<Item = f64>, spacing: f64) -> Vec<Received> {
    let mut all: Vec<Received> = delays
        .into_iter()
        .zip(0..)
        .map(|(delay, number)| {
            let sent = f64::from(number) * spacing;
            Received {
                number,
                sent: Duration::from_secs_f64(sent),
                at: Duration::from_secs_f64(sent + delay),
            }
        })
        .collect();
    all.sort_by_key(|probe| probe.at);
    all
}

/// Returns a wave whose deviation is its height over the square root of 2.
fn wave(height: f64) -> impl Iterator<Item = f64> {
    (0..2_000).map(move |n| 50.0 * MS + height * (f64::from(n) / 40.0).sin())
}

fn jittered(overtakes: bool) -> Jittered {
    Jittered {
        mean: 50.0 * MS,
        deviation: MS,
        amplitude: 2.8 * MS,
        reorder: false,
        overtakes,
        draws: 200.0,
    }
}

#[test]
fn a_deviation_and_a_mean_are_judged_by_what_luck_allows() {
    let verdicts = |height: f64, more: f64| {
        let found = jitter(
            &jittered(false),
            &received(wave(height).map(|delay| delay + more), MS),
        );
        found.map(|finding| finding.verdict)
    };
    let good = Verdict::AsAsked;
    assert_eq!(verdicts(1.41 * MS, 0.0), [good, good]);
    assert_eq!(verdicts(2.2 * MS, 0.0), [good, Verdict::Off]);
    assert_eq!(verdicts(0.5 * MS, 0.0), [good, Verdict::Off]);
    assert_eq!(verdicts(0.5 * MS, 2.0 * MS)[0], Verdict::Off);
    assert_eq!(
        verdicts(5.0 * MS, 0.0),
        [Verdict::Off, Verdict::Off],
        "outside the bounds"
    );
}

#[test]
fn jitter_that_keeps_the_order_lets_none_be_overtaken() {
    let mut delays: Vec<f64> = wave(1.41 * MS).collect();
    delays[1_000] += 1.2 * MS;
    let verdict =
        |overtakes| jitter(&jittered(overtakes), &received(delays.clone(), MS))[1].verdict;
    assert_eq!(verdict(false), Verdict::Off);
    assert_eq!(verdict(true), Verdict::AsAsked);
}

#[test]
fn held_packets_are_counted_and_their_lateness_is_judged() {
    let spec = ReorderSpec {
        probability: 0.01,
        by: Duration::from_millis(3),
    };
    let verdict = |every: usize, by: f64| {
        let delays = (0..10_000).map(|n| {
            if n % every == 7 {
                50.0 * MS + by
            } else {
                50.0 * MS
            }
        });
        reorder(&spec, &received(delays, MS / 10.0)).verdict
    };
    assert_eq!(verdict(100, 3.0 * MS), Verdict::AsAsked);
    assert_eq!(verdict(50, 3.0 * MS), Verdict::Off);
    assert_eq!(verdict(300, 3.0 * MS), Verdict::Off);
    assert_eq!(verdict(100, 4.0 * MS), Verdict::Off);
}

#[test]
fn a_standing_queue_is_judged_by_the_target() {
    let finding = |standing: f64, drops: u64| {
        let load = Load {
            delays: vec![50.0 * MS + standing; 100],
            ..Load::default()
        };
        let after = DirectionSnapshot {
            drops_aqm: drops,
            ..DirectionSnapshot::default()
        };
        let base = Duration::from_millis(50);
        codel(
            &CodelSpec::RFC_8289,
            base,
            Duration::ZERO,
            &DirectionSnapshot::default(),
            &after,
            &load,
        )
        .verdict
    };
    assert_eq!(finding(8.0 * MS, 20), Verdict::AsAsked);
    assert_eq!(finding(40.0 * MS, 20), Verdict::Off);
    assert_eq!(finding(40.0 * MS, 0), Verdict::Off);
    assert_eq!(
        finding(0.1 * MS, 20),
        Verdict::Off,
        "it dropped what did not wait"
    );
    assert_eq!(finding(0.1 * MS, 0), Verdict::NotMeasured);
}

#[test]
fn marks_arrive_and_nothing_is_dropped() {
    let verdict = |marked: u64, arrived: u64, dropped: u64| {
        let after = DirectionSnapshot {
            marks_ecn: marked,
            drops_aqm: dropped,
            ..DirectionSnapshot::default()
        };
        let load = Load {
            marked: arrived,
            ..Load::default()
        };
        marks(&DirectionSnapshot::default(), &after, &load).verdict
    };
    assert_eq!(verdict(9, 9, 0), Verdict::AsAsked);
    assert_eq!(verdict(9, 8, 0), Verdict::Off);
    assert_eq!(verdict(9, 9, 1), Verdict::Off);
    assert_eq!(verdict(0, 0, 0), Verdict::NotMeasured);
}

#[test]
fn cross_traffic_is_judged_over_the_time_it_had() {
    let spec = CrossSpec {
        rate: BitRate(100_000_000),
        on: Duration::from_millis(20),
        off: Duration::from_millis(80),
    };
    let verdict = |mbit: f64, seconds: u64| {
        let counters = DirectionSnapshot {
            cross_bytes: (mbit * 1e6 / 8.0 * seconds as f64) as u64,
            ..DirectionSnapshot::default()
        };
        cross(&spec, 1500, Duration::from_secs(seconds), &counters).verdict
    };
    assert_eq!(verdict(20.0, 20), Verdict::AsAsked);
    assert_eq!(verdict(24.0, 20), Verdict::AsAsked);
    assert_eq!(verdict(40.0, 20), Verdict::Off);
    assert_eq!(verdict(0.0, 20), Verdict::Off);
}

#[test]
fn burst_after_fall_is_distinguished_from_steady_rate() {
    let of = Fall {
        from: Duration::from_millis(100),
        to: Duration::from_millis(10),
        rate: BitRate(12_000_000),
        bytes: 1500,
        offered: 10_800_000.0,
    };
    let spacing = MS / 0.9;
    // Sent from 0 to 1 s, with the fall at 0.5 s.
    let base = |n: u32| {
        if f64::from(n) * spacing < 0.5 {
            100.0 * MS
        } else {
            10.0 * MS
        }
    };
    let burst = (0..900).map(|n| {
        let sent = f64::from(n) * spacing;
        (sent + base(n)).max(0.6_f64.min(sent + 100.0 * MS)) - sent
    });
    assert_eq!(fall(&of, &received(burst, spacing)).verdict, Verdict::Off);
    let mut last = 0.0_f64;
    let spaced: Vec<f64> = (0..900)
        .map(|n| {
            let sent = f64::from(n) * spacing;
            last = (sent + base(n)).max(last + MS);
            last - sent
        })
        .collect();
    assert_eq!(
        fall(&of, &received(spaced, spacing)).verdict,
        Verdict::AsAsked
    );
    assert_eq!(
        fall(&of, &received((0..900).map(|_| 100.0 * MS), spacing)).verdict,
        Verdict::Off,
        "it never fell"
    );
    let slow = Fall { offered: 1e6, ..of };
    assert_eq!(fall(&slow, &[]).verdict, Verdict::NotMeasured);
}
