//! State of the controller itself.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Key, Moment};

/// Description of a controller: `GET /controller`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ControllerInfo {
    /// Name of the controller.
    pub name: String,
    /// Release of the controller.
    pub version: String,
    /// Key of the controller.
    #[schema(value_type = String)]
    pub key: Key,
    /// Time when it started.
    #[schema(value_type = u64)]
    pub started_ms: Moment,
    /// Version of the map.
    pub map_version: u64,
    /// Number of measured series, one per path, quantity and reporter.
    pub series: u64,
    /// If true, other controllers may share its store.
    pub shared: bool,
    /// If true, it leads the controllers that share its store. Only the leader accepts changes of
    /// reservations.
    #[serde(default)]
    pub leads: bool,
    /// URL of the leader, if that is another controller and known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
}

/// Health of the controller: `GET /healthz` (it runs), `GET /readyz` (it can do its work).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// `ok`, or what is missing.
    pub status: String,
}
