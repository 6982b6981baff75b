//! Client of an agent on another machine: over TLS, with requests signed by the caller's key.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use longhaul_control_client::{ServiceClient, ServiceUrl};
use longhaul_proto::text::printable;
use longhaul_proto::{Endpoint, PublicKey};

use super::SERVICE;
use crate::home;
use crate::known_service::ServiceTrust;
use crate::trust::HostKeyOptions;

/// Options of the job commands that name the agent to use.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Another machine's agent")]
pub struct AgentOptions {
    /// Use this agent instead of the local one, as https://HOST[:PORT] (also $LONGHAUL_AGENT).
    #[arg(long, value_name = "URL", env = "LONGHAUL_AGENT", global = true)]
    agent: Option<String>,
    /// The agent's key, as `longhaul agent` prints it; nothing else is trusted then.
    #[arg(long, value_name = "KEY", global = true)]
    host_key: Option<PublicKey>,
    /// Trust an agent that is not known yet, and remember its key.
    #[arg(long, conflicts_with = "host_key", global = true)]
    accept_new: bool,
    /// Trust only agents whose certificates an authority in this file has signed.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["host_key", "accept_new"],
        global = true,
    )]
    ca: Option<PathBuf>,
    /// The key to authenticate with [default: the default key, made when first needed].
    #[arg(long, value_name = "FILE", global = true)]
    identity: Option<PathBuf>,
}

/// The same options for `submit`, whose unprefixed names belong to the copy.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Another machine's agent")]
pub struct SubmitAgentOptions {
    /// Use this agent instead of the local one, as https://HOST[:PORT] (also $LONGHAUL_AGENT).
    #[arg(long, value_name = "URL", env = "LONGHAUL_AGENT")]
    agent: Option<String>,
    /// The agent's key, as `longhaul agent` prints it; nothing else is trusted then.
    #[arg(long, value_name = "KEY")]
    agent_host_key: Option<PublicKey>,
    /// Trust an agent that is not known yet, and remember its key.
    #[arg(long, conflicts_with = "agent_host_key")]
    agent_accept_new: bool,
    /// Trust only agents whose certificates an authority in this file has signed.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["agent_host_key", "agent_accept_new"])]
    agent_ca: Option<PathBuf>,
    /// The key to authenticate with there [default: the default key, made when first needed].
    #[arg(long, value_name = "FILE")]
    agent_identity: Option<PathBuf>,
}

impl From<SubmitAgentOptions> for AgentOptions {
    fn from(options: SubmitAgentOptions) -> Self {
        Self {
            agent: options.agent,
            host_key: options.agent_host_key,
            accept_new: options.agent_accept_new,
            ca: options.agent_ca,
            identity: options.agent_identity,
        }
    }
}

impl AgentOptions {
    /// Reads the options from the environment.
    pub fn from_environment() -> Self {
        Self {
            agent: std::env::var("LONGHAUL_AGENT").ok(),
            ..Self::default()
        }
    }

    /// Returns the argument that names this agent in a suggested command, after a space. Empty if
    /// the command would find the agent by itself.
    pub fn as_argument(&self) -> String {
        let own = std::env::var("LONGHAUL_AGENT").ok();
        match &self.agent {
            Some(agent) if !agent.is_empty() && own.as_ref() != Some(agent) => {
                format!(" --agent {}", printable(agent.as_bytes()))
            }
            _ => String::new(),
        }
    }

    /// Returns the remote agent to use; `None` means the local one.
    ///
    /// # Errors
    /// The address is invalid, or options for a remote agent are given without naming one.
    pub fn server(&self) -> Result<Option<Endpoint>> {
        match self.agent.as_deref().filter(|agent| !agent.is_empty()) {
            Some(url) => read_url(url).map(Some),
            None if self.host_key.is_some()
                || self.accept_new
                || self.ca.is_some()
                || self.identity.is_some() =>
            {
                bail!(
                    "--host-key, --accept-new, --ca and --identity need --agent: the local agent \
                       is reached over its socket"
                )
            }
            None => Ok(None),
        }
    }
}

/// Parses the host and port of https://HOST[:PORT].
fn read_url(url: &str) -> Result<Endpoint> {
    match url.parse()? {
        ServiceUrl::Https(server) => Ok(server),
        ServiceUrl::Unix(_) => bail!(
            "{}: an agent on another machine has no socket here: write https://HOST:PORT",
            printable(url.as_bytes())
        ),
    }
}

/// Creates a client of the agent that `options` name.
///
/// # Errors
/// There is no key, the agent's key is not accepted, or certificates cannot be read.
pub async fn client(server: Endpoint, options: &AgentOptions) -> Result<ServiceClient> {
    let known = ServiceTrust {
        service: SERVICE,
        program: "longhaul agent",
        wanted: HostKeyOptions {
            key: options.host_key,
            accept_new: options.accept_new,
            ca: None,
        },
        authority: options.ca.clone(),
    };
    let identity = home::identity(options.identity.as_deref())?;
    let https = known.https_client(server, identity.signing_key()).await?;
    Ok(ServiceClient::over_https(SERVICE, https))
}
