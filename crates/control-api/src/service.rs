//! The controller itself.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Key, Moment};

/// A controller, and what it has: `GET /controller`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ControllerInfo {
    /// What it is known by.
    pub name: String,
    /// Its release.
    pub version: String,
    /// Its key.
    #[schema(value_type = String)]
    pub key: Key,
    /// When it started.
    #[schema(value_type = u64)]
    pub started_ms: Moment,
    /// The version of the map.
    pub map_version: u64,
    /// Paths and quantities that something was measured of, per reporter.
    pub series: u64,
    /// Whether other controllers may share its store.
    pub shared: bool,
    /// Whether it leads those that share its store: it alone takes what changes reservations.
    #[serde(default)]
    pub leads: bool,
    /// Where the one answers that leads, where that is another and known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
}

/// Whether it is there, and whether it can do its work: `GET /healthz`, `GET /readyz`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// `ok`, or what is missing.
    pub status: String,
}
