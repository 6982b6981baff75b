//! The API's description (OpenAPI 3.1), made from the types that it reads and writes.

use axum::Json;
use longhaul_api::Problem;
use utoipa::openapi::security::{ApiKey, ApiKeyValue, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{OpenApi as Described, PathItem};
use utoipa::{Modify, OpenApi};

use super::{
    depots, forecasts, grants, map, measurements, principals, probes, pscheduler, reservations,
    routes, service, transfers,
};

/// Names of the fields that a signed request must have.
const SIGNATURE: &str = "signature";
const SIGNATURE_INPUT: &str = "signature-input";
/// Paths that anybody who can connect may read.
const PUBLIC_PATHS: [&str; 2] = ["/healthz", "/readyz"];

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Longhaul controller",
        version = "1",
        description = "A map of sites and depots, what was measured between them, forecasts, \
                       routes, and reservations of bandwidth. Over the controller's Unix socket \
                       the operating system identifies the user, who may do everything; at other \
                       addresses requests are signed with a key (RFC 9421, Ed25519, with the tag \
                       `longhaul-api`) over `@method`, `@authority`, `@path`, `@query`, and \
                       `content-digest` (RFC 9530) and `idempotency-key` where present, and are \
                       valid once, for a minute."
    ),
    modifiers(&Security),
    paths(
        service::health,
        service::ready,
        service::metrics,
        service::info,
        openapi,
        principals::list,
        principals::remove,
        principals::grant,
        principals::revoke,
        principals::roles,
        principals::put_role,
        principals::remove_role,
        map::show,
        map::replace,
        map::routes_file,
        depots::list,
        depots::register,
        depots::unregister,
        depots::names,
        depots::release,
        measurements::take,
        measurements::list,
        measurements::summaries,
        pscheduler::take,
        pscheduler::put,
        pscheduler::list,
        forecasts::list,
        routes::question,
        routes::table,
        probes::list,
        probes::result,
        reservations::reserve,
        reservations::list,
        reservations::show,
        reservations::document,
        reservations::change,
        reservations::cancel,
        reservations::commit,
        reservations::abort,
        reservations::provision,
        reservations::release,
        grants::list,
        grants::renew,
        transfers::take,
        transfers::list,
        transfers::score
    ),
    components(schemas(Problem))
)]
struct ApiDescription;

/// Returns the API's description, as text that ends with a newline.
#[must_use]
pub fn description() -> String {
    // It consists of maps with text keys, so it can always be serialized.
    let text = serde_json::to_string_pretty(&ApiDescription::openapi()).unwrap_or_default();
    text + "\n"
}

/// This description.
#[utoipa::path(get, path = "/api/v1/openapi.json", responses((status = OK, body = Object)))]
pub async fn openapi() -> Json<Described> {
    Json(ApiDescription::openapi())
}

/// Adds the methods of authentication.
struct Security;

impl Modify for Security {
    fn modify(&self, description: &mut Described) {
        let field = |name: &str, what: &str| {
            SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::with_description(name, what)))
        };
        let input = "Of a signed request (RFC 9421): the covered components, with created, expires \
                     (a minute later), nonce, alg=\"ed25519\", keyid (the key, lhk1:...) and \
                     tag=\"longhaul-api\". Over the controller's Unix socket no credentials are \
                     needed.";
        let components = description.components.get_or_insert_default();
        components.add_security_scheme(SIGNATURE_INPUT, field("Signature-Input", input));
        components.add_security_scheme(
            SIGNATURE,
            field(
                "Signature",
                "Of a signed request (RFC 9421): the bytes of the Ed25519 signature.",
            ),
        );
        let nothing = Vec::<String>::new();
        // Both fields together.
        let signed =
            SecurityRequirement::new(SIGNATURE_INPUT, nothing.clone()).add(SIGNATURE, nothing);
        for (path, item) in &mut description.paths.paths {
            let security = match PUBLIC_PATHS.contains(&path.as_str()) {
                true => Vec::new(),
                false => vec![signed.clone()],
            };
            for operation in operations(item) {
                operation.security = Some(security.clone());
            }
        }
    }
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut utoipa::openapi::path::Operation> {
    let all = [
        &mut item.get,
        &mut item.put,
        &mut item.post,
        &mut item.patch,
        &mut item.delete,
    ];
    all.into_iter().flatten()
}
