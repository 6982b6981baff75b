//! Grants of circuits that depots have in use: whether they still hold.
//!
//! A grant holds for a minute at most, so a depot asks again and again: `POST /grants/renewals`
//! with [`GrantsInUse`], answered with [`Renewals`]. What is not renewed has ended.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Key;

/// Most grants of one question.
pub const MAX_GRANTS_IN_USE: usize = 500;

/// Grants that a depot has in use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GrantsInUse {
    /// 500 at most.
    pub items: Vec<GrantInUse>,
}

/// A grant that a depot has in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GrantInUse {
    /// The circuit, as the controller named it.
    pub circuit: String,
    /// The key whose sessions use it.
    #[schema(value_type = String)]
    pub holder: Key,
}

/// The answer about grants in use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Renewals {
    /// One for each grant that was asked about.
    pub items: Vec<Renewal>,
}

/// Renewal of a grant, or the reason of its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Renewal {
    /// The circuit, as it was asked about.
    pub circuit: String,
    /// The holder, as it was asked about.
    #[schema(value_type = String)]
    pub holder: Key,
    /// The renewed grant, signed by the controller: `lhg1:` and base32 digits. `None` if the grant
    /// has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<String>,
    /// Why it has ended, in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
}
