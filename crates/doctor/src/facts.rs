//! What is known of one machine. Everything here travels as JSON; whatever another machine says has
//! been through [`Name`] and [`Text`], so that it can be printed and put into a command.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::fact::{Fact, Name, Text};

/// One machine, as far as it matters to bulk transfer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// The kernel's release.
    pub kernel: Fact<Text>,
    /// Settings of TCP.
    pub tcp: Tcp,
    /// Network devices that are up, without loopback.
    pub links: Fact<Vec<Link>>,
    /// The route to the far host, or to the rest of the world.
    pub route: Fact<Route>,
    /// What TCP remembers of the far host; `None` if nothing.
    pub metrics: Fact<Option<CachedMetrics>>,
    /// Processors.
    pub cpu: Cpu,
    /// The clock.
    pub clock: Clock,
    /// Files a process may have open at once, at most (`RLIMIT_NOFILE`, hard limit).
    pub descriptors: Fact<u64>,
    /// A disk, if it was asked to be measured.
    pub disk: Option<Disk>,
}

/// Settings of TCP, each by its name under `net.ipv4.tcp_` unless said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tcp {
    /// Receive buffer: least, first, most, in bytes with the kernel's bookkeeping.
    pub rmem: Fact<[u64; 3]>,
    /// Send buffer: least, first, most, in bytes with the kernel's bookkeeping.
    pub wmem: Fact<[u64; 3]>,
    /// `net.core.rmem_max`: the largest receive buffer a program may set, in bytes; the kernel
    /// doubles it.
    pub rmem_max: Fact<u64>,
    /// `net.core.wmem_max`: the largest send buffer a program may set, in bytes; the kernel doubles
    /// it.
    pub wmem_max: Fact<u64>,
    /// Memory of all TCP: low, pressure, most, in pages. Not to be seen inside a network namespace.
    pub mem: Fact<[u64; 3]>,
    /// Bytes of a page.
    pub page_size: u64,
    /// Whether the receive buffer tunes itself.
    pub moderate_rcvbuf: Fact<bool>,
    /// Window scaling (RFC 7323).
    pub window_scaling: Fact<bool>,
    /// Timestamps (RFC 7323).
    pub timestamps: Fact<bool>,
    /// Selective acknowledgement (RFC 2018).
    pub sack: Fact<bool>,
    /// Whether what is learnt of a host is forgotten.
    pub no_metrics_save: Fact<bool>,
    /// Whether at least its slow-start threshold is forgotten.
    pub no_ssthresh_metrics_save: Fact<bool>,
    /// Whether a connection that paused begins again slowly.
    pub slow_start_after_idle: Fact<bool>,
    /// Probing for the path MTU by TCP itself (RFC 4821): 0 never, 1 after a black hole, 2 always.
    pub mtu_probing: Fact<u64>,
    /// The congestion control in use.
    pub congestion: Fact<Name>,
    /// Those that the kernel has loaded.
    pub available: Fact<Vec<Name>>,
    /// Those that an ordinary user, or a network namespace, may choose.
    pub allowed: Fact<Vec<Name>>,
}

/// A network device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// Its name.
    pub name: Name,
    /// Largest packet, in bytes.
    pub mtu: u32,
    /// What makes it, such as `tun` or `veth`; `None` for hardware (and what looks like it).
    pub kind: Option<Name>,
    /// Rate, in Mbit/s.
    pub speed_mbps: Fact<u64>,
    /// Whether it sends and receives at once.
    pub full_duplex: Fact<bool>,
    /// TCP segmentation offload.
    pub tso: Fact<bool>,
    /// Generic segmentation offload.
    pub gso: Fact<bool>,
    /// Generic receive offload.
    pub gro: Fact<bool>,
    /// Queue disciplines, the root first.
    pub queues: Fact<Vec<Queue>>,
    /// Counters since it came up.
    pub counters: Fact<Counters>,
}

/// A queue discipline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Queue {
    /// Its kind, such as `fq`.
    pub kind: Name,
    /// Whether it is the root.
    pub root: bool,
    /// Packets it dropped.
    pub drops: u64,
    /// What it holds the device to, in bytes a second (only `tbf` says so).
    pub rate: Option<u64>,
}

/// Counters of a device (`struct rtnl_link_stats64`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Packets received.
    pub rx_packets: u64,
    /// Packets received damaged.
    pub rx_errors: u64,
    /// Packets that the device had no room for.
    pub rx_missed: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Packets that could not be sent.
    pub tx_errors: u64,
}

/// The way to a host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Route {
    /// The host; `None` for the rest of the world.
    pub to: Option<IpAddr>,
    /// The device.
    pub device: Name,
    /// The next router; `None` if the host is on the device's own network.
    pub gateway: Option<IpAddr>,
    /// The address to send from.
    pub source: Option<IpAddr>,
    /// An MTU set on the route, in bytes.
    pub mtu: Option<u32>,
    /// A congestion control set on the route.
    pub congestion: Option<Name>,
}

/// What TCP remembers of a host (`ip tcp_metrics`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CachedMetrics {
    /// The host.
    pub host: IpAddr,
    /// Where slow start ended, in segments.
    pub ssthresh: Option<u32>,
    /// The congestion window, in segments.
    pub cwnd: Option<u32>,
}

/// Processors and what they encrypt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// Those this process may use.
    pub cores: Fact<u64>,
    /// Whether they have instructions for AES.
    pub aes: Fact<bool>,
    /// How their frequency is governed.
    pub governor: Fact<Name>,
    /// Rates of TLS 1.3's ciphers on one core, the one that sessions prefer first.
    pub ciphers: Fact<Vec<CipherRate>>,
}

/// A cipher and how fast one core is with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CipherRate {
    /// The cipher, such as `aes-256-gcm`.
    pub cipher: Name,
    /// Bytes sealed in a second, in records of 16 KiB.
    pub bytes_per_second: u64,
}

/// The clock.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Clock {
    /// Whether the kernel takes it to be synchronised.
    pub synchronised: Fact<bool>,
    /// The most it may be wrong by, in microseconds, if it is.
    pub max_error_us: Fact<u64>,
}

/// A disk, as a short write and read of one file found it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Disk {
    /// The directory.
    pub directory: Text,
    /// Bytes written in a second, the flush to the disk included.
    pub write: Fact<u64>,
    /// Bytes read in a second, from the disk if `direct`, else perhaps from memory.
    pub read: Fact<u64>,
    /// Whether the page cache was kept out (`O_DIRECT`).
    pub direct: bool,
}
