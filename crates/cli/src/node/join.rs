//! `longhaul node join`: verifies that a controller accepts this machine's depot, and proposes what
//! to add to its files.

use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use longhaul_control_client::{ClientError, ControllerClient, ServiceClient, ServiceUrl};
use longhaul_proto::{DEPOT_PORT, Endpoint, Host, PublicKey};
use longhaul_session::Identity;

use super::ConfigFile;
use super::config::NodeConfig;
use crate::agent_client::run_in_runtime;
use crate::answer;
use crate::depot::registered::registration;
use crate::exit::Exit;
use crate::home;
use crate::known_service::ServiceTrust;
use crate::local_controller::SERVICE;
use crate::tls_service::{host_name, names};
use crate::trust::HostKeyOptions;

/// Join a controller with this machine's depot.
///
/// It shows the depot's key, registers the depot for a moment, and prints the lines for node.toml
/// and policy.toml. It changes no file. The exit code is 3 if the controller cannot be reached, and
/// 4 if it is not the expected one or does not let this key register.
#[derive(Args)]
pub struct JoinCommand {
    /// URL of the controller: https://HOST[:PORT]; the default port is 7513.
    url: ServiceUrl,
    /// Name of the depot on the map [default: that of the file, or this host's name].
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Address at which other hosts reach the depot; repeatable [default: that of the file, or this
    /// host's name or address].
    #[arg(long, value_name = "HOST[:PORT]")]
    advertise: Vec<String>,
    /// The depot's site, by its name on the map.
    #[arg(long, value_name = "NAME")]
    site: Option<String>,
    /// The controller's key, as `longhaul control` prints it; nothing else is trusted then.
    #[arg(long, value_name = "KEY")]
    host_key: Option<PublicKey>,
    /// Trust a controller that is not known yet, and remember its key.
    #[arg(long, conflicts_with = "host_key")]
    accept_new: bool,
    #[command(flatten)]
    file: ConfigFile,
}

/// Registration of the depot.
struct JoiningDepot {
    identity: Identity,
    /// File of its key, if it is not the default one.
    key_file: Option<PathBuf>,
    name: String,
    site: Option<String>,
    advertise: Vec<Endpoint>,
}

impl JoinCommand {
    /// Joins.
    pub fn run(self) -> Result<Exit> {
        run_in_runtime(self.join())
    }

    async fn join(self) -> Result<Exit> {
        let ServiceUrl::Https(server) = &self.url else {
            bail!("name the controller by https://HOST[:PORT], as other machines reach it");
        };
        let depot = self.depot()?;
        let key = depot.identity.public();
        answer::write_line(format_args!("the depot's key is {key}"));
        let trust = ServiceTrust {
            service: SERVICE,
            program: "longhaul control",
            wanted: HostKeyOptions {
                key: self.host_key,
                accept_new: self.accept_new,
                ca: None,
            },
            authority: None,
        };
        let https = trust
            .https_client(server.clone(), depot.identity.signing_key())
            .await?;
        https.connect().await?;
        let controller_key = https.shown_key().context(
            "the controller's certificate is signed by an authority: configure it with longhaul \
             controller use --ca FILE",
        )?;
        let client = ControllerClient::from_client(ServiceClient::over_https(SERVICE, https));
        let wanted = registration(
            depot.identity.signing_key(),
            &depot.name,
            depot.site.as_deref(),
            &depot.advertise,
        );
        let registered = match client.register(&wanted).await {
            Ok(registered) => registered,
            Err(error) => return Err(self.explain(error, &key, &depot.name)),
        };
        // The depot registers itself once it runs. Without this, the map would have one that does
        // not run yet.
        client.unregister(&key).await?;
        let places: Vec<String> = wanted
            .addresses
            .iter()
            .map(|address| address.endpoint.to_string())
            .collect();
        answer::write_line(format_args!(
            "the controller accepts it as {}, at {}",
            registered.name,
            places.join(" and ")
        ));
        self.propose(&depot, &registered.name, &places, controller_key);
        Ok(Exit::Success)
    }

