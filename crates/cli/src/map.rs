//! `longhaul map`: the controller's map.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use longhaul_control_api::map::{KnownMap, Map, MapChanged};
use longhaul_map::render::render_tables;
use longhaul_map::{esnet, file, graphml};
use longhaul_output::message;

use crate::exit::Exit;
use crate::local_controller::{ControlClient, NO_BODY};
use crate::{answer, home};

/// Maximum bytes of a file that is read.
const MAX_FILE_BYTES: u64 = 64 << 20;
/// Milliseconds per second.
const MS_PER_SECOND: f64 = 1000.0;

/// Show the controller's map: sites, depots, hosts, links.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct MapCommand {
    #[command(subcommand)]
    action: Option<Action>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum Action {
    /// Read files, and replace the controller's map with them. Depots that register themselves
    /// stay.
    Import {
        /// Files: a map of Longhaul's (.toml), of the Internet Topology Zoo (.graphml, .gml.xml),
        /// of ESnet's topology (.json), or JSON as `longhaul map --json` prints it. Several are
        /// merged.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Read them, report errors, and change nothing.
        #[arg(long)]
        check: bool,
        /// Print the result as JSON.
        #[arg(long)]
        json: bool,
    },
}

impl MapCommand {
    /// Runs the command.
    pub fn run(self) -> Result<Exit> {
        match self.action {
            None => show(self.json),
            Some(Action::Import { files, check, json }) => import(&files, check, json),
        }
    }
}

fn show(json: bool) -> Result<Exit> {
    let known: KnownMap = ControlClient::local()?.ask("GET", "/map", NO_BODY)?;
    if json {
        answer::write_line(serde_json::to_string(&known)?);
        return Ok(Exit::Success);
    }
    let text = render_tables(&known.map, known.made_ms as f64 / MS_PER_SECOND);
    answer::write_lines(text.lines().map(str::to_owned));
    for problem in &known.problems {
        message!("longhaul: {problem}");
    }
    Ok(Exit::Success)
}

fn import(files: &[PathBuf], check: bool, json: bool) -> Result<Exit> {
    let mut map = Map::default();
    for file in files {
        add(&mut map, file)?;
    }
    for note in &map.notes {
        message!("longhaul: {note}");
    }
    let changed = match check {
        true => MapChanged {
            sites: map.sites.len(),
            depots: map.depots.len(),
            hosts: map.hosts.len(),
            links: map.links.len(),
        },
        false => ControlClient::local()?.ask("PUT", "/map", Some(&map))?,
    };
    if json {
        answer::write_line(serde_json::to_string(&changed)?);
    } else {
        let MapChanged {
            sites,
            depots,
            hosts,
            links,
        } = changed;
        answer::write_line(format!(
            "{sites} sites, {depots} depots, {hosts} hosts, {links} links"
        ));
    }
    Ok(Exit::Success)
}

/// Adds a file to the map, in the format that its name indicates. A handwritten file may name sites
/// of earlier files.
fn add(map: &mut Map, path: &Path) -> Result<()> {
    let text = text(path)?;
    let name = path.to_string_lossy().to_lowercase();
    let read = if name.ends_with(".toml") {
        return Ok(file::read_onto(map, &text, path)?);
    } else if name.ends_with(".graphml") || name.ends_with(".xml") {
        graphml::read(&text, path, &graphml::Assumptions::default())?
    } else if name.ends_with(".json") {
        json(&text, path)?
    } else {
        bail!(
            "{}: the name of a map must end in .toml, .graphml, .xml or .json",
            home::display_path(path)
        )
    };
    map.join(read)
        .with_context(|| home::display_path(path).to_string())
}

/// Parses ESnet's devices, whose adjacencies lie beside them, or the output of
/// `longhaul map --json`.
fn json(text: &str, path: &Path) -> Result<Map> {
    if let Ok(known) = serde_json::from_str::<KnownMap>(text) {
        return Ok(known.map);
    }
    let whole: Result<Map, _> = serde_json::from_str(text);
    let error = match whole {
        Ok(map) => return Ok(map),
        Err(error) => error,
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let Some(prefix) = name.strip_suffix("devices.json") else {
        bail!(
            "{}: neither a map as longhaul map --json prints it ({error}) nor ESnet's \
             ...devices.json",
            home::display_path(path)
        );
    };
    let beside = |kind: &str| path.with_file_name(format!("{prefix}{kind}.json"));
    let adjacencies = self::text(&beside("adjcies"))?;
    let positions = beside("positions");
    let positions = match positions.exists() {
        true => Some(self::text(&positions)?),
        false => None,
    };
    Ok(esnet::read(&esnet::TopologyFiles {
        devices: text,
        adjacencies: &adjacencies,
        positions: positions.as_deref(),
    })?)
}

fn text(path: &Path) -> Result<String> {
    let read = || -> std::io::Result<Option<String>> {
        let file = std::fs::File::open(path)?;
        let mut text = String::new();
        std::io::Read::read_to_string(
            &mut std::io::Read::take(file, MAX_FILE_BYTES + 1),
            &mut text,
        )?;
        Ok(Some(text).filter(|text| text.len() as u64 <= MAX_FILE_BYTES))
    };
    let text =
        read().with_context(|| format!("cannot read the map {}", home::display_path(path)))?;
    text.with_context(|| {
        format!(
            "{}: more than {} MiB: too large for a map",
            home::display_path(path),
            MAX_FILE_BYTES >> 20
        )
    })
}
