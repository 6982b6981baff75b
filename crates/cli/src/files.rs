//! `longhaul ls`, `stat`, `mkdir`, `mv` and `rm`: files of a server, of an ssh host or in a store,
//! for people and, with `--json`, for programs. `du`, `find`, `cat` and `head` also take local
//! paths.

use std::ffi::OsString;

use anyhow::{Result, bail};
use clap::Args;
use longhaul_output::message;
use longhaul_transfer::files::message::{
    FilesFailure, FilesFailureKind, FilesRequest, FilesResponse, PathBytes,
};

use crate::exit::Exit;
use crate::place::{Location, Place, PlaceOptions, PlacePath};
use crate::{answer, logging};

pub mod cat;
pub mod content;
mod dry_run;
pub mod du;
pub mod find;
mod limit;
pub mod show;

use show::{EntryFormat, failure_of};

/// List files at user@host:path or lh://host/path.
///
/// Paths in stores, such as s3://bucket/key, are listed, too.
///
/// A directory is listed by its entries in the order of their names, except those that belong to
/// copies under way; anything else is listed itself.
#[derive(Args)]
pub struct Ls {
    /// Path to list: user@host:path or lh://host[:port]/path.
    #[arg(required = true)]
    path: Vec<OsString>,
    /// Show permissions, size and modification time (UTC).
    #[arg(short, long)]
    long: bool,
    /// Also list what copies have not finished (.longhaul-...).
    #[arg(short, long)]
    all: bool,
    /// Print each entry as one line of JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: PlaceOptions,
}

/// Describe what is at user@host:path or lh://host/path itself: a symbolic link is not followed, a
/// directory not listed. Paths in stores, such as s3://bucket/key, are described, too.
#[derive(Args)]
pub struct Stat {
    /// Path to describe: user@host:path or lh://host[:port]/path.
    #[arg(required = true)]
    path: Vec<OsString>,
    /// Print one JSON object per line for each.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: PlaceOptions,
}

/// Make directories at user@host:path or lh://host/path.
#[derive(Args)]
pub struct Mkdir {
    /// Directory to make: user@host:path or lh://host[:port]/path.
    #[arg(required = true)]
    path: Vec<OsString>,
    /// Make parent directories as well; an existing directory is no error.
    #[arg(short, long)]
    parents: bool,
    /// Print what would be made, and change nothing.
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Print one JSON object per line for each.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: PlaceOptions,
}

/// Rename a file at user@host:path or lh://host/path, or move it into another directory there.
#[derive(Args)]
pub struct Mv {
    /// The current name: user@host:path or lh://host[:port]/path.
    from: OsString,
    /// The new name, on the same host and in the same file system.
    to: OsString,
    /// Replace an existing file of that name.
    #[arg(long)]
    overwrite: bool,
    /// Print what would be renamed, and change nothing.
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Print JSON, one object per line.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: PlaceOptions,
}

/// Remove files at user@host:path or lh://host/path, or in a store, such as s3://bucket/key.
#[derive(Args)]
pub struct Rm {
    /// Path to remove: user@host:path or lh://host[:port]/path.
    #[arg(required = true)]
    path: Vec<OsString>,
    /// Remove directories with all they hold.
    #[arg(short, long)]
    recursive: bool,
    /// Print what would be removed, with its size, and change nothing.
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Print one JSON object per line for each.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: PlaceOptions,
}

impl Ls {
    /// Lists the files.
    pub fn run(self) -> Result<Exit> {
        let show = EntryFormat {
            json: self.json,
            long: self.long,
            all: self.all,
        };
        look(&self.path, true, show, &self.place)
    }
}

impl Stat {
    /// Describes the files.
    pub fn run(self) -> Result<Exit> {
        let show = EntryFormat {
            json: self.json,
            long: true,
            all: true,
        };
        look(&self.path, false, show, &self.place)
    }
}

impl Mkdir {
    /// Makes the directories.
    pub fn run(self) -> Result<Exit> {
        let parents = self.parents;
        if self.dry_run {
            return dry_run::make(&self.path, parents, self.json, &self.place);
        }
        change(&self.path, self.json, &self.place, |path| {
            FilesRequest::MakeDirectory { path, parents }
        })
    }
}

