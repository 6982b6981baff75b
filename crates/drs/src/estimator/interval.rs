//! Events between the first and the last sample of an interval.

use std::time::Duration;

use super::Side;
use crate::{Evidence, Sample};

/// One interval: its first and last sample, and counts over the samples after the first.
#[derive(Debug, Clone, Copy)]
pub struct Interval {
    first: Sample,
    last: Sample,
    /// Number of samples without the first.
    pub looks: u32,
    /// Samples in which the sender had nothing to send, but room to send it.
    pub starved: u32,
    /// Samples in which the data in flight nearly filled the peer's window, with more waiting or
    /// the window closed.
    pub windowed: u32,
    /// Samples in which the send buffer was full of data in flight.
    pub buffer_full: u32,
    /// Samples in which data waited although both windows had room for it.
    pub held: u32,
    /// Sum over the samples of the peer's window, in bytes.
    peer_window: u64,
    /// Sum over the samples of the bytes that the program had not read.
    unread: u64,
    /// Sum over the samples of the window on offer, in bytes.
    offered: u64,
}

impl Interval {
    pub fn open(sample: &Sample) -> Self {
        Self {
            first: *sample,
            last: *sample,
            looks: 0,
            starved: 0,
            windowed: 0,
            buffer_full: 0,
            held: 0,
            peer_window: 0,
            unread: 0,
            offered: 0,
        }
    }

    pub fn look(&mut self, sample: &Sample) {
        self.last = *sample;
        self.looks = self.looks.saturating_add(1);
        self.starved += u32::from(starved(sample));
        self.windowed += u32::from(windowed(sample));
        self.buffer_full += u32::from(buffer_full(sample));
        self.held += u32::from(held(sample));
        self.peer_window += u64::from(sample.info.send_window.unwrap_or(0));
        self.unread += u64::from(sample.queues.unread);
        self.offered += u64::from(sample.info.receive_window.unwrap_or(0));
    }

    pub fn last(&self) -> &Sample {
        &self.last
    }

    pub fn length(&self) -> Duration {
        self.last.at.saturating_sub(self.first.at)
    }

    /// Returns `count` as a part of the samples.
    pub fn share_of_looks(&self, count: u32) -> f64 {
        f64::from(count) / f64::from(self.looks.max(1))
    }

    /// Returns the growth of a counter of time as a part of the interval, or `None` if the kernel
    /// has no such counter.
    fn share_of_time(&self, counter: impl Fn(&Sample) -> Option<Duration>) -> Option<f64> {
        let grown = counter(&self.last)?.saturating_sub(counter(&self.first)?);
        let length = self.length().as_secs_f64();
        (length > 0.0).then(|| (grown.as_secs_f64() / length).min(1.0))
    }

    /// Returns the part of the interval with data to send; 1 if it is not known.
    pub fn busy(&self) -> f64 {
        self.share_of_time(|sample| sample.info.busy).unwrap_or(1.0)
    }

    /// Returns the part of the interval stalled on the peer's window.
    pub fn receive_window_limited(&self) -> Option<f64> {
        self.share_of_time(|sample| sample.info.receive_window_limited)
    }

    /// Returns the part of the interval stalled on the send buffer.
    pub fn send_buffer_limited(&self) -> Option<f64> {
        self.share_of_time(|sample| sample.info.send_buffer_limited)
    }

    /// Returns the number of retransmitted segments.
    pub fn retransmits(&self) -> u32 {
        self.last
            .info
            .retransmits
            .wrapping_sub(self.first.info.retransmits)
    }

    /// Returns the rate of acknowledged payload, in bytes per second.
    pub fn acknowledged_rate(&self) -> f64 {
        self.rate(|sample| sample.info.bytes_acked)
    }

    /// Returns the rate of payload received in order, in bytes per second.
    pub fn received_rate(&self) -> f64 {
        self.rate(|sample| sample.info.bytes_received)
    }

    fn rate(&self, counter: impl Fn(&Sample) -> Option<u64>) -> f64 {
        let bytes = counter(&self.last)
            .unwrap_or(0)
            .saturating_sub(counter(&self.first).unwrap_or(0));
        let length = self.length().as_secs_f64();
        if length > 0.0 {
            bytes as f64 / length
        } else {
            0.0
        }
    }

    /// Returns the mean of the peer's window, in bytes.
    pub fn mean_peer_window(&self) -> f64 {
        self.peer_window as f64 / f64::from(self.looks.max(1))
    }

    /// Returns the mean of the bytes that the program had not read.
    pub fn mean_unread(&self) -> f64 {
        self.unread as f64 / f64::from(self.looks.max(1))
    }

