//! QUIC as the transport of a hop: [`QuicDialler`] opens streams and [`QuicListener`] accepts them,
//! each as a [`Conn`](longhaul_hop::Conn).
//!
//! One long-lived connection between two hops carries many sessions, one stream each, so only the
//! first session waits for a handshake. The server proves its Ed25519 key (RFC 7250); a hop whose
//! key is known accepts no other. Everything on the hop is encrypted, OPENs included.
//!
//! The purpose is a rate that survives random loss: the congestion controller reduces its rate only
//! for loss that coincides with a queue, and needs no privilege. QUIC costs about six times the CPU
//! of TCP, so TCP remains the choice where it is as fast.
//!
//! The protocol is implemented by s2n-quic: it has segmentation offload and pacing, takes a
//! congestion controller and a rustls verifier from outside, and needs the least CPU of the Rust
//! implementations. quinn paces by its window alone, which a model-based controller cannot use;
//! quiche needs BoringSSL and half as much CPU again.

mod controller;
mod dialler;
mod limits;
mod listener;
mod measures;
mod reachability;
mod shared;
mod socket;
mod stream;
mod tls;

pub use dialler::QuicDialler;
pub use limits::QuicLimits;
pub use listener::QuicListener;
