//! Errors as an HTTP service reports them: RFC 9457, `application/problem+json`.

use std::collections::BTreeMap;

use axum_core::response::{IntoResponse, Response};
use http::{StatusCode, header};
use longhaul_proto::ReplayError;
use longhaul_proto::text::printable;
use serde::{Deserialize, Serialize};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Response as Described, ResponseBuilder};
use utoipa::{IntoResponses, ToSchema};

use crate::signatures::SignatureError;

/// Media type of a problem.
const PROBLEM_JSON: &str = "application/problem+json";

/// Kind of error: the last part of a problem's `type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProblemKind {
    /// The request is malformed, or asks for something impossible.
    Invalid,
    /// The caller is not authenticated.
    Unauthenticated,
    /// The caller has no right to this, or the request comes from a page of another site.
    Forbidden,
    /// The resource does not exist.
    NotFound,
    /// The resource does not support this method.
    Method,
    /// The request conflicts with the current state.
    Conflict,
    /// There is not enough bandwidth at that time.
    InsufficientBandwidth,
    /// The idempotency key was already used for another request.
    KeyReused,
    /// The request is too large.
    TooLarge,
    /// The caller sends too many requests.
    TooMany,
    /// The service is temporarily unavailable.
    Unavailable,
    /// Another service that shares the database leads and must be asked.
    NotLeading,
    /// The service works, but a party that it needs for this request does not answer.
    Unreachable,
}

impl ProblemKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Unauthenticated => "unauthenticated",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not-found",
            Self::Method => "method",
            Self::Conflict => "conflict",
            Self::InsufficientBandwidth => "no-room",
            Self::KeyReused => "idempotency-key-reused",
            Self::TooLarge => "too-large",
            Self::TooMany => "too-many",
            Self::Unavailable => "unavailable",
            Self::NotLeading => "not-leading",
            Self::Unreachable => "unreachable",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Invalid => "The request is not valid",
            Self::Unauthenticated => "Authentication is required",
            Self::Forbidden => "Not allowed",
            Self::NotFound => "Not found",
            Self::Method => "Method not allowed",
            Self::Conflict => "Not possible in the current state",
            Self::InsufficientBandwidth => "Not enough free bandwidth at that time",
            Self::KeyReused => "The idempotency key was used for another request",
            Self::TooLarge => "The request is too large",
            Self::TooMany => "Too many requests",
            Self::Unavailable => "Not available now",
            Self::NotLeading => "Another controller leads",
            Self::Unreachable => "The other end cannot be reached",
        }
    }

    fn status(self) -> StatusCode {
        match self {
            Self::Invalid => StatusCode::BAD_REQUEST,
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Conflict | Self::InsufficientBandwidth => StatusCode::CONFLICT,
            Self::KeyReused => StatusCode::UNPROCESSABLE_ENTITY,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooMany => StatusCode::TOO_MANY_REQUESTS,
            Self::Unavailable | Self::NotLeading => StatusCode::SERVICE_UNAVAILABLE,
            Self::Unreachable => StatusCode::BAD_GATEWAY,
        }
    }
}

/// Error as it is sent (RFC 9457).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema, thiserror::Error)]
#[error("{detail}")]
pub struct Problem {
    /// Kind of problem: `urn:longhaul:problem:` and a word.
    #[serde(rename = "type")]
    #[schema(example = "urn:longhaul:problem:not-found")]
    pub kind: String,
    /// Title of the kind, for people to read.
    pub title: String,
    /// HTTP status.
    pub status: u16,
    /// Description of this problem, in one line.
    pub detail: String,
}

impl Problem {
    /// Creates a problem. `detail` is one line for people to read, and may quote the request.
    pub fn new(kind: ProblemKind, detail: impl AsRef<str>) -> Self {
        Self {
            kind: format!("urn:longhaul:problem:{}", kind.as_str()),
            title: kind.title().to_owned(),
            status: kind.status().as_u16(),
            detail: printable(detail.as_ref().as_bytes()),
        }
    }
}

impl From<SignatureError> for Problem {
    fn from(error: SignatureError) -> Self {
        Self::new(ProblemKind::Unauthenticated, error.to_string())
    }
}

impl From<ReplayError> for Problem {
    fn from(error: ReplayError) -> Self {
        let (kind, detail) = match error {
            ReplayError::Replay => (
                ProblemKind::Unauthenticated,
                "this request was received before: sign it again".to_owned(),
            ),
            ReplayError::Full => (
                ProblemKind::TooMany,
                "too many requests of this key within two minutes: try again later".to_owned(),
            ),
            ReplayError::Expired { .. } | ReplayError::Future { .. } => {
                (ProblemKind::Unauthenticated, error.to_string())
            }
        };
        Self::new(kind, detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        // It consists of text and a number, so it can always be serialized.
        let body = serde_json::to_vec(&self).unwrap_or_default();
        (status, [(header::CONTENT_TYPE, PROBLEM_JSON)], body).into_response()
    }
}

impl IntoResponses for Problem {
    fn responses() -> BTreeMap<String, RefOr<Described>> {
        let schema = Ref::from_schema_name("Problem");
        let content = ContentBuilder::new().schema(Some(schema)).build();
        let response = ResponseBuilder::new().content(PROBLEM_JSON, content);
        BTreeMap::from([("default".to_owned(), RefOr::T(response.build()))])
    }
}
