//! `longhaul cp --dry-run`: compares source and destination, and changes nothing.

use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use anyhow::{Result, bail};
use longhaul_filter::{Filter, IgnoreRules};
use longhaul_remote::Login;
use longhaul_sync::{NodeKind, Plan, PlanOptions, Tree};
use longhaul_transfer::files::message::{FilesFailure, FilesFailureKind, PathBytes};
use longhaul_transfer::typed_path::{names_directory, source_name};

use super::{Cp, selection};
use crate::exit::Exit;
use crate::files::Failures;
use crate::place::{Place, PlaceOptions, PlacePath};
use crate::plan_report;
use crate::target::Target;
use crate::tree::{self, Listing, path_below, store_times};

/// Compares, and reports what a copy would do.
pub async fn run(cp: &Cp) -> Result<Exit> {
    let Some((destination, sources)) = cp.paths.split_last() else {
        bail!("name what to copy and where to")
    };
    let filter = cp.filter()?;
    let names_only = selection::for_names(&filter)?;
    let places = PlaceOptions::for_copy(&cp.options);
    let target_path = tree::parse_listed(destination)?;
    let mut target = Place::open(&target_path.location, &places).await?;
    let mut comparison = Comparison {
        cp,
        places,
        filter,
        names_only,
        failures: Failures::new(cp.run_options.json),
        source: Tree::new(),
        target: Tree::new(),
    };
    let is_directory = comparison.is_directory(&mut target, &target_path).await?;
    let is_into = is_directory || sources.len() > 1 || ends_in_directory(destination);
    for source in sources {
        let name = if is_into {
            name_of(source)?
        } else {
            Vec::new()
        };
        comparison
            .add(source, &name, &mut target, &target_path.path)
            .await?;
    }
    target.end().await;
    let plan = Plan::new(&comparison.source, &comparison.target, plan_options(cp));
    plan_report::report(&plan, cp.run_options.json);
    Ok(comparison.failures.exit())
}

/// Returns what the options of a copy permit.
pub fn plan_options(cp: &Cp) -> PlanOptions {
    let options = &cp.options;
    PlanOptions {
        overwrite: options.replaces(),
        update: options.update,
        existing: options.existing,
        ignore_existing: options.ignore_existing,
        checksum: options.checksum,
        delete: false,
    }
}

struct Comparison<'a> {
    cp: &'a Cp,
    places: PlaceOptions,
    filter: Arc<Filter>,
    /// Filter of the destination, which hides nothing for its size or time.
    names_only: Filter,
    failures: Failures,
    source: Tree,
    target: Tree,
}

impl Comparison<'_> {
    async fn is_directory(&self, place: &mut Place, path: &PlacePath) -> Result<bool> {
        let kind = tree::kind(place, &path.path).await?;
        Ok(kind == Some(NodeKind::Directory))
    }

    /// Lists a source, and what is where it goes.
    async fn add(
        &mut self,
        source: &OsStr,
        name: &[u8],
        target: &mut Place,
        root: &PathBytes,
    ) -> Result<()> {
        let none = IgnoreRules::default();
        let path = tree::parse_listed(source)?;
        let mut place = Place::open(&path.location, &self.places).await?;
        let mut listing = tree::list(&mut place, &path.path, &self.filter, &none).await?;
        let below = path_below(root, name);
        let mut there = tree::list(target, &below, &self.names_only, &none).await?;
        if matches!(target, Place::Store(_)) {
            store_times::adopt_source(&listing.tree, &mut there.tree);
        } else if matches!(place, Place::Store(_)) {
            let (own, there) = (&mut listing.tree, &there.tree);
            store_times::read_times(&mut place, &path.path, own, there).await?;
        }
        place.end().await;
        if listing.tree.is_empty() && listing.failures.is_empty() {
            listing
                .failures
                .push(FilesFailure::new(FilesFailureKind::NotFound, &path.path));
        }
        let kind = listing.tree.get(&b""[..]).map(|node| node.kind);
        if kind == Some(NodeKind::Directory) && !self.cp.options.recursive {
            listing.tree.clear();
            listing.failures.push(FilesFailure::with_detail(
                FilesFailureKind::IsDirectory,
                &path.path,
                "give -r to copy it with all it holds",
            ));
        }
        for failure in &listing.failures {
            self.failures.report(&path.location, failure);
        }
        merge(&mut self.source, name, listing);
        merge(&mut self.target, name, there);
        Ok(())
    }
}

fn merge(tree: &mut Tree, name: &[u8], listing: Listing) {
    tree.extend(listing.tree.into_iter().map(|(path, node)| {
        let path = match (name.is_empty(), path.is_empty()) {
            (true, _) => path,
            (false, true) => name.to_vec(),
            (false, false) => [name, b"/", &path].concat(),
        };
        (path, node)
    }));
}

/// Returns the name of a source in a destination directory. Empty if its content goes there.
fn name_of(source: &OsString) -> Result<Vec<u8>> {
    Ok(match Target::parse(source)? {
        Target::Local(path) => source_name(path.as_os_str().as_encoded_bytes()).to_vec(),
        Target::Remote(remote) => remote.name(),
        Target::Login(login) => Login::name(&login),
        Target::Sftp(path) => path.name(),
        Target::Endpoint(path) => path.name(),
    })
}

fn ends_in_directory(destination: &OsStr) -> bool {
    match Target::parse(destination) {
        Ok(Target::Remote(remote)) => remote.is_directory,
        Ok(Target::Login(login)) => login.is_directory(),
        Ok(Target::Sftp(path)) => path.is_directory(),
        Ok(Target::Endpoint(path)) => path.is_directory(),
        _ => names_directory(destination.as_encoded_bytes()),
    }
}
