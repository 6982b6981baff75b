//! Errors of requests to a service.

use std::path::PathBuf;

use longhaul_api_common::Problem;
use longhaul_api_common::signatures::SignatureError;
use longhaul_proto::{Endpoint, PublicKey};

/// A request to a service failed or was refused.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No service listens at the socket.
    #[error("nothing answers at {}: {source}", longhaul_config::home::display_path(.path))]
    NoSocket {
        /// Path of the socket.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// The connection to the server failed. Check that the agent or the controller runs there, and
    /// that no firewall is in between.
    #[error("cannot connect to the {service} at {server}: {source}")]
    Unreachable {
        /// Kind of service, in one word.
        service: &'static str,
        /// Address of the server.
        server: Endpoint,
        /// Cause.
        source: std::io::Error,
    },
    /// The server's key is not known.
    #[error(
        "the server {server} is not known and shows key {found}: if that is its key, give \
        --host-key {found}, or --accept-new to remember it"
    )]
    Unknown {
        /// Address of the server.
        server: Endpoint,
        /// Key that the server presented.
        found: PublicKey,
    },
    /// The server presented another key than before.
    #[error(
        "the {service} at {server} shows key {found}, but {expected} is expected: someone may be \
        intercepting the connection"
    )]
    OtherKey {
        /// Kind of service, in one word.
        service: &'static str,
        /// Address of the server.
        server: Endpoint,
        /// Pinned or known key.
        expected: PublicKey,
        /// Key that the server presented.
        found: PublicKey,
    },
    /// The TLS handshake failed.
    #[error(
        "no secure connection to the {service} at {server}: {source}; --ca FILE names the \
        authority of its certificate"
    )]
    NotSecure {
        /// Kind of service, in one word.
        service: &'static str,
        /// Address of the server.
        server: Endpoint,
        /// Cause.
        source: std::io::Error,
    },
    /// The request cannot be signed.
    #[error(transparent)]
    Sign(#[from] SignatureError),
    /// The request cannot be built. An idempotency key may have characters that cannot be sent:
    /// choose another.
    #[error("cannot send this request to the {service}: {why}")]
    Request {
        /// Kind of service, in one word.
        service: &'static str,
        /// Description of the error.
        why: String,
    },
    /// The service refused the request.
    #[error("{}", .0.detail)]
    Refused(Problem),
    /// The connection failed before the answer was complete. The agent or the controller stopped
    /// while it answered: try again.
    #[error("the connection to the {service} broke: {why}")]
    BrokeOff {
        /// Kind of service, in one word.
        service: &'static str,
        /// Cause.
        why: String,
    },
    /// The service did not answer in time. It is slow, or the network is down. Copies continue
    /// without a controller.
    #[error("the {service} did not answer within {} ms", .within.as_millis())]
    Silent {
        /// Kind of service, in one word.
        service: &'static str,
        /// Time limit.
        within: std::time::Duration,
    },
    /// The answer cannot be parsed; the service may be of another release. A controller restarts as
    /// the installed program on `kill -USR2`. If the program was upgraded under a running agent,
    /// stop the agent (SIGTERM), and submit or start it again. Its jobs are kept.
    #[error(
        "cannot understand the {service}'s answer: {why}; if it runs another release, restart it"
    )]
    Answer {
        /// Kind of service, in one word.
        service: &'static str,
        /// Description of the error.
        why: String,
    },
}

impl ClientError {
    /// Returns true if the same request may succeed later: neither the request nor the caller is at
    /// fault.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::NoSocket { .. }
            | Self::Unreachable { .. }
            | Self::NotSecure { .. }
            | Self::BrokeOff { .. }
            | Self::Silent { .. } => true,
            Self::Refused(problem) => problem.status >= 500 || matches!(problem.status, 408 | 429),
            _ => false,
        }
    }
}
