//! Refusals of requests about reservations, as problem documents.

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use longhaul_api::{Problem, ProblemKind};
use longhaul_control_api::reservations::Refusal;
use serde::Serialize;

use crate::reservations::ReservationError;
use crate::reservations::wanted::InvalidReservation;
use crate::reservations::writer::AskError;
use crate::store::StoreError;

/// Value of `Retry-After`, in seconds, if another controller or none yet leads.
const RETRY_AFTER_S: &str = "1";

/// Refusal of a request: a problem, and what else the caller is told.
#[derive(Debug, Serialize)]
pub struct RequestRefusal {
    #[serde(flatten)]
    problem: Problem,
    #[serde(flatten)]
    member: Option<Member>,
}

/// Further member of a problem document (RFC 9457, section 3.2).
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Member {
    /// Proof that there is not enough bandwidth, with counter-offers.
    Refusal(Box<Refusal>),
    /// URL of the controller that leads, if known.
    Leader(Option<String>),
}

impl From<Problem> for RequestRefusal {
    fn from(problem: Problem) -> Self {
        Self {
            problem,
            member: None,
        }
    }
}

impl From<StoreError> for RequestRefusal {
    fn from(error: StoreError) -> Self {
        let problem = Problem::from(&error);
        let member = match error {
            StoreError::NotLeading { leader } => Some(Member::Leader(leader)),
            _ => None,
        };
        Self { problem, member }
    }
}

impl From<AskError> for RequestRefusal {
    fn from(error: AskError) -> Self {
        let error = match error {
            AskError::Store(error) => return error.into(),
            AskError::Refused(error) => error,
        };
        let kind = match &error {
            ReservationError::InsufficientBandwidth(_) => ProblemKind::InsufficientBandwidth,
            ReservationError::Unknown(_)
            | ReservationError::Wanted(InvalidReservation::NoEnd { .. }) => ProblemKind::NotFound,
            ReservationError::Forbidden(_)
            | ReservationError::Policy(_)
            | ReservationError::Quota(_)
            | ReservationError::Delegation(_)
            | ReservationError::DelegationUsed(_) => ProblemKind::Forbidden,
            ReservationError::Wanted(_) | ReservationError::Request(_) => ProblemKind::Invalid,
            ReservationError::NotNow(..) => ProblemKind::Conflict,
            ReservationError::Fault(_) => ProblemKind::Unavailable,
        };
        let problem = Problem::new(kind, error.to_string());
        let member = match error {
            ReservationError::InsufficientBandwidth(refused) => {
                Some(Member::Refusal(Box::new(refused.refusal)))
            }
            _ => None,
        };
        Self { problem, member }
    }
}

impl IntoResponse for RequestRefusal {
    fn into_response(self) -> Response {
        let mut response = self.problem.clone().into_response();
        if let Some(Member::Leader(_)) = self.member {
            let retry_after = HeaderValue::from_static(RETRY_AFTER_S);
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, retry_after);
        }
        if self.member.is_some() {
            // It consists of maps with text keys, so it can always be serialized.
            *response.body_mut() = Body::from(serde_json::to_vec(&self).unwrap_or_default());
        }
        response
    }
}
