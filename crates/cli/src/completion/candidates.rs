//! Candidates that are known on this machine: hosts, servers, places and jobs.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

use clap_complete::engine::CompletionCandidate;
use longhaul_agent::http::{JobPage, PlaceList};
use serde::de::DeserializeOwned;

use super::{beginning_with, ssh_hosts};
use crate::agent_client::{AgentClient, AgentOptions};
use crate::home;
use crate::target::SERVER_PORT;

/// Time in which the agent must answer.
const AGENT_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of bytes of ssh's configuration that are read.
const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// Completes the beginning of a path on another machine: hosts, known servers, roots of places.
pub fn places(current: &OsStr) -> Vec<CompletionCandidate> {
    let hosts = ssh_config_hosts().into_iter().map(|host| {
        // The user name of what was typed stays.
        let typed = current.to_string_lossy();
        match typed.split_once('@') {
            Some((user, _)) => format!("{user}@{host}:"),
            None => format!("{host}:"),
        }
    });
    let servers = known_servers()
        .into_iter()
        .map(|server| format!("lh://{server}/"));
    let list: Option<PlaceList> = ask_agent("/places");
    let roots = list
        .into_iter()
        .flat_map(|list| list.items)
        .map(|place| place.root);
    // The agent's own machine is what files complete anyway.
    let roots = roots.filter(|root| root.contains(':'));
    beginning_with(current, hosts.chain(servers).chain(roots))
}

/// Completes servers, as HOST or HOST:PORT and lh://HOST.
pub fn servers(current: &OsStr) -> Vec<CompletionCandidate> {
    let servers = known_servers();
    let urls: Vec<String> = servers
        .iter()
        .map(|server| format!("lh://{server}"))
        .collect();
    let urls = urls
        .into_iter()
        .filter(|_| current.as_encoded_bytes().starts_with(b"l"));
    beginning_with(current, servers.into_iter().chain(urls))
}

/// Completes names of places.
pub fn place_names(current: &OsStr) -> Vec<CompletionCandidate> {
    let list: Option<PlaceList> = ask_agent("/places");
    let items = list.into_iter().flat_map(|list| list.items);
    beginning_with(current, items.map(|place| place.name))
}

/// Completes numbers of jobs, newest first, each with its label or destination.
pub fn jobs(current: &OsStr) -> Vec<CompletionCandidate> {
    let typed = current.to_string_lossy();
    let page: Option<JobPage> = ask_agent("/jobs?limit=100");
    let items = page.into_iter().flat_map(|page| page.items);
    let matching = items.filter(|job| job.id.to_string().starts_with(&*typed));
    matching
        .map(|job| {
            let about = job.request.label.unwrap_or(job.request.destination);
            CompletionCandidate::new(job.id.to_string()).help(Some(about.into()))
        })
        .collect()
}

/// Sends a request to the running agent of this user. It is not started for a completion.
fn ask_agent<T: DeserializeOwned>(path: &str) -> Option<T> {
    let runtime = crate::runtime::start_small().ok()?;
    runtime.block_on(async {
        let agent = AgentClient::for_options(&AgentOptions::from_environment())
            .await
            .ok()?;
        let asked = agent.ask("GET", path, None, None);
        tokio::time::timeout(AGENT_TIMEOUT, asked).await.ok()?.ok()
    })
}

/// Returns the servers whose keys were accepted, as HOST or HOST:PORT.
fn known_servers() -> Vec<String> {
    let Ok(file) = home::known_hosts_file() else {
        return Vec::new();
    };
    let text = longhaul_hop::read_trusted_file(&file).unwrap_or_default();
    let default_port = format!(":{SERVER_PORT}");
    let servers = text
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    let servers = servers
        .filter(|server| !server.starts_with('#'))
        .map(str::to_owned);
    servers
        .map(|server| match server.strip_suffix(&default_port) {
            Some(host) => host.to_owned(),
            None => server,
        })
        .collect()
}

/// Returns the hosts that ssh's configuration of this user names.
fn ssh_config_hosts() -> Vec<String> {
    let Some(home) = std::env::var_os("HOME") else {
        return Vec::new();
    };
    let file = PathBuf::from(home).join(".ssh/config");
    let text = std::fs::File::open(file).and_then(|file| {
        let mut text = String::new();
        let mut limited = std::io::Read::take(file, MAX_CONFIG_BYTES);
        std::io::Read::read_to_string(&mut limited, &mut text).map(|_| text)
    });
    ssh_hosts::parse(&text.unwrap_or_default())
}
