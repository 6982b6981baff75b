//! Collects the facts of this machine. It only reads and needs no privilege; each fact that cannot
//! be read has a reason.

mod cipher;
mod clock;
mod cpu;
mod disk;
mod ethtool;
mod links;
mod metrics;
mod route;
mod sysctl;

use std::net::IpAddr;
use std::path::PathBuf;

use longhaul_netlink::NetlinkSocket;

pub use disk::Probe as DiskProbe;

use crate::fact::{Fact, PrintableText};
use crate::facts::Facts;

/// Additional facts to collect.
#[derive(Debug, Clone, Default)]
pub struct GatherOptions {
    /// The far host, whose route and cached metrics are looked up.
    pub host: Option<IpAddr>,
    /// A directory whose disk is measured. This is the only option that writes.
    pub disk: Option<PathBuf>,
}

/// Collects everything. Takes about a tenth of a second, most of it for the ciphers; a disk takes
/// up to some seconds more.
pub fn gather(options: &GatherOptions) -> Facts {
    let mut connection = NetlinkSocket::open(longhaul_netlink::ROUTE);
    let links = match &mut connection {
        Ok(connection) => Fact::from(links::read(connection)),
        Err(error) => Fact::unknown(&*error),
    };
    let route = match &mut connection {
        Ok(connection) => route::read(
            connection,
            options.host,
            links.known().map_or(&[], Vec::as_slice),
        ),
        Err(error) => Fact::unknown(&*error),
    };
    Facts {
        kernel: Fact::Known(PrintableText::new(
            &rustix::system::uname().release().to_string_lossy(),
        )),
        tcp: sysctl::tcp(),
        route,
        metrics: match options.host {
            Some(host) => metrics::read(host).into(),
            None => Fact::unknown("no host was named"),
        },
        cpu: cpu::read(),
        clock: clock::read(),
        descriptors: cpu::descriptors(),
        disk: options
            .disk
            .as_deref()
            .map(|directory| disk::measure(directory, DiskProbe::default())),
        links: links.map(|links| links.into_iter().map(|(_, link)| link).collect()),
    }
}
