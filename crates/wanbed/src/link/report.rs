//! What a link reports about itself: counters for each direction, and how late it was.

use serde::{Deserialize, Serialize};

/// A link's counters at one moment, all since it started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The link's name.
    pub link: String,
    /// Seconds since the link started.
    pub seconds: f64,
    /// What scheduling the link's thread got: shows how far its lag depends on what else runs.
    pub scheduling: Scheduling,
    /// From a to b.
    pub forward: DirectionSnapshot,
    /// From b to a.
    pub backward: DirectionSnapshot,
}

/// How the kernel schedules the link's thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheduling {
    /// `SCHED_FIFO`: before every ordinary thread.
    RealTime,
    /// Ordinary, raised by a negative nice value.
    Raised,
    /// Ordinary with a short time slice (Linux 6.12 and later), so that waking up comes soon.
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
    /// Segments offered by the sending node, whatever became of them.
    pub offered: u64,
    /// Reads that gave more than one segment at once, by segmentation offload.
    pub super_packets: u64,
    /// Segments lost on the wire by the loss model.
    pub drops_loss: u64,
    /// Segments that found the queue full.
    pub drops_queue: u64,
    /// Segments that the active queue management dropped.
    pub drops_aqm: u64,
    /// Delivered segments that the active queue management marked (CE, RFC 3168).
    pub marks_ecn: u64,
    /// Delivered segments that were held up so that others overtook them. Those that overtake by
    /// jitter are not counted.
    pub reordered: u64,
    /// Bytes of cross traffic that the transmitter sent.
    pub cross_bytes: u64,
    /// Packets of cross traffic that the queue had no room for or the active queue management
    /// dropped.
    pub cross_drops: u64,
    /// Segments longer than the link's MTU.
    pub drops_mtu: u64,
    /// Packets that are no IP, or whose headers contradict themselves.
    pub malformed: u64,
    /// Segments dropped because the emulator's memory for this direction was full. Above zero, the
    /// run is worthless.
    pub ring_overflow: u64,
    /// Segments that the receiving node's device refused. Above zero, the run is worthless.
    pub write_errors: u64,
    /// Packets that the kernel dropped before the emulator read them. Above zero, the run is
    /// worthless.
    pub device_drops: u64,
    /// Bytes waiting at the bottleneck now.
    pub queue_bytes: u64,
    /// The most bytes that ever waited.
    pub queue_peak: u64,
    /// Microseconds by which a delivery may be put off, at the present delay and rate, to be made
    /// together with the next ones: packets that are due within this time of each other may come at
    /// once.
    pub batching_us: u64,
    /// How late deliveries were.
    pub lag: Lag,
}

/// How late deliveries were against the time at which they were due, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Lag {
    /// The median.
    pub p50: u64,
    /// Nine in ten were earlier.
    pub p90: u64,
    /// Ninety-nine in a hundred were earlier.
    pub p99: u64,
    /// The worst.
    pub max: u64,
}
