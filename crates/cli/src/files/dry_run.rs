//! `mkdir`, `mv` and `rm` with `--dry-run`: looks at what they would change.

use std::ffi::OsString;

use anyhow::Result;
use longhaul_filter::{Filter, FilterRules, IgnoreRules};
use longhaul_sync::{Change, NodeKind, Plan, Step, Tree};
use longhaul_transfer::files::message::{FilesFailure, FilesFailureKind, PathBytes};
use parking_lot::Mutex;

use super::for_each_path;
use super::show::join;
use crate::exit::Exit;
use crate::place::{Place, PlaceOptions, PlacePath};
use crate::{plan_report, tree};

/// Reports what `rm` would remove.
pub fn remove(
    paths: &[OsString],
    recursive: bool,
    json: bool,
    options: &PlaceOptions,
) -> Result<Exit> {
    report(paths, json, options, async |place, spot| {
        let everything = Filter::new(FilterRules::default())?;
        let listing = tree::list(place, &spot.path, &everything, &IgnoreRules::default()).await?;
        let failure = listing.failures.into_iter().next();
        let Some(root) = listing.tree.get(&b""[..]) else {
            return Ok(Err(failure.unwrap_or_else(|| missing(spot))));
        };
        if root.kind == NodeKind::Directory && !recursive {
            let kind = FilesFailureKind::IsDirectory;
            return Ok(Err(FilesFailure::new(kind, &spot.path)));
        }
        Ok(Ok(step(spot, Change::Remove, root.kind, &listing.tree)))
    })
}

/// Reports what `mkdir` would make.
pub fn make(paths: &[OsString], parents: bool, json: bool, options: &PlaceOptions) -> Result<Exit> {
    report(paths, json, options, async |place, spot| {
        let exists = tree::kind(place, &spot.path).await?.is_some();
        if exists && !parents {
            let kind = FilesFailureKind::Exists;
            return Ok(Err(FilesFailure::new(kind, &spot.path)));
        }
        let change = if exists {
            Change::Adjust
        } else {
            Change::Create
        };
        Ok(Ok(step(spot, change, NodeKind::Directory, &Tree::new())))
    })
}

/// Reports what `mv` would rename, or replace.
pub fn rename(
    from: &OsString,
    to: &PathBytes,
    overwrite: bool,
    json: bool,
    options: &PlaceOptions,
) -> Result<Exit> {
    report(
        std::slice::from_ref(from),
        json,
        options,
        async |place, spot| {
            let Some(kind) = tree::kind(place, &spot.path).await? else {
                return Ok(Err(missing(spot)));
            };
            let name = spot
                .path
                .0
                .rsplit(|&byte| byte == b'/')
                .next()
                .unwrap_or_default();
            let mut path = to.clone();
            if tree::kind(place, to).await? == Some(NodeKind::Directory) {
                path = join(to, name);
            }
            let there = tree::kind(place, &path).await?;
            let may_replace = overwrite && there != Some(NodeKind::Directory);
            if there.is_some() && !may_replace {
                return Ok(Err(FilesFailure::new(FilesFailureKind::Exists, &path)));
            }
            let change = if there.is_some() {
                Change::Replace
            } else {
                Change::Create
            };
            let spot = PlacePath {
                path,
                ..spot.clone()
            };
            Ok(Ok(step(&spot, change, kind, &Tree::new())))
        },
    )
}

/// Collects the step for each path, and reports them.
fn report(
    paths: &[OsString],
    json: bool,
    options: &PlaceOptions,
    each: impl AsyncFn(&mut Place, &PlacePath) -> Result<Result<Step, FilesFailure>>,
) -> Result<Exit> {
    let plan = Mutex::new(Plan::default());
    let exit = for_each_path(paths, json, options, async |place, spot| {
        Ok(match each(place, spot).await? {
            Ok(step) => {
                let mut plan = plan.lock();
                match step.change {
                    Change::Remove => plan.removals.push(step),
                    // It exists already.
                    Change::Adjust => plan.skipped += 1,
                    _ => plan.copies.push(step),
                }
                None
            }
            Err(failure) => Some(failure),
        })
    })?;
    plan_report::report(&plan.into_inner(), json);
    Ok(exit)
}

fn missing(spot: &PlacePath) -> FilesFailure {
    FilesFailure::new(FilesFailureKind::NotFound, &spot.path)
}

/// Returns the step for one path, with everything below it.
fn step(spot: &PlacePath, change: Change, kind: NodeKind, tree: &Tree) -> Step {
    Step {
        path: spot.path.0.clone(),
        change,
        kind,
        bytes: tree.values().map(|node| node.bytes).sum(),
        entries: (tree.len() as u64).max(1),
    }
}
