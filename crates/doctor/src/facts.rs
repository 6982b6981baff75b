//! Facts about one machine. They are transferred as JSON; text from another machine passes through
//! [`CommandName`] and [`PrintableText`], so that it can be printed and used in a command.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::fact::{CommandName, Fact, PrintableText};

/// Facts about one machine that matter to bulk transfer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// The kernel's release.
    pub kernel: Fact<PrintableText>,
    /// Settings of TCP.
    pub tcp: TcpSettings,
    /// Network devices that are up, without loopback.
    pub links: Fact<Vec<NetworkDevice>>,
    /// The route to the far host, or the default route.
    pub route: Fact<HostRoute>,
    /// Metrics of the far host that TCP has cached; `None` without any.
    pub metrics: Fact<Option<CachedMetrics>>,
    /// Processors.
    pub cpu: Processors,
    /// The clock.
    pub clock: Clock,
    /// Maximum number of files that a process may have open (`RLIMIT_NOFILE`, hard limit).
    pub descriptors: Fact<u64>,
    /// A disk, if its measurement was requested.
    pub disk: Option<DiskRates>,
}

/// Settings of TCP, each with its name under `net.ipv4.tcp_` unless noted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TcpSettings {
    /// Receive buffer: minimum, default, maximum, in bytes including the kernel's bookkeeping.
    pub rmem: Fact<[u64; 3]>,
    /// Send buffer: minimum, default, maximum, in bytes including the kernel's bookkeeping.
    pub wmem: Fact<[u64; 3]>,
    /// `net.core.rmem_max`: the largest receive buffer that a program may set, in bytes; the kernel
    /// doubles it.
    pub rmem_max: Fact<u64>,
    /// `net.core.wmem_max`: the largest send buffer that a program may set, in bytes; the kernel
    /// doubles it.
    pub wmem_max: Fact<u64>,
    /// Memory of all TCP connections: low, pressure, maximum, in pages. Not visible inside a
    /// network namespace.
    pub mem: Fact<[u64; 3]>,
    /// Bytes per page.
    pub page_size: u64,
    /// True if the receive buffer tunes itself.
    pub moderate_rcvbuf: Fact<bool>,
    /// Window scaling (RFC 7323).
    pub window_scaling: Fact<bool>,
    /// Timestamps (RFC 7323).
    pub timestamps: Fact<bool>,
    /// Selective acknowledgement (RFC 2018).
    pub sack: Fact<bool>,
    /// True if no metrics of a host are saved.
    pub no_metrics_save: Fact<bool>,
    /// True if at least the slow-start threshold is not saved.
    pub no_ssthresh_metrics_save: Fact<bool>,
    /// True if a connection that was idle restarts in slow start.
    pub slow_start_after_idle: Fact<bool>,
    /// Path MTU discovery by TCP itself (RFC 4821): 0 never, 1 after a black hole, 2 always.
    pub mtu_probing: Fact<u64>,
    /// The congestion control in use.
    pub congestion: Fact<CommandName>,
    /// Congestion controls that the kernel has loaded.
    pub available: Fact<Vec<CommandName>>,
    /// Congestion controls that an ordinary user, or a network namespace, may choose.
    pub allowed: Fact<Vec<CommandName>>,
}

/// A network device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NetworkDevice {
    /// Its name.
    pub name: CommandName,
    /// Largest packet, in bytes.
    pub mtu: u32,
    /// Driver kind, such as `tun` or `veth`; `None` for hardware and similar devices.
    pub kind: Option<CommandName>,
    /// Rate, in Mbit/s.
    pub speed_mbps: Fact<u64>,
    /// True if it sends and receives simultaneously.
    pub full_duplex: Fact<bool>,
    /// TCP segmentation offload.
    pub tso: Fact<bool>,
    /// Generic segmentation offload.
    pub gso: Fact<bool>,
    /// Generic receive offload.
    pub gro: Fact<bool>,
    /// Maximum number of packets that wait to be sent, where the queue discipline has no limit of
    /// its own (`txqueuelen`).
    #[serde(default = "not_reported")]
    pub transmit_queue: Fact<u32>,
    /// Queue disciplines, the root first.
    pub queues: Fact<Vec<QueueDiscipline>>,
    /// Counters since it came up.
    pub counters: Fact<DeviceCounters>,
}

/// Returns the value of a fact that an earlier release does not send.
fn not_reported() -> Fact<u32> {
    Fact::unknown("not reported by this release")
}

/// A queue discipline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QueueDiscipline {
    /// Its kind, such as `fq`.
    pub kind: CommandName,
    /// True for the root.
    pub root: bool,
    /// Packets it dropped.
    pub drops: u64,
    /// Rate limit of the device, in bytes per second (only `tbf` reports it).
    pub rate: Option<u64>,
}

/// Counters of a device (`struct rtnl_link_stats64`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DeviceCounters {
    /// Packets received.
    pub rx_packets: u64,
    /// Received packets that were damaged.
    pub rx_errors: u64,
    /// Packets dropped for lack of buffers in the device.
    pub rx_missed: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Packets that could not be sent.
    pub tx_errors: u64,
}

/// Route to a host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostRoute {
    /// The host; `None` for the default route.
    pub to: Option<IpAddr>,
    /// The device.
    pub device: CommandName,
    /// The next router; `None` if the host is on the device's own network.
    pub gateway: Option<IpAddr>,
    /// Source address.
    pub source: Option<IpAddr>,
    /// MTU set on the route, in bytes.
    pub mtu: Option<u32>,
    /// Congestion control set on the route.
    pub congestion: Option<CommandName>,
}

/// Metrics of a host that TCP has cached (`ip tcp_metrics`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CachedMetrics {
    /// The host.
    pub host: IpAddr,
    /// Slow-start threshold, in segments.
    pub ssthresh: Option<u32>,
    /// The congestion window, in segments.
    pub cwnd: Option<u32>,
}

/// Processors and their encryption rates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Processors {
    /// Number of processors that this process may use.
    pub cores: Fact<u64>,
    /// True if they have instructions for AES.
    pub aes: Fact<bool>,
    /// Frequency governor.
    pub governor: Fact<CommandName>,
    /// Rates of TLS 1.3's ciphers on one core, in the order of preference of sessions.
    pub ciphers: Fact<Vec<CipherRate>>,
}

/// A cipher and its rate on one core.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CipherRate {
    /// The cipher, such as `aes-256-gcm`.
    pub cipher: CommandName,
    /// Bytes encrypted per second, in records of 16 KiB.
    pub bytes_per_second: u64,
}

/// The clock.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Clock {
    /// True if the kernel considers it synchronised.
    pub synchronised: Fact<bool>,
    /// Maximum error if it is synchronised, in microseconds.
    pub max_error_us: Fact<u64>,
}

/// A disk, measured by writing and reading one file for a short time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DiskRates {
    /// The directory.
    pub directory: PrintableText,
    /// Bytes written per second, including the flush to the disk.
    pub write: Fact<u64>,
    /// Bytes read per second, from the disk if `direct`, and otherwise perhaps from memory.
    pub read: Fact<u64>,
    /// True if the page cache was bypassed (`O_DIRECT`).
    pub direct: bool,
}
