//! Clients of object stores and web servers, with the settings of the stores' own tools.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::multipart::MultipartStore;
use object_store::{ClientConfigKey, ObjectStore, RetryConfig};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::error::Error;
use crate::location::{EndpointPath, Scheme};
use crate::overload::{CountingConnector, OverloadCount};
use crate::profile::Profile;
use crate::reason::Reason;

mod web;

pub(crate) use web::{base_url, invalid_url, web_client};

/// Time to connect to the service that gives credentials to virtual machines of the three clouds.
const METADATA_TIMEOUT: Duration = Duration::from_secs(1);
const METADATA_SERVICE: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)), 80);

/// Time without data from the server after which a request is repeated. A server says nothing while
/// it receives a part, so writing needs more of it.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
const WRITE_TIMEOUT: Duration = Duration::from_secs(600);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Direction in which a store is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Read,
    Write,
}

/// A client of a store.
#[derive(Clone)]
pub(crate) struct Connection {
    pub objects: Arc<dyn ObjectStore>,
    /// Uploads in parts, if the store has them.
    pub parts: Option<Arc<dyn MultipartStore>>,
}

impl Connection {
    fn with_parts<S: ObjectStore + MultipartStore>(store: S) -> Self {
        let store = Arc::new(store);
        Self {
            objects: store.clone(),
            parts: Some(store),
        }
    }
}

/// Creates a client, whose answers `overloads` counts. Nothing is sent to the store.
///
/// # Errors
/// There are no credentials, or a setting is invalid.
pub(crate) async fn connect(
    path: &EndpointPath,
    purpose: Purpose,
    retry: RetryConfig,
    overloads: &OverloadCount,
) -> Result<Connection, Error> {
    let connector = CountingConnector {
        overloads: overloads.clone(),
        client: None,
    };
    match path.scheme() {
        Scheme::S3 => s3(path, purpose, retry, connector).await,
        Scheme::Google => google(path, purpose, retry, connector).await,
        Scheme::Azure => azure(path, purpose, retry, connector).await,
        Scheme::Web(_) | Scheme::Dav(_) => web::connect(path, purpose, retry, connector),
    }
}

async fn s3(
    path: &EndpointPath,
    purpose: Purpose,
    retry: RetryConfig,
    connector: CountingConnector,
) -> Result<Connection, Error> {
    let mut builder = AmazonS3Builder::from_env()
        .with_bucket_name(path.authority())
        .with_http_connector(connector)
        .with_retry(retry);
    for (key, value) in timeouts(purpose) {
        builder = builder.with_config(AmazonS3ConfigKey::Client(key), value);
    }
    let profile = Profile::read().map_err(|error| Error::Settings {
        place: path.place(),
        what: error.what,
        reason: error.reason,
    })?;
    let is_given = |key| is_given(builder.get_config_value(&key));
    let has_region = is_given(AmazonS3ConfigKey::Region);
    let credentials = [
        AmazonS3ConfigKey::AccessKeyId,
        AmazonS3ConfigKey::SkipSignature,
        AmazonS3ConfigKey::WebIdentityTokenFile,
        AmazonS3ConfigKey::ContainerCredentialsRelativeUri,
        AmazonS3ConfigKey::ContainerCredentialsFullUri,
    ];
    let has_credentials = credentials.into_iter().any(is_given);
    let endpoint = variable("AWS_ENDPOINT_URL_S3")
        .or_else(|| variable("AWS_ENDPOINT_URL"))
        .or_else(|| variable("AWS_ENDPOINT"))
        .or(profile.endpoint);
    if let Some(region) = profile.region.filter(|_| !has_region) {
        builder = builder.with_region(region);
    }
    if let Some(endpoint) = endpoint {
        let is_plaintext = endpoint.starts_with("http://");
        builder = builder.with_endpoint(endpoint);
        if is_plaintext {
            builder = builder.with_allow_http(true);
        }
    }
    match (has_credentials, profile.keys, profile.other_way) {
        (true, ..) => {}
        (false, Some(keys), _) => {
            builder = builder
                .with_access_key_id(keys.id)
                .with_secret_access_key(keys.secret);
            if let Some(token) = keys.token {
                builder = builder.with_token(token);
            }
        }
        (false, None, Some(way)) => {
            let remedy = format!(
                "the profile has {way}, which is not supported here: \
                 eval \"$(aws configure export-credentials --format env)\""
            );
            return Err(no_credentials(path, remedy));
        }
        (false, None, None) => {
            let is_disabled = variable("AWS_EC2_METADATA_DISABLED");
            let is_disabled = is_disabled.is_some_and(|value| value.eq_ignore_ascii_case("true"));
            if is_disabled || !has_metadata_service().await {
                let remedy = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; for \
                              a public bucket, AWS_SKIP_SIGNATURE=true";
                return Err(no_credentials(path, remedy.to_owned()));
            }
        }
    }
    let built = builder
        .build()
        .map_err(|error| invalid(path, "AWS_*", &error))?;
    Ok(Connection::with_parts(built))
}

