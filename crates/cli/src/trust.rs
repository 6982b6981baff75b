//! How the server is known: by a key on the command line, from an earlier meeting, or by asking the person.

use std::io::{BufRead, IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Result, bail};
use longhaul_session::{ConnectOptions, Endpoint, Error, KnownHosts, PublicKey, ServerTrust, Verdict, connect};

use crate::home;

/// What the command line says about the server's key.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// `--host-key`.
    pub key: Option<PublicKey>,
    /// `--accept-new`.
    pub accept_new: bool,
}

/// How to trust `server`. `ask` says how to reach it, should a person have to be asked.
pub async fn of(server: &Endpoint, wanted: &Wanted, ask: &ConnectOptions) -> Result<ServerTrust> {
    if let Some(key) = wanted.key {
        return Ok(ServerTrust::Pinned(key));
    }
    let mut known = KnownHosts::open(&home::known_hosts()?)?;
    if known.get(server).is_some() {
        return Ok(known.trust());
    }
    if wanted.accept_new {
        return Ok(first_shown(known));
    }
    if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
        // The connection will fail and say which key the server showed.
        return Ok(known.trust());
    }
    let probe = ConnectOptions { server: known.trust(), ..ask.clone() };
    let found = match connect(&probe).await {
        Err(Error::UnknownServer { found, .. }) => found,
        // Whatever else is wrong, the copy's own attempt meets and reports it.
        _ => return Ok(known.trust()),
    };
    if !confirmed(server, &found)? {
        bail!("the key of {server} was not accepted; nothing was copied");
    }
    known.add(server.clone(), found)?;
    Ok(known.trust())
}

fn confirmed(server: &Endpoint, found: &PublicKey) -> Result<bool> {
    eprint!(
        "The server {server} is not known yet. It shows the key\n  {found}\nCompare it with what `longhaul serve` printed there. \
         Trust it from now on? [y/N] "
    );
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Trusts the first key the server shows, writes it down, and from then on no other.
fn first_shown(known: KnownHosts) -> ServerTrust {
    let state = Mutex::new((known, None));
    ServerTrust::Callback(Arc::new(move |server, found| {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        match state.1 {
            Some(expected) if expected == *found => Verdict::Trusted,
            Some(expected) => Verdict::Mismatch { expected },
            None => {
                if let Err(error) = state.0.add(server.clone(), *found) {
                    eprintln!("longhaul: the server's key was not written down: {error}");
                }
                state.1 = Some(*found);
                Verdict::Trusted
            }
        }
    }))
}
