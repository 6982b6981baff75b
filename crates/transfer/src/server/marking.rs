//! Marks the streams of copies as flows of an experiment.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use longhaul_scitags::{Flow, FlowMarker, FlowUsage, MarkedFlow, Protocol};

use super::Server;
use crate::client::StreamOrigin;
use crate::half::Half;
use crate::progress::StreamCounters;

impl Server {
    /// Marks the flows of copies with `marker` from now on. The first marker stays.
    pub fn mark_flows(&self, marker: FlowMarker) {
        // A second call is an error of the program.
        let _ = self.marker.set(marker);
    }

    /// Marks a stream while the result exists. The end that supplies the data is the source.
    pub(super) fn mark(
        &self,
        origin: &StreamOrigin,
        side: &Half,
        counters: &Arc<StreamCounters>,
    ) -> Option<MarkedFlow> {
        let (marker, local, from) = (self.marker.get()?, origin.local?, origin.from?);
        let sends = matches!(side, Half::Sending(_));
        let (source, destination) = if sends { (local, from) } else { (from, local) };
        let protocol = match origin.is_tcp {
            true => Protocol::Tcp,
            false => Protocol::Udp,
        };
        let flow = Flow {
            source,
            destination,
            protocol,
        };
        let counters = Arc::clone(counters);
        Some(marker.mark(flow, from.ip(), move || {
            let bytes = counters.bytes.load(Ordering::Relaxed);
            let (received, sent) = if sends { (0, bytes) } else { (bytes, 0) };
            FlowUsage { received, sent }
        }))
    }
}
