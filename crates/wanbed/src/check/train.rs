//! Numbered probes: which arrive, when, in which order and with which marks.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::probe::Probe;
use super::receive::receive;
use crate::error::Result;
use crate::link::DirectionSnapshot;
use crate::spec::{BitRate, CodelSpec};

/// IPv4 and UDP headers.
const HEADERS: usize = 28;
/// A numbered probe as an IP packet, at least: its number and that of its train.
pub(super) const MIN_PROBE_BYTES: usize = 64;
/// After the last probe must have arrived.
const ARRIVAL_TIMEOUT: Duration = Duration::from_millis(300);
/// Longer than this is slept, less is waited for.
const MIN_SLEEP: Duration = Duration::from_micros(100);
/// How long a queue is kept under load. The first half is for the queue to settle.
pub(super) const LOAD_TIME: Duration = Duration::from_secs(8);
/// How often the load looks at what arrived and what was dropped.
const LOAD_POLL: Duration = Duration::from_millis(1);
/// The load never comes faster than this multiple of the rate.
const LOAD_PEAK: f64 = 1.2;
/// The load asks for a standing delay of up to so many targets, which an unmanaged queue would give
/// it.
const LOAD_TARGETS: f64 = 40.0;
/// ECT(0) in the byte of the type of service (RFC 3168).
const ECT_0: i32 = 0b10;
/// Line time of what is given to the kernel at once.
const MAX_BATCH_TIME: f64 = 0.5e-3;
const MAX_BATCH_BYTES: usize = 60_000;
const MAX_BATCH: usize = 40;

/// A probe that arrived.
#[derive(Debug, Clone, Copy)]
pub(super) struct Received {
    /// In the order of sending, from 0.
    pub(super) number: u32,
    /// Since the probe's sockets were opened.
    pub(super) sent: Duration,
    pub(super) at: Duration,
}

impl Received {
    /// Seconds on the way.
    pub(super) fn delay(&self) -> f64 {
        self.at.saturating_sub(self.sent).as_secs_f64()
    }
}

/// What a queue did under a load that answers to drops and marks.
#[derive(Debug, Clone, Default)]
pub(super) struct Load {
    /// Seconds on the way, of the probes that arrived in the second half.
    pub(super) delays: Vec<f64>,
    pub(super) sent: u64,
    pub(super) received: u64,
    /// Those that arrived with the mark of congestion.
    pub(super) marked: u64,
}

/// How a load is offered.
struct Flow {
    rate: f64,
    /// Seconds that the way takes without a queue.
    base: f64,
    /// Seconds of standing delay that the queue may have, and for how long it may have more.
    target: f64,
    interval: f64,
    /// Bytes of each packet after IP and UDP.
    payload: usize,
    /// Packets given to the kernel at once.
    batch: usize,
    /// Tells its packets from those of other trains.
    train: u32,
    begun: Instant,
    /// Packets up to the latest that arrived.
    arrived: AtomicU64,
    done: AtomicBool,
}

impl Probe {
    /// Sends `count` packets of `bytes` (as IP packets) at these distances, each with its number,
    /// and gives those that arrived, in the order in which they did.
    pub(super) fn train(
        &self,
        bytes: usize,
        spacing: Duration,
        count: u32,
        slack: Duration,
    ) -> Result<Vec<Received>> {
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
                    all.extend(probes.map(|(number, sent)| Received { number, sent, at }));
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

    /// Keeps a queue under load with one flow that answers to drops and marks by halving the queue
    /// that it asks for, and asks for more all the time otherwise. `base` is the delay without a
    /// queue; `counters` are the direction's.
    pub(super) fn load(
        &self,
        rate: BitRate,
        base: Duration,
        aqm: CodelSpec,
        ecn: bool,
        counters: impl Fn() -> Result<DirectionSnapshot>,
    ) -> Result<Load> {
        let payload = self.mtu - HEADERS;
        let rate = rate.bits_per_second().max(1) as f64;
        let most = (MAX_BATCH_TIME * rate / ((payload + HEADERS) * 8) as f64) as usize;
        let most = most.clamp(1, MAX_BATCH.min((MAX_BATCH_BYTES / payload).max(1)));
        let flow = Flow {
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
            sent.map(|sent| Load { sent, ..load })
        });
        self.segment(0);
        self.type_of_service(0)?;
        loaded
    }

    /// Sends the packets of a load and gives how many it sent.
    fn offer_load(
        &self,
        flow: &Flow,
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
                    // About as fast as TCP would: CoDel's interval is made for that.
                    let more = flow.target * elapsed.as_secs_f64() / (flow.base + flow.interval);
                    standing = (standing + more).min(LOAD_TARGETS * flow.target);
                }
                seen = now;
            }
            thread::sleep(MIN_SLEEP);
        }
        Ok(sent)
    }

    fn receive_load(&self, flow: &Flow) -> Load {
        let mut load = Load::default();
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

/// The numbers and times of sending of the probes of a train in what was received, which may be
/// several that were joined.
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
