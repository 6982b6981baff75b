use std::os::fd::OwnedFd;

use rustix::io::{read, write};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::super::TunPort;
use super::super::samples::{PLAIN, PacketSample};
use super::super::virtio::VIRTIO_HEADER;
use super::*;
use crate::spec::{BitRate, DirectionSpec, LossModel};

/// Returns a port that keeps packets apart and needs no privileges, and the node's side of it.
fn port() -> (Port, OwnedFd) {
    let kinds = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let (emulator, node) = socketpair(kinds.0, kinds.1, SocketFlags::CLOEXEC, None).unwrap();
    rustix::io::ioctl_fionbio(&emulator, true).unwrap();
    set_socket_timeout(&node, Timeout::Recv, Some(Duration::from_secs(120))).unwrap();
    (Port::Tun(TunPort::over(emulator)), node)
}

fn link(delay: Duration) -> LinkSpec {
    let rate = Some(BitRate(1_000_000_000));
    let direction = DirectionSpec {
        delay,
        rate,
        queue: 1_000_000,
        loss: LossModel::None,
        ..DirectionSpec::default()
    };
    LinkSpec {
        name: "ab".to_owned(),
        mtu: 1500,
        forward: direction.clone(),
        backward: direction,
        seed: 1,
    }
}

fn send(node: &OwnedFd, sample: &PacketSample) -> Vec<u8> {
    let (virtio, packet) = sample.packet();
    write(node, &[&virtio.to_bytes(), packet.as_slice()].concat()).unwrap();
    packet
}

fn receive(node: &OwnedFd) -> Vec<u8> {
    let mut buffer = vec![0; 70_000];
    let len = read(node, &mut buffer).unwrap();
    buffer[VIRTIO_HEADER..len].to_vec()
}

#[test]
fn packets_pass_both_ways_and_never_early() {
    let delay = Duration::from_millis(4);
    let ((a, node_a), (b, node_b)) = (port(), port());
    let link = start(link(delay), a, b).unwrap();
    for (from, to) in [(&node_a, &node_b), (&node_b, &node_a)] {
        let sent_at = Instant::now();
        let sent = send(from, &PLAIN);
        assert_eq!(receive(to), sent);
        assert!(sent_at.elapsed() >= delay);
    }
    let now = link.counters().unwrap();
    assert_eq!((now.forward.packets, now.backward.packets), (1, 1));
    let last = link.stop().unwrap();
    assert_eq!((last.forward.bytes, last.backward.bytes), (1500, 1500));
    assert_eq!((last.forward.write_errors, last.forward.malformed), (0, 0));
    assert!(last.seconds >= now.seconds && now.seconds > 0.0);
}

#[test]
fn a_stopped_link_lets_go_of_its_ports() {
    let ((a, node_a), (b, _node_b)) = (port(), port());
    drop(start(link(Duration::from_secs(1)), a, b).unwrap());
    assert_eq!(read(&node_a, &mut [0; 100]).unwrap(), 0, "end of file");
}

#[test]
fn a_link_whose_port_is_gone_says_so() {
    let ((a, node_a), (b, node_b)) = (port(), port());
    let link = start(link(Duration::ZERO), a, b).unwrap();
    drop(node_a);
    assert_eq!(
        read(&node_b, &mut [0; 100]).unwrap(),
        0,
        "the link has ended"
    );
    let error = link.counters().unwrap_err();
    assert!(
        error.to_string().starts_with("link ab: ended by itself: "),
        "{error}"
    );
    assert!(matches!(link.stop(), Err(LinkError::Ended { .. })));
}

#[test]
fn nonsense_is_refused_before_anything_starts() {
    let ((a, _node_a), (b, _node_b)) = (port(), port());
    let error = start(
        LinkSpec {
            mtu: 1,
            ..link(Duration::ZERO)
        },
        a,
        b,
    )
    .unwrap_err();
    assert_eq!(error.to_string(), "link ab: mtu: must be 68 to 65535 bytes");
}
