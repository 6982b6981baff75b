//! How far right-sizing may go.

use std::{fmt, str::FromStr};

/// What a [`Flow`](crate::Flow) does beyond looking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Mode {
    /// Sets nothing: samples, verdicts and advice only.
    #[default]
    Observe,
    /// Acts only where a verdict says that it helps, and leaves the kernel's autotuning alone
    /// otherwise.
    Auto,
    /// The algorithm of Dynamic Right-Sizing in user space (DRS paper, section 1): the receive
    /// buffer is twice the estimated window of the sender, and only grows.
    Classic,
    /// [`Classic`](Self::Classic) with that paper's open questions answered: half the buffer once
    /// slow start has ended, safe shrinking, and a [`Budget`](crate::Budget) shared by connections.
    PaperPlus,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Observe, Self::Auto, Self::Classic, Self::PaperPlus];

    /// A short stable word, for options, JSON and tables.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Observe => "observe",
            Self::Auto => "auto",
            Self::Classic => "classic",
            Self::PaperPlus => "paper+",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<Self, UnknownMode> {
        Self::ALL
            .into_iter()
            .find(|mode| mode.word() == text)
            .ok_or(UnknownMode)
    }
}

/// A word that names no [`Mode`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no such mode: say observe, auto, classic or paper+")]
pub struct UnknownMode;
