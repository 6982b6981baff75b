//! Numbered probes: which ones arrive, when, in which order and with which marks.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::probe::Probe;
use super::receive::{ReceivedProbe, receive};
use crate::error::Result;
use crate::link::DirectionSnapshot;
use crate::spec::{BitRate, CodelSpec};

/// Size of IPv4 and UDP headers, in bytes.
const HEADERS: usize = 28;
/// Minimum size of a numbered probe as an IP packet, in bytes: it holds its number and its train's.
pub(super) const MIN_PROBE_BYTES: usize = 64;
/// Wait after the last probe must have arrived.
const ARRIVAL_TIMEOUT: Duration = Duration::from_millis(300);
/// Minimum time for which the thread sleeps instead of busy-waiting.
const MIN_SLEEP: Duration = Duration::from_micros(100);
/// Duration of the load on a queue. The first half lets the queue settle.
pub(super) const LOAD_TIME: Duration = Duration::from_secs(8);
/// Interval at which the load checks arrivals and drops.
const LOAD_POLL: Duration = Duration::from_millis(1);
/// Maximum rate of the load, as a multiple of the link's rate.
const LOAD_PEAK: f64 = 1.2;
/// Maximum standing delay that the load requests, in targets; an unmanaged queue would let it
/// stand.
const LOAD_TARGETS: f64 = 40.0;
/// ECT(0) in the type-of-service byte (RFC 3168).
const ECT_0: i32 = 0b10;
/// Maximum line time of the packets in one system call, in seconds.
const MAX_BATCH_TIME: f64 = 0.5e-3;
const MAX_BATCH_BYTES: usize = 60_000;
const MAX_BATCH: usize = 40;

/// Behaviour of a queue under a load that responds to drops and marks.
#[derive(Debug, Clone, Default)]
pub(super) struct LoadResult {
    /// Delays, in seconds, of the probes that arrived in the second half.
    pub(super) delays: Vec<f64>,
    pub(super) sent: u64,
    pub(super) received: u64,
    /// Number of probes that arrived with the congestion mark.
    pub(super) marked: u64,
}

/// Parameters of a load.
struct LoadParameters {
    rate: f64,
    /// Delay without a queue, in seconds.
    base: f64,
    /// Standing delay that the queue may have, and the time for which it may have more, in seconds.
    target: f64,
    interval: f64,
    /// Payload of each packet after IP and UDP, in bytes.
    payload: usize,
    /// Packets per system call.
    batch: usize,
    /// Number that distinguishes its packets from those of other trains.
    train: u32,
    begun: Instant,
    /// Number of packets up to the latest that arrived.
    arrived: AtomicU64,
    done: AtomicBool,
}

impl Probe {
    /// Sends `count` packets of `bytes` (as IP packets) at these distances, each with its number.
    /// Returns those that arrived, in the order of arrival.
    pub(super) fn train(
        &self,
        bytes: usize,
        spacing: Duration,
        count: u32,
        slack: Duration,
    ) -> Result<Vec<ReceivedProbe>> {
        let payload = bytes - HEADERS;
        let train = self.next_train();
        self.wait_at_most(slack + ARRIVAL_TIMEOUT)?;
        thread::scope(|scope| {
            let listener = scope.spawn(|| {
                let mut all = Vec::with_capacity(count as usize);
                let mut buffer = vec![0; 65_536];
                while all.len() < count as usize {
                    let Ok(datagram) = receive(&self.receiver, &mut buffer) else {
                        break;
                    };
                    let at = datagram.at.saturating_duration_since(self.opened);
                    let probes = probes(&buffer[..datagram.length], payload, train);
                    all.extend(probes.map(|(number, sent)| ReceivedProbe { number, sent, at }));
                }
                all
            });
            let begun = Instant::now();
            let mut packet = vec![0; payload];
            for number in 0..count {
                let rest = (begun + spacing * number).saturating_duration_since(Instant::now());
                if rest > MIN_SLEEP {
                    thread::sleep(rest);
                }
                write(&mut packet, number, train, self.opened.elapsed());
                self.send(&packet)?;
            }
            Ok(listener.join().unwrap_or_default())
        })
    }

