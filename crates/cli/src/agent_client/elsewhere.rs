//! Asks an agent on another machine: by TLS, with requests that the caller's key has signed.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use anyhow::{Result, anyhow, bail};
use clap::Args;
use hyper::Request;
use hyper::body::Bytes;
use longhaul_api::signatures::message::Scheme;
use longhaul_api::signatures::sign::random_nonce;
use longhaul_api::signatures::{Purpose, sign};
use longhaul_api::tls::{self, ClientTls, Known};
use longhaul_hop::unix_ms;
use longhaul_proto::text::printable;
use longhaul_proto::{Endpoint, Host, PublicKey, SigningKey};
use longhaul_session::{ServerTrust, Verdict};
use tokio::net::TcpStream;

use super::AgentError;
use crate::home;
use crate::trust::{self, FirstUse, Wanted};

/// What a URL's port is when it names none.
const HTTPS_PORT: u16 = 443;

/// Which agent is asked, in the flags of the commands for jobs.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Another machine's agent")]
pub struct AgentOptions {
    /// Ask this agent in place of the one here, as https://HOST[:PORT] (also $LONGHAUL_AGENT).
    #[arg(long, value_name = "URL", env = "LONGHAUL_AGENT", global = true)]
    agent: Option<String>,
    /// The agent's key, as `longhaul agent` prints it; nothing else is trusted then.
    #[arg(long, value_name = "KEY", global = true)]
    host_key: Option<PublicKey>,
    /// Trust an agent that is not known yet, and remember its key.
    #[arg(long, conflicts_with = "host_key", global = true)]
    accept_new: bool,
    /// Trust only agents whose certificates an authority in this file has signed.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["host_key", "accept_new"], global = true)]
    ca: Option<PathBuf>,
    /// The key to be known by [default: the default key, made when first needed].
    #[arg(long, value_name = "FILE", global = true)]
    identity: Option<PathBuf>,
}

/// The same where the bare words are those of a copy.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Another machine's agent")]
pub struct AgentOptionsOfSubmit {
    /// Ask this agent in place of the one here, as https://HOST[:PORT] (also $LONGHAUL_AGENT).
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
    /// The key to be known by there [default: the default key, made when first needed].
    #[arg(long, value_name = "FILE")]
    agent_identity: Option<PathBuf>,
}

impl From<AgentOptionsOfSubmit> for AgentOptions {
    fn from(options: AgentOptionsOfSubmit) -> Self {
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
    /// What the environment says.
    pub fn from_environment() -> Self {
        Self {
            agent: std::env::var("LONGHAUL_AGENT").ok(),
            ..Self::default()
        }
    }

    /// What names the agent to the next command, behind a space; nothing where that finds it by itself.
    pub fn as_argument(&self) -> String {
        let own = std::env::var("LONGHAUL_AGENT").ok();
        match &self.agent {
            Some(agent) if !agent.is_empty() && own.as_ref() != Some(agent) => {
                format!(" --agent {}", printable(agent.as_bytes()))
            }
            _ => String::new(),
        }
    }

    /// Which agent elsewhere; none: the one here.
    ///
    /// # Errors
    /// It is no such address, or something is said of an agent elsewhere that is not named.
    pub fn server(&self) -> Result<Option<Endpoint>> {
        match self.agent.as_deref().filter(|agent| !agent.is_empty()) {
            Some(url) => read_url(url).map(Some),
            None if self.host_key.is_some()
                || self.accept_new
                || self.ca.is_some()
                || self.identity.is_some() =>
            {
                bail!("--agent is not given: the agent here is known by its socket")
            }
            None => Ok(None),
        }
    }
}

/// The host and port of https://HOST[:PORT].
fn read_url(url: &str) -> Result<Endpoint> {
    let shown = printable(url.as_bytes());
    let Some(rest) = url.strip_prefix("https://") else {
        bail!("{shown}: an agent elsewhere is named as https://HOST:PORT");
    };
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    if authority.contains(['/', '?', '#', '@']) {
        bail!("{shown}: an agent elsewhere is named as https://HOST:PORT");
    }
    Endpoint::parse_with_port(authority, HTTPS_PORT).map_err(|error| anyhow!("{shown}: {error}"))
}

/// An agent elsewhere.
pub struct Remote {
    server: Endpoint,
    tls: ClientTls,
    key: SigningKey,
    first: FirstUse,
    seen: Seen,
}

/// What was found of the key that the agent showed, if it was asked for.
type Seen = Arc<OnceLock<(PublicKey, Verdict)>>;

impl Remote {
    /// The one that `options` name.
    ///
    /// # Errors
    /// There is no key, the agent's is not accepted, or certificates cannot be read.
    pub async fn of(server: Endpoint, options: &AgentOptions) -> Result<Self> {
        let identity = home::identity(options.identity.as_deref())?;
        let key = identity.signing_key().clone();
        let wanted = Wanted {
            key: options.host_key,
            accept_new: options.accept_new,
        };
        let bare = |known, first, seen| -> Result<Self> {
            Ok(Self {
                server: server.clone(),
                tls: tls::client(known)?,
                key: key.clone(),
                first,
                seen,
            })
        };
        if let Some(file) = &options.ca {
            return bare(
                Known::ByAuthority(file.clone()),
                FirstUse::default(),
                Seen::default(),
            );
        }
        let by_key_alone = trust::is_known(&wanted, &server)?;
        let trusting = |trust: ServerTrust, first| {
            let seen = Seen::default();
            let is_trusted = {
                let (seen, server) = (seen.clone(), server.clone());
                Arc::new(move |found: &PublicKey| {
                    let verdict = trust::verdict(&trust, &server, found);
                    seen.get_or_init(|| (*found, verdict));
                    verdict == Verdict::Trusted
                })
            };
            let known = match by_key_alone {
                true => Known::ByKey(is_trusted),
                false => Known::Either(is_trusted),
            };
            bare(known, first, seen)
        };
        let probe = async |trust| {
            let probe = trusting(trust, FirstUse::default()).ok()?;
            match probe.connect().await {
                Err(AgentError::Unknown { found, .. }) => Some(found),
                // Whatever else is wrong, the first question meets and reports it.
                _ => None,
            }
        };
        let (trust, first) = trust::of(&wanted, &server, "longhaul agent", probe).await?;
        trusting(trust, first)
    }

