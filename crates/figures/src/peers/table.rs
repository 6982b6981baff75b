//! Peers of the table `peers.toml`: what serves a folder, and the commands of the clients.

use super::place::{Endpoint, PeerNode, Serving};
use super::templates::Templates;
use super::{Abilities, Item, Need, Peer, Program, Relay, RelayKind};
use anyhow::{Context, Result};
use minijinja::{Value, context};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

static TABLE: LazyLock<std::result::Result<Table, toml::de::Error>> =
    LazyLock::new(|| toml::from_str(include_str!("peers.toml")));

/// Templates of files, by their names.
type Files = BTreeMap<String, String>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    packages: BTreeMap<String, String>,
    server: BTreeMap<String, ServerEntry>,
    relay: Vec<RelayEntry>,
    peer: Vec<PeerEntry>,
    fetcher: Vec<PeerEntry>,
    plain: Vec<PeerEntry>,
    saving: Vec<PeerEntry>,
}

/// A server of folders.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerEntry {
    /// Port of the server in its node.
    pub port: u16,
    /// Programs besides that of the command.
    #[serde(default)]
    needs: Vec<String>,
    #[serde(default)]
    files: Files,
    /// Script that runs before the server, in the folder of settings.
    #[serde(default)]
    prepare: String,
    command: Vec<String>,
    /// Files of every client.
    #[serde(default)]
    client: Files,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RelayEntry {
    name: String,
    title: String,
    options: String,
    kind: RelayKind,
    /// Port of the relay; that of the server if it has none of its own.
    port: Option<u16>,
    files: Files,
    command: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PeerEntry {
    name: String,
    title: String,
    #[serde(default)]
    options: String,
    server: String,
    /// Programs besides those of the command and the server.
    #[serde(default)]
    needs: Vec<String>,
    can: Vec<Ability>,
    #[serde(default)]
    files: Files,
    /// Script that runs before the client, in the folder of settings.
    #[serde(default)]
    prepare: String,
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// First arguments of the client, and those for folders, for a fetch, and for a send.
    command: Vec<String>,
    #[serde(default)]
    folders: Vec<String>,
    fetch: Vec<String>,
    #[serde(default)]
    send: Vec<String>,
    /// Arguments that name an HTTP proxy to tunnel through.
    #[serde(default)]
    tunnel: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Ability {
    Send,
    Trees,
    Streams,
    Forward,
    Socks,
}

/// A program of the table that copies files.
pub struct TablePeer(&'static PeerEntry);

/// A relay of the table.
struct TableRelay(&'static RelayEntry);

fn table() -> Result<&'static Table> {
    TABLE.as_ref().context("peers.toml")
}

fn all(entries: fn(&'static Table) -> &'static [PeerEntry]) -> Vec<TablePeer> {
    let entries = table().map_or(&[][..], entries);
    entries.iter().map(TablePeer).collect()
}

/// Returns all programs that copy files and folders.
pub fn peers() -> Vec<TablePeer> {
    all(|table| &table.peer)
}

/// Returns all programs that only fetch a file.
pub fn fetchers() -> Vec<TablePeer> {
    all(|table| &table.fetcher)
}

/// Returns all programs that copy with a server of SFTP or S3.
pub fn plain() -> Vec<TablePeer> {
    all(|table| &table.plain)
}

/// Returns all programs that send fewer bytes than the files have.
pub fn saving() -> Vec<TablePeer> {
    all(|table| &table.saving)
}

/// Returns all relays.
pub fn relays() -> Vec<Box<dyn Relay>> {
    let entries = table().map_or(&[][..], |table| &table.relay);
    let boxed = |entry| Box::new(TableRelay(entry)) as Box<dyn Relay>;
    entries.iter().map(boxed).collect()
}

/// Returns a program of the table with its package.
///
/// # Errors
/// The table does not have it.
pub fn need(program: &str) -> Result<Need> {
    let found = table()?.packages.get_key_value(program);
    let (program, package) = found.with_context(|| format!("no package has {program}"))?;
    Ok(Need { program, package })
}

/// Returns those of these programs that the table has.
fn needs<'a>(programs: impl Iterator<Item = &'a String>) -> Vec<Need> {
    programs.filter_map(|program| need(program).ok()).collect()
}

/// Returns a server of the table.
///
/// # Errors
/// The table does not have it.
pub fn server(name: &str) -> Result<&'static ServerEntry> {
    let found = table()?.server.get(name);
    found.with_context(|| format!("peers.toml has no server {name}"))
}

impl ServerEntry {
    /// Returns the programs that it needs.
    pub fn needs(&self) -> Vec<Need> {
        needs(self.command.first().into_iter().chain(&self.needs))
    }

    /// Serves `root` in a node, with more values for its templates.
    ///
    /// # Errors
    /// A program is missing, or the server does not start.
    pub fn serve(&self, place: &PeerNode, root: &Path, more: Value) -> Result<Serving> {
        let settings = place.settings()?;
        let only = std::fs::read_dir(root)?.flatten().next();
        let only = only.map_or_else(String::new, |file| {
            file.file_name().to_string_lossy().into_owned()
        });
        let templates = Templates::new(
            settings.path(),
            context!(root => root.display().to_string(), own => place.address()?.to_string(),
                port => self.port, only, ..more),
        );
        templates.write(&self.files)?;
        templates.run(&self.prepare, "the preparation of a server")?;
        let command = templates.arguments(&self.command)?;
        place.serve(&command, settings, root, self.port)
    }

    /// Returns the templates of a client of this server, whose files are written, with more values.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn client(&self, place: &PeerNode, from: &Serving, more: Value) -> Result<Templates> {
        let Endpoint { address, socks } = from.endpoint;
        let values = context!(
            own => place.address()?.to_string(), at => address.to_string(),
            ip => address.ip().to_string(), port => address.port(),
            socks => socks.map(|socks| socks.to_string()), ..more
        );
        let templates = Templates::new(from.folder(), values);
        templates.write(&self.client)?;
        Ok(templates)
    }
}

impl TablePeer {
    fn can(&self, ability: Ability) -> bool {
        self.0.can.contains(&ability)
    }

    /// Returns the client's command with `last` arguments, by values for an item.
    fn command(
        &self,
        place: &PeerNode,
        serving: &Serving,
        last: &'static [String],
        values: Value,
    ) -> Result<Command> {
        let server = server(&self.0.server)?;
        let templates = server.client(place, serving, values.clone())?;
        templates.write(&self.0.files)?;
        templates.run(&self.0.prepare, &self.0.name)?;
        let folders: &[String] = match values.get_attr("tree")?.is_true() {
            true => &self.0.folders,
            false => &[],
        };
        let all = [&self.0.command, folders, last].concat();
        let arguments = templates.arguments(&all)?;
        let (program, arguments) = arguments.split_first().context("a command is empty")?;
        let mut command = place.client(program, serving)?;
        for (name, template) in &self.0.env {
            // One of this machine has no effect in a lab.
            match templates.text(template)? {
                value if value.is_empty() => command.env_remove(name),
                value => command.env(name, value),
            };
        }
        command.args(arguments);
        Ok(command)
    }

    /// Returns true if it can tunnel through an HTTP CONNECT entry.
    pub fn tunnels(&self) -> bool {
        !self.0.tunnel.is_empty()
    }

    /// Tells its client's command of that entry.
    ///
    /// # Errors
    /// The table is wrong.
    pub fn tunnel(&self, command: &mut Command, proxy: SocketAddrV4) -> Result<()> {
        let values = context!(proxy => proxy.to_string());
        let templates = Templates::new(Path::new(""), values);
        command.args(templates.arguments(&self.0.tunnel)?);
        Ok(())
    }
}

impl Program for TablePeer {
    fn name(&self) -> &'static str {
        &self.0.name
    }

    fn title(&self) -> &'static str {
        &self.0.title
    }

    fn options(&self) -> &'static str {
        &self.0.options
    }

    fn needs(&self) -> Vec<Need> {
        let mut all = server(&self.0.server).map_or_else(|_| Vec::new(), ServerEntry::needs);
        all.extend(needs(self.0.needs.iter().chain(self.0.command.first())));
        all
    }
}

