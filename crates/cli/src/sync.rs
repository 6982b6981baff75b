//! `longhaul sync`: makes a directory equal to another one.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Result, bail};
use clap::Args;
use longhaul_copy_api::CopyOptions;
use longhaul_filter::{Filter, IgnoreRules, NameRule};
use longhaul_output::message;
use longhaul_sync::{
    NodeKind, Plan, PlanOptions, RemovalGuard, RemovalRefusal, Rename, RenameCandidates,
    SourceState, Step, Tree,
};
use longhaul_transfer::files::message::FilesFailure;
use quantities::ByteCount;

use crate::cp::{Cp, CpForSync, RunOptions};
use crate::exit::Exit;
use crate::files::Failures;
use crate::place::{Location, Place, PlaceOptions, PlacePath};
use crate::tree::{self, Listing, store_times};
use crate::{descriptors, logging, overlap, plan_report};

mod batches;
mod removal;
mod renames;
mod spellings;

use removal::{Removal, Trash};
use spellings::OtherSpellings;

/// Make a directory equal to another one: copy what is new or differs, and with --delete remove
/// what the source does not have.
///
/// Each path is local, user@host:path, lh://host[:port]/path, sftp://host[:port]/path, or in a
/// store, such as s3://bucket/key; the content of SRC goes into DST.
/// Files of equal size and modification time are not read; --checksum compares their content.
///
/// Nothing is removed before all is copied, after any error, if the source is empty (its disk may
/// not be mounted), or if there is more than --max-delete allows. What a filter leaves out is not
/// removed either. With --delete, files that were renamed in SRC are renamed in DST.
#[derive(Args)]
#[command(override_usage = "longhaul sync [OPTIONS] <SRC> <DST>")]
pub struct SyncCommand {
    /// The directory to copy.
    source: OsString,
    /// The directory that becomes equal to it. It is created if it does not exist.
    destination: OsString,
    #[command(flatten)]
    options: CopyOptions,
    /// Remove from the destination what the source does not have.
    #[arg(help_heading = "Removal", long)]
    delete: bool,
    /// Change nothing if more files and directories than this would be removed.
    #[arg(help_heading = "Removal", long, value_name = "N", requires = "delete")]
    max_delete: Option<u64>,
    /// Move what is removed into this directory below the destination, under the time of the run.
    #[arg(
        help_heading = "Removal",
        long,
        value_name = "DIR",
        requires = "delete"
    )]
    trash: Option<PathBuf>,
    /// Remove everything if the source is empty.
    #[arg(help_heading = "Removal", long, requires = "delete")]
    force: bool,
    #[command(flatten)]
    run_options: RunOptions,
    /// List what would be copied, replaced or removed, and change nothing.
    #[arg(help_heading = "Output", short = 'n', long)]
    dry_run: bool,
}

/// Both ends, as they are compared.
struct Ends {
    source: PlacePath,
    destination: PlacePath,
    options: PlaceOptions,
    /// Filter of the source.
    filter: std::sync::Arc<Filter>,
    /// Filter of the destination: of names alone, and without the trash.
    target_filter: Filter,
}

impl SyncCommand {
    /// Synchronises. `started` is the time at which the command began.
    pub fn run(self, started: Instant) -> Result<Exit> {
        logging::start("error");
        descriptors::raise();
        self.check()?;
        let cp = self.copy_command()?;
        cp.check()?;
        let runtime = crate::runtime::start()?;
        let exit = runtime.block_on(self.synchronise(&cp, started));
        runtime.shutdown_timeout(crate::cp::CLEANUP_TIMEOUT);
        exit
    }

    fn check(&self) -> Result<()> {
        let listed = self.options.filter.files_from.as_deref();
        if listed.is_some() && self.delete {
            bail!("--delete compares whole trees: leave out --files-from");
        }
        if listed == Some(Path::new("-")) {
            bail!("--files-from -: sync reads the list twice: write it to a file");
        }
        if self.options.filter.one_file_system && self.delete {
            bail!(
                "--delete cannot see what is mounted at the other end: leave out \
                 --one-file-system, and exclude what is mounted"
            );
        }
        if self.trash.is_some() && self.options.inplace {
            bail!("--inplace keeps no earlier content, and --trash does: give one of them");
        }
        match &self.trash {
            Some(trash) if !tree::is_plain(trash) => bail!(
                "--trash {}: name a directory below the destination",
                crate::home::display_path(trash)
            ),
            _ => Ok(()),
        }
    }