    /// As `Host` has it.
    pub fn authority(&self) -> String {
        self.server.to_string()
    }

    /// A connection to an agent that is the right one.
    pub async fn connect(
        &self,
    ) -> Result<impl hyper::rt::Read + hyper::rt::Write + Send + Unpin + use<>, AgentError> {
        let server = self.server.clone();
        let (host, port) = match &self.server.host {
            Host::Name(name) => (name.clone(), self.server.port),
            Host::Ip(ip) => (ip.to_string(), self.server.port),
        };
        let unreachable = |source| AgentError::Unreachable {
            server: server.clone(),
            source,
        };
        let stream = TcpStream::connect((host.as_str(), port))
            .await
            .map_err(unreachable)?;
        let secured = tls::connect(&self.tls, &host, stream).await;
        let secured = secured.map_err(|source| match self.seen.get() {
            Some(&(found, Verdict::Unknown)) => AgentError::Unknown {
                server: server.clone(),
                found,
            },
            Some(&(found, Verdict::Mismatch { expected })) => AgentError::OtherKey {
                server: server.clone(),
                expected,
                found,
            },
            _ => AgentError::NotSecure {
                server: server.clone(),
                source,
            },
        })?;
        self.first.proved();
        Ok(hyper_util::rt::TokioIo::new(secured))
    }

    /// The request, signed.
    pub fn signed(&self, request: Request<Bytes>) -> Result<Request<Bytes>> {
        let (mut parts, body) = request.into_parts();
        let nonce = random_nonce()?;
        let now = unix_ms() / 1000;
        sign(
            &mut parts,
            Scheme::Https,
            &body,
            &self.key,
            Purpose::Api,
            now,
            &nonce,
        )?;
        Ok(Request::from_parts(parts, body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_elsewhere_is_named_by_its_host() {
        for (url, server) in [
            ("https://dtn.example", "dtn.example:443"),
            ("https://dtn.example:7512/", "dtn.example:7512"),
            ("https://[2001:db8::1]:1", "[2001:db8::1]:1"),
        ] {
            assert_eq!(read_url(url).unwrap().to_string(), server);
        }
        for bad in [
            "http://dtn",
            "dtn:7512",
            "https://",
            "https://a/b",
            "https://u@h",
            "https://h?x",
            "https://h:x",
        ] {
            assert!(read_url(bad).is_err(), "{bad}");
        }
    }
}
