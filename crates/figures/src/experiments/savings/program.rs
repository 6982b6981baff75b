//! `longhaul cp` and rsync, each with options that save bytes.

use anyhow::Result;

use super::SavingsPath;
use super::data::SavedData;
use crate::peers::longhaul::Longhaul;
use crate::peers::table::TablePeer;
use crate::peers::{self, Peer, Program};
use crate::tools::Tools;

/// A program with its options.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SavingProgram {
    /// Name in records; that of a peer, if it is not `longhaul cp`.
    pub name: &'static str,
    /// Options of `longhaul cp`, and its title on the page. `None` for a program of others.
    own: Option<(&'static [&'static str], &'static str)>,
}

const fn own(
    name: &'static str,
    options: &'static [&'static str],
    title: &'static str,
) -> SavingProgram {
    let own = Some((options, title));
    SavingProgram { name, own }
}

const fn other(name: &'static str) -> SavingProgram {
    SavingProgram { name, own: None }
}

/// `longhaul cp`, which compresses while that makes the copy faster.
pub const AUTO: SavingProgram = own("longhaul", &[], "longhaul cp");
/// The same without compression.
pub const NONE: SavingProgram = own(
    "longhaul-none",
    &["--compress", "none"],
    "longhaul cp --compress none",
);
/// The same that compresses everything.
const ZSTD: SavingProgram = own(
    "longhaul-zstd",
    &["--compress", "zstd"],
    "longhaul cp --compress zstd",
);
/// `longhaul cp` that replaces a file as a whole.
const WHOLE: SavingProgram = own(
    "longhaul-whole",
    &["--overwrite"],
    "longhaul cp --overwrite",
);
/// The same that sends only what the replaced file lacks.
pub const DELTA: SavingProgram = own(
    "longhaul-delta",
    &["--overwrite", "--delta"],
    "longhaul cp --overwrite --delta",
);
/// The same that overwrites the file where it differs.
const IN_PLACE: SavingProgram = own(
    "longhaul-inplace",
    &["--overwrite", "--inplace"],
    "longhaul cp --overwrite --inplace",
);
const RSYNC: SavingProgram = other("rsync-ssh");
const RSYNC_ZSTD: SavingProgram = other("rsync-ssh-z");
const RSYNC_DELTA: SavingProgram = other("rsync-ssh-delta");
const RSYNC_IN_PLACE: SavingProgram = other("rsync-ssh-inplace");

/// All programs.
pub const ALL: [SavingProgram; 10] = [
    AUTO,
    NONE,
    ZSTD,
    WHOLE,
    DELTA,
    IN_PLACE,
    RSYNC,
    RSYNC_ZSTD,
    RSYNC_DELTA,
    RSYNC_IN_PLACE,
];

/// Returns the program of a name.
pub fn find(name: &str) -> Option<&'static SavingProgram> {
    ALL.iter().find(|program| program.name == name)
}

/// Returns the programs that copy this data over this path, in the order of the table. Random bytes
/// that rsync does not compress travel as those that it does, so it is told to compress them; over
/// the long path its single connection would only take time. A file that is overwritten in place
/// must not have moved.
pub fn programs(path: SavingsPath, data: SavedData) -> Vec<&'static SavingProgram> {
    let all: &'static [SavingProgram] = match (data, path) {
        (SavedData::Random, SavingsPath::Long) => &[AUTO, NONE, ZSTD],
        (SavedData::Random, _) => &[AUTO, NONE, ZSTD, RSYNC_ZSTD],
        (SavedData::Text | SavedData::SmallTexts, _) => &[AUTO, NONE, ZSTD, RSYNC, RSYNC_ZSTD],
        (SavedData::Scattered, _) => &[WHOLE, DELTA, IN_PLACE, RSYNC_DELTA, RSYNC_IN_PLACE],
        (SavedData::Inserted | SavedData::Unrelated, _) => &[WHOLE, DELTA, RSYNC_DELTA],
    };
    all.iter().collect()
}

/// Returns the program of this project that is compared with others over this data.
pub const fn compared(data: SavedData) -> SavingProgram {
    if data.has_older() { DELTA } else { AUTO }
}

impl SavingProgram {
    /// Returns true if it is `longhaul cp`.
    pub const fn is_own(&self) -> bool {
        self.own.is_some()
    }

    /// Returns the program of others. `None` if it is `longhaul cp`.
    pub fn other(&self) -> Option<Result<TablePeer>> {
        (!self.is_own()).then(|| peers::find(self.name))
    }

    /// Returns the program.
    ///
    /// # Errors
    /// There is no such peer.
    pub fn peer<'a>(&self, tools: &'a Tools) -> Result<Box<dyn Peer + 'a>> {
        Ok(match self.own {
            Some((options, _)) => Box::new(Longhaul {
                tools,
                streams: None,
                is_clear: false,
                options,
            }),
            None => Box::new(peers::find(self.name)?),
        })
    }

    /// Returns its name on the page.
    pub fn title(&self) -> &'static str {
        match self.own {
            Some((_, title)) => title,
            None => peers::find(self.name).map_or("", |peer| peer.title()),
        }
    }
}
