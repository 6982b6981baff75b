//! States of a copy at which a side is killed, as its events report them.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::mix::{BYTES, FILES, LARGE_FILE, SMALL_FILES};

/// Time of a kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Within the first tenth of a second, while a program starts and a session is set up.
    SettingUp,
    /// The first stream is open.
    Opened,
    /// The first file is committed.
    FirstFile,
    /// Half of the small files are committed.
    SmallFiles,
    /// The large file's blocks are in flight: 30 % of all bytes have arrived.
    Blocks,
    /// 65 % of all bytes have arrived.
    LateBlocks,
    /// The large file is committed.
    LargeFileDone,
    /// The last file is committed.
    LastFile,
    /// First at `Blocks`, and again as soon as the next command resumes.
    GoingOn,
    /// At a random moment of the copy.
    Random,
}

/// Sign that a state is reached.
pub enum Sign {
    /// This much time after the start of the command.
    After(Duration),
    /// The first event for which the function returns true.
    Event(Box<dyn FnMut(&Value) -> bool>),
}

/// Maximum time for the start of a program and the set-up of its session.
const SET_UP_SECONDS: f64 = 0.1;
/// Approximate time of a copy without kills.
const COPY_SECONDS: f64 = 4.0;

impl State {
    /// All states, in the order of a copy.
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

    /// Returns the name of the state on the page.
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

/// Returns the sign that `wanted` files are reported as committed.
fn files_done(wanted: u64) -> Sign {
    let mut done = 0;
    Sign::Event(Box::new(move |event| {
        let is_file = event["event"] == "done" && event["blake3"].is_string();
        done += u64::from(is_file);
        is_file && done == wanted
    }))
}

/// Returns the sign that `share` of all bytes has arrived.
fn bytes_there(share: f64) -> Sign {
    Sign::Event(Box::new(move |event| {
        event["bytes"]
            .as_f64()
            .is_some_and(|bytes| event["event"] == "progress" && bytes >= share * BYTES as f64)
    }))
}