async fn google(
    path: &EndpointPath,
    purpose: Purpose,
    retry: RetryConfig,
    connector: CountingConnector,
) -> Result<Connection, Error> {
    let mut builder = GoogleCloudStorageBuilder::from_env()
        .with_bucket_name(path.authority())
        .with_http_connector(connector)
        .with_retry(retry);
    for (key, value) in timeouts(purpose) {
        builder = builder.with_config(GoogleConfigKey::Client(key), value);
    }
    if let Some(emulator) = variable("STORAGE_EMULATOR_HOST") {
        let url = match emulator.contains("://") {
            true => emulator,
            false => format!("http://{emulator}"),
        };
        builder = builder
            .with_config(GoogleConfigKey::BaseUrl, url)
            .with_config(GoogleConfigKey::Client(ClientConfigKey::AllowHttp), "true");
        if variable("GOOGLE_BEARER_TOKEN").is_none() {
            // Emulators need no token, but the library looks for one when it writes.
            builder = builder.with_bearer_token("");
        }
    } else {
        let variables = [
            "GOOGLE_APPLICATION_CREDENTIALS",
            "GOOGLE_SERVICE_ACCOUNT",
            "GOOGLE_SERVICE_ACCOUNT_PATH",
            "GOOGLE_SERVICE_ACCOUNT_KEY",
            "GOOGLE_BEARER_TOKEN",
            "GOOGLE_SKIP_SIGNATURE",
        ];
        let default = std::env::var_os("HOME").map(|home| {
            let file = ".config/gcloud/application_default_credentials.json";
            std::path::PathBuf::from(home).join(file)
        });
        let has_credentials = variables.iter().any(|name| variable(name).is_some())
            || default.is_some_and(|file| file.exists());
        if !has_credentials && !has_metadata_service().await {
            let remedy = "set GOOGLE_APPLICATION_CREDENTIALS, or run gcloud auth \
                          application-default login; for a public bucket, \
                          GOOGLE_SKIP_SIGNATURE=true";
            return Err(no_credentials(path, remedy.to_owned()));
        }
    }
    let built = builder
        .build()
        .map_err(|error| invalid(path, "GOOGLE_*", &error))?;
    Ok(Connection::with_parts(built))
}

