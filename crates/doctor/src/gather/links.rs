//! Network devices: `RTM_GETLINK` and `RTM_GETQDISC`, and the properties that `ethtool` reports.
//! `/sys/class/net` is not used: it shows the devices of the namespace in which `/sys` was mounted,
//! which may be another one.

use std::io;

use super::ethtool;
use crate::fact::{CommandName, Fact};
use crate::facts::{DeviceCounters, NetworkDevice, QueueDiscipline};
use longhaul_netlink::{NetlinkAnswer, NetlinkSocket, attributes, find, parse_text, parse_u32};

const GET_LINK: u16 = 18;
const NEW_LINK: u16 = 16;
const GET_QDISC: u16 = 38;
const NEW_QDISC: u16 = 36;

/// `struct ifinfomsg` and `struct tcmsg`.
const LINK_HEADER: usize = 16;
const QDISC_HEADER: usize = 20;

const IFF_UP: u32 = 1;
const IFF_LOOPBACK: u32 = 8;
/// `TC_H_ROOT`.
const ROOT: u32 = 0xffff_ffff;

/// Maximum number of devices reported.
const MAX_LINKS: usize = 64;
const MAX_QUEUES: usize = 32;

/// Returns the devices that are up, each with its index.
pub(super) fn read(connection: &mut NetlinkSocket) -> io::Result<Vec<(u32, NetworkDevice)>> {
    let answers = connection.dump(GET_LINK, &[0; LINK_HEADER])?;
    let queues = connection.dump(GET_QDISC, &[0; QDISC_HEADER]);
    let mut links: Vec<(u32, NetworkDevice)> =
        answers.iter().filter_map(link).take(MAX_LINKS).collect();
    for (index, link) in &mut links {
        match &queues {
            Ok(queues) => add_queues(
                link,
                queues
                    .iter()
                    .filter_map(queue)
                    .filter(|(of, _)| of == index),
            ),
            Err(error) => link.queues = Fact::unknown(error),
        }
        ethtool::fill_in(link);
    }
    Ok(links)
}

/// Parses a device. Returns `None` for loopback and for devices that are down.
fn link((kind, payload): &NetlinkAnswer) -> Option<(u32, NetworkDevice)> {
    if *kind != NEW_LINK {
        return None;
    }
    let index = parse_u32(payload.get(4..8)?)?;
    let flags = parse_u32(payload.get(8..12)?)?;
    if flags & IFF_UP == 0 || flags & IFF_LOOPBACK != 0 {
        return None;
    }
    let found = attributes(payload, LINK_HEADER);
    let name = |of: &[u8]| parse_text(of).and_then(|text| CommandName::new(text).ok());
    // IFLA_LINKINFO, which contains IFLA_INFO_KIND.
    let made_by = find(&found, 18).and_then(|info| find(&attributes(info, 0), 1).and_then(name));
    // IFLA_QDISC: the root's kind, reported even if it is not listed.
    let root = find(&found, 6).and_then(name);
    let counters = find(&found, 23).and_then(counters);
    Some((
        index,
        NetworkDevice {
            name: find(&found, 3).and_then(name)?,
            mtu: find(&found, 4).and_then(parse_u32)?,
            kind: made_by,
            speed_mbps: Fact::unknown("not asked"),
            full_duplex: Fact::unknown("not asked"),
            tso: Fact::unknown("not asked"),
            gso: Fact::unknown("not asked"),
            gro: Fact::unknown("not asked"),
            // IFLA_TXQLEN.
            transmit_queue: match find(&found, 13).and_then(parse_u32) {
                Some(packets) => Fact::Known(packets),
                None => Fact::unknown("the kernel does not report it"),
            },
            queues: match root {
                Some(kind) => Fact::Known(vec![QueueDiscipline {
                    kind,
                    root: true,
                    drops: 0,
                    rate: None,
                }]),
                None => Fact::unknown("the kernel does not name the queue"),
            },
            counters: match counters {
                Some(counters) => Fact::Known(counters),
                None => Fact::unknown("the kernel does not count"),
            },
        },
    ))
}

/// Replaces the root's name by the listed queues, which have more detail.
fn add_queues(link: &mut NetworkDevice, queues: impl Iterator<Item = (u32, QueueDiscipline)>) {
    let mut queues: Vec<QueueDiscipline> =
        queues.map(|(_, queue)| queue).take(MAX_QUEUES).collect();
    if !queues.is_empty() {
        queues.sort_by_key(|queue| !queue.root);
        link.queues = Fact::Known(queues);
    }
}

fn queue((kind, payload): &NetlinkAnswer) -> Option<(u32, QueueDiscipline)> {
    if *kind != NEW_QDISC {
        return None;
    }
    let index = parse_u32(payload.get(4..8)?)?;
    let parent = parse_u32(payload.get(12..16)?)?;
    let found = attributes(payload, QDISC_HEADER);
    // TCA_KIND, TCA_OPTIONS, TCA_STATS2.
    let kind = find(&found, 1)
        .and_then(parse_text)
        .and_then(|text| CommandName::new(text).ok())?;
    let rate = match kind.as_str() {
        "tbf" => find(&found, 2).and_then(tbf_rate),
        _ => None,
    };
    // TCA_STATS_QUEUE: qlen, backlog, drops, ...
    let drops = find(&found, 7).and_then(|stats| {
        find(&attributes(stats, 0), 3).and_then(|queue| parse_u32(queue.get(8..12)?))
    });
    let root = parent == ROOT;
    Some((
        index,
        QueueDiscipline {
            kind,
            root,
            drops: drops.unwrap_or(0).into(),
            rate,
        },
    ))
}

