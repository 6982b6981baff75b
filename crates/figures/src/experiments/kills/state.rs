//! The states of a copy at which somebody is killed, as far as its events report them.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::mix::{BYTES, FILES, LARGE_FILE, SMALL_FILES};

/// When somebody is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Within the first tenth of a second: a program starts, a session is set up.
    SettingUp,
    /// The first stream is open.
    Opened,
    /// The first file is in place.
    FirstFile,
    /// Half of the small files are.
    SmallFiles,
    /// The large file's blocks are on their way: 30 % of all bytes are there.
    Blocks,
    /// 65 % of all bytes are there.
    LateBlocks,
    /// The large file is in place.
    LargeFileDone,
    /// The last file is in place.
    LastFile,
    /// Killed once at `Blocks`, and again as soon as the next command has received what is there.
    GoingOn,
    /// At any moment of the time that a copy takes.
    Random,
}

/// Sign by which a state is recognised.
pub enum Sign {
    /// This much time after the start of the command.
    After(Duration),
    /// The first event that pleases.
    Event(Box<dyn FnMut(&Value) -> bool>),
}

/// The time within which a program starts and its session is set up.
const SET_UP_SECONDS: f64 = 0.1;
/// About what a copy takes that nobody kills.
const COPY_SECONDS: f64 = 4.0;

impl State {
    /// All, in the order of a copy.
    pub const ALL: [Self; 10] = [
        Self::SettingUp,
        Self::Opened,
        Self::FirstFile,
        Self::SmallFiles,
        Self::Blocks,
        Self::LateBlocks,
        Self::LargeFileDone,
        Self::LastFile,
        Self::GoingOn,
        Self::Random,
    ];

    /// In the page's words.
    pub fn words(self) -> &'static str {
        match self {
            Self::SettingUp => "within the first 0.1 s",
            Self::Opened => "the first stream is open",
            Self::FirstFile => "the first file is in place",
            Self::SmallFiles => "half of the small files are in place",
            Self::Blocks => "30 % of the bytes are there",
            Self::LateBlocks => "65 % of the bytes are there",
            Self::LargeFileDone => "the large file is in place",
            Self::LastFile => "the last file is in place",
            Self::GoingOn => "at 30 %, and again as soon as the next command goes on",
            Self::Random => "at any moment",
        }
    }

    /// Returns the number of kills in one copy.
    pub fn kills(self) -> u32 {
        match self {
            Self::GoingOn => 2,
            _ => 1,
        }
    }

    /// Returns the sign that kill number `nth` is due, from a number from 0 to 1 that was drawn for
    /// it.
    pub fn sign(self, nth: u32, drawn: f64) -> Sign {
        match (self, nth) {
            (Self::SettingUp, _) => Sign::After(Duration::from_secs_f64(SET_UP_SECONDS * drawn)),
            (Self::Random, _) => Sign::After(Duration::from_secs_f64(COPY_SECONDS * drawn)),
            (Self::Opened, _) => Sign::Event(Box::new(|event| event["event"] == "stream_opened")),
            (Self::FirstFile, _) => files_done(1),
            (Self::SmallFiles, _) => files_done(SMALL_FILES / 2),
            (Self::LastFile, _) => files_done(FILES),
            (Self::GoingOn, 1..) => Sign::Event(Box::new(|event| event["event"] == "resumed")),
            (Self::Blocks | Self::GoingOn, _) => bytes_there(0.3),
            (Self::LateBlocks, _) => bytes_there(0.65),
            (Self::LargeFileDone, _) => Sign::Event(Box::new(|event| {
                let path = event["path"].as_str().unwrap_or_default();
                event["event"] == "done" && path.ends_with(LARGE_FILE)
            })),
        }
    }
}

/// So many files have been reported to be in place.
fn files_done(wanted: u64) -> Sign {
    let mut done = 0;
    Sign::Event(Box::new(move |event| {
        let is_file = event["event"] == "done" && event["blake3"].is_string();
        done += u64::from(is_file);
        is_file && done == wanted
    }))
}

/// This share of all bytes is there.
fn bytes_there(share: f64) -> Sign {
    Sign::Event(Box::new(move |event| {
        event["bytes"]
            .as_f64()
            .is_some_and(|bytes| event["event"] == "progress" && bytes >= share * BYTES as f64)
    }))
}
