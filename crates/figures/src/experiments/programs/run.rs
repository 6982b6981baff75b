//! One program by one entry.

use std::ffi::OsStr;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{Cell, Entry, Observation};
use crate::children::{Server, output_within};
use crate::copy::{DEPOT_PORT, Source, in_node};
use crate::experiment::Here;
use crate::gateways::{Gateways, OFFRAMP_PORT};
use crate::peers::one_copy::PeerDirection;
use crate::peers::place::PeerNode;
use crate::peers::table::TablePeer;
use crate::peers::{Item, Peer, Program, contents, need};

/// Packet filter.
pub const FILTER: &str = "nft";

/// Ports of the on-ramp's entries in the client's node.
const SOCKS_PORT: u16 = 1080;
const HTTP_PORT: u16 = 3128;
const REDIRECT_PORT: u16 = 7523;

/// Maximum time of a program that works by its entry.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(45);

/// Maximum number of characters of a failed program's output that are kept.
const MAX_REASON: usize = 240;

/// Starts the server, depots, off-ramp and on-ramp, lets the program move the file, and compares
/// what arrived.
///
/// # Errors
/// Something other than the program under test fails.
pub fn run(here: &Here<'_, Source>, peer: &TablePeer, cell: &Cell) -> Result<Observation> {
    let (lab, source) = (here.lab, here.setup);
    let place = |node| PeerNode {
        lab,
        node,
        scratch: here.folder,
    };
    let arrived = here.folder.join("arrived");
    std::fs::create_dir(&arrived).context("cannot make a folder for what arrives")?;
    let root = match cell.direction {
        PeerDirection::Fetch => source.root.as_path(),
        PeerDirection::Send => arrived.as_path(),
    };
    // A folder with this file alone, for servers of one file.
    let only = here.folder.join("served");
    if cell.direction == PeerDirection::Fetch {
        std::fs::create_dir(&only).context("cannot make a folder to serve")?;
        std::fs::copy(source.root.join(&source.name), only.join(&source.name))
            .context("cannot copy the file")?;
    }
    let served = match cell.direction {
        PeerDirection::Fetch => only.as_path(),
        PeerDirection::Send => root,
    };
    let mut serving = peer.serve(&place("server"), served)?;
    let gateways = Gateways {
        tools: here.tools,
        lab,
        folder: here.folder,
        depots: &["gw1", "gw2"],
        offramp: "server",
    };
    let _servers = gateways.start()?;
    let routes = gateways.routes("fall_back = false\n")?;
    let _onramp = match cell.entry {
        Entry::Run | Entry::Isolate => Vec::new(),
        Entry::BothEnds => bring_back(here)?,
        _ => vec![onramp(&gateways, &routes)?],
    };
    reject_direct(here, cell.entry)?;
    let local = |port| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
    if cell.entry == Entry::Socks {
        serving.endpoint.socks = Some(local(SOCKS_PORT));
    }
    let item = Item {
        name: source.name.clone(),
        tree: false,
    };
    let streams = cell.streams.unwrap_or(1);
    let client = place("client");
    let mut command = match cell.direction {
        PeerDirection::Fetch => peer.fetch(&client, &serving, &item, &arrived, streams)?,
        PeerDirection::Send => peer.send(&client, &serving, &source.root, &item, streams)?,
    };
    if cell.program == "gridftp" && cell.streams == Some(1) {
        let options = ["-fast", "-p", "1"];
        let command_in_stream_mode = here.lab.command("client", command.get_program())?;
        command = filled(command_in_stream_mode, &command, |argument| {
            !options.iter().any(|option| argument == *option)
        });
    }
    if cell.entry == Entry::Connect {
        peer.tunnel(&mut command, local(HTTP_PORT))?;
    }
    match cell.entry {
        Entry::Run | Entry::BothEnds => command = under_run(&gateways, &routes, &[], &command)?,
        Entry::Isolate => command = under_run(&gateways, &routes, &["--isolate"], &command)?,
        _ => {}
    }
    let moved =
        output_within(command, peer.name(), PROGRAM_TIMEOUT).and_then(|(status, out, err)| {
            ensure!(status.success(), "{status}: {} {}", out.trim(), err.trim());
            contents::compare(&source.root.join(&item.name), &arrived.join(&item.name))
        });
    Ok(Observation {
        failed: moved
            .err()
            .map(|error| reason(&format!("{error:#}"), here.folder)),
    })
}

/// Returns one line of a program's output, without the run's own folder.
fn reason(text: &str, folder: &Path) -> String {
    let text = text.replace(&format!("{}/", folder.display()), "");
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(MAX_REASON).collect()
}

