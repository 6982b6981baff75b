//! `longhaul login`: gets a token by a device code, or names the file of another program's token.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use longhaul_output::message;
use longhaul_proto::text::printable;
use longhaul_tokens::IssuerUrl;
use longhaul_tokens::login::{Login, LoginRequest, LoginSource, LoginStore, TokenHost};

use super::{local_time, logins};
use crate::exit::Exit;
use crate::{answer, home};

/// Log in at an issuer of tokens, for servers that trust it.
///
/// Prints a page and a code, and waits until you have confirmed the code in a browser, on any
/// machine. The token is kept in ~/.config/longhaul/logins, which only you can read, and renewed
/// when needed. `cp`, `sync`, `ls` and others send it to the hosts of --for, or else to those that
/// the token's audience names, and to no other.
#[derive(Args)]
pub struct LoginCommand {
    /// URL of the issuer, as the server's operator names it.
    #[arg(value_name = "ISSUER", required_unless_present_any = ["from", "list"])]
    issuer: Option<String>,
    /// Name of this program at the issuer, where it is registered.
    #[arg(long, value_name = "ID", default_value = "longhaul")]
    client_id: String,
    /// Scope to ask for, such as storage.read:/ or read:/. Repeatable.
    #[arg(long, value_name = "SCOPE", value_delimiter = ' ')]
    scope: Vec<String>,
    /// Audience to ask for: the name by which the issuer knows the server.
    #[arg(long, value_name = "AUDIENCE")]
    audience: Option<String>,
    /// Host that receives the token, as in lh://HOST[:PORT]/. Repeatable.
    #[arg(long = "for", value_name = "HOST[:PORT]")]
    hosts: Vec<TokenHost>,
    /// Use the token in this file, which another program keeps up to date, instead of logging in.
    #[arg(
        long,
        value_name = "FILE",
        requires = "hosts",
        conflicts_with_all = ["issuer", "client_id", "scope", "audience"]
    )]
    from: Option<PathBuf>,
    /// List the logins, without their tokens.
    #[arg(long, exclusive = true)]
    list: bool,
}

impl LoginCommand {
    /// Runs the command.
    pub fn run(self) -> Result<Exit> {
        if self.list {
            return list();
        }
        if let Some(file) = &self.from {
            let login = Login {
                hosts: self.hosts.clone(),
                source: LoginSource::File(std::path::absolute(file)?),
            };
            return store(login);
        }
        let Some(issuer) = &self.issuer else {
            return list();
        };
        let request = LoginRequest {
            issuer: IssuerUrl::parse(issuer)?,
            client_id: self.client_id,
            scopes: self
                .scope
                .into_iter()
                .filter(|scope| !scope.is_empty())
                .collect(),
            audience: self.audience,
            hosts: self.hosts,
        };
        let runtime = crate::runtime::start_small()?;
        let login = runtime.block_on(async {
            let pending = request.begin().await?;
            message!("longhaul: open {}", pending.page());
            message!("longhaul: and confirm the code {}", pending.code());
            if let Some(page) = pending.page_with_code() {
                message!("longhaul: or open {page}");
            }
            let minutes = pending.time_limit().as_secs().div_ceil(60);
            message!("longhaul: waiting for at most {minutes} min ...");
            pending.wait().await
        })?;
        store(login)
    }
}

/// Stores a login, and prints what it is for.
fn store(login: Login) -> Result<Exit> {
    let hosts = describe_hosts(&login);
    let what = describe(&login);
    home::make_dir()?;
    LoginStore::new(logins()?).add(login)?;
    message!("longhaul: logged in: {what}");
    match hosts {
        Some(hosts) => message!("longhaul: these hosts receive the token: {hosts}"),
        None => message!(
            "longhaul: the audience of the token names no host, so no server receives it: repeat \
             the command with --for HOST"
        ),
    }
    Ok(Exit::Success)
}

fn list() -> Result<Exit> {
    let logins = LoginStore::new(logins()?).list()?;
    if logins.is_empty() {
        message!("longhaul: no login yet; log in with: longhaul login ISSUER");
    }
    for login in &logins {
        let hosts = describe_hosts(login).unwrap_or_else(|| "no host".to_owned());
        answer::write_line(format_args!("{} for {hosts}", describe(login)));
    }
    Ok(Exit::Success)
}

/// Returns one line about a login.
fn describe(login: &Login) -> String {
    let issuer = match &login.source {
        LoginSource::File(file) => return home::display_path(file),
        LoginSource::Issuer(issuer) => issuer,
    };
    let until = match issuer.expires() {
        _ if issuer.is_renewable() => "renewed when needed".to_owned(),
        Some(expires) => format!("until {}", local_time(expires)),
        None => "until an unknown time".to_owned(),
    };
    let line = format!("{} ({}), {until}", issuer.issuer, issuer.scope);
    printable(line.as_bytes())
}

/// Returns the hosts that receive the token of a login, or `None` if there is none.
fn describe_hosts(login: &Login) -> Option<String> {
    let named: Vec<String> = login.hosts.iter().map(TokenHost::to_string).collect();
    match &login.source {
        _ if !named.is_empty() => Some(named.join(", ")),
        LoginSource::Issuer(issuer) => {
            let hosts = issuer.audience_hosts();
            (!hosts.is_empty()).then(|| printable(hosts.join(", ").as_bytes()))
        }
        LoginSource::File(_) => None,
    }
}
