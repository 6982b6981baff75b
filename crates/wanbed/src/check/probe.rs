//! Probes: UDP sockets inside two nodes, bound to the link between them.
#![allow(unsafe_code)] // Socket options for devices and segmentation that std does not have.

use std::io;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::TargetValues;
use super::loss::mean_loss;
use super::receive::{ReceivedProbe, prepare};
use super::socket::set_option;
use crate::daemon::build::Running;
use crate::error::{Result, WhileDoing};
use crate::scenario::ScenarioLink;
use crate::spec::BitRate;

/// Size of IPv4 and UDP headers, in bytes.
const HEADERS: usize = 28;
/// Size of a delay probe as an IP packet, in bytes.
pub(super) const DELAY_BYTES: usize = 64;
const DELAY_PROBES: u32 = 40;
const DELAY_SPACING: Duration = Duration::from_millis(5);
/// Offered load when measuring the rate, as a multiple of the rate asked.
const OVERLOAD: f64 = 1.25;
const MIN_OVERLOAD_TIME: Duration = Duration::from_millis(500);
const MAX_OVERLOAD_TIME: Duration = Duration::from_secs(4);
/// Size of a loss probe as an IP packet, in bytes: small, so that many fit.
const LOSS_BYTES: usize = 228;
const LOSS_TIME: Duration = Duration::from_secs(2);
/// Number of expected losses beyond which the result does not improve.
const SUFFICIENT_LOSSES: f64 = 400.0;
const MIN_LOSS_PROBES: f64 = 2000.0;
/// Packets per second that a sender and a receiver on one machine surely manage.
const MAX_LOSS_PROBES_PER_SECOND: f64 = 100_000.0;
/// Maximum number of packets per system call; the kernel cuts them itself (UDP segmentation
/// offload). Its oldest limit is 64.
const MAX_PACKETS_PER_SEND: usize = 40;
/// Wait after the last probe must have arrived.
const ARRIVAL_TIMEOUT: Duration = Duration::from_millis(300);
const RECEIVE_BUFFER: i32 = 64 << 20;

/// A sender and a receiver at the two ends of a link.
#[derive(Debug)]
pub(super) struct Probe {
    sender: UdpSocket,
    pub(super) receiver: UdpSocket,
    pub(super) mtu: usize,
    /// Start of the times in numbered probes.
    pub(super) opened: Instant,
    trains: AtomicU32,
}

/// Output of a link that was offered more than it carries, in bit/s of IP.
#[derive(Debug, Clone, Copy)]
pub(super) struct OverloadResult {
    pub(super) offered: f64,
    pub(super) received: f64,
    /// Times of the first and the last counted arrival.
    pub(super) span: Option<(Instant, Instant)>,
}

/// Numbers of packets sent and received.
#[derive(Debug, Clone, Copy)]
pub(super) struct LossCount {
    pub(super) sent: u64,
    pub(super) received: u64,
}

/// Counts of the receiving thread.
#[derive(Debug, Clone, Copy, Default)]
struct ProbeTally {
    packets: u64,
    /// Packets that had arrived at the time `first`; their time on the wire precedes it.
    packets_at_first: u64,
    first: Option<Instant>,
    last: Option<Instant>,
}

