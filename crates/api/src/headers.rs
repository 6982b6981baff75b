//! Headers of responses.

use axum::http::{HeaderValue, header};
use axum::response::Response;

/// Sets the headers of every response.
pub async fn set_common_headers(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    // Responses change, so they must not be cached, unless the handler says otherwise.
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    response
}
