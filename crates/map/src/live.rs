//! State of a link in the running network.

use quantities::Rate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::text_form;

/// State of a link in the running network.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LiveLink {
    /// If false, the link has failed: nothing new is granted over it.
    pub up: bool,
    /// Time of the last change of `up`, or of the first observation, in milliseconds since the Unix
    /// epoch.
    pub since_ms: u64,
    /// Direction from `from` to `to`.
    #[serde(default)]
    pub forward: LiveDirection,
    /// Direction from `to` to `from`.
    #[serde(default)]
    pub backward: LiveDirection,
}

/// Rates that the running network announces for one direction of a link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LiveDirection {
    /// Capacity in bit/s, if it is announced.
    #[serde(
        default,
        rename = "capacity_bps",
        with = "text_form::optional_bits_per_second",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<f64>)]
    pub capacity: Option<Rate>,
    /// Rate that may be reserved, in bit/s, if it is announced.
    #[serde(
        default,
        rename = "reservable_bps",
        with = "text_form::optional_bits_per_second",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<f64>)]
    pub reservable: Option<Rate>,
}
