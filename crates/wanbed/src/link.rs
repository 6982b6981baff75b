//! An emulated link in user space. Packets of one node are read from a port, pass a bottleneck with
//! a given rate, queue, loss and delay, and are written to the other node's port. Everything that a
//! real link does to a packet is done for each segment, but TCP's super-packets pass whole if that
//! makes no difference.

mod bottleneck;
mod codel;
mod cross;
mod cut;
mod direction;
mod drops;
mod engine;
mod jitter;
mod layout;
mod loss;
pub mod packet;
mod port;
mod port_read;
mod propagation;
mod queue;
mod random;
mod reorder;
mod report;
mod ring;
#[cfg(test)]
mod samples;
mod schedule;
mod thread;
pub mod tun;
mod virtio;

use std::io;

pub use engine::{LinkHandle, start};
pub(crate) use jitter::{
    amplitude as jitter_amplitude, correlation_time as jitter_correlation_time,
};
pub use packet::PacketPort;
pub use port::Port;
pub use report::{DirectionSnapshot, LagPercentiles, LinkSnapshot, Scheduling};
pub(crate) use schedule::least_delay;
pub use tun::TunPort;

use crate::spec::SpecError;

/// Nanoseconds since the link started.
type Nanos = u64;

/// Reason why a link cannot be set up, or ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The specification is out of range: correct the scenario.
    #[error("link {link}: {source}")]
    Spec {
        /// The link's name.
        link: String,
        /// Name of the field, and its valid values.
        source: SpecError,
    },
    /// A TUN device or an interface cannot be used: check permissions, or use the other kind of
    /// port.
    #[error("{device}: can't {what}: {source}")]
    Device {
        /// Name of the interface.
        device: String,
        /// Failed operation.
        what: &'static str,
        /// Error of the kernel.
        source: io::Error,
    },
    /// More bytes would be in flight than the engine can hold: lower the rate, the delay or the
    /// queue.
    #[error(
        "link {link}: {needed} bytes would be under way at once, more than the {limit} of memory \
         allowed: lower rate, delay or queue"
    )]
    TooMuchUnderWay {
        /// The link's name.
        link: String,
        /// Bytes that rate, delay and queue require in one direction.
        needed: u64,
        /// Maximum bytes in one direction.
        limit: u64,
    },
    /// The system refused a resource of a link's thread.
    #[error("link {link}: can't {what}: {source}")]
    Thread {
        /// The link's name.
        link: String,
        /// Failed operation.
        what: &'static str,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The link has ended by itself, most likely because one of its devices was deleted.
    #[error("link {link}: ended by itself: {why}")]
    Ended {
        /// The link's name.
        link: String,
        /// Reason why it ended.
        why: String,
    },
}
