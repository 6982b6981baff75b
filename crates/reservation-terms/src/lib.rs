//! Terms of reservations: options of a request and states of a reservation. Admission decides by
//! them, and the controller's API has them in this form.

#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Distribution of a volume over its window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Pace {
    /// As much as possible, as early as possible.
    #[default]
    Early,
    /// Prefer one constant rate throughout the window; otherwise as early as possible.
    Even,
}

/// Elements that parallel paths must not share.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Disjoint {
    /// Paths may share links.
    #[default]
    No,
    /// Paths share no link, in either direction.
    Links,
    /// Paths share no link, and no site except their ends.
    Sites,
}

/// Choice among several possible paths, where one is enough.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Preference {
    /// Fewest hops; then lowest latency.
    #[default]
    FewestHops,
    /// Lowest latency; then fewest hops.
    LeastLatency,
    /// Most bandwidth left on its fullest link.
    MostRoom,
}

/// Reservation state of a reservation or of a change to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReserveState {
    /// No change is pending; what is promised is valid.
    Start,
    /// The controller checks whether there is enough bandwidth.
    Checking,
    /// Bandwidth is held until it is committed, aborted or expires.
    Held,
    /// The held bandwidth is being committed.
    Committing,
    /// There was not enough bandwidth.
    Failed,
    /// The hold expired before it was committed.
    Timeout,
    /// The held bandwidth is being released.
    Aborting,
}

/// Provisioning state: whether the paths are set up in the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProvisionState {
    /// Paths are not set up.
    Released,
    /// Paths are being set up.
    Provisioning,
    /// Paths are set up while the window lasts.
    Provisioned,
    /// Paths are being torn down.
    Releasing,
}

/// Life-cycle state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LifeState {
    /// The reservation can be used.
    Created,
    /// A path of the reservation failed.
    Failed,
    /// Its window has passed.
    PassedEndTime,
    /// It is being terminated.
    Terminating,
    /// It is terminated and holds no resources.
    Terminated,
}
