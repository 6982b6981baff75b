//! `longhaul leftovers`: reports and removes what abandoned copies left in a directory.

use std::ffi::OsString;

use anyhow::Result;
use clap::Args;
use longhaul_output::message;
use longhaul_transfer::files::message::{
    EntryKind, FilesRequest, FilesResponse, FoundLeftover, LeftoverOutcome, PathBytes,
};
use quantities::{ByteCount, Time};

use crate::exit::Exit;
use crate::files::Failures;
use crate::files::show::{self, failure_of, join};
use crate::place::{Place, PlaceOptions, PlacePath};
use crate::quantity::leftover_age;
use crate::{answer, logging};

/// Default age in seconds from which a leftover counts as old: 7 days.
const DEFAULT_AGE_SECONDS: u64 = 7 * 86_400;

/// List what unfinished copies left in a directory, and remove what nobody will resume.
///
/// A copy that ends early keeps what is there of large files under names beginning with .longhaul-,
/// and the same command resumes from it. If it is never typed again, they stay. Each is reported
/// with its size on disk, the time since it was written to, the file that it is for, and how much
/// of that is there. What a copy is writing is never removed, whatever its age.
#[derive(Args)]
pub struct Leftovers {
    /// The directory: local, user@host:path or lh://host[:port]/path.
    place: OsString,
    /// Also search the directories beneath it.
    #[arg(short, long)]
    recursive: bool,
    /// Remove leftovers older than --older-than.
    #[arg(long)]
    remove: bool,
    /// With --remove: the time since a leftover was last written to (12 h, 30 d; a bare number is
    /// days) [default: 7 d].
    #[arg(long, value_name = "TIME", value_parser = leftover_age, requires = "remove")]
    older_than: Option<Time>,
    /// Print one JSON object per line for each.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    options: PlaceOptions,
}

/// A directory whose leftovers have been reported, and the progress of the search in it.
struct SearchLevel {
    directory: PathBytes,
    after: Option<PathBytes>,
    /// Subdirectories found and not searched yet.
    beneath: Vec<PathBytes>,
    is_read: bool,
}

#[derive(Default)]
struct LeftoverCounts {
    found: u64,
    removed: u64,
    removed_bytes: u64,
    failed: u64,
}

impl Leftovers {
    /// Lists and removes leftovers.
    pub fn run(self) -> Result<Exit> {
        logging::start("error");
        let spot = PlacePath::parse(&self.place)?;
        let runtime = crate::runtime::start()?;
        runtime.block_on(async {
            let mut place = Place::open(&spot.location, &self.options).await?;
            let mut failures = Failures::new(self.json);
            let mut count = LeftoverCounts::default();
            self.walk(&mut place, &spot, &mut failures, &mut count)
                .await?;
            place.end().await;
            if count.found == 0 && !self.json && failures.exit() == Exit::Success {
                message!("longhaul: {spot}: no leftovers");
            } else if self.remove && !self.json {
                let freed = ByteCount(count.removed_bytes);
                let kept = count.found - count.removed;
                message!("longhaul: removed {} ({freed}), left {kept}", count.removed);
            }
            Ok(match failures.exit() {
                Exit::Success if count.failed > 0 => Exit::SomeFailed,
                exit => exit,
            })
        })
    }

    /// Searches depth first, one page of each directory at a time.
    async fn walk(
        &self,
        place: &mut Place,
        spot: &PlacePath,
        failures: &mut Failures,
        count: &mut LeftoverCounts,
    ) -> Result<()> {
        let mut levels = Vec::new();
        let mut next = Some(spot.path.clone());
        loop {
            if let Some(directory) = next.take() {
                self.report(place, spot, &directory, failures, count)
                    .await?;
                levels.push(SearchLevel {
                    directory,
                    after: None,
                    beneath: Vec::new(),
                    is_read: !self.recursive,
                });
            }
            let Some(level) = levels.last_mut() else {
                return Ok(());
            };
            if let Some(directory) = level.beneath.pop() {
                next = Some(directory);
            } else if level.is_read {
                levels.pop();
            } else {
                level.read(place, spot, failures).await?;
            }
        }
    }

    /// Reports the leftovers of one directory.
    async fn report(
        &self,
        place: &mut Place,
        spot: &PlacePath,
        directory: &PathBytes,
        failures: &mut Failures,
        count: &mut LeftoverCounts,
    ) -> Result<()> {
        let bound = self
            .older_than
            .map_or(DEFAULT_AGE_SECONDS, |time| time.0.as_secs());
        let mut after = None;
        loop {
            let ask = FilesRequest::Leftovers {
                path: directory.clone(),
                after,
                remove_older_than_seconds: self.remove.then_some(bound),
            };
            let (leftovers, next) = match place.ask(ask).await? {
                FilesResponse::Leftovers { leftovers, next } => (leftovers, next),
                other => {
                    if let Some(failure) = failure_of(other)? {
                        failures.report(&spot.location, &failure);
                    }
                    return Ok(());
                }
            };
            leftovers.iter().for_each(|leftover| count.add(leftover));
            let line = |leftover: &FoundLeftover| {
                show::leftover(leftover, &spot.location, directory, self.json)
            };
            answer::write_lines(leftovers.iter().map(line));
            after = next;
            if after.is_none() {
                return Ok(());
            }
        }
    }
}

impl SearchLevel {
    /// Reads the next page of subdirectories.
    async fn read(
        &mut self,
        place: &mut Place,
        spot: &PlacePath,
        failures: &mut Failures,
    ) -> Result<()> {
        let ask = FilesRequest::Look {
            path: self.directory.clone(),
            list: true,
            after: self.after.take(),
            limit: None,
        };
        match place.ask(ask).await? {
            FilesResponse::Entries { entries, next } => {
                let directories = entries
                    .iter()
                    .rev()
                    .filter(|entry| entry.kind == EntryKind::Directory);
                self.beneath = directories
                    .map(|entry| join(&self.directory, &entry.name.0))
                    .collect();
                self.is_read = next.is_none();
                self.after = next;
            }
            other => {
                if let Some(failure) = failure_of(other)? {
                    failures.report(&spot.location, &failure);
                }
                self.is_read = true;
            }
        }
        Ok(())
    }
}

impl LeftoverCounts {
    fn add(&mut self, leftover: &FoundLeftover) {
        self.found += 1;
        match leftover.outcome {
            LeftoverOutcome::Removed => {
                self.removed += 1;
                self.removed_bytes += leftover.disk_bytes;
            }
            LeftoverOutcome::Failed => self.failed += 1,
            LeftoverOutcome::Kept => {}
        }
    }
}
