//! Places: ends of copies that have a name, what is in them, and changes of names there.
//!
//! A *location* is written as for `longhaul cp`: an absolute path here, `user@host:path`, or
//! `lh://host[:port]/path`. The root of a place is one, and what is in the place is its root with a
//! path behind it.

use std::fmt;
use std::pin::Pin;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::model::is_location;

/// Most characters of a place's name.
const MAX_NAME_CHARS: usize = 64;

/// A named end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Place {
    /// Its name.
    pub name: String,
    /// The location of all that is in it; it ends in `/` or `:`.
    #[schema(example = "ana@dtn.example.org:")]
    pub root: String,
    /// It is always there.
    pub builtin: bool,
}

/// The root of a place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlaceRoot {
    /// A location; it ends in `/` or `:`.
    #[schema(
        min_length = 1,
        max_length = 4096,
        example = "lh://dtn.example.org/runs/"
    )]
    pub root: String,
}

/// What cannot be a place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPlace {
    /// Nothing a person could read or type.
    #[error("name: up to {MAX_NAME_CHARS} letters, digits, spaces, '.', '_' and '-'")]
    Name,
    /// It would not be clear what is in it.
    #[error("root: an absolute path, user@host: or lh://host/, ending in a slash or a colon")]
    Root,
}

impl Place {
    /// One that a person names.
    ///
    /// # Errors
    /// It cannot be one.
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

/// Kinds of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link, itself.
    Symlink,
    /// A device, socket or FIFO.
    Other,
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileEntry {
    /// Its name; escaped as it is shown to people if it is not UTF-8, and then `addressable` is
    /// false.
    pub name: String,
    /// Whether it can be asked for by that name.
    pub addressable: bool,
    /// What it is.
    pub kind: FileKind,
    /// Bytes, of a file.
    pub bytes: u64,
    /// Permissions, in octal.
    #[schema(example = "0644")]
    pub mode: String,
    /// Modification time.
    #[schema(required = true, format = "date-time")]
    pub modified: Option<String>,
    /// What a symbolic link leads to.
    #[schema(required = true)]
    pub target: Option<String>,
}

/// Some of a directory's entries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FilePage {
    /// In the order of their names' bytes.
    pub entries: Vec<FileEntry>,
    /// What to ask for as `after` for those that follow; none if there are none.
    #[schema(required = true)]
    pub next: Option<String>,
}

/// A change of names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Make a directory.
    MakeDirectory {
        /// Where.
        at: String,
    },
    /// Give an entry another name, in the same place.
    Rename {
        /// Its name.
        from: String,
        /// The new one.
        to: String,
        /// A file that has it is replaced.
        overwrite: bool,
    },
    /// Remove an entry.
    Remove {
        /// Which.
        at: String,
        /// A directory goes with all it holds.
        recursive: bool,
    },
}

/// Why it was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlaceError {
    /// What kind of error.
    pub kind: PlaceErrorKind,
    /// What, where, and what to do, in one line.
    pub detail: String,
}

/// Kinds of [`PlaceError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlaceErrorKind {
    /// What is asked makes no sense.
    Invalid,
    /// There is no such entry.
    NotFound,
    /// It is not allowed.
    Denied,
    /// What is there does not allow it.
    Conflict,
    /// The place cannot be reached.
    Unreachable,
}

impl fmt::Display for PlaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

/// An answer that is still to come.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, PlaceError>> + Send + 'a>>;

/// What reaches places: the command line's own ways to servers, hosts and directories.
pub trait Browse: fmt::Debug + Send + Sync {
    /// Entries of the directory `at` behind the name `after`.
    fn list<'a>(&'a self, at: &'a str, after: Option<&'a str>, limit: u32) -> Answer<'a, FilePage>;

    /// Changes names.
    fn change<'a>(&'a self, change: &'a Change) -> Answer<'a, ()>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_a_place_is_reported() {
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
