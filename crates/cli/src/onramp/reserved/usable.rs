//! Paths of a reservation that direct connections can use. Pure.

#![deny(clippy::indexing_slicing)] // what is read here comes from a controller

use std::net::IpAddr;

use longhaul_control_api::reservations::{
    CircuitStanding, LifeState, Piece, Reservation, ReservedPath as GrantedPath,
};
use longhaul_onramp::{ReservedPath, ReservedPaths};

/// Reason why connections cannot use a reservation.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnusableReservation {
    /// Its time has passed, or it was cancelled or failed.
    #[error("reservation {0} is over: make another one with longhaul reserve")]
    Over(u64),
    /// The map has no address of its destination, so the network cannot recognise connections.
    #[error(
        "reservation {0} has no address of its destination: give one with longhaul reserve \
         --to-address"
    )]
    NoDestination(u64),
    /// It has one path and covers all connections between its ends. Nothing has to be done for
    /// connections to use it.
    #[error(
        "reservation {0} has no source ports: all connections between its ends use its one path; \
         reserve several paths, or one with --pin"
    )]
    NoPorts(u64),
    /// The network recognises connections by the address of another machine.
    #[error(
        "reservation {id} is for connections from {address}, which is no address of this machine: \
         run the program there"
    )]
    OtherMachine {
        /// ID of the reservation.
        id: u64,
        /// Address of its source.
        address: IpAddr,
    },
}

/// Checks that connections can use a reservation, now or later.
///
/// # Errors
/// [`UnusableReservation`].
pub fn check(reservation: &Reservation, now_ms: u64) -> Result<(), UnusableReservation> {
    let id = reservation.id;
    if !is_alive(reservation) || reservation.end_ms <= now_ms {
        return Err(UnusableReservation::Over(id));
    }
    if reservation.to_address.is_none() {
        return Err(UnusableReservation::NoDestination(id));
    }
    let coming = reservation
        .pieces
        .iter()
        .filter(|piece| piece.end_ms > now_ms);
    match coming
        .flat_map(|piece| &piece.paths)
        .any(|path| ports(path).is_some())
    {
        true => Ok(()),
        false => Err(UnusableReservation::NoPorts(id)),
    }
}

/// Checks that connections from this machine belong to a reservation.
///
/// # Errors
/// [`UnusableReservation::OtherMachine`].
pub fn check_source(reservation: &Reservation, own: &[IpAddr]) -> Result<(), UnusableReservation> {
    match source(reservation) {
        Some(address) if !own.contains(&address) => Err(UnusableReservation::OtherMachine {
            id: reservation.id,
            address,
        }),
        _ => Ok(()),
    }
}

/// Returns the state of a reservation's circuit, if the network does not hold its rate.
pub fn not_set_up(reservation: &Reservation) -> Option<&'static str> {
    let Some(circuit) = &reservation.circuit else {
        return Some("not provisioned");
    };
    match circuit.standing {
        CircuitStanding::SetUp => None,
        CircuitStanding::Waiting => Some("waiting"),
        CircuitStanding::SettingUp => Some("setting-up"),
        CircuitStanding::Failed => Some("failed"),
        CircuitStanding::TearingDown => Some("tearing-down"),
        CircuitStanding::Unmanaged => Some("unmanaged"),
    }
}

/// Returns the paths of a reservation at a moment. `None` if it has none then.
pub fn paths(reservation: &Reservation, now_ms: u64) -> Option<ReservedPaths> {
    let is_current = |piece: &&Piece| (piece.start_ms..piece.end_ms).contains(&now_ms);
    let piece = reservation.pieces.iter().find(is_current)?;
    let paths: Vec<ReservedPath> = piece
        .paths
        .iter()
        .filter_map(|path| {
            let ports = ports(path)?;
            let rate_bps = path.rate_bps;
            Some(ReservedPath { ports, rate_bps })
        })
        .collect();
    (is_alive(reservation) && !paths.is_empty()).then_some(ReservedPaths {
        reservation: reservation.id,
        from: source(reservation),
        to: reservation.to_address.as_deref()?.parse().ok()?,
        paths,
    })
}

fn is_alive(reservation: &Reservation) -> bool {
    reservation.state.life == LifeState::Created
}

/// Returns the address by which the network recognises connections. `None` if it is a prefix: then
/// the address that the kernel chooses is one of them.
fn source(reservation: &Reservation) -> Option<IpAddr> {
    reservation.from_address.as_deref()?.parse().ok()
}

fn ports(path: &GrantedPath) -> Option<std::ops::RangeInclusive<u16>> {
    let ports = path.source_ports?;
    (ports.first > 0 && ports.first <= ports.last).then_some(ports.first..=ports.last)
}

#[cfg(test)]
mod tests;
