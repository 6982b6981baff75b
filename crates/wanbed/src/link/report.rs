//! Report of a link: counters for each direction, and the lag of its deliveries.

use serde::{Deserialize, Serialize};

/// A link's counters at one moment, all since it started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkSnapshot {
    /// Name of the link.
    pub link: String,
    /// Seconds since the link started.
    pub seconds: f64,
    /// Scheduling of the link's thread, which shows how far its lag depends on other load.
    pub scheduling: Scheduling,
    /// Direction from a to b.
    pub forward: DirectionSnapshot,
    /// Direction from b to a.
    pub backward: DirectionSnapshot,
}

/// Scheduling of the link's thread by the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheduling {
    /// `SCHED_FIFO`: before every ordinary thread.
    RealTime,
    /// Ordinary, raised by a negative nice value.
    Raised,
    /// Ordinary with a short time slice (Linux 6.12 and later), so that it is woken soon.
    ShortSlice,
    /// Ordinary.
    Ordinary,
}

/// One direction's counters.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)] // records of earlier versions lack some
pub struct DirectionSnapshot {
    /// IP bytes delivered.
    pub bytes: u64,
    /// Segments (packets on the wire) delivered.
    pub packets: u64,
    /// Segments offered by the sending node, whatever their fate.
    pub offered: u64,
    /// Reads that gave several segments at once, by segmentation offload.
    pub super_packets: u64,
    /// Segments lost on the wire, by the loss model or by a timed drop.
    pub drops_loss: u64,
    /// Segments dropped because the queue was full.
    pub drops_queue: u64,
    /// Segments that active queue management dropped.
    pub drops_aqm: u64,
    /// Delivered segments that active queue management marked (CE, RFC 3168).
    pub marks_ecn: u64,
    /// Delivered segments that were held up so that others overtook them. Overtaking by jitter is
    /// not counted.
    pub reordered: u64,
    /// Bytes of cross traffic that the transmitter sent.
    pub cross_bytes: u64,
    /// Packets of cross traffic for which the queue had no space, or that active queue management
    /// dropped.
    pub cross_drops: u64,
    /// Segments longer than the link's MTU.
    pub drops_mtu: u64,
    /// Packets that are not IP, or whose headers contradict themselves.
    pub malformed: u64,
    /// Segments dropped because the emulator's memory for this direction was full. If not zero, the
    /// run is invalid.
    pub ring_overflow: u64,
    /// Segments that the receiving node's device refused. If not zero, the run is invalid.
    pub write_errors: u64,
    /// Packets that the kernel dropped before the emulator read them. If not zero, the run is
    /// invalid.
    pub device_drops: u64,
    /// Bytes that wait at the bottleneck now.
    pub queue_bytes: u64,
    /// Most bytes that ever waited.
    pub queue_peak: u64,
    /// Microseconds by which a delivery may be delayed, at the current delay and rate, to be made
    /// together with the next ones. Packets that are due within this time of each other may arrive
    /// at once.
    pub batching_us: u64,
    /// Lag of deliveries.
    pub lag: LagPercentiles,
}

/// Delay of deliveries after the time at which they were due, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LagPercentiles {
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 99th percentile.
    pub p99: u64,
    /// Maximum.
    pub max: u64,
}
