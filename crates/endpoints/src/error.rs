//! Errors of copies with object stores and web servers.

use std::time::Duration;

use longhaul_transfer::Failure;

/// Reasons why a copy does not begin, or ends early. Places are named as they were typed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text behind the scheme is not a bucket or host and a path. Write
    /// `s3://bucket/key`, `gs://bucket/key`, `az://container/key`, `https://host/path` or
    /// `webdavs://host/path`.
    #[error("{text}: {reason}; write it as {example}")]
    Location {
        /// Text as typed.
        text: String,
        /// Reason.
        reason: &'static str,
        /// Correct form.
        example: &'static str,
    },
    /// A URL holds a user name or a password, which every user of this machine can see in the list
    /// of processes. Put them into `~/.netrc`, or into `LONGHAUL_HTTP_USER` and
    /// `LONGHAUL_HTTP_PASSWORD`; for object stores, set the variables of their own tools.
    #[error("{place}: others can read credentials on the command line; {remedy}")]
    PasswordInUrl {
        /// URL without the user and the password.
        place: String,
        /// What to do.
        remedy: &'static str,
    },
    /// There are no credentials for the store. Set the variables of its own tools, or log in as its
    /// own tools do. A public bucket of S3 is read with `AWS_SKIP_SIGNATURE=true`.
    #[error("{place}: no credentials: {remedy}")]
    NoCredentials {
        /// The bucket.
        place: String,
        /// What to do.
        remedy: String,
    },
    /// A file with credentials or the settings of a store cannot be used. Correct the file or the
    /// variable that is named.
    #[error("{place}: {what}: {reason}")]
    Settings {
        /// The bucket or host.
        place: String,
        /// File or variable.
        what: String,
        /// Reason.
        reason: String,
    },
    /// The store refuses the credentials, or they do not permit the operation. Check which ones are
    /// used (environment, profile, `~/.netrc`), and what they permit: a copy lists the bucket, too.
    #[error("{place} refuses these credentials: {reason}; check which are used, and their rights")]
    Denied {
        /// The bucket or host.
        place: String,
        /// Reason that the store gives.
        reason: String,
    },
    /// The bucket or container does not exist. Check its name, and the account, region and endpoint
    /// (`AWS_ENDPOINT_URL`); a copy does not create one.
    #[error("{place} does not exist: check the name, the account and the endpoint, or create it")]
    NoBucket {
        /// The bucket.
        place: String,
    },
    /// The store or server could not be reached. Check the name, the network, and the endpoint or
    /// proxy in the environment.
    #[error("cannot reach {place}: {reason}; check the name, the network and the endpoint")]
    Unreachable {
        /// The bucket or host.
        place: String,
        /// Reason.
        reason: String,
    },
    /// Requests failed for `--patience`, although each was repeated. The same command resumes.
    #[error("the copy broke off: {place} did not answer for {} s: {reason}", patience.as_secs())]
    BrokeOff {
        /// The bucket or host.
        place: String,
        /// Time for which requests were repeated.
        patience: Duration,
        /// Reason of the last failure.
        reason: String,
    },
    /// The store or server answers with an error that is named.
    #[error("{place}: {reason}")]
    Refused {
        /// The bucket or host.
        place: String,
        /// Reason.
        reason: String,
    },
    /// An option or an operation has no meaning there. Leave it out.
    #[error("{option} is not possible with {place}: {reason}")]
    Unsupported {
        /// The option.
        option: &'static str,
        /// The bucket or host.
        place: String,
        /// Reason.
        reason: &'static str,
    },
    /// A path cannot be used.
    #[error("{path}: {failure}")]
    Path {
        /// Path as the user gave it.
        path: String,
        /// Reason.
        failure: Failure,
    },
    /// The local end cannot be used.
    #[error(transparent)]
    Copy(#[from] longhaul_transfer::Error),
}
