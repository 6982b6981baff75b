//! `longhaul find`: paths below a directory, selected by the filters of `cp`.

use std::ffi::OsString;
use std::io::IsTerminal;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use longhaul_copy_api::FilterOptions;
use longhaul_filter::IgnoreRules;
use longhaul_output::print_bytes;
use longhaul_proto::text::printable;
use longhaul_sync::{Node, NodeKind};
use longhaul_transfer::files::message::{
    EntryKind, FilesFailure, FilesFailureKind, ListingEntry, PathBytes,
};

use super::Failures;
use super::show::EntryFormat;
use crate::cp::selection;
use crate::exit::Exit;
use crate::place::{Place, PlaceOptions};
use crate::{answer, logging, tree};

/// List what is below a directory, here, at user@host:path or lh://host/path.
///
/// Directories in stores, such as s3://bucket/key, are listed, too.
///
/// Paths are relative to the directory, as `cp --files-from` reads them. Without --type,
/// directories are not listed: in a list, a directory stands for all it holds.
#[derive(Args)]
// -0 is for the output.
#[command(
    mut_arg("from0", |arg| arg.short(None::<char>)),
    mut_arg("one_file_system", |arg| arg.hide(true)),
)]
pub struct Find {
    /// Directory: a local path, user@host:path or lh://host[:port]/path.
    #[arg(default_value = ".")]
    path: OsString,
    /// Only files (f), directories (d) or symbolic links (l). Repeatable. [default: all but
    /// directories]
    #[arg(
        long = "type",
        value_name = "f|d|l",
        value_enum,
        value_delimiter = ',',
        hide_possible_values = true
    )]
    kinds: Vec<FoundKind>,
    /// End paths with NUL, as find -print0 does.
    #[arg(short = '0', long = "print0", conflicts_with = "json")]
    nul: bool,
    /// Print each entry as one line of JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    filter: FilterOptions,
    #[command(flatten)]
    place: PlaceOptions,
}

/// Kind of entries that are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FoundKind {
    #[value(name = "f")]
    File,
    #[value(name = "d")]
    Directory,
    #[value(name = "l")]
    Symlink,
}

impl Find {
    /// Lists the paths.
    pub fn run(self) -> Result<Exit> {
        logging::start("error");
        if self.filter.one_file_system {
            bail!("--one-file-system is for cp: a listing does not say what is mounted");
        }
        let filter = selection::filter(&self.filter)?;
        let root = tree::parse_listed(&self.path)?;
        let runtime = crate::runtime::start()?;
        runtime.block_on(async {
            let mut failures = Failures::new(self.json);
            let mut place = Place::open(&root.location, &self.place).await?;
            let none = IgnoreRules::default();
            let mut listing = tree::list(&mut place, &root.path, &filter, &none).await?;
            place.end().await;
            let top = listing.tree.remove(&b""[..]);
            let fault = match top {
                None if listing.failures.is_empty() => Some(FilesFailureKind::NotFound),
                Some(top) if top.kind != NodeKind::Directory => {
                    Some(FilesFailureKind::NotADirectory)
                }
                _ => None,
            };
            if let Some(kind) = fault {
                failures.report(&root.location, &FilesFailure::new(kind, &root.path));
            }
            for failure in &listing.failures {
                failures.report(&root.location, failure);
            }
            let found = listing.tree.iter();
            let found = found.filter(|(_, node)| node.is_taken && self.lists(node.kind));
            match self.json {
                true => answer::write_lines(found.map(|(path, node)| json_line(path, node))),
                false => {
                    let is_terminal = std::io::stdout().is_terminal();
                    let lines = found.flat_map(|(path, _)| self.line(path, is_terminal));
                    print_bytes(&lines.collect::<Vec<u8>>())
                }
            };
            Ok(failures.exit())
        })
    }

    fn lists(&self, kind: NodeKind) -> bool {
        match kind {
            _ if self.kinds.is_empty() => kind != NodeKind::Directory,
            NodeKind::File => self.kinds.contains(&FoundKind::File),
            NodeKind::Directory => self.kinds.contains(&FoundKind::Directory),
            NodeKind::Symlink => self.kinds.contains(&FoundKind::Symlink),
            NodeKind::Other => false,
        }
    }

    /// Formats a path. Names of another machine must not steer a terminal.
    fn line(&self, path: &[u8], is_terminal: bool) -> Vec<u8> {
        let mut line = match is_terminal && !self.nul {
            true => printable(path).into_bytes(),
            false => path.to_vec(),
        };
        line.push(if self.nul { 0 } else { b'\n' });
        line
    }
}

fn json_line(path: &[u8], node: &Node) -> String {
    let entry = ListingEntry {
        name: PathBytes(path.to_vec()),
        kind: match node.kind {
            NodeKind::File => EntryKind::File,
            NodeKind::Directory => EntryKind::Directory,
            NodeKind::Symlink => EntryKind::Symlink,
            NodeKind::Other => EntryKind::Other,
        },
        size: node.bytes,
        mode: node.mode,
        modified: node.modified.seconds,
        nanoseconds: node.modified.nanoseconds,
        target: node.target.clone().map(PathBytes),
    };
    let format = EntryFormat {
        json: true,
        long: false,
        all: true,
    };
    format.line(&entry)
}
