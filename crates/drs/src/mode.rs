//! Modes of right-sizing.

use std::{fmt, str::FromStr};

/// Mode of a [`Flow`](crate::Flow): how far it may change the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Mode {
    /// Sets nothing: samples, verdicts and advice only.
    #[default]
    Observe,
    /// Acts only if a verdict says that it helps, and otherwise leaves the kernel's autotuning
    /// alone.
    Auto,
    /// The algorithm of Dynamic Right-Sizing in user space (DRS paper, section 1): the receive
    /// buffer is twice the estimated window of the sender, and only grows.
    Classic,
    /// [`ClassicMode`](Self::Classic) with solutions for that paper's open questions: half the
    /// buffer after slow start, safe shrinking, and a [`Budget`](crate::Budget) shared by
    /// connections.
    PaperPlus,
}

impl Mode {
    /// All modes.
    pub const ALL: [Self; 4] = [Self::Observe, Self::Auto, Self::Classic, Self::PaperPlus];

    /// Returns its short stable name, for options, JSON and tables.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
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
        f.write_str(self.as_str())
    }
}

impl FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<Self, UnknownMode> {
        Self::ALL
            .into_iter()
            .find(|mode| mode.as_str() == text)
            .ok_or(UnknownMode)
    }
}

/// A word that is not the name of a [`Mode`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no such mode: use observe, auto, classic or paper+")]
pub struct UnknownMode;