    /// Returns the copy that does the copying.
    fn copy_command(&self) -> Result<Cp> {
        let options = CopyOptions {
            recursive: true,
            // Without a restriction, what differs is replaced.
            overwrite: !self.options.ignore_existing,
            ..self.options.clone()
        };
        Ok(Cp::for_sync(CpForSync {
            source: with_end(&self.source, b"."),
            destination: with_end(&self.destination, b""),
            options,
            run_options: self.run_options,
        }))
    }

    async fn synchronise(&self, cp: &Cp, started: Instant) -> Result<Exit> {
        let options = PlaceOptions::for_copy(&self.options);
        let ends = [&self.source, &self.destination].map(|end| tree::parse_listed(end));
        if let [Ok(source), Ok(destination)] = &ends {
            overlap::refuse(source, destination, &options).await?;
        }
        if !self.delete && !self.dry_run {
            return cp.copy_now(started).await;
        }
        let ends = self.ends(cp)?;
        let mut failures = Failures::new(self.run_options.json);
        let mut source = ends.list_source(&mut failures).await?;
        let mut target = ends.list_target(&source.ignored, &mut failures).await?;
        if self.dry_run {
            ends.adopt_times(&mut source.tree, &mut target.tree).await?;
        }
        let options = self.plan_options(cp);
        let renames = self.find_renames(&ends, &source, &target, options).await;
        for rename in &renames {
            rename.apply(&mut target.tree);
        }
        let plan = Plan {
            renames,
            ..Plan::new(&source.tree, &target.tree, options)
        };
        let guard = self.guard();
        let entries = plan.removed().map(|step| step.entries).sum();
        let verdict = guard.check(state(&source), entries);
        if self.dry_run {
            plan_report::report(&plan, self.run_options.json);
            return Ok(match verdict {
                Ok(()) => failures.exit(),
                Err(refusal) => refuse(refusal),
            });
        }
        match verdict {
            Ok(()) | Err(RemovalRefusal::SourceFailed { .. }) => {}
            Err(refusal) => return Ok(refuse(refusal)),
        }
        if verdict.is_ok() && !plan.obstacles.is_empty() {
            let removal = self.remove(&ends, &plan.obstacles, &mut failures).await?;
            if removal.failed > 0 {
                return Ok(failures.exit());
            }
        }
        self.rename(&ends, &plan.renames, &mut target.tree).await?;
        let exit = cp.copy_now(started).await?;
        if exit != Exit::Success || verdict.is_err() {
            message!(
                "longhaul: nothing was removed at the destination, as not everything was copied"
            );
            return Ok(if exit == Exit::Success {
                failures.exit()
            } else {
                exit
            });
        }
        self.finish(&ends, &target.tree, cp, &mut failures).await
    }

    /// Finds files that were renamed in the source. If that cannot be known, there are none, and
    /// they are copied again.
    async fn find_renames(
        &self,
        ends: &Ends,
        source: &Listing,
        target: &Listing,
        options: PlanOptions,
    ) -> Vec<Rename> {
        let can_hash = [&ends.source, &ends.destination].map(|end| has_longhaul(&end.location));
        // What could not be listed may have the old name.
        if !options.permits_renames() || !source.failures.is_empty() || can_hash != [true; 2] {
            return Vec::new();
        }
        let candidates = RenameCandidates::new(&source.tree, &target.tree);
        if candidates.is_empty() {
            return Vec::new();
        }
        if !self.run_options.json && !self.run_options.quiet {
            let bytes = ByteCount(candidates.bytes());
            message!("longhaul: comparing files that may have been renamed ({bytes})");
        }
        let (source, destination) = (&ends.source, &ends.destination);
        match renames::find(source, destination, &ends.options, &candidates).await {
            Ok(renames) => renames,
            Err(error) => {
                message!("longhaul: renamed files are copied again: {error:#}");
                Vec::new()
            }
        }
    }

