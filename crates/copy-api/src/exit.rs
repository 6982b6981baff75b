//! Exit codes that scripts may rely on. They are listed in the help and in `docs/copying.md`.

use std::process::ExitCode;

use serde::{Deserialize, Serialize};
use strum::FromRepr;

/// Result of a command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromRepr, Serialize, Deserialize)]
#[serde(into = "u8", try_from = "u8")]
#[repr(u8)]
pub enum Exit {
    /// Everything was done.
    #[default]
    Success = 0,
    /// Some files were not copied, or the server refused; of `doctor`, something costs bandwidth.
    SomeFailed = 1,
    /// The command line, or a file it names, is wrong.
    Usage = 2,
    /// The server could not be reached by any route.
    NoRoute = 3,
    /// A depot or the server refuses this key, or the server's key is not the expected one.
    Unauthorised = 4,
    /// The copy or measurement broke off.
    BrokeOff = 5,
    /// The two sides disagree or do not understand each other.
    Disagreement = 6,
    /// Interrupted by a signal.
    Interrupted = 130,
}

impl Exit {
    /// Returns the number.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the variant with that number.
    #[must_use]
    pub fn from_code(code: i64) -> Option<Self> {
        u8::try_from(code).ok().and_then(Self::from_repr)
    }
}

impl From<Exit> for u8 {
    fn from(exit: Exit) -> Self {
        exit.code()
    }
}

impl TryFrom<u8> for Exit {
    type Error = String;

    fn try_from(code: u8) -> Result<Self, String> {
        Self::from_code(code.into()).ok_or_else(|| format!("{code} is not a known exit code"))
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}