impl Rm {
    /// Removes the files.
    pub fn run(self) -> Result<Exit> {
        let recursive = self.recursive;
        if self.dry_run {
            return dry_run::remove(&self.path, recursive, self.json, &self.place);
        }
        change(&self.path, self.json, &self.place, |path| {
            FilesRequest::Remove {
                path,
                recursive,
                keep_time: false,
            }
        })
    }
}

impl Mv {
    /// Renames the file.
    pub fn run(self) -> Result<Exit> {
        let (from, to) = (
            PlacePath::parse_remote(&self.from)?,
            PlacePath::parse_remote(&self.to)?,
        );
        if from.location != to.location {
            bail!("{to} is on another host than {from}: copy it there with longhaul cp");
        }
        let overwrite = self.overwrite;
        if self.dry_run {
            return dry_run::rename(&self.from, &to.path, overwrite, self.json, &self.place);
        }
        change(&[self.from], self.json, &self.place, |from| {
            FilesRequest::Rename {
                from,
                to: to.path.clone(),
                overwrite,
                keep_time: false,
            }
        })
    }
}

fn look(paths: &[OsString], list: bool, show: EntryFormat, options: &PlaceOptions) -> Result<Exit> {
    for_each_path(paths, show.json, options, async |place, spot| {
        let mut after = None;
        loop {
            let ask = FilesRequest::Look {
                path: spot.path.clone(),
                list,
                after,
                limit: None,
            };
            let (entries, next) = match place.ask(ask).await? {
                FilesResponse::Entries { entries, next } => (entries, next),
                other => return failure_of(other),
            };
            // The entry itself, if it was named.
            let is_named = |name: &PathBytes| *name == spot.path;
            let shown = entries
                .iter()
                .filter(|entry| show.includes(entry) || is_named(&entry.name));
            if !answer::write_lines(shown.map(|entry| show.line(entry))) {
                return Ok(None);
            }
            after = next;
            if after.is_none() {
                return Ok(None);
            }
        }
    })
}

fn change(
    paths: &[OsString],
    json: bool,
    options: &PlaceOptions,
    ask: impl Fn(PathBytes) -> FilesRequest,
) -> Result<Exit> {
    for_each_path(paths, json, options, async |place, spot| {
        match place.ask(ask(spot.path.clone())).await? {
            FilesResponse::Changed => {
                if json {
                    answer::write_line(show::done(&spot.to_string()));
                }
                Ok(None)
            }
            other => failure_of(other),
        }
    })
}

/// Applies the operation to each path, regardless of earlier failures. The operation returns its
/// failure, if any.
fn for_each_path(
    paths: &[OsString],
    json: bool,
    options: &PlaceOptions,
    each: impl AsyncFn(&mut Place, &PlacePath) -> Result<Option<FilesFailure>>,
) -> Result<Exit> {
    logging::start("error");
    let spots = PlacePath::parse_all(paths)?;
    let runtime = crate::runtime::start()?;
    runtime.block_on(async {
        let mut failures = Failures::new(json);
        let Some(first) = spots.first() else {
            return Ok(Exit::Success);
        };
        let mut place = Place::open(&first.location, options).await?;
        for spot in &spots {
            if let Some(failure) = each(&mut place, spot).await? {
                failures.report(&spot.location, &failure);
            }
        }
        place.end().await;
        Ok(failures.exit())
    })
}

/// Failures so far.
pub struct Failures {
    json: bool,
    exit: Exit,
}

impl Failures {
    /// Creates it empty. With `json`, failures are also reported as JSON lines.
    pub const fn new(json: bool) -> Self {
        Self {
            json,
            exit: Exit::Success,
        }
    }

    /// Reports one failure.
    pub fn report(&mut self, location: &Location, failure: &FilesFailure) {
        message!("longhaul: {}", location.failed(failure));
        if self.json {
            answer::write_line(show::failed(location, failure));
        }
        let exit = match failure.kind {
            FilesFailureKind::NotGranted => Exit::Unauthorised,
            _ => Exit::SomeFailed,
        };
        self.exit = match self.exit {
            Exit::Success => exit,
            before if before == exit => exit,
            _ => Exit::SomeFailed,
        };
    }

    /// Returns the exit code for all of them.
    pub const fn exit(&self) -> Exit {
        self.exit
    }
}
