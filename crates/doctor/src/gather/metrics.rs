//! Cached TCP metrics of a host: the generic netlink family `tcp_metrics`.

use std::io;
use std::net::IpAddr;

use super::route::address;
use crate::facts::CachedMetrics;
use longhaul_netlink::{
    GENERIC, NetlinkAnswer, NetlinkSocket, attributes, find, parse_text, parse_u32, put,
};

/// `struct genlmsghdr`.
const HEADER: usize = 4;
/// The netlink controller's number, and its command to look up a family by name.
const CONTROLLER: u16 = 16;
const GET_FAMILY: u8 = 3;
/// `TCP_METRICS_CMD_GET`.
const GET: u8 = 1;

/// Returns the cached metrics; `None` without any.
pub(super) fn read(host: IpAddr) -> io::Result<Option<CachedMetrics>> {
    let mut connection = NetlinkSocket::open(GENERIC)?;
    let mut question = vec![GET_FAMILY, 1, 0, 0];
    put(&mut question, 2, b"tcp_metrics\0"); // CTRL_ATTR_FAMILY_NAME
    let answer = connection.get(CONTROLLER, &question)?;
    let family = family(&answer).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::Unsupported,
            "the kernel does not report them",
        )
    })?;
    let all = connection.dump(family, &[GET, 1, 0, 0])?;
    Ok(all
        .iter()
        .filter_map(metrics)
        .find(|metrics| metrics.host == host))
}

fn family((_, payload): &NetlinkAnswer) -> Option<u16> {
    let found = attributes(payload, HEADER);
    // Only if the answer fits the question: CTRL_ATTR_FAMILY_NAME, CTRL_ATTR_FAMILY_ID.
    find(&found, 2)
        .and_then(parse_text)
        .filter(|name| *name == "tcp_metrics")?;
    find(&found, 1)?
        .first_chunk()
        .copied()
        .map(u16::from_ne_bytes)
}

fn metrics((_, payload): &NetlinkAnswer) -> Option<CachedMetrics> {
    let found = attributes(payload, HEADER);
    // TCP_METRICS_ATTR_ADDR_IPV4, _IPV6; _VALS holds each metric under its own number plus one.
    let host = find(&found, 1)
        .or_else(|| find(&found, 2))
        .and_then(address)?;
    let values = find(&found, 6)
        .map(|value| attributes(value, 0))
        .unwrap_or_default();
    Some(CachedMetrics {
        host,
        ssthresh: find(&values, 3).and_then(parse_u32), // TCP_METRIC_SSTHRESH
        cwnd: find(&values, 4).and_then(parse_u32),     // TCP_METRIC_CWND
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_entry_is_read() {
        let mut bytes = vec![GET, 1, 0, 0];
        put(&mut bytes, 1, &[10, 0, 0, 9]);
        let mut values = Vec::new();
        put(&mut values, 3, &40u32.to_ne_bytes());
        put(&mut bytes, 6, &values);
        let expected = CachedMetrics {
            host: [10, 0, 0, 9].into(),
            ssthresh: Some(40),
            cwnd: None,
        };
        assert_eq!(metrics(&(30, bytes)), Some(expected));
    }

    #[test]
    fn an_unknown_host_has_no_cached_metrics() {
        assert_eq!(read([198, 51, 100, 77].into()).unwrap(), None);
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = (family(&(0, bytes.clone())), metrics(&(0, bytes)));
        }
    }
}