    /// Prints the lines for the files.
    fn propose(
        &self,
        depot: &JoiningDepot,
        name: &str,
        places: &[String],
        controller_key: PublicKey,
    ) {
        let file = home::display_path(&self.file.config);
        let mut lines = vec![
            format!("\nin {file}, section [depot]:\n"),
            format!("register = {name:?}"),
            format!("advertise = {places:?}"),
        ];
        lines.extend(depot.site.iter().map(|site| format!("site = {site:?}")));
        lines.push(format!("controller = {:?}", self.url.to_string()));
        lines.push(format!("controller-key = {:?}", controller_key.to_string()));
        if let Some(key_file) = &depot.key_file {
            lines.push(format!("identity = {:?}", home::display_path(key_file)));
        }
        lines.push("\nin its policy, before the first rule:\n".to_owned());
        lines.push(format!("controllers = [{:?}]", controller_key.to_string()));
        for line in lines {
            answer::write_line(line);
        }
    }

    /// Adds to a refusal what the controller's operator can do.
    fn explain(&self, error: ClientError, key: &PublicKey, name: &str) -> anyhow::Error {
        let is_unauthorised =
            matches!(&error, ClientError::Refused(problem) if matches!(problem.status, 401 | 403));
        let error = anyhow::Error::from(error);
        match is_unauthorised {
            true => error.context(format!(
                "{} does not let this key register; its operator can with: longhaul control grant \
                 {key} depot --name {name}",
                self.url
            )),
            false => error,
        }
    }

    /// Returns the depot of the file, with what the command line says instead. Without a file, it
    /// is a depot with the default key and port.
    fn depot(&self) -> Result<JoiningDepot> {
        let config = match self.file.config.exists() {
            true => Some(NodeConfig::load(&self.file.config)?),
            false => None,
        };
        let known = config.as_ref().and_then(NodeConfig::depot);
        let register = known.map(|depot| depot.register());
        let port = known.map_or(DEPOT_PORT, |depot| depot.port());
        let mut advertise = Vec::new();
        for text in &self.advertise {
            advertise.push(Endpoint::parse_with_port(text, port).context("--advertise")?);
        }
        if advertise.is_empty()
            && let Some(register) = register
        {
            advertise = register.advertised()?;
        }
        if advertise.is_empty() {
            advertise.push(own_address(port)?);
        }
        let key_file = known.and_then(|depot| depot.identity_file());
        let named = self
            .name
            .clone()
            .or_else(|| Some(register?.name()?.to_owned()));
        let site = self
            .site
            .clone()
            .or_else(|| Some(register?.site()?.to_owned()));
        Ok(JoiningDepot {
            identity: home::identity(key_file)?,
            key_file: key_file.map(ToOwned::to_owned),
            name: named.unwrap_or_else(host_name),
            site,
            advertise,
        })
    }
}

/// Returns an address at which other hosts may reach this one: its name if that is complete, or its
/// first address that is not local.
fn own_address(port: u16) -> Result<Endpoint> {
    let known = names(&[], ([0, 0, 0, 0], port).into())?;
    let is_complete =
        |endpoint: &&Endpoint| matches!(&endpoint.host, Host::Name(name) if name.contains('.'));
    let is_reachable = |endpoint: &&Endpoint| match &endpoint.host {
        Host::Ip(IpAddr::V4(ip)) => !ip.is_loopback() && !ip.is_link_local(),
        Host::Ip(IpAddr::V6(_)) | Host::Name(_) => false,
    };
    let found = known.iter().find(is_complete);
    let found = found.or_else(|| known.iter().find(is_reachable));
    found
        .cloned()
        .context("this host has no address that others reach: give --advertise HOST[:PORT]")
}