async fn azure(
    path: &EndpointPath,
    purpose: Purpose,
    retry: RetryConfig,
    connector: CountingConnector,
) -> Result<Connection, Error> {
    let mut builder = MicrosoftAzureBuilder::from_env()
        .with_container_name(path.authority())
        .with_http_connector(connector)
        .with_retry(retry);
    for (key, value) in timeouts(purpose) {
        builder = builder.with_config(AzureConfigKey::Client(key), value);
    }
    let string = variable("AZURE_STORAGE_CONNECTION_STRING").unwrap_or_default();
    let in_string = |name: &str| {
        let mut settings = string.split(';').filter_map(|part| part.split_once('='));
        settings
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value.to_owned())
    };
    let settings = [
        (
            AzureConfigKey::AccountName,
            "AZURE_STORAGE_ACCOUNT",
            "AccountName",
        ),
        (AzureConfigKey::AccessKey, "AZURE_STORAGE_KEY", "AccountKey"),
        (
            AzureConfigKey::SasKey,
            "AZURE_STORAGE_SAS_TOKEN",
            "SharedAccessSignature",
        ),
        (
            AzureConfigKey::Endpoint,
            "AZURE_STORAGE_ENDPOINT",
            "BlobEndpoint",
        ),
    ];
    for (key, name, part) in settings {
        if let Some(value) = variable(name).or_else(|| in_string(part)) {
            if key == AzureConfigKey::Endpoint && value.starts_with("http://") {
                builder = builder.with_allow_http(true);
            }
            builder = builder.with_config(key, value);
        }
    }
    let is_given = |key| is_given(builder.get_config_value(&key));
    if !is_given(AzureConfigKey::AccountName) && !is_given(AzureConfigKey::UseEmulator) {
        let remedy = "set AZURE_STORAGE_ACCOUNT, and AZURE_STORAGE_KEY or \
                      AZURE_STORAGE_SAS_TOKEN; or AZURE_STORAGE_CONNECTION_STRING";
        return Err(no_credentials(path, remedy.to_owned()));
    }
    let credentials = [
        AzureConfigKey::AccessKey,
        AzureConfigKey::SasKey,
        AzureConfigKey::Token,
        AzureConfigKey::ClientId,
        AzureConfigKey::UseAzureCli,
        AzureConfigKey::UseEmulator,
        AzureConfigKey::SkipSignature,
        AzureConfigKey::FederatedTokenFile,
    ];
    if !credentials.into_iter().any(is_given) && !has_metadata_service().await {
        let remedy = "set AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN, or \
                      AZURE_USE_AZURE_CLI=true after az login; for a public container, \
                      AZURE_SKIP_SIGNATURE=true";
        return Err(no_credentials(path, remedy.to_owned()));
    }
    let built = builder
        .build()
        .map_err(|error| invalid(path, "AZURE_*", &error))?;
    Ok(Connection::with_parts(built))
}

/// Returns settings of the HTTP client. The time of a whole request is not limited, as that depends
/// on the network.
fn timeouts(purpose: Purpose) -> [(ClientConfigKey, String); 3] {
    let seconds = |time: Duration| format!("{}s", time.as_secs());
    [
        (ClientConfigKey::Timeout, "7days".to_owned()),
        (ClientConfigKey::ReadTimeout, seconds(read_timeout(purpose))),
        (ClientConfigKey::ConnectTimeout, seconds(CONNECT_TIMEOUT)),
    ]
}

const fn read_timeout(purpose: Purpose) -> Duration {
    match purpose {
        Purpose::Read => READ_TIMEOUT,
        Purpose::Write => WRITE_TIMEOUT,
    }
}

/// Returns true if a setting is given. One that is either true or false is given if it is true.
fn is_given(value: Option<String>) -> bool {
    value.is_some_and(|value| !value.is_empty() && value != "false")
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

async fn has_metadata_service() -> bool {
    let connecting = TcpStream::connect(METADATA_SERVICE);
    matches!(timeout(METADATA_TIMEOUT, connecting).await, Ok(Ok(_)))
}

fn no_credentials(path: &EndpointPath, remedy: String) -> Error {
    Error::NoCredentials {
        place: path.place(),
        remedy,
    }
}

fn invalid(path: &EndpointPath, what: &str, error: &object_store::Error) -> Error {
    Error::Settings {
        place: path.place(),
        what: what.to_owned(),
        reason: Reason::new(error).failure().to_string(),
    }
}
