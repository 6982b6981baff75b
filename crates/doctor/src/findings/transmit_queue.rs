//! Finding about a device's transmit queue that is short for an unpaced sender.
//!
//! Without pacing, a sender emits its window in bursts, as fast as the host can, and above all in
//! slow start. The part that the device cannot send at once waits in the transmit queue. Packets
//! beyond its length are dropped on the host itself, and TCP reduces its rate as after a loss on
//! the path. A queue of one bandwidth-delay product holds any burst of one stream.

use super::{FindingCost, FindingList, Fix, SYSCTL_FILE, Severity};
use crate::facts::NetworkDevice;

/// Queue discipline whose limit is the device's `txqueuelen`.
const LIMITED_BY_DEVICE: &str = "pfifo_fast";
/// Queue discipline that paces TCP.
const PACING: &str = "fq";
/// Congestion controls that pace by themselves, with any queue discipline.
const PACED_BY_TCP: [&str; 2] = ["bbr", "bbr2"];
/// Step to which a recommended length is rounded up, in packets.
const LENGTH_STEP: u64 = 1000;
/// Maximum recommended length, in packets. A longer queue would mostly add delay for others.
const MAX_LENGTH: u64 = 100_000;

pub(super) fn check(list: &mut FindingList<'_>, link: &NetworkDevice) {
    let (Some(&length), Some(queues)) = (link.transmit_queue.known(), link.queues.known()) else {
        return;
    };
    let has = |kind: &str| queues.iter().any(|queue| queue.kind.as_str() == kind);
    if !has(LIMITED_BY_DEVICE) || has(PACING) || is_paced_by_tcp(list) {
        return;
    }
    let product = list.path.hop().bandwidth_delay_product();
    let needed = (product / f64::from(link.mtu.max(1))).ceil() as u64;
    if u64::from(length) >= needed {
        return;
    }
    let cost = FindingCost::words(format!(
        "without pacing a stream sends bursts of up to its window, {needed} packets here; what \
         exceeds the queue is dropped on this host, and TCP slows down as after a loss"
    ));
    let name = &link.name;
    let mut mends = Vec::new();
    let recommended = needed.next_multiple_of(LENGTH_STEP);
    if recommended <= MAX_LENGTH {
        mends.push(Fix::command(format!(
            "ip link set dev {name} txqueuelen {recommended}"
        )));
    }
    mends.push(Fix {
        now: format!("tc qdisc replace dev {name} root {PACING}"),
        keep: Some(format!(
            "echo 'net.core.default_qdisc = {PACING}' >> {SYSCTL_FILE}"
        )),
        note: Some("paces each stream instead, if the kernel has sch_fq".to_owned()),
    });
    list.add(
        "transmit-queue",
        Severity::Advice,
        format!("txqueuelen {length} on {name}, with {LIMITED_BY_DEVICE}, which does not pace"),
        cost,
        mends,
    );
}

/// Returns true if the congestion control in use paces. One on the route precedes the setting.
fn is_paced_by_tcp(list: &FindingList<'_>) -> bool {
    let facts = list.facts;
    let on_route = facts
        .route
        .known()
        .and_then(|route| route.congestion.as_ref());
    let current = on_route.or(facts.tcp.congestion.known());
    current.is_some_and(|name| PACED_BY_TCP.contains(&name.as_str()))
}
