//! Parts of the API's description that all requests share.

use std::collections::BTreeMap;

use longhaul_api::endpoints::operations;
use longhaul_copy_api::{FilterOptions, MetadataOptions, SshOptions};
use utoipa::PartialSchema;
use utoipa::openapi::link::Link;
use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::Schema;
use utoipa::openapi::security::{
    ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme,
};
use utoipa::openapi::{OpenApi, RefOr};

/// Names of the methods of authentication.
const TOKEN: &str = "token";
const PAGE: &str = "page";
const SIGNATURE: &str = "signature";
/// Path that needs no authentication.
const SIGN_IN: &str = "/api/v1/session";

/// Path where jobs are submitted, and the operations on a job by the number in the answer.
const SUBMIT: &str = "/api/v1/jobs";
const JOB_OPERATIONS: [&str; 7] = [
    "job", "forget", "pause", "resume", "cancel", "retry", "report",
];

/// Adds the methods of authentication, the links from a submitted job, and the formats of names and
/// numbers.
pub(super) fn add_common_parts(description: &mut OpenApi) {
    let token = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some(
            "On loopback: the agent's token, in the file `token` of its directory. Over its \
             Unix socket no credentials are needed.",
        ))
        .build();
    let page = ApiKey::Cookie(ApiKeyValue::with_description(
        longhaul_api::access::COOKIE,
        "For a page that was opened with a ticket.",
    ));
    // OpenAPI has no type for signed messages. The header with the signature comes closest.
    let signature = ApiKey::Header(ApiKeyValue::with_description(
        "Signature",
        "On other addresses: the request is signed (RFC 9421, with `Signature-Input` and, for \
        a body, `Content-Digest` of RFC 9530) by an Ed25519 key that the agent's file of \
        authorized keys names.",
    ));
    let components = description.components.get_or_insert_default();
    components.add_security_scheme(TOKEN, SecurityScheme::Http(token));
    components.add_security_scheme(PAGE, SecurityScheme::ApiKey(page));
    components.add_security_scheme(SIGNATURE, SecurityScheme::ApiKey(signature));
    merge_options(&mut components.schemas);
    let nothing = Vec::<String>::new();
    for (path, item) in &mut description.paths.paths {
        for operation in operations(item) {
            operation.security = Some(match path == SIGN_IN {
                true => Vec::new(),
                false => vec![
                    SecurityRequirement::new(TOKEN, nothing.clone()),
                    SecurityRequirement::new(PAGE, nothing.clone()),
                    SecurityRequirement::new(SIGNATURE, nothing.clone()),
                ],
            });
            for parameter in operation.parameters.iter_mut().flatten() {
                if let RefOr::T(parameter) = parameter {
                    describe_path(parameter);
                }
            }
        }
        if path == SUBMIT
            && let Some(submit) = &mut item.post
        {
            link_jobs(submit);
        }
    }
}

/// Adds the options of ssh, of filters and of metadata to those of a copy, as all are one object.
fn merge_options(schemas: &mut BTreeMap<String, RefOr<Schema>>) {
    let Some(RefOr::T(Schema::Object(options))) = schemas.get_mut("CopyOptions") else {
        return;
    };
    for part in [
        SshOptions::schema(),
        FilterOptions::schema(),
        MetadataOptions::schema(),
    ] {
        if let RefOr::T(Schema::Object(part)) = part {
            options.properties.extend(part.properties);
        }
    }
}

fn describe_path(parameter: &mut Parameter) {
    let example: serde_json::Value = match (&parameter.parameter_in, &parameter.name[..]) {
        (ParameterIn::Path, "id") => 1.into(),
        (ParameterIn::Path, "name") => "store".into(),
        _ => return,
    };
    if let (true, Some(RefOr::T(Schema::Object(schema)))) =
        (example.is_number(), &mut parameter.schema)
    {
        schema.minimum = Some(1.into());
    }
    let described = ParameterBuilder::from(std::mem::take(parameter));
    *parameter = described.example(Some(example)).build();
}

fn link_jobs(submit: &mut Operation) {
    for response in ["200", "201"] {
        if let Some(RefOr::T(response)) = submit.responses.responses.get_mut(response) {
            for operation in JOB_OPERATIONS {
                let link = Link::builder()
                    .operation_id(operation)
                    .parameter("id", "$response.body#/id")
                    .build();
                response.links.insert(operation.to_owned(), RefOr::T(link));
            }
        }
    }
}