    /// Keeps a queue under load with one flow, which halves the queue that it requests on drops and
    /// marks, and otherwise steadily requests more. `base` is the delay without a queue; `counters`
    /// are the direction's.
    pub(super) fn load(
        &self,
        rate: BitRate,
        base: Duration,
        aqm: CodelSpec,
        ecn: bool,
        counters: impl Fn() -> Result<DirectionSnapshot>,
    ) -> Result<LoadResult> {
        let payload = self.mtu - HEADERS;
        let rate = rate.bits_per_second().max(1) as f64;
        let most = (MAX_BATCH_TIME * rate / ((payload + HEADERS) * 8) as f64) as usize;
        let most = most.clamp(1, MAX_BATCH.min((MAX_BATCH_BYTES / payload).max(1)));
        let flow = LoadParameters {
            rate,
            base: base.as_secs_f64(),
            target: aqm.target.as_secs_f64(),
            interval: aqm.interval.as_secs_f64(),
            payload,
            batch: if most > 1 && self.segment(payload) {
                most
            } else {
                1
            },
            train: self.next_train(),
            begun: Instant::now(),
            arrived: AtomicU64::new(0),
            done: AtomicBool::new(false),
        };
        self.type_of_service(if ecn { ECT_0 } else { 0 })?;
        self.wait_at_most(base + ARRIVAL_TIMEOUT)?;
        let loaded = thread::scope(|scope| {
            let listener = scope.spawn(|| self.receive_load(&flow));
            let sent = self.offer_load(&flow, counters);
            flow.done.store(true, Ordering::Relaxed);
            let load = listener.join().unwrap_or_default();
            sent.map(|sent| LoadResult { sent, ..load })
        });
        self.segment(0);
        self.type_of_service(0)?;
        loaded
    }

    /// Sends the packets of a load. Returns their number.
    fn offer_load(
        &self,
        flow: &LoadParameters,
        counters: impl Fn() -> Result<DirectionSnapshot>,
    ) -> Result<u64> {
        let bits = ((flow.payload + HEADERS) * 8) as f64;
        let signals = |counters: &DirectionSnapshot| counters.drops_aqm + counters.marks_ecn;
        let mut seen = signals(&counters()?);
        let (mut sent, mut standing, mut last) = (0_u64, flow.target, flow.begun);
        let mut packets = vec![0; flow.batch * flow.payload];
        while flow.begun.elapsed() < LOAD_TIME {
            let window = (flow.rate * (flow.base + standing) / bits) as u64;
            let so_far = flow.begun.elapsed().as_secs_f64();
            let paced = (LOAD_PEAK * flow.rate * so_far / bits) as u64 + flow.batch as u64;
            let limit = (flow.arrived.load(Ordering::Relaxed) + window.max(2)).min(paced);
            while sent < limit {
                for packet in packets.chunks_mut(flow.payload) {
                    write(packet, sent as u32, flow.train, self.opened.elapsed());
                    sent += 1;
                }
                self.send(&packets)?;
            }
            let elapsed = last.elapsed();
            if elapsed >= LOAD_POLL {
                last = Instant::now();
                let now = signals(&counters()?);
                if now > seen {
                    standing /= 2.0;
                } else {
                    // About as fast as TCP would, for which CoDel's interval is designed.
                    let more = flow.target * elapsed.as_secs_f64() / (flow.base + flow.interval);
                    standing = (standing + more).min(LOAD_TARGETS * flow.target);
                }
                seen = now;
            }
            thread::sleep(MIN_SLEEP);
        }
        Ok(sent)
    }

    fn receive_load(&self, flow: &LoadParameters) -> LoadResult {
        let mut load = LoadResult::default();
        let mut buffer = vec![0; 65_536];
        loop {
            let Ok(datagram) = receive(&self.receiver, &mut buffer) else {
                if flow.done.load(Ordering::Relaxed) {
                    return load;
                }
                continue;
            };
            let settled = datagram.at.saturating_duration_since(flow.begun) > LOAD_TIME / 2;
            let at = datagram.at.saturating_duration_since(self.opened);
            for (number, sent) in probes(&buffer[..datagram.length], flow.payload, flow.train) {
                load.received += 1;
                load.marked += u64::from(datagram.marked);
                flow.arrived
                    .fetch_max(u64::from(number) + 1, Ordering::Relaxed);
                if settled {
                    load.delays.push(at.saturating_sub(sent).as_secs_f64());
                }
            }
        }
    }
}

fn write(packet: &mut [u8], number: u32, train: u32, now: Duration) {
    packet[..4].copy_from_slice(&number.to_ne_bytes());
    packet[4..8].copy_from_slice(&train.to_ne_bytes());
    packet[8..16].copy_from_slice(&(now.as_nanos() as u64).to_ne_bytes());
}

/// Returns the numbers and sending times of a train's probes in received data, which may hold
/// several joined ones.
fn probes(received: &[u8], payload: usize, train: u32) -> impl Iterator<Item = (u32, Duration)> {
    let whole = if received.len().is_multiple_of(payload) {
        received
    } else {
        &[]
    };
    whole.chunks_exact(payload).filter_map(move |packet| {
        let (number, rest) = packet.split_first_chunk()?;
        let (of, rest) = rest.split_first_chunk()?;
        let sent = u64::from_ne_bytes(*rest.first_chunk()?);
        (u32::from_ne_bytes(*of) == train)
            .then(|| (u32::from_ne_bytes(*number), Duration::from_nanos(sent)))
    })
}