    /// Renames files at the destination. Those that cannot be renamed get their old names in
    /// `target` again.
    async fn rename(&self, ends: &Ends, renames: &[Rename], target: &mut Tree) -> Result<()> {
        if renames.is_empty() {
            return Ok(());
        }
        let as_json = self.run_options.json;
        let mut place = Place::open(&ends.destination.location, &ends.options).await?;
        let root = &ends.destination.path;
        let renamed = renames::carry_out(&mut place, root, renames, as_json).await?;
        place.end().await;
        for rename in &renamed.refused {
            rename.revert(target);
        }
        renamed.report(as_json, self.run_options.quiet);
        Ok(())
    }

    /// Removes what the source does not have, once all is copied.
    async fn finish(
        &self,
        ends: &Ends,
        target: &Tree,
        cp: &Cp,
        failures: &mut Failures,
    ) -> Result<Exit> {
        // What appeared in the source meanwhile stays.
        let source = ends.list_source(failures).await?;
        let plan = Plan::new(&source.tree, target, self.plan_options(cp));
        let entries = plan.removals.iter().map(|step| step.entries).sum();
        if let Err(refusal) = self.guard().check(state(&source), entries) {
            return Ok(refuse(refusal));
        }
        let mut removals = plan.removals;
        let others = OtherSpellings::new(&source.tree, &removals);
        if !others.is_empty() {
            let target = ends.list_target(&source.ignored, failures).await?;
            removals.retain(|step| others.is_distinct(step, &target.tree));
        }
        let removal = self.remove(ends, &removals, failures).await?;
        removal.report(self.run_options.json, self.run_options.quiet);
        Ok(failures.exit())
    }

    async fn remove(
        &self,
        ends: &Ends,
        steps: &[Step],
        failures: &mut Failures,
    ) -> Result<Removal> {
        if steps.is_empty() {
            return Ok(Removal::default());
        }
        let mut place = Place::open(&ends.destination.location, &ends.options).await?;
        let trash = self.trash.as_deref().map(Trash::new);
        let report = |failure: &FilesFailure| failures.report(&ends.destination.location, failure);
        let removal = removal::carry_out(
            &mut place,
            &ends.destination.path,
            steps,
            trash,
            self.run_options.json,
            report,
        );
        let removal = removal.await?;
        place.end().await;
        Ok(removal)
    }

    fn plan_options(&self, cp: &Cp) -> PlanOptions {
        PlanOptions {
            delete: self.delete,
            ..cp.plan_options()
        }
    }

    fn guard(&self) -> RemovalGuard {
        RemovalGuard {
            max_removals: self.max_delete,
            permits_empty_source: self.force,
        }
    }

    fn ends(&self, cp: &Cp) -> Result<Ends> {
        let filter = cp.filter()?;
        let mut rules = filter.rules().for_names();
        if let Some(top) = self
            .trash
            .as_deref()
            .and_then(|trash| trash.components().next())
        {
            let pattern = Trash::pattern(top.as_os_str());
            rules.names.insert(0, NameRule::exclude(pattern));
        }
        let source = tree::parse_listed(&self.source)?;
        let destination = tree::parse_listed(&self.destination)?;
        if self.trash.is_some() && !has_longhaul(&destination.location) {
            bail!(
                "--trash is not possible at {destination}: leave it out, or keep old versions \
                 there by a setting of the store"
            );
        }
        Ok(Ends {
            source,
            destination,
            options: PlaceOptions::for_copy(&self.options),
            filter,
            target_filter: Filter::new(rules)?,
        })
    }
}

impl Ends {
    async fn list_source(&self, failures: &mut Failures) -> Result<Listing> {
        let none = IgnoreRules::default();
        let listing = list(&self.source, &self.filter, &none, &self.options, failures).await?;
        match listing.tree.get(&b""[..]).map(|node| node.kind) {
            Some(NodeKind::Directory) => Ok(listing),
            None if !listing.failures.is_empty() => Ok(listing),
            None => bail!("{}: no such directory", self.source),
            Some(_) => bail!(
                "{} is not a directory: copy it with longhaul cp",
                self.source
            ),
        }
    }

