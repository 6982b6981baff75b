//! Parts of requests, whose rejections are problems.

use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use serde::de::DeserializeOwned;

pub use longhaul_api_common::{Problem, ProblemKind};

/// Maximum length of an idempotency key, in bytes.
const MAX_KEY_BYTES: usize = 200;

/// Returns the idempotency key of a request, if it has one.
///
/// # Errors
/// The key is empty, too long, or has other characters than visible ASCII.
pub fn idempotency_key(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let Some(key) = headers.get("idempotency-key") else {
        return Ok(None);
    };
    let key = key.to_str().ok();
    let key = key.filter(|key| (1..=MAX_KEY_BYTES).contains(&key.len()));
    key.map(Some).ok_or_else(|| {
        let detail = format!("Idempotency-Key: up to {MAX_KEY_BYTES} visible ASCII characters");
        Problem::new(ProblemKind::Invalid, detail)
    })
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
