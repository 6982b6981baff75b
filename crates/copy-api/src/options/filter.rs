//! Options that select what is copied.

use std::path::PathBuf;

use clap::Args;
use quantities::ByteCount;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Heading of the options in the help.
pub(super) const HEADING: &str = "Which files";

/// Options that select what is copied. They apply where the source is.
// Unused ones are left out, so that older releases can read stored jobs.
#[derive(Debug, Clone, Default, PartialEq, Args, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct FilterOptions {
    /// Leave out what matches this pattern, as in rsync: '*.tmp' in every directory, '/cache/' at
    /// the top, 'a/**/b' across directories. Repeatable.
    #[arg(help_heading = HEADING, long, value_name = "PATTERN")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// Take what matches this pattern, whatever --exclude says. Repeatable.
    #[arg(help_heading = HEADING, long, value_name = "PATTERN")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<String>,
    /// Read patterns from a file, one in a line; '+ PATTERN' takes. Repeatable.
    #[arg(help_heading = HEADING, long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub exclude_from: Vec<PathBuf>,
    /// Ignore the .longhaulignore files of the source, which leave files out as .gitignore does.
    #[arg(help_heading = HEADING, long)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_ignore_files: bool,
    /// Only files modified after this time: 7d (ago), 2026-11-27, '2026-11-27 18:00'.
    #[arg(help_heading = HEADING, long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub newer: Option<String>,
    /// Only files modified before this time.
    #[arg(help_heading = HEADING, long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub older: Option<String>,
    /// Only files of at least this size, such as 10M.
    #[arg(help_heading = HEADING, long, value_name = "SIZE", value_parser = size)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_size: Option<u64>,
    /// Only files of at most this size.
    #[arg(help_heading = HEADING, long, value_name = "SIZE", value_parser = size)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_size: Option<u64>,
    /// Only the paths in this file, one in a line, each below the source; - reads standard input.
    #[arg(help_heading = HEADING, long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub files_from: Option<PathBuf>,
    /// Paths in --files-from end with NUL, as find -print0 writes them.
    #[arg(help_heading = HEADING, short = '0', long, requires = "files_from")]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub from0: bool,
    /// Stay on the file system of the source: what is mounted below it is left out.
    #[arg(help_heading = HEADING, short = 'x', long)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub one_file_system: bool,
}

fn size(text: &str) -> Result<u64, String> {
    let size: Result<ByteCount, _> = text.parse();
    size.map(|size| size.0).map_err(|error| error.to_string())
}
