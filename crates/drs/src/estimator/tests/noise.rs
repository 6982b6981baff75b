//! Verdicts on synthetic samples of paths with varying delay and reordering.

use super::*;

/// A delay that varies around zero: straight lines between points 60 ms apart, each drawn uniformly
/// within `amplitude`. Deterministic.
struct Jitter {
    amplitude: f64,
    state: u64,
    /// Number of the point before the last requested time, its delay and that of the next one.
    section: (u128, f64, f64),
}

const CORRELATION_TIME: Duration = Duration::from_millis(60);

impl Jitter {
    fn new(amplitude: Duration) -> Self {
        Self {
            amplitude: amplitude.as_secs_f64(),
            state: 1,
            section: (0, 0.0, 0.0),
        }
    }

    fn draw(&mut self) -> f64 {
        // Knuth's generator (MMIX); its high bits are random enough.
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let even = (self.state >> 33) as f64 / f64::from(1u32 << 31);
        self.amplitude * (2.0 * even - 1.0)
    }

    fn value_at(&mut self, time: Duration) -> f64 {
        let place = time.as_secs_f64() / CORRELATION_TIME.as_secs_f64();
        while self.section.0 < place as u128 {
            self.section = (self.section.0 + 1, self.section.2, self.draw());
        }
        let (_, from, to) = self.section;
        from + (to - from) * place.fract()
    }

    /// Sets the sample's round trip to the jittered `rtt`, and its minimum to the least so far.
    fn apply(&mut self, sample: &mut Sample, rtt: Duration) {
        let jittered =
            Duration::from_secs_f64((rtt.as_secs_f64() + self.value_at(sample.at)).max(0.0));
        sample.info.rtt = jittered;
        sample.info.receive_rtt = jittered;
        sample.info.min_rtt = sample.info.min_rtt.map(|least| least.min(jittered));
    }
}

/// Returns the part of the verdicts that are `expected`, after the scatter of round trips is known
/// and a loss has followed.
fn share_of(limits: &[Limit], expected: Limit) -> f64 {
    let settled = limits.get(30..).unwrap_or_default();
    let right = settled.iter().filter(|limit| **limit == expected).count();
    right as f64 / settled.len().max(1) as f64
}

/// Watches `sample` for ten seconds over 50 ms that vary by up to 15 ms.
fn jittered(
    side: Side,
    mut sample: Sample,
    mut change: impl FnMut(&mut Sample) -> Duration,
) -> Vec<Limit> {
    let mut jitter = Jitter::new(15 * MS);
    go_on(
        &mut Estimator::new(side),
        &mut sample,
        Duration::from_secs(10),
        |sample| {
            let rtt = change(sample);
            jitter.apply(sample, rtt);
        },
    )
}

#[test]
fn jitter_is_no_queue_before_a_window_or_a_buffer_that_limits() {
    let mut windowed = bulk(b"cubic");
    windowed.info.send_window = Some(20_000);
    windowed.queues.unacknowledged = 220_000;
    let limits = jittered(Side::Sending, windowed, |sample| {
        grow(&mut sample.info.receive_window_limited, 19 * MS);
        50 * MS
    });
    assert!(share_of(&limits, Limit::ReceiveWindow) > 0.95, "{limits:?}");

    let mut buffered = bulk(b"reno");
    buffered.queues.unsent = 0;
    buffered.queues.unacknowledged = 20_000;
    buffered.buffers.send = 30_000;
    buffered.buffers.send_used = 25_000;
    let limits = jittered(Side::Sending, buffered, |sample| {
        grow(&mut sample.info.send_buffer_limited, 15 * MS);
        50 * MS
    });
    assert!(share_of(&limits, Limit::SendBuffer) > 0.95, "{limits:?}");
}

#[test]
fn jitter_is_no_queue_before_a_random_loss() {
    let mut looks = 0;
    let limits = jittered(Side::Sending, bulk(b"reno"), |sample| {
        looks += 1;
        sample.info.congestion_window += looks % 2;
        sample.queues.unacknowledged += looks % 2 * MSS;
        if looks % 50 == 25 {
            lose(sample);
        }
        50 * MS
    });
    assert!(share_of(&limits, Limit::Loss) > 0.95, "{limits:?}");
}

