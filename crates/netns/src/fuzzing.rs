//! Properties that must hold for any packet of the program.

use std::time::Duration;

use crate::end::{ConnectionEnd, Wire};
use crate::packet::{self, Packet};

/// Handles a packet from the device, which must not panic.
pub(crate) fn packet(bytes: &[u8]) {
    match Packet::read(bytes) {
        Packet::Tcp(pair, segment) => {
            let _ = segment.refusal(&pair);
            let _ = packet::unreachable(&pair, bytes, packet::Unreachable::Network);
            if segment.opens() && crate::addresses::may_leave(pair.far) {
                let mut nowhere = Nowhere::default();
                ConnectionEnd::accept(&pair, (&segment, bytes), 1, Duration::ZERO, &mut nowhere);
            }
        }
        Packet::Udp(pair, payload) => {
            assert!(payload.len() <= bytes.len());
            let _ = packet::datagram(&pair, payload);
        }
        Packet::Other => {}
    }
}

/// A wire on which packets are lost.
#[derive(Default)]
struct Nowhere(Vec<u8>);

impl Wire for Nowhere {
    fn send(&mut self, _: &[u8]) {}

    fn room(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}
