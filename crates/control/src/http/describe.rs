//! The API's description (OpenAPI 3.1), made from the types that it reads and writes.

use longhaul_api::Problem;
use longhaul_api::endpoints::operations;
use utoipa::OpenApi;
use utoipa::openapi::OpenApi as Described;
use utoipa::openapi::security::{ApiKey, ApiKeyValue, SecurityRequirement, SecurityScheme};

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
    components(schemas(Problem))
)]
struct ApiDescription;

/// Adds the title and the methods of authentication to the description of endpoints.
pub fn describe(endpoints: Described) -> Described {
    let mut description = ApiDescription::openapi();
    description.merge(endpoints);
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
    let signed = SecurityRequirement::new(SIGNATURE_INPUT, nothing.clone()).add(SIGNATURE, nothing);
    for (path, item) in &mut description.paths.paths {
        let security = match PUBLIC_PATHS.contains(&path.as_str()) {
            true => Vec::new(),
            false => vec![signed.clone()],
        };
        for operation in operations(item) {
            operation.security = Some(security.clone());
        }
    }
    description
}