impl Peer for TablePeer {
    fn abilities(&self) -> Abilities {
        Abilities {
            send: self.can(Ability::Send),
            trees: self.can(Ability::Trees),
            streams: self.can(Ability::Streams),
            forward: self.can(Ability::Forward),
            socks: self.can(Ability::Socks),
        }
    }

    fn serve(&self, place: &PeerNode, root: &Path) -> Result<Serving> {
        server(&self.0.server)?.serve(place, root, context!())
    }

    fn fetch(
        &self,
        place: &PeerNode,
        from: &Serving,
        item: &Item,
        to: &Path,
        streams: u32,
    ) -> Result<Command> {
        let Item { name, tree } = item;
        // A template may also name the source of a send, which does not exist here.
        let values = context!(name, tree, streams, to => to.display().to_string(), root => "");
        self.command(place, from, &self.0.fetch, values)
    }

    fn send(
        &self,
        place: &PeerNode,
        to: &Serving,
        root: &Path,
        item: &Item,
        streams: u32,
    ) -> Result<Command> {
        let Item { name, tree } = item;
        let values = context!(name, tree, streams, root => root.display().to_string(), to => "");
        self.command(place, to, &self.0.send, values)
    }
}

impl Program for TableRelay {
    fn name(&self) -> &'static str {
        &self.0.name
    }

    fn title(&self) -> &'static str {
        &self.0.title
    }

    fn options(&self) -> &'static str {
        &self.0.options
    }

    fn needs(&self) -> Vec<Need> {
        needs(self.0.command.first().into_iter())
    }
}

impl Relay for TableRelay {
    fn kind(&self) -> RelayKind {
        self.0.kind
    }

    fn start(&self, place: &PeerNode, server: SocketAddrV4) -> Result<Serving> {
        let settings = place.settings()?;
        let port = self.0.port.unwrap_or(server.port());
        let own = place.address()?.to_string();
        let values = context!(own, port, server => server.to_string());
        let templates = Templates::new(settings.path(), values);
        templates.write(&self.0.files)?;
        let command = templates.arguments(&self.0.command)?;
        let mut relaying = place.serve(&command, settings, place.scratch, port)?;
        if self.0.kind == RelayKind::Socks {
            relaying.endpoint = Endpoint {
                address: server,
                socks: Some(relaying.endpoint.address),
            };
        }
        Ok(relaying)
    }
}
