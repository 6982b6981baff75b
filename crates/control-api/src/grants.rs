//! Renewal of circuit grants that depots have in use.
//!
//! A grant is valid for one minute at most, so a depot renews it repeatedly: it sends
//! [`GrantsInUse`] to `POST /grants/renewals` and receives [`Renewals`]. A grant that is not
//! renewed has ended.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Key;

/// Maximum number of grants in one request.
pub const MAX_GRANTS_IN_USE: usize = 500;

/// Grants that a depot has in use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GrantsInUse {
    /// The grants, 500 at most.
    pub items: Vec<GrantInUse>,
}

/// A grant that a depot has in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GrantInUse {
    /// Name of the circuit, as the controller gave it.
    pub circuit: String,
    /// The key whose sessions use it.
    #[schema(value_type = String)]
    pub holder: Key,
}

/// Answer to a renewal request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Renewals {
    /// One renewal for each grant in the request.
    pub items: Vec<Renewal>,
}

/// Renewal of a grant, or the reason of its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Renewal {
    /// Name of the circuit, as requested.
    pub circuit: String,
    /// Key of the holder, as requested.
    #[schema(value_type = String)]
    pub holder: Key,
    /// The renewed grant, signed by the controller: `lhg1:` and base32 digits. `None` if the grant
    /// has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<String>,
    /// Reason why the grant has ended, in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
}