#[test]
fn initial_standing_queue_is_distinguished_from_jitter() {
    // The handshake met no queue. With constant delay a short queue shows; with jitter only one
    // longer than the scatter of round trips.
    let queued = only(Side::Sending, bulk(b"cubic"), |sample| {
        sample.info.rtt = 60 * MS
    });
    assert_eq!(queued, Limit::Path);
    let limits = jittered(Side::Sending, bulk(b"cubic"), |_| 150 * MS);
    assert!(share_of(&limits, Limit::Path) > 0.95, "{limits:?}");
}

#[test]
fn a_queue_that_fills_and_empties_is_distinguished_from_jitter() {
    for side in [Side::Sending, Side::Receiving] {
        // From no queue to 60 ms of it and back, in two seconds, with a loss when it is full.
        let mut looks = 0;
        let limits = jittered(side, bulk(b"reno"), |sample| {
            looks += 1;
            if looks % 100 == 0 {
                sample.info.out_of_order = sample.info.out_of_order.map(|count| count + 40);
                lose(sample);
            } else {
                sample.info.congestion_window += looks % 2;
                sample.queues.unacknowledged += looks % 2 * MSS;
            }
            (50 + 60 * (looks % 100) / 100) * MS
        });
        assert!(share_of(&limits, Limit::Path) > 0.9, "{side:?} {limits:?}");
    }
}

/// Receives 20 segments per sample over 50 ms. In the first `late` samples of each hundred,
/// `behind` of them are out of order. They are put in order within the sample or, if `lost`, after
/// the last of those samples.
fn with_late_segments(late: u32, behind: u32, lost: bool) -> Vec<Limit> {
    let mut looks = 0;
    let mut sample = bulk(b"cubic");
    sample.info.data_segments_received = Some(0);
    let mut missing = 0;
    go_on(
        &mut Estimator::new(Side::Receiving),
        &mut sample,
        Duration::from_secs(10),
        |sample| {
            looks += 1;
            let out_of_order = if looks % 100 < late { behind } else { 0 };
            let waiting = if lost { out_of_order * MSS } else { 0 };
            sample.info.bytes_received = sample
                .info
                .bytes_received
                .map(|bytes| bytes + if waiting == 0 { missing } else { 0 } - u64::from(waiting));
            missing = if waiting == 0 {
                0
            } else {
                missing + u64::from(waiting)
            };
            sample.info.out_of_order = sample.info.out_of_order.map(|count| count + out_of_order);
            sample.info.data_segments_received =
                sample.info.data_segments_received.map(|count| count + 20);
        },
    )
}

#[test]
fn segments_that_others_overtook_are_no_losses() {
    // 3 ms of a round trip's 50.
    let reordered = with_late_segments(1, 3, false);
    assert!(share_of(&reordered, Limit::Sender) > 0.99, "{reordered:?}");
    // A burst of a whole round trip's segments.
    let bursts = with_late_segments(1, 20, false);
    assert!(share_of(&bursts, Limit::Sender) > 0.99, "{bursts:?}");
    // Everything that arrives in two and a half samples, until the lost segment is retransmitted.
    let lost = with_late_segments(3, 16, true);
    assert!(share_of(&lost, Limit::Loss) > 0.99, "{lost:?}");
}

#[test]
fn undone_cuts_are_ignored() {
    let mut estimator = Estimator::new(Side::Sending);
    let mut sample = bulk(b"reno");
    go_on(&mut estimator, &mut sample, 300 * MS, |_| ());
    let (window, queued) = (sample.info.congestion_window, sample.queues.unacknowledged);
    lose(&mut sample);
    go_on(&mut estimator, &mut sample, 60 * MS, |_| ());
    // The segment arrived after all: window and threshold have their former values.
    sample.info.congestion_window = window;
    sample.info.slow_start_threshold = None;
    sample.queues.unacknowledged = queued;
    let limits = go_on(&mut estimator, &mut sample, Duration::from_secs(1), |_| ());
    assert_eq!(limits.last(), Some(&Limit::Growing));
}
