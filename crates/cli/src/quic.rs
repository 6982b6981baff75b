//! QUIC of the programs that end sessions themselves.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use longhaul_hop::StreamDialler;
use longhaul_proto::SigningKey;
use longhaul_quic::{QuicDialler, QuicLimits, QuicListener};
use longhaul_session::Listener;

/// Returns a dialler for sessions to any server.
pub fn dialler() -> Arc<dyn StreamDialler> {
    QuicDialler::new(QuicLimits::default())
}

/// Accepts sessions by QUIC as well, on the UDP port of the listener's number.
///
/// `requested` is the address that the user asked for.
pub fn listen(listener: &Listener, requested: Option<SocketAddr>, key: &SigningKey) -> Result<()> {
    let address = listener.local_addr();
    let streams = QuicListener::bind_beside(
        address,
        requested.unwrap_or(address),
        key,
        QuicLimits::default(),
    )
    .with_context(|| {
        format!("{address} (UDP): cannot listen for QUIC; turn it off with --no-quic")
    })?;
    if let Some(streams) = streams {
        listener.serve_streams(streams);
    }
    Ok(())
}
