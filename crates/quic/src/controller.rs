//! Congestion controller of all connections.

/// Returns the factory of controllers.
pub(crate) fn endpoint() -> s2n_quic::provider::congestion_controller::Bbr {
    s2n_quic::provider::congestion_controller::Bbr::default()
}
