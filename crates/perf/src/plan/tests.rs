use std::time::Duration;

use CongestionControl::{Cubic, Reno};

use super::*;

fn target(rate: f64, rtt_ms: u64, mtu: u32, control: CongestionControl) -> Target {
    Target {
        rate: Rate::new(rate).unwrap(),
        rtt: Time(Duration::from_millis(rtt_ms)),
        mtu: Mtu::new(mtu).unwrap(),
        control,
        window: None,
        loss: None,
    }
}

fn close(found: f64, wanted: f64, part: f64) {
    assert!(
        (found / wanted - 1.0).abs() < part,
        "{found} is not {wanted}"
    );
}

#[test]
fn the_record_needs_what_its_slides_say() {
    let plan = target(2.4e9, 180, 9000, Reno).plan();
    // "Just enough buffers": 2.4 Gbit/s times 180 ms.
    assert_eq!(plan.window_bytes, 54_000_000);
    // The slides' buffers for an STM-16 hold that window; the kernel of 2003 used half of a buffer.
    assert!(plan.window_bytes < 128_388_607 / 2);
    // R = C * RTT^2 / (2 * MSS).
    close(
        plan.recovery_s,
        2.4e9 * 0.18 * 0.18 / (2.0 * 8948.0 * 8.0),
        1e-9,
    );
    close(plan.recovery_s, 543.1, 1e-3);
    // With small frames it takes an hour instead of nine minutes.
    let small = target(2.4e9, 180, 1500, Reno).plan();
    close(small.recovery_s / plan.recovery_s, 8948.0 / 1448.0, 1e-9);
    close(small.recovery_s, 3356.0, 1e-3);
}

#[test]
fn the_slides_loss_between_cern_and_chicago_takes_six_minutes() {
    // 622 Mbit/s at about 120 ms with frames of 1500: in their plot, recovery from one loss takes
    // more than six minutes.
    let plan = target(622e6, 120, 1500, Reno).plan();
    assert!(
        (360.0..400.0).contains(&plan.recovery_s),
        "{}",
        plan.recovery_s
    );
}

#[test]
fn the_losses_of_the_lsl_paths_give_their_rates() {
    // 106 ms at 8e-4 and Reno: 4.7 Mbit/s, the published average at 32 MB.
    let mut path = target(155e6, 106, 1500, Reno);
    path.loss = Probability::new(8e-4);
    let plan = path.plan();
    close(plan.one_stream_bps, 4.7e6, 0.02);
    assert_eq!(plan.held_by, Some(HeldBy::Loss));
}

#[test]
fn the_bound_on_loss_is_where_the_average_window_is_the_target() {
    for control in [Reno, Cubic] {
        for (rate, rtt) in [(2.4e9, 180), (155e6, 106), (10e6, 20), (1e11, 88)] {
            let mut at = target(rate, rtt, 1500, control);
            let most = at.plan().most_loss;
            at.loss = Probability::new(most * 0.999);
            assert_eq!(at.plan().held_by, None, "{control} {rate}");
            at.loss = Probability::new(most * 1.01);
            assert_eq!(at.plan().held_by, Some(HeldBy::Loss), "{control} {rate}");
        }
    }
}

#[test]
fn a_small_window_needs_hops_it_can_fill() {
    // 64 KB over 120 ms: 4.37 Mbit/s.
    let mut path = target(20e6, 120, 1500, Reno);
    path.window = Some(ByteCount(65536));
    let plan = path.plan();
    close(plan.one_stream_bps, 4.37e6, 1e-3);
    assert_eq!(plan.held_by, Some(HeldBy::Window));
    let remedy = plan.remedy.unwrap();
    assert_eq!(remedy.streams, Some(5));
    let depots = remedy.depots.unwrap();
    assert_eq!(depots.depots, 4);
    close(depots.hop_rtt_s, 0.024, 1e-9);
    close(depots.hop_km, 2400.0, 1e-9);
}

#[test]
fn loss_on_one_hop_needs_more_depots() {
    let mut path = target(300e6, 70, 1500, Reno);
    path.loss = Probability::new(2e-5);
    let remedy = path.plan().remedy.unwrap();
    let (spread, one) = (
        remedy.depots.unwrap(),
        remedy.depots_if_loss_is_in_one_place.unwrap(),
    );
    assert!(spread.depots < one.depots, "{spread:?} {one:?}");
    // Each hop carries the target, and with one hop fewer it would not.
    let hop = |hops: u32| {
        let loss = Probability::new(2e-5 / f64::from(hops));
        path.hop(path.rtt.0 / hops, loss)
            .steady()
            .rate
            .bits_per_second()
    };
    assert!(hop(spread.depots + 1) >= 300e6 && hop(spread.depots) < 300e6);
}

#[test]
fn a_plan_without_remedy_is_reported() {
    let mut path = target(1e12, 300, 1500, Reno);
    path.loss = Probability::new(0.1);
    let remedy = path.plan().remedy.unwrap();
    assert_eq!((remedy.streams, remedy.depots), (None, None));
}

#[test]
fn slow_start_takes_a_round_trip_a_doubling() {
    // 10 segments of 8948 bytes to 54 MB: ten doublings.
    close(
        target(2.4e9, 180, 9000, Reno).plan().slow_start_s,
        1.8,
        1e-9,
    );
    assert_eq!(target(1e3, 1, 1500, Reno).plan().slow_start_s, 0.0);
}

#[test]
fn an_mtu_has_bounds() {
    assert!(Mtu::new(575).is_err() && Mtu::new(65_536).is_err() && Mtu::new(0).is_err());
    assert_eq!(Mtu::new(9000).unwrap().mss(), 8948);
}

proptest::proptest! {
    #[test]
    fn every_plan_is_finite(
        rate in 1e-3..1e15f64, rtt_us in 1..30_000_000u64, mtu in 576..65_536u32,
        cubic: bool, window in 1..1u64 << 40, loss in 1e-15..0.999f64,
    ) {
        let control = if cubic { Cubic } else { Reno };
        let plan = Target {
            rate: Rate::new(rate).unwrap(),
            rtt: Time(Duration::from_micros(rtt_us)),
            mtu: Mtu::new(mtu).unwrap(),
            control,
            window: Some(ByteCount(window)),
            loss: Probability::new(loss),
        }
        .plan();
        for value in [
            plan.recovery_s,
            plan.most_loss,
            plan.between_losses_s,
            plan.one_stream_bps,
            plan.slow_start_s,
        ] {
            proptest::prop_assert!(value.is_finite() && value >= 0.0, "{plan:?}");
        }
        proptest::prop_assert!(plan.one_stream_bps <= rate);
        proptest::prop_assert_eq!(plan.held_by.is_some(), plan.remedy.is_some());
    }
}
