//! Removes entries of a tree, or moves them into a trash directory.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::Result;
use jiff::Zoned;
use longhaul_output::message;
use longhaul_proto::text::printable;
use longhaul_sync::{NodeKind, Step};
use longhaul_transfer::files::message::{FilesFailure, FilesRequest, FilesResponse, PathBytes};
use quantities::ByteCount;
use serde_json::json;

use super::batches::batches;
use crate::answer;
use crate::files::show::failure_of;
use crate::place::Place;
use crate::tree::path_below;

/// A directory below the destination that takes what is removed.
pub struct Trash {
    /// Path below the destination, with the time of the run.
    directory: Vec<u8>,
}

impl Trash {
    pub fn new(directory: &Path) -> Self {
        let time = Zoned::now().strftime("%Y-%m-%dT%H%M%S").to_string();
        let directory = directory.join(time);
        Self {
            directory: directory.into_os_string().as_bytes().to_vec(),
        }
    }

    /// Returns a pattern that matches `name` at the top of a tree, and nothing else.
    pub fn pattern(name: &OsStr) -> Vec<u8> {
        let name = name.as_bytes();
        let is_wild = name.iter().any(|byte| b"*?[".contains(byte));
        let mut pattern = vec![b'/'];
        for byte in name {
            if is_wild && b"*?[\\".contains(byte) {
                pattern.push(b'\\');
            }
            pattern.push(*byte);
        }
        pattern
    }

    fn path_of(&self, path: &[u8]) -> Vec<u8> {
        [&self.directory[..], b"/", path].concat()
    }
}

/// Removed entries.
#[derive(Debug, Default)]
pub struct Removal {
    pub entries: u64,
    pub bytes: u64,
    /// Number of entries that could not be removed.
    pub failed: u64,
}

impl Removal {
    /// Reports it in one line.
    pub fn report(&self, as_json: bool, is_quiet: bool) {
        let Self {
            entries,
            bytes,
            failed,
        } = self;
        if as_json {
            answer::write_line(json!({
                "event": "removal", "entries": entries, "bytes": bytes, "failed": failed,
            }));
        } else if *entries > 0 && !is_quiet {
            let files = if *entries == 1 { "entry" } else { "entries" };
            message!(
                "longhaul: removed {entries} {files} ({}) at the destination",
                ByteCount(*bytes)
            );
        }
    }
}

/// Removes the entries of these steps, below `root`. Failures are reported, and the others
/// continue.
///
/// # Errors
/// The place is gone.
pub async fn carry_out(
    place: &mut Place,
    root: &PathBytes,
    steps: &[Step],
    trash: Option<Trash>,
    as_json: bool,
    mut report: impl FnMut(&FilesFailure),
) -> Result<Removal> {
    let mut removal = Removal::default();
    if let Some(trash) = &trash {
        make_directories(place, root, steps, trash, &mut report).await?;
    }
    let path_bytes = |step: &Step| 2 * (root.0.len() + step.path.len());
    for batch in batches(steps, path_bytes) {
        let requests: Vec<FilesRequest> = batch
            .iter()
            .map(|step| request(step, root, trash.as_ref()))
            .collect();
        let answers = place.ask_all(&requests).await?;
        for (step, answer) in batch.iter().zip(answers) {
            if let FilesResponse::Changed = answer {
                removal.entries += step.entries;
                removal.bytes += step.bytes;
                if as_json {
                    answer::write_line(json!({
                        "event": "removed", "path": printable(&step.path),
                        "entries": step.entries, "bytes": step.bytes,
                    }));
                }
            } else if let Some(failure) = failure_of(answer)? {
                removal.failed += step.entries;
                report(&failure);
            }
        }
    }
    Ok(removal)
}

fn request(step: &Step, root: &PathBytes, trash: Option<&Trash>) -> FilesRequest {
    let path = path_below(root, &step.path);
    match trash {
        Some(trash) => FilesRequest::Rename {
            from: path,
            to: path_below(root, &trash.path_of(&step.path)),
            overwrite: false,
            keep_time: true,
        },
        None => FilesRequest::Remove {
            path,
            recursive: step.kind == NodeKind::Directory,
            keep_time: true,
        },
    }
}

/// Creates the directories of the trash that entries go into.
async fn make_directories(
    place: &mut Place,
    root: &PathBytes,
    steps: &[Step],
    trash: &Trash,
    report: &mut impl FnMut(&FilesFailure),
) -> Result<()> {
    let parent = |step: &Step| {
        let end = step.path.iter().rposition(|&byte| byte == b'/');
        let above = end.and_then(|end| step.path.get(..end)).unwrap_or_default();
        match above.is_empty() {
            true => trash.directory.clone(),
            false => trash.path_of(above),
        }
    };
    let parents: std::collections::BTreeSet<Vec<u8>> = steps.iter().map(parent).collect();
    for directory in parents {
        let request = FilesRequest::MakeDirectory {
            path: path_below(root, &directory),
            parents: true,
        };
        match place.ask(request).await? {
            FilesResponse::Changed => {}
            other => {
                if let Some(failure) = failure_of(other)? {
                    report(&failure);
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use longhaul_filter::{Filter, FilterRules, NameRule};

    use super::*;

    #[test]
    fn trash_is_excluded_by_its_name_alone() {
        for name in [".trash", "a*b", "[x]", "a\\b", "a\\*"] {
            let filter = Filter::new(FilterRules {
                names: vec![NameRule::exclude(Trash::pattern(name.as_ref()))],
                ..FilterRules::default()
            });
            let filter = filter.unwrap();
            assert!(!filter.takes_name(name.as_bytes(), true), "{name}");
            assert!(filter.takes_name(b"axb", true) && filter.takes_name(b"sub/.trash", true));
        }
    }
}
