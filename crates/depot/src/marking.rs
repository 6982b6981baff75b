//! Marks the hops of relayed copies as flows of an experiment.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use longhaul_hop::Conn;
use longhaul_proto::{Open, ServiceName};
use longhaul_scitags::{Flow, FlowMarker, FlowUsage, MarkedFlow, Protocol};

/// Bytes of a relayed session so far.
#[derive(Debug, Default)]
pub(crate) struct RelayedBytes {
    forward: AtomicU64,
    backward: AtomicU64,
}

impl RelayedBytes {
    pub(crate) fn count(&self, forward: u64, backward: u64) {
        self.forward.fetch_add(forward, Ordering::Relaxed);
        self.backward.fetch_add(backward, Ordering::Relaxed);
    }
}

/// Both hops of a session, marked until this is dropped.
#[derive(Debug)]
pub(crate) struct MarkedHops {
    /// Count to keep up to date.
    pub(crate) bytes: Arc<RelayedBytes>,
    _hops: [Option<MarkedFlow>; 2],
}

/// Marks the hops of the session of `open`, if it is a stream of a copy. Each hop's flow begins at
/// the end that has dialled it.
pub(crate) fn mark_hops(
    marker: &FlowMarker,
    open: &Open,
    (upstream, peer): (&Conn, SocketAddr),
    (downstream, to): (&Conn, SocketAddr),
) -> Option<MarkedHops> {
    if open.service != ServiceName::COPY {
        return None;
    }
    let bytes = Arc::new(RelayedBytes::default());
    let mark = |conn: &Conn, far: SocketAddr, is_upstream: bool| {
        let here = conn.local_addr().ok()?;
        let (source, destination) = if is_upstream {
            (far, here)
        } else {
            (here, far)
        };
        let flow = Flow {
            source,
            destination,
            protocol: match conn.tcp() {
                Some(_) => Protocol::Tcp,
                None => Protocol::Udp,
            },
        };
        let bytes = Arc::clone(&bytes);
        Some(marker.mark(flow, far.ip(), move || {
            let forward = bytes.forward.load(Ordering::Relaxed);
            let backward = bytes.backward.load(Ordering::Relaxed);
            match is_upstream {
                true => FlowUsage {
                    received: forward,
                    sent: backward,
                },
                false => FlowUsage {
                    received: backward,
                    sent: forward,
                },
            }
        }))
    };
    let hops = [mark(upstream, peer, true), mark(downstream, to, false)];
    Some(MarkedHops { bytes, _hops: hops })
}