impl Probe {
    pub(super) fn open(lab: &Running, link: &ScenarioLink, from: usize, to: usize) -> Result<Self> {
        let socket = |node: usize| -> Result<UdpSocket> {
            let (address, device) = (lab.network.nodes[node].address, link.spec.name.clone());
            let open = move || -> io::Result<UdpSocket> {
                let socket = UdpSocket::bind((address, 0))?;
                set_option(
                    &socket,
                    libc::SOL_SOCKET,
                    libc::SO_BINDTODEVICE,
                    device.as_bytes(),
                )?;
                let size = RECEIVE_BUFFER.to_ne_bytes();
                // Beyond the system's limit if permitted, otherwise up to it.
                set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &size)
                    .or_else(|_| set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, &size))?;
                Ok(socket)
            };
            lab.nodes[node]
                .run(open)?
                .while_doing(|| format!("opening a probe in node {}", lab.network.nodes[node].name))
        };
        let (sender, receiver) = (socket(from)?, socket(to)?);
        prepare(&receiver).while_doing(|| "preparing a probe".to_owned())?;
        let target = receiver
            .local_addr()
            .while_doing(|| "reading a probe's address".to_owned())?;
        // Connecting also fixes the route: through the link's device, whatever the node's tables
        // say.
        sender
            .connect(target)
            .while_doing(|| format!("connecting a probe over link {}", link.spec.name))?;
        Ok(Probe {
            sender,
            receiver,
            mtu: link.spec.mtu as usize,
            opened: Instant::now(),
            trains: AtomicU32::new(0),
        })
    }

    /// Returns a number that no train has had.
    pub(super) fn next_train(&self) -> u32 {
        self.trains.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends one packet, or several that the kernel cuts. Waits while the sending node's own device
    /// is full.
    pub(super) fn send(&self, packets: &[u8]) -> Result<()> {
        loop {
            match self.sender.send(packets) {
                Ok(_) => return Ok(()),
                Err(error)
                    if matches!(error.raw_os_error(), Some(libc::ENOBUFS | libc::EAGAIN)) =>
                {
                    thread::yield_now()
                }
                Err(error) => return Err(error).while_doing(|| "sending probes".to_owned()),
            }
        }
    }

    /// Makes the kernel cut the data into packets of `payload` bytes, or leave it whole (0).
    /// Returns true if it does.
    pub(super) fn segment(&self, payload: usize) -> bool {
        let bytes = i32::try_from(payload).unwrap_or(0).to_ne_bytes();
        let joined = i32::from(payload > 0).to_ne_bytes();
        // Without this option the kernel cuts what the link carried whole, which costs time but
        // counts the same.
        let _ = set_option(&self.receiver, libc::SOL_UDP, libc::UDP_GRO, &joined);
        set_option(&self.sender, libc::SOL_UDP, libc::UDP_SEGMENT, &bytes).is_ok()
    }

    /// Sets the type-of-service byte of the packets sent.
    pub(super) fn type_of_service(&self, value: i32) -> Result<()> {
        set_option(
            &self.sender,
            libc::IPPROTO_IP,
            libc::IP_TOS,
            &value.to_ne_bytes(),
        )
        .while_doing(|| "setting a probe's type of service".to_owned())
    }

    /// Sets the receiver's maximum wait for the next packet.
    pub(super) fn wait_at_most(&self, time: Duration) -> Result<()> {
        self.receiver
            .set_read_timeout(Some(time))
            .while_doing(|| "setting a probe's timeout".to_owned())
    }

    /// Measures one-way delays of single packets in seconds, each on an otherwise idle link.
    pub(super) fn delays(&self, slack: Duration) -> Result<Vec<f64>> {
        let received = self.train(DELAY_BYTES, DELAY_SPACING, DELAY_PROBES, slack)?;
        Ok(received.iter().map(ReceivedProbe::delay).collect())
    }

    /// Offers more than `rate`, and measures the arrivals from when the queue is partly filled to
    /// the last packet. It lasts for at least `least`, so that noise in the first or last packet
    /// matters little.
    pub(super) fn overload(
        &self,
        rate: BitRate,
        least: Duration,
        slack: Duration,
    ) -> Result<OverloadResult> {
        let payload = (self.mtu - HEADERS).min(1472);
        let bits = ((payload + HEADERS) * 8) as f64;
        let per_second = OVERLOAD * rate.bits_per_second().max(1) as f64 / bits;
        let time = MIN_OVERLOAD_TIME
            .max(least)
            .max(Duration::from_secs_f64((100.0 / per_second).min(1e3)))
            .min(MAX_OVERLOAD_TIME);
        let count = (per_second * time.as_secs_f64()).ceil() as u64;
        let (tally, taken) = self.stream(payload, count, per_second, slack)?;
        let span = match (tally.first, tally.last) {
            (Some(first), Some(last)) => last.duration_since(first).as_secs_f64(),
            _ => 0.0,
        };
        let counted = (tally.packets - tally.packets_at_first) as f64;
        let received = if span > 0.0 {
            counted * bits / span
        } else {
            0.0
        };
        Ok(OverloadResult {
            offered: count as f64 * bits / taken.as_secs_f64().max(1e-9),
            received,
            span: tally.first.zip(tally.last),
        })
    }

    /// Sends many small packets well below the rate, and counts those that arrive.
    pub(super) fn losses(&self, asked: TargetValues, slack: Duration) -> Result<LossCount> {
        let bits = (LOSS_BYTES * 8) as f64;
        let rate = asked
            .rate
            .map_or(f64::INFINITY, |rate| rate.bits_per_second() as f64);
        let per_second = (0.4 * rate / bits).clamp(1.0, MAX_LOSS_PROBES_PER_SECOND);
        let enough = SUFFICIENT_LOSSES / mean_loss(asked.loss).max(1e-12);
        let count = (per_second * LOSS_TIME.as_secs_f64())
            .min(enough.max(MIN_LOSS_PROBES))
            .ceil() as u64;
        let (tally, _) = self.stream(LOSS_BYTES - HEADERS, count, per_second, slack)?;
        Ok(LossCount {
            sent: count,
            received: tally.packets,
        })
    }

    /// Sends `count` packets evenly in small batches. Returns the arrivals and the sending time.
    fn stream(
        &self,
        payload: usize,
        count: u64,
        per_second: f64,
        slack: Duration,
    ) -> Result<(ProbeTally, Duration)> {
        // A batch takes at most a millisecond of line time, so that the queue stays short.
        let batch =
            ((per_second / 1000.0) as usize).clamp(1, MAX_PACKETS_PER_SEND.min(60_000 / payload));
        let batch = if batch > 1 && self.segment(payload) {
            batch
        } else {
            1
        };
        self.wait_at_most(slack + ARRIVAL_TIMEOUT)?;
        let streamed = thread::scope(|scope| {
            let listener = scope.spawn(|| listen(&self.receiver, payload, count));
            let packets = vec![0; batch * payload];
            let begun = Instant::now();
            let mut sent = 0_u64;
            while sent < count {
                let now = (count - sent).min(batch as u64);
                self.send(&packets[..usize::try_from(now).unwrap_or(batch) * payload])?;
                sent += now;
                let due = begun + Duration::from_secs_f64(sent as f64 / per_second);
                thread::sleep(due.saturating_duration_since(Instant::now()));
            }
            let taken = begun.elapsed();
            Ok((listener.join().unwrap_or_default(), taken))
        });
        self.segment(0);
        streamed
    }
}

/// Counts packets until all have arrived, or none arrives within the read timeout.
fn listen(receiver: &UdpSocket, payload: usize, count: u64) -> ProbeTally {
    let mut buffer = vec![0; 65_536];
    let mut tally = ProbeTally::default();
    while tally.packets < count {
        let Ok(length) = receiver.recv(&mut buffer) else {
            break;
        };
        let now = Instant::now();
        if length % payload != 0 {
            continue; // a late delay probe
        }
        let packets = (length / payload) as u64;
        tally.packets += packets;
        // By then an overloaded queue holds enough to keep the line busy if the sender stalls.
        if tally.first.is_none() && tally.packets > count / 3 {
            tally.first = Some(now);
            tally.packets_at_first = tally.packets;
        }
        tally.last = Some(now);
    }
    tally
}
