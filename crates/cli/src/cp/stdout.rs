//! `cp SRC -`: the content of a file on standard output.

use std::ffi::OsString;

use anyhow::{Result, bail};

use super::Cp;
use crate::copy_checks::StreamFailed;
use crate::exit::Exit;
use crate::files::content::{follow_file, print_file};
use crate::logging;
use crate::place::PlaceOptions;
use crate::sum::places::{SumPlaces, SummedPath};

impl Cp {
    /// Returns the sources, if the destination is standard output.
    pub(super) fn stdout_sources(&self) -> Option<&[OsString]> {
        let (destination, sources) = self.paths.split_last()?;
        (destination == "-").then_some(sources)
    }

    /// Prints the content of files, one after the other.
    pub(super) fn copy_to_stdout(&self, sources: &[OsString]) -> Result<Exit> {
        logging::start("error");
        let refused = [
            (self.run_options.json, "--json"),
            (self.dry_run, "--dry-run"),
            (self.options.recursive, "-r"),
            (self.receipt.is_some(), "--receipt"),
            (self.checksum_with.is_some(), "--checksum-with"),
            (self.background, "--background"),
            (
                self.follow && sources.len() > 1,
                "--follow with several sources",
            ),
        ];
        if let Some((_, flag)) = refused.iter().find(|(is_given, _)| *is_given) {
            bail!("{flag} is not for copies to standard output (-): name a file - as ./-");
        }
        let options = PlaceOptions::for_copy(&self.options);
        let runtime = crate::runtime::start()?;
        runtime.block_on(async {
            let mut places = SumPlaces::new(&options);
            for source in sources {
                if source == "-" {
                    bail!("standard input to standard output: use cat");
                }
                let path = SummedPath::parse(source)?.map_err(StreamFailed::Failed)?;
                let printed = match self.follow {
                    true => follow_file(&mut places, &path).await?,
                    false => print_file(&mut places, &path).await?,
                };
                if !printed {
                    // Whoever reads the output has enough.
                    return Ok(Exit::SomeFailed);
                }
            }
            places.end().await;
            Ok(Exit::Success)
        })
    }
}
