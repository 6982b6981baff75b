//! Reasons for refusing an OPEN.

use longhaul_hop::{Payer, QuotaExceeded};
use longhaul_policy::Unreachable;
use longhaul_proto::{Endpoint, OpenRefusal, StatusCode};

/// Reason why an OPEN is not forwarded: the code and the detail of the status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DepotRefusal {
    pub(crate) code: StatusCode,
    pub(crate) detail: String,
    /// True if early data may have been forwarded (LH-FALLBACK-1).
    pub(crate) forwarded: bool,
    /// Endpoint that was tried, if it is not the OPEN's next receiver.
    pub(crate) tried: Option<Endpoint>,
    /// Payer to whom the log line is charged; `None` until the OPEN is verified.
    pub(crate) payer: Option<Payer>,
}

impl DepotRefusal {
    pub(crate) fn new(code: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            code,
            detail: detail.into(),
            forwarded: false,
            tried: None,
            payer: None,
        }
    }

    /// Names the endpoint that was tried.
    pub(crate) fn tried(self, endpoint: Endpoint) -> Self {
        Self {
            tried: Some(endpoint),
            ..self
        }
    }

    pub(crate) fn charged_to(self, payer: Payer) -> Self {
        Self {
            payer: Some(payer),
            ..self
        }
    }
}

impl From<OpenRefusal> for DepotRefusal {
    fn from(refusal: OpenRefusal) -> Self {
        Self::new(refusal.code(), refusal.to_string())
    }
}

impl From<Unreachable> for DepotRefusal {
    fn from(no: Unreachable) -> Self {
        Self::new(no.code, no.detail)
    }
}

impl From<QuotaExceeded> for DepotRefusal {
    fn from(full: QuotaExceeded) -> Self {
        Self::new(StatusCode::Overloaded, full.to_string())
    }
}
