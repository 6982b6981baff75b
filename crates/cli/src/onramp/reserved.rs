//! Follows reservations of a controller, and keeps the on-ramp's reserved paths up to date.

mod usable;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use longhaul_control_api::reservations::Reservation;
use longhaul_control_client::ControllerClient;
use longhaul_hop::unix_ms;
use longhaul_onramp::{Onramp, ReservedPaths};
use tokio::time::{MissedTickBehavior, interval};

use crate::controller;

/// Interval between requests to the controller.
const FETCH_INTERVAL: Duration = Duration::from_secs(10);
/// Interval at which the paths of the current moment are looked up. Periods of a reservation may
/// begin and end at any time.
const UPDATE_INTERVAL: Duration = Duration::from_secs(1);

/// Reservations whose paths an on-ramp uses.
pub struct ReservedSource {
    controller: ControllerClient,
    reservations: Vec<Reservation>,
    fetched: Instant,
}

impl ReservedSource {
    /// Fetches the reservations.
    ///
    /// # Errors
    /// The controller does not answer, does not know one of them, or one cannot be used.
    pub async fn open(ids: &[u64], identity: Option<&Path>) -> Result<Self> {
        let controller = controller::configured_controller(identity)?;
        let mut reservations = Vec::with_capacity(ids.len());
        for &id in ids {
            let failed = || format!("cannot use reservation {id}");
            let reservation = controller.reservation(id).await.with_context(failed)?;
            usable::check(&reservation, unix_ms())?;
            usable::check_source(&reservation, &own_addresses())?;
            if let Some(state) = usable::not_set_up(&reservation) {
                tracing::warn!(
                    reservation = id,
                    state,
                    "the reservation is not set up, so its connections are best effort for now: \
                     longhaul reservations {id} shows its state"
                );
            }
            reservations.push(reservation);
        }
        Ok(Self {
            controller,
            reservations,
            fetched: Instant::now(),
        })
    }

    /// Keeps the paths of an on-ramp up to date.
    pub async fn follow(mut self, onramp: &Onramp) -> std::convert::Infallible {
        let mut ticks = interval(UPDATE_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut used = Vec::new();
        loop {
            ticks.tick().await;
            if self.fetched.elapsed() >= FETCH_INTERVAL {
                self.fetch().await;
            }
            let paths = self.paths();
            if paths != used {
                onramp.set_reserved_paths(paths.clone());
                used = paths;
            }
        }
    }

    /// Returns the paths of this moment.
    pub fn paths(&self) -> Vec<ReservedPaths> {
        let now = unix_ms();
        let all = self.reservations.iter();
        all.filter_map(|reservation| usable::paths(reservation, now))
            .collect()
    }

    /// Fetches the reservations again. Those that the controller does not report stay as they are:
    /// their periods end by themselves.
    async fn fetch(&mut self) {
        self.fetched = Instant::now();
        for known in &mut self.reservations {
            match self.controller.reservation(known.id).await {
                Ok(reservation) => *known = reservation,
                Err(error) => tracing::info!(
                    reservation = known.id, %error,
                    "the controller does not report the reservation; its last known paths stay \
                     in use"
                ),
            }
        }
    }
}

fn own_addresses() -> Vec<std::net::IpAddr> {
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    interfaces.iter().map(if_addrs::Interface::ip).collect()
}