    /// Returns the mean of the window on offer, in bytes.
    pub fn mean_offered(&self) -> f64 {
        self.offered as f64 / f64::from(self.looks.max(1))
    }

    pub fn evidence(&self, side: Side) -> Evidence {
        let (info, queues) = (&self.last.info, &self.last.queues);
        let paced = info.max_pacing_rate.is_some() || self.last.congestion.is_model_based();
        let bits = |bytes: u64| bytes as f64 * 8.0;
        let (goodput, rtt) = match side {
            Side::Sending => (self.acknowledged_rate(), info.rtt),
            Side::Receiving => (self.received_rate(), receiving_rtt(&self.last)),
        };
        Evidence {
            interval: self.length(),
            goodput_bps: goodput * 8.0,
            rtt,
            min_rtt: info.min_rtt.unwrap_or(rtt),
            congestion_window: self.last.congestion_window(),
            in_flight: self.last.in_flight(),
            peer_window: info.send_window.unwrap_or(0).into(),
            send_buffer: self.last.buffers.send.into(),
            receive_buffer: self.last.buffers.receive.into(),
            unsent: queues.unsent.into(),
            unread: queues.unread.into(),
            pacing_bps: info.pacing_rate.filter(|_| paced).map(bits),
            fitted_bps: self.last.fitted_rate.map(bits),
            delivery_bps: info.delivery_rate.map(bits),
            retransmits: self.retransmits(),
            busy: self.busy(),
            receive_window_limited: self.receive_window_limited().unwrap_or(0.0),
            send_buffer_limited: self.send_buffer_limited().unwrap_or(0.0),
        }
    }
}

/// Returns the round-trip time known to the receiver: its own estimate from the data's timing, or
/// the handshake's before there is one.
pub fn receiving_rtt(sample: &Sample) -> Duration {
    match sample.info.receive_rtt {
        Duration::ZERO => sample.info.rtt,
        estimate => estimate,
    }
}

/// Returns true if no data waits, although both windows and the buffer have room.
fn starved(sample: &Sample) -> bool {
    let mss = u64::from(sample.info.send_mss);
    u64::from(sample.queues.unsent) < mss.max(1)
        && sample.in_flight() + 2 * mss <= sample.congestion_window().max(2 * mss)
        && !buffer_full(sample)
        && !window_full(sample)
}

/// Returns true if the peer's window holds back the waiting data.
fn windowed(sample: &Sample) -> bool {
    sample.queues.unsent > 0
        && window_full(sample)
        && sample
            .info
            .send_window
            .is_some_and(|window| u64::from(window) < sample.congestion_window())
}

/// Returns true if less than a tenth of the peer's window, or three segments, is free of data in
/// flight.
fn window_full(sample: &Sample) -> bool {
    sample.info.send_window.is_some_and(|window| {
        let window = u64::from(window);
        let nearly = (window / 10).max(3 * u64::from(sample.info.send_mss));
        sample.in_flight() + nearly > window && sample.in_flight() > 0 || window == 0
    })
}

/// Returns true if the send buffer is full and all its data, sent or not, would fit the congestion
/// window.
///
/// The kernel wakes a program that waits for space when a third of the buffer is free. So a program
/// that waits for a buffer of fixed size leaves it between two thirds full and full. A buffer that
/// the kernel sizes grows as soon as a program waits for it, so it is a limit only if it is full
/// (and at its ceiling). The kernel's own count of time stalled on the buffer misses programs that
/// write one segment at a time.
fn buffer_full(sample: &Sample) -> bool {
    let (used, size) = (
        u64::from(sample.buffers.send_used),
        u64::from(sample.buffers.send),
    );
    let full = match sample.buffers.send_locked {
        Some(true) => used * 3 >= size * 2,
        _ => used >= size,
    };
    let queued = u64::from(sample.queues.unacknowledged);
    full && size > 0 && queued + 2 * u64::from(sample.info.send_mss) < sample.congestion_window()
}

/// Returns true if at least a segment waits, although neither window holds it back.
fn held(sample: &Sample) -> bool {
    sample.queues.unsent >= sample.info.send_mss.max(1)
        && !cwnd_full(sample)
        && !window_full(sample)
}

/// Returns true if less than an eighth of the congestion window, or three segments, is free. During
/// loss recovery the window always counts as full.
fn cwnd_full(sample: &Sample) -> bool {
    let window = sample.congestion_window();
    let nearly = (window / 8).max(3 * u64::from(sample.info.send_mss));
    sample.info.lost > 0 || sample.in_flight() + nearly > window
}