    /// Gives entries of stores the times that a copy compares, which their listings lack.
    async fn adopt_times(&self, source: &mut Tree, target: &mut Tree) -> Result<()> {
        if matches!(self.destination.location, Location::Store(_)) {
            store_times::adopt_source(source, target);
        } else if matches!(self.source.location, Location::Store(_)) {
            let mut place = Place::open(&self.source.location, &self.options).await?;
            store_times::read_times(&mut place, &self.source.path, source, target).await?;
            place.end().await;
        }
        Ok(())
    }

    /// Lists the destination. What the source ignores stays there.
    async fn list_target(&self, ignored: &IgnoreRules, failures: &mut Failures) -> Result<Listing> {
        // A local directory is created in one that exists.
        if let Location::Here(directory) = &self.destination.location
            && !directory.exists()
        {
            bail!(
                "{}: no such directory",
                crate::home::display_path(directory)
            );
        }
        list(
            &self.destination,
            &self.target_filter,
            ignored,
            &self.options,
            failures,
        )
        .await
    }
}

/// Returns true if Longhaul runs there, which computes hashes and renames files.
fn has_longhaul(location: &Location) -> bool {
    !matches!(location, Location::Store(_) | Location::Sftp(_))
}

async fn list(
    path: &PlacePath,
    filter: &Filter,
    ignored: &IgnoreRules,
    options: &PlaceOptions,
    failures: &mut Failures,
) -> Result<Listing> {
    let mut place = Place::open(&path.location, options).await?;
    let listing = tree::list(&mut place, &path.path, filter, ignored).await?;
    place.end().await;
    for failure in &listing.failures {
        failures.report(&path.location, failure);
    }
    Ok(listing)
}

fn state(source: &Listing) -> SourceState {
    SourceState {
        // The root does not count.
        entries: source.tree.len().saturating_sub(1) as u64,
        failures: source.failures.len() as u64,
    }
}

/// Reports why nothing is removed.
fn refuse(refusal: RemovalRefusal) -> Exit {
    message!("longhaul: {}", refusal_line(refusal));
    Exit::SomeFailed
}

fn refusal_line(refusal: RemovalRefusal) -> String {
    match refusal {
        RemovalRefusal::EmptySource => "the source is empty, so nothing is copied or removed: \
                                        mount it, or give --force to empty the destination"
            .to_owned(),
        RemovalRefusal::SourceFailed { failures } => format!(
            "{failures} entries of the source cannot be read, so nothing would be removed: \
             make them readable, or exclude them"
        ),
        RemovalRefusal::TooMany { entries, max } => format!(
            "{entries} files and directories would be removed, and --max-delete allows {max}: \
             nothing was changed; look at them with --dry-run"
        ),
    }
}

/// Appends a slash, unless the path ends in one or in the colon of a host, and a name.
fn with_end(path: &OsStr, name: &[u8]) -> OsString {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let bytes = path.as_bytes();
    let slash: &[u8] = match bytes.last() {
        Some(b'/' | b':') => b"",
        _ => b"/",
    };
    OsString::from_vec([bytes, slash, name].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_of_the_source_is_meant() {
        for (path, content) in [
            ("a", "a/."),
            ("a/", "a/."),
            ("h:", "h:."),
            ("h:a", "h:a/."),
            ("lh://h", "lh://h/."),
        ] {
            assert_eq!(with_end(path.as_ref(), b"."), content);
        }
        assert_eq!(with_end("h:".as_ref(), b""), "h:");
        assert_eq!(with_end("a".as_ref(), b""), "a/");
    }

    #[test]
    fn refusals_are_one_line() {
        for refusal in [
            RemovalRefusal::EmptySource,
            RemovalRefusal::SourceFailed { failures: 2 },
            RemovalRefusal::TooMany { entries: 3, max: 2 },
        ] {
            assert!(!refusal_line(refusal).contains('\n'));
        }
    }
}