/// Parses `TCA_TBF_RATE64`, or else the 32 bits of `struct tc_tbf_qopt`, in bytes per second.
fn tbf_rate(options: &[u8]) -> Option<u64> {
    let found = attributes(options, 0);
    let long =
        find(&found, 4).and_then(|value| value.first_chunk().copied().map(u64::from_ne_bytes));
    // `struct tc_ratespec` begins with four bytes of other things and two 16-bit numbers.
    long.or_else(|| {
        find(&found, 1).and_then(|parameters| parse_u32(parameters.get(8..12)?).map(u64::from))
    })
}

fn counters(value: &[u8]) -> Option<DeviceCounters> {
    let at = |index: usize| {
        let from = index * 8;
        value
            .get(from..from + 8)?
            .first_chunk()
            .copied()
            .map(u64::from_ne_bytes)
    };
    Some(DeviceCounters {
        rx_packets: at(0)?,
        tx_packets: at(1)?,
        rx_errors: at(4)?,
        tx_errors: at(5)?,
        // rx_missed_errors: packets dropped for lack of buffers in the device.
        rx_missed: at(15).unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use longhaul_netlink::{ROUTE, put};

    fn link_message(flags: u32, fill: impl FnOnce(&mut Vec<u8>)) -> NetlinkAnswer {
        let mut bytes = vec![0; 4];
        bytes.extend_from_slice(&7u32.to_ne_bytes());
        bytes.extend_from_slice(&flags.to_ne_bytes());
        bytes.extend_from_slice(&[0; 4]);
        fill(&mut bytes);
        (NEW_LINK, bytes)
    }

    #[test]
    fn a_device_is_read() {
        let fill = |bytes: &mut Vec<u8>| {
            put(bytes, 3, b"tun0\0");
            put(bytes, 4, &1400u32.to_ne_bytes());
            put(bytes, 6, b"noqueue\0");
            put(bytes, 13, &500u32.to_ne_bytes());
            let mut info = Vec::new();
            put(&mut info, 1, b"tun\0");
            put(bytes, 18, &info);
            let stats: Vec<u8> = (0..24u64).flat_map(u64::to_ne_bytes).collect();
            put(bytes, 23, &stats);
        };
        let (index, found) = link(&link_message(IFF_UP, fill)).unwrap();
        assert_eq!((index, found.name.as_str(), found.mtu), (7, "tun0", 1400));
        assert_eq!(found.kind.unwrap().as_str(), "tun");
        assert_eq!(found.transmit_queue, Fact::Known(500));
        let counted = DeviceCounters {
            rx_packets: 0,
            tx_packets: 1,
            rx_errors: 4,
            tx_errors: 5,
            rx_missed: 15,
        };
        assert_eq!(found.counters, Fact::Known(counted));
        assert!(
            link(&link_message(0, fill)).is_none()
                && link(&link_message(IFF_UP | IFF_LOOPBACK, fill)).is_none()
        );
        assert!(link(&link_message(IFF_UP, |bytes| put(bytes, 3, b"a;reboot\0"))).is_none());
    }

    #[test]
    fn a_queue_with_a_rate_is_read() {
        let mut bytes = vec![0; 4];
        bytes.extend_from_slice(&7u32.to_ne_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&ROOT.to_ne_bytes());
        bytes.extend_from_slice(&[0; 4]);
        put(&mut bytes, 1, b"tbf\0");
        let mut options = Vec::new();
        let mut parameters = vec![0; 36];
        parameters[8..12].copy_from_slice(&12_500_000u32.to_ne_bytes());
        put(&mut options, 1, &parameters);
        put(&mut bytes, 2, &options);
        let mut stats = Vec::new();
        let numbers: Vec<u8> = [0u32, 0, 9, 0, 0]
            .iter()
            .flat_map(|n| n.to_ne_bytes())
            .collect();
        put(&mut stats, 3, &numbers);
        put(&mut bytes, 7, &stats);
        let (_, found) = queue(&(NEW_QDISC, bytes)).unwrap();
        assert_eq!(
            (found.rate, found.drops, found.root),
            (Some(12_500_000), 9, true)
        );
    }

    #[test]
    fn this_machine_answers() {
        let links = read(&mut NetlinkSocket::open(ROUTE).unwrap()).unwrap();
        assert!(links.iter().all(|(index, link)| *index > 0 && link.mtu > 0));
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = (
                link(&(NEW_LINK, bytes.clone())), queue(&(NEW_QDISC, bytes.clone())),
                tbf_rate(&bytes), counters(&bytes)
            );
        }
    }
}
