//! Places: named ends of copies, their directories, and changes of names in them.
//!
//! A *location* has the form that `longhaul cp` takes: an absolute path on this machine,
//! `user@host:path`, or `lh://host[:port]/path`. A place has a location as its root; locations in
//! the place append a path to it.

use std::fmt;
use std::pin::Pin;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::model::is_location;

/// Maximum length of a place's name, in characters.
const MAX_NAME_CHARS: usize = 64;

/// Named end of copies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Place {
    /// Name of the place.
    pub name: String,
    /// Location of its root, which ends in `/` or `:`.
    #[schema(example = "ana@dtn.example.org:")]
    pub root: String,
    /// If true, the place always exists.
    pub builtin: bool,
}

/// Root of a place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlaceRoot {
    /// Location that ends in `/` or `:`.
    #[schema(
        min_length = 1,
        max_length = 4096,
        example = "lh://dtn.example.org/runs/"
    )]
    pub root: String,
}

/// The place is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPlace {
    /// The name is empty, too long, or has other characters.
    #[error("name: up to {MAX_NAME_CHARS} letters, digits, spaces, '.', '_' and '-'")]
    Name,
    /// The root is not a complete location that ends in a slash or a colon.
    #[error("root: an absolute path, user@host: or lh://host/, ending in a slash or a colon")]
    Root,
}

impl Place {
    /// Creates a place that a user named.
    ///
    /// # Errors
    /// The name or the root is invalid.
    pub fn new(name: &str, root: &str) -> Result<Self, InvalidPlace> {
        let is_name = |c: char| c.is_alphanumeric() || " ._-".contains(c);
        let length = name.chars().count();
        if name.trim() != name
            || !(1..=MAX_NAME_CHARS).contains(&length)
            || !name.chars().all(is_name)
        {
            return Err(InvalidPlace::Name);
        }
        if !is_location(root) || !root.ends_with(['/', ':']) {
            return Err(InvalidPlace::Root);
        }
        Ok(Self {
            name: name.to_owned(),
            root: root.to_owned(),
            builtin: false,
        })
    }
}

/// Kind of a directory entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link itself.
    Symlink,
    /// A device, socket or FIFO.
    Other,
}

/// Directory entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileEntry {
    /// Name. If it is not UTF-8, it is escaped for display, and `addressable` is false.
    pub name: String,
    /// If true, the entry can be requested by this name.
    pub addressable: bool,
    /// Kind of the entry.
    pub kind: FileKind,
    /// Size of a file, in bytes.
    pub bytes: u64,
    /// Permissions, in octal.
    #[schema(example = "0644")]
    pub mode: String,
    /// Modification time.
    #[schema(required = true, format = "date-time")]
    pub modified: Option<String>,
    /// Target of a symbolic link.
    #[schema(required = true)]
    pub target: Option<String>,
}

/// One page of a directory's entries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FilePage {
    /// Entries, ordered by the bytes of their names.
    pub entries: Vec<FileEntry>,
    /// Value of `after` for the next page; left out on the last one.
    #[schema(required = true)]
    pub next: Option<String>,
}

/// Change to a directory's entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Create a directory.
    MakeDirectory {
        /// Location of the directory.
        at: String,
    },
    /// Rename an entry within its place.
    Rename {
        /// Location of the entry.
        from: String,
        /// New location.
        to: String,
        /// If true, an existing file is replaced.
        overwrite: bool,
    },
    /// Remove an entry.
    Remove {
        /// Location of the entry.
        at: String,
        /// If true, a directory is removed with all its content.
        recursive: bool,
    },
}

/// Error of a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlaceError {
    /// Kind of error.
    pub kind: PlaceErrorKind,
    /// Problem, location and remedy, in one line.
    pub detail: String,
}

/// Kind of a [`PlaceError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlaceErrorKind {
    /// The request is invalid.
    Invalid,
    /// The entry does not exist.
    NotFound,
    /// Permission is denied.
    Denied,
    /// The existing entries do not allow the change.
    Conflict,
    /// The place cannot be reached.
    Unreachable,
}

impl fmt::Display for PlaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

/// Future of a place's answer.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, PlaceError>> + Send + 'a>>;

/// Access to places, by the command line's own connections to servers, hosts and directories.
pub trait Browse: fmt::Debug + Send + Sync {
    /// Lists entries of the directory `at` after the name `after`.
    fn list<'a>(&'a self, at: &'a str, after: Option<&'a str>, limit: u32) -> Answer<'a, FilePage>;

    /// Performs a change.
    fn change<'a>(&'a self, change: &'a Change) -> Answer<'a, ()>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_places_are_refused() {
        for (name, root) in [
            ("store", "ana@dtn:"),
            ("a b", "lh://dtn/runs/"),
            ("Große Platte", "/data/"),
        ] {
            assert!(Place::new(name, root).is_ok(), "{name}");
        }
        for name in ["", " a", "a/b", "a\nb", "<b>", &"x".repeat(65)] {
            assert_eq!(Place::new(name, "/a/"), Err(InvalidPlace::Name), "{name}");
        }
        for root in ["", "a/", "/a", "dtn:a", "\0/", "./x:"] {
            assert_eq!(Place::new("a", root), Err(InvalidPlace::Root), "{root}");
        }
    }
}
