//! Asks places for checksums, in batches.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use longhaul_checksum::Algorithm;
use longhaul_remote::Error as RemoteError;
use longhaul_transfer::files::MAX_SUMMED_FILES;
use longhaul_transfer::files::message::{
    FilesFailure, FilesFailureKind, FilesRequest, FilesResponse, PathBytes, SumOutcome,
};
use rustix::io::Errno;

use crate::files::show::failure_of;
use crate::place::{Location, OpenPlaces, Place, PlaceOptions, PlacePath};

/// Maximum length of the paths in a question, in bytes.
const MAX_QUESTION_BYTES: usize = 16 << 10;

/// A file whose checksum is computed.
pub struct SummedPath {
    /// Name as it is printed.
    pub shown: Vec<u8>,
    /// Location of the file.
    pub spot: PlacePath,
}

impl SummedPath {
    /// Parses a path as it was typed. A local file that does not exist is a failure of its own.
    ///
    /// # Errors
    /// The text is not a path.
    pub fn parse(typed: &OsStr) -> Result<Result<Self, FilesFailure>> {
        let spot = PlacePath::parse(typed)?;
        let shown = typed.as_encoded_bytes().to_vec();
        Ok(match spot.location {
            Location::Here(path) => Self::local(&path, shown),
            _ => Ok(Self { shown, spot }),
        })
    }

    /// Creates a local path. Symbolic links are followed, as they are the user's own.
    pub fn local(path: &Path, shown: Vec<u8>) -> Result<Self, FilesFailure> {
        let real = path.canonicalize().map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            FilesFailure::from_errno(errno, &PathBytes(shown.clone()))
        })?;
        let below = real.strip_prefix("/").unwrap_or(&real);
        let spot = PlacePath {
            location: Location::Here(PathBuf::from("/")),
            path: PathBytes(below.as_os_str().as_bytes().to_vec()),
        };
        Ok(Self { shown, spot })
    }
}

/// Places that are asked. Each is opened when it is first needed.
pub struct SumPlaces<'a> {
    places: OpenPlaces<'a>,
}

impl<'a> SumPlaces<'a> {
    /// Creates it without an open place.
    pub fn new(options: &'a PlaceOptions) -> Self {
        Self {
            places: OpenPlaces::new(options),
        }
    }

    /// Computes the checksums of files that are all in one place, and passes each outcome to
    /// `each`, in order, until it returns false. Returns what it returned last.
    ///
    /// # Errors
    /// The place cannot be reached, or cannot compute checksums.
    pub async fn sum(
        &mut self,
        paths: &[SummedPath],
        algorithm: Algorithm,
        each: impl FnMut(&SummedPath, SumOutcome) -> bool,
    ) -> Result<bool> {
        self.ask(paths, algorithm, false, each).await
    }

    /// Computes BLAKE3 of files as [`Self::sum`] does, and of the parts of large ones.
    ///
    /// # Errors
    /// As [`Self::sum`].
    pub async fn sum_parts(
        &mut self,
        paths: &[SummedPath],
        each: impl FnMut(&SummedPath, SumOutcome) -> bool,
    ) -> Result<bool> {
        self.ask(paths, Algorithm::Blake3, true, each).await
    }

    async fn ask(
        &mut self,
        paths: &[SummedPath],
        algorithm: Algorithm,
        coarse: bool,
        mut each: impl FnMut(&SummedPath, SumOutcome) -> bool,
    ) -> Result<bool> {
        let (mut rest, mut most) = (paths, MAX_SUMMED_FILES);
        while let Some(first) = rest.first() {
            let batch = first_batch(rest, most);
            let ask = FilesRequest::Sum {
                paths: batch.iter().map(|path| path.spot.path.clone()).collect(),
                algorithm,
                coarse,
            };
            let location = &first.spot.location;
            let answer = self.place(location).await?.ask(ask).await;
            let sums = match answer.map_err(|error| explain(error, location))? {
                FilesResponse::Sums { sums } => sums,
                other => match failure_of(other)? {
                    Some(failure) if failure.kind == FilesFailureKind::NotUnderstood => {
                        bail!(earlier_release(location))
                    }
                    // The failure is of one of them, or of all together.
                    Some(_) if batch.len() > 1 => {
                        most = 1;
                        continue;
                    }
                    failure => failure.map(SumOutcome::Failed).into_iter().collect(),
                },
            };
            if sums.is_empty() || sums.len() > batch.len() {
                bail!(
                    "{}: the answer does not match the request; do both sides run the same \
                     release?",
                    name_of(location)
                );
            }
            let (answered, others) = rest.split_at(sums.len());
            for (path, outcome) in answered.iter().zip(sums) {
                if !each(path, outcome) {
                    return Ok(false);
                }
            }
            rest = others;
        }
        Ok(true)
    }

    /// Returns the place at a location.
    ///
    /// # Errors
    /// The place cannot be reached.
    pub async fn place(&mut self, location: &Location) -> Result<&mut Place> {
        self.places.get(location).await
    }

    /// Closes all places.
    pub async fn end(&mut self) {
        self.places.end().await;
    }
}

/// Returns as many of the paths as fit into a question, at most `most` and at least one.
fn first_batch(paths: &[SummedPath], most: usize) -> &[SummedPath] {
    let mut bytes = 0;
    let fits = |path: &&SummedPath| {
        bytes += path.spot.path.0.len();
        bytes <= MAX_QUESTION_BYTES
    };
    let count = paths.iter().take(most).take_while(fits).count();
    paths.get(..count.max(1)).unwrap_or(paths)
}

/// Adds to an error that an ssh host of an earlier release lacks the command.
fn explain(error: anyhow::Error, location: &Location) -> anyhow::Error {
    match error.downcast_ref::<RemoteError>() {
        Some(RemoteError::Refused { .. }) => error.context(earlier_release(location)),
        _ => error,
    }
}

fn earlier_release(location: &Location) -> String {
    format!(
        "{} is of an earlier release and cannot compute checksums: upgrade longhaul there",
        name_of(location)
    )
}

fn name_of(location: &Location) -> String {
    match location {
        Location::Server(server) => format!("lh://{server}"),
        Location::Login(host) => host.clone(),
        Location::Store(store) => store.place(),
        Location::Sftp(host) => host.shown_host().to_owned(),
        Location::Here(_) => "this machine".to_owned(),
    }
}
