//! `longhaul cat` and `head`: content of files on standard output.

use std::ffi::OsString;

use anyhow::{Result, bail};
use clap::Args;
use longhaul_output::{message, print_bytes};
use longhaul_transfer::files::message::{FilesFailure, FilesFailureKind};
use quantities::ByteCount;

use super::content::{print_file, print_part};
use super::limit::ContentLimit;
use crate::copy_checks::StreamFailed;
use crate::exit::Exit;
use crate::logging;
use crate::place::PlaceOptions;
use crate::sum::places::{SumPlaces, SummedPath};

/// Print files, here, at user@host:path or lh://host/path.
///
/// A whole file is compared with its checksum, which is computed where the file is. If it changed
/// while it was read, the exit status is 1.
#[derive(Args)]
pub struct Cat {
    /// File: a local path, user@host:path or lh://host[:port]/path.
    #[arg(required = true)]
    path: Vec<OsString>,
    /// Begin at this byte, counted from 0. A part of a file is not compared with a checksum.
    #[arg(long, value_name = "BYTES")]
    offset: Option<ByteCount>,
    /// Print at most this number of bytes.
    #[arg(long, value_name = "BYTES")]
    length: Option<ByteCount>,
    #[command(flatten)]
    place: PlaceOptions,
}

/// Print the beginning of files, here, at user@host:path or lh://host/path.
///
/// Little more than that is read, in pieces of 512 KiB.
#[derive(Args)]
pub struct Head {
    /// File: a local path, user@host:path or lh://host[:port]/path.
    #[arg(required = true)]
    path: Vec<OsString>,
    /// Number of lines.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
    lines: u64,
    /// Number of bytes instead of lines.
    #[arg(short = 'c', long, value_name = "BYTES", conflicts_with = "lines")]
    bytes: Option<ByteCount>,
    #[command(flatten)]
    place: PlaceOptions,
}

impl Cat {
    /// Prints the files.
    pub fn run(self) -> Result<Exit> {
        let offset = self.offset.map_or(0, |offset| offset.0);
        let is_whole = offset == 0 && self.length.is_none();
        let limit = match self.length {
            Some(length) => ContentLimit::Bytes(length.0),
            None => ContentLimit::Unlimited,
        };
        for_each_file(
            &self.path,
            &self.place,
            async |places, path| match is_whole {
                true => print_file(places, path).await,
                false => print_part(places, path, offset, limit).await,
            },
        )
    }
}

impl Head {
    /// Prints the beginnings.
    pub fn run(self) -> Result<Exit> {
        let limit = match self.bytes {
            Some(bytes) => ContentLimit::Bytes(bytes.0),
            None => ContentLimit::Lines(self.lines),
        };
        let has_titles = self.path.len() > 1;
        let mut title_start: &[u8] = b"==> ";
        for_each_file(&self.path, &self.place, async move |places, path| {
            if has_titles {
                let title = [title_start, &path.shown, b" <==\n"].concat();
                title_start = b"\n==> ";
                if !print_bytes(&title) {
                    return Ok(false);
                }
            }
            print_part(places, path, 0, limit).await
        })
    }
}

/// Prints each file. One that cannot be read is reported, and the others are printed.
fn for_each_file(
    paths: &[OsString],
    options: &PlaceOptions,
    mut print: impl AsyncFnMut(&mut SumPlaces<'_>, &SummedPath) -> Result<bool>,
) -> Result<Exit> {
    logging::start("error");
    let runtime = crate::runtime::start()?;
    runtime.block_on(async {
        let mut places = SumPlaces::new(options);
        let mut exit = Exit::Success;
        for typed in paths {
            if typed == "-" {
                bail!("-: standard input needs no longhaul: use cat or head");
            }
            let printed = match SummedPath::parse(typed)? {
                Ok(path) => print(&mut places, &path).await,
                Err(failure) => Err(StreamFailed::Failed(failure).into()),
            };
            match printed {
                Ok(true) => {}
                // The reader of the output has enough.
                Ok(false) => break,
                Err(error) => match error.downcast_ref::<StreamFailed>() {
                    Some(failed) => {
                        message!("longhaul: {failed}");
                        exit = with_failure(exit, failed);
                    }
                    None => return Err(error),
                },
            }
        }
        places.end().await;
        Ok(exit)
    })
}

/// Returns the exit code after one more failure.
fn with_failure(exit: Exit, failed: &StreamFailed) -> Exit {
    let is_refusal = matches!(
        failed,
        StreamFailed::Failed(FilesFailure {
            kind: FilesFailureKind::NotGranted,
            ..
        })
    );
    match (is_refusal, exit) {
        (true, Exit::Success | Exit::Unauthorised) => Exit::Unauthorised,
        _ => Exit::SomeFailed,
    }
}
