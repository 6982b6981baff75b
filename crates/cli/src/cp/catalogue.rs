//! `cp --checksum-with`: checksums of a catalogue, with which the copied files must agree.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use longhaul_checksum::{Algorithm, Checksum};
use longhaul_transfer::files::message::SumOutcome;

use super::Cp;
use super::job::CopyJob;
use super::receipt::local_side;
use crate::copy_checks::CatalogueMismatch;
use crate::exit::Exit;
use crate::home;
use crate::place::PlaceOptions;
use crate::sum::check::{Check, CheckOutput};
use crate::sum::places::{SumPlaces, SummedPath};

/// Checksums that the files must have.
#[derive(Debug, Clone)]
pub enum Catalogue {
    /// Checksum of the one file.
    Value(Checksum),
    /// A list, whose names are below the one source.
    List {
        file: OsString,
        algorithm: Option<Algorithm>,
    },
}

impl Catalogue {
    /// Parses `ALGORITHM=HASH`, `ALGORITHM=LIST` or `LIST`.
    pub fn parse(text: &OsStr) -> Self {
        let bytes = text.as_bytes();
        let split = bytes.iter().position(|&byte| byte == b'=');
        let named = split.and_then(|at| {
            let (name, rest) = bytes.split_at_checked(at)?;
            let algorithm: Algorithm = std::str::from_utf8(name).ok()?.parse().ok()?;
            Some((algorithm, rest.get(1..)?))
        });
        match named {
            Some((algorithm, rest)) => match Checksum::from_hex(algorithm, rest) {
                Some(sum) => Self::Value(sum),
                None => Self::List {
                    file: OsStr::from_bytes(rest).to_owned(),
                    algorithm: Some(algorithm),
                },
            },
            None => Self::List {
                file: text.to_owned(),
                algorithm: None,
            },
        }
    }
}

/// Files that must agree with a catalogue.
pub struct CataloguedFiles {
    catalogue: Catalogue,
    /// The file or directory at this machine: the source, or its copy.
    file: PathBuf,
    /// True if it is a copy, so that it is compared after it was made.
    is_copy: bool,
}

impl Cp {
    /// Returns what must agree with a catalogue. Must be called before the copy, which may create
    /// the destination.
    ///
    /// # Errors
    /// There are several sources.
    pub(super) fn catalogued_files(&self, job: &CopyJob) -> Result<Option<CataloguedFiles>> {
        let Some(catalogue) = &self.checksum_with else {
            return Ok(None);
        };
        let (is_copy, mut files) = match job {
            CopyJob::Local { sources, .. } => (false, sources.clone()),
            _ => local_side(job).unwrap_or_default(),
        };
        match (files.pop(), files.is_empty()) {
            (Some(file), true) => Ok(Some(CataloguedFiles {
                catalogue: Catalogue::parse(catalogue),
                file,
                is_copy,
            })),
            _ => bail!("--checksum-with is for one source: copy each with its own catalogue"),
        }
    }
}

impl CataloguedFiles {
    /// Compares the files if it is time for them: sources before the copy, copies after it.
    pub(super) async fn check(&self, is_copied: bool, options: PlaceOptions) -> Result<()> {
        if self.is_copy != is_copied {
            return Ok(());
        }
        let file = &self.file;
        let is_equal = match &self.catalogue {
            Catalogue::Value(expected) => has_checksum(file, expected, &options).await?,
            Catalogue::List {
                file: list,
                algorithm,
            } => {
                // A list of a single file is about the files beside it.
                let base = match file.is_dir() {
                    true => file.clone(),
                    false => file.parent().map_or(PathBuf::from("."), Path::to_path_buf),
                };
                let base = match base.as_os_str().is_empty() {
                    true => PathBuf::from("."),
                    false => base,
                };
                // A path with a colon is not a host here.
                let base = std::path::absolute(base)?.into_os_string();
                let check = Check::new(Some(&base), *algorithm, CheckOutput::Messages)?;
                check.run(list, &options).await? == Exit::Success
            }
        };
        match (is_equal, self.is_copy) {
            (true, _) => Ok(()),
            (false, true) => Err(CatalogueMismatch::Copy.into()),
            (false, false) => Err(CatalogueMismatch::Source.into()),
        }
    }
}

async fn has_checksum(file: &Path, expected: &Checksum, options: &PlaceOptions) -> Result<bool> {
    let shown = home::display_path(file);
    let path = SummedPath::local(file, shown.clone().into_bytes());
    let path = path.map_err(|failure| anyhow::anyhow!("{failure}"))?;
    let mut found = None;
    SumPlaces::new(options)
        .sum(&[path], expected.algorithm(), |_, outcome| {
            found = Some(outcome);
            true
        })
        .await?;
    match found.context("no checksum was computed")? {
        SumOutcome::Sum { value, .. } if value.0 == expected.as_bytes() => Ok(true),
        SumOutcome::Sum { value, .. } => {
            let found = Checksum::new(expected.algorithm(), value.0);
            let found = found.map_or(String::new(), |found| format!(" instead of {found}"));
            longhaul_output::message!(
                "longhaul: {shown}: {} is expected to be {expected}{found}",
                expected.algorithm()
            );
            Ok(false)
        }
        SumOutcome::Failed(failure) => bail!("{failure}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn catalogues_are_values_or_lists() {
        let parse = |text: &str| match Catalogue::parse(text.as_ref()) {
            Catalogue::Value(sum) => format!("{} {sum}", sum.algorithm()),
            Catalogue::List { file, algorithm } => format!(
                "{} in {}",
                algorithm.map_or("any", Algorithm::name),
                file.display()
            ),
        };
        assert_eq!(parse("adler32=11E60398"), "adler32 11e60398");
        assert_eq!(parse("md5=list"), "md5 in list");
        assert_eq!(
            parse("bag/manifest-sha256.txt"),
            "any in bag/manifest-sha256.txt"
        );
        assert_eq!(parse("a=b"), "any in a=b");
    }
}
