//! Errors as an HTTP service reports them: RFC 9457, `application/problem+json`.

use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use longhaul_proto::text::printable;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

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

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(self)).into_response();
        let problem_json = HeaderValue::from_static("application/problem+json");
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, problem_json);
        response
    }
}

impl From<sqlx::Error> for Problem {
    fn from(error: sqlx::Error) -> Self {
        tracing::warn!(%error, "the store failed");
        Self::new(
            ProblemKind::Unavailable,
            "the store does not answer: see the log, and try again",
        )
    }
}

/// JSON body of a request. Unknown fields are refused if its type denies them.
#[derive(Debug)]
pub struct JsonBody<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        match Json::<T>::from_request(request, state).await {
            Ok(Json(value)) => Ok(Self(value)),
            Err(rejection) => Err(match &rejection {
                JsonRejection::BytesRejection(_)
                    if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE =>
                {
                    Problem::new(ProblemKind::TooLarge, rejection.body_text())
                }
                _ => Problem::new(ProblemKind::Invalid, rejection.body_text()),
            }),
        }
    }
}

/// Query parameters of a request.
#[derive(Debug)]
pub struct QueryParams<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for QueryParams<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let query = Query::<T>::from_request_parts(parts, state).await;
        query
            .map(|Query(value)| Self(value))
            .map_err(|rejection: QueryRejection| {
                Problem::new(ProblemKind::Invalid, rejection.body_text())
            })
    }
}

/// Path parameters of a request.
#[derive(Debug)]
pub struct PathParams<T>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for PathParams<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<T>::from_request_parts(parts, state).await;
        // A malformed name names no resource.
        path.map(|Path(value)| Self(value))
            .map_err(|rejection: PathRejection| {
                Problem::new(ProblemKind::NotFound, rejection.body_text())
            })
    }
}