fn onramp(gateways: &Gateways<'_>, routes: &Path) -> Result<Server> {
    let mut command = gateways.longhaul()?;
    command
        .arg("onramp")
        .args(["--socks", &format!("127.0.0.1:{SOCKS_PORT}")])
        .args(["--http", &format!("127.0.0.1:{HTTP_PORT}")])
        .args(["--redirect", &format!("127.0.0.1:{REDIRECT_PORT}")])
        .arg("--routes")
        .arg(routes);
    Server::start(
        command,
        "longhaul onramp",
        "accepts connections that a firewall redirects",
    )
}

/// Starts an on-ramp at the server and an off-ramp at the client. The server's packet filter
/// redirects to the on-ramp what goes to the client.
fn bring_back(here: &Here<'_, Source>) -> Result<Vec<Server>> {
    let (keys, client) = (&here.tools.identities, here.lab.address("client")?);
    let write = |name: &str, text: String| {
        let file = here.folder.join(name);
        std::fs::write(&file, text).with_context(|| format!("cannot write {name}"))?;
        anyhow::Ok(file)
    };
    let policy = write(
        "client-offramp.toml",
        format!(
            "[[allow]]\nprincipals = [\"{}\"]\nservers = [\"{client}\"]\nports = [\"any\"]\n",
            keys.server_key
        ),
    )?;
    let mut offramp = in_node(here.tools, here.lab, "client", &keys.client_home)?;
    offramp
        .args([
            "offramp",
            "--listen",
            &format!("0.0.0.0:{OFFRAMP_PORT}"),
            "--policy",
        ])
        .arg(policy);
    let depot = |node| Ok::<_, anyhow::Error>(format!("{}:{DEPOT_PORT}", here.lab.address(node)?));
    let routes = write(
        "server-routes.toml",
        format!(
            "[[route]]\nto = [\"{client}\"]\nvia = \"{},{}\"\n\
             offramp = \"{}@{client}:{OFFRAMP_PORT}\"\nalways = true\nfall_back = false\n",
            depot("gw2")?,
            depot("gw1")?,
            keys.client_key
        ),
    )?;
    let mut onramp = in_node(here.tools, here.lab, "server", &keys.server_home)?;
    onramp
        .env("LONGHAUL_STATE", here.folder.join("server-state"))
        .args([
            "onramp",
            "--redirect",
            &format!("127.0.0.1:{REDIRECT_PORT}"),
            "--routes",
        ])
        .arg(routes);
    let servers = vec![
        Server::start(offramp, "longhaul offramp", "listening")?,
        Server::start(
            onramp,
            "longhaul onramp",
            "accepts connections that a firewall redirects",
        )?,
    ];
    filter(
        here,
        "server",
        &format!(
            "table ip longhaul {{ chain nat {{ type nat hook output priority -100; ip daddr \
             {client} meta l4proto tcp redirect to :{REDIRECT_PORT}; }}; }}\n"
        ),
    )?;
    Ok(servers)
}

/// Returns the same program with the same arguments, started by `longhaul run`.
fn under_run(
    gateways: &Gateways<'_>,
    routes: &Path,
    options: &[&str],
    program: &Command,
) -> Result<Command> {
    let mut command = gateways.run(routes, options)?;
    command.arg(program.get_program());
    Ok(filled(command, program, |_| true))
}

/// Adds to `command` the environment of `other`, and those of its arguments that satisfy `wanted`.
fn filled(mut command: Command, other: &Command, wanted: impl Fn(&OsStr) -> bool) -> Command {
    command.args(other.get_args().filter(|argument| wanted(argument)));
    for (name, value) in other.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

/// Makes the client's packet filter reject connections that go to the server directly. For the
/// transparent entry, it redirects them before that.
fn reject_direct(here: &Here<'_, Source>, entry: Entry) -> Result<()> {
    let server = here.lab.address("server")?;
    let redirect = match entry {
        Entry::Redirect => {
            format!(
                "chain nat {{ type nat hook output priority -100; ip daddr {server} tcp dport != \
                 {OFFRAMP_PORT} redirect to :{REDIRECT_PORT}; }}\n"
            )
        }
        _ => String::new(),
    };
    let rules = format!(
        "table ip longhaul {{\n{redirect}chain direct {{ type filter hook output priority 100; ip \
         daddr {server} meta l4proto tcp reject with tcp reset; }}\n}}\n"
    );
    filter(here, "client", &rules)
}

/// Adds rules to a node's packet filter.
fn filter(here: &Here<'_, Source>, node: &str, rules: &str) -> Result<()> {
    let mut command = here.lab.command(node, need(FILTER)?.find()?)?;
    let mut filter = command
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start nft")?;
    filter
        .stdin
        .take()
        .context("nft takes no rules")?
        .write_all(rules.as_bytes())?;
    let ended = filter.wait_with_output().context("cannot wait for nft")?;
    ensure!(
        ended.status.success(),
        "nft takes no rules: {}",
        String::from_utf8_lossy(&ended.stderr).trim()
    );
    Ok(())
}
