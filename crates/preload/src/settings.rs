//! What the environment asks for.

use std::env::var_os;
use std::path::PathBuf;

use drs::Mode;

/// The settings of the process, read once when the library is loaded.
pub struct Settings {
    /// What may be done to connections, if anything.
    pub mode: Option<Mode>,
    /// Where the log goes.
    pub log: Option<PathBuf>,
}

impl Settings {
    /// `DRS_MODE` and `DRS_LOG`. `None` when the mode is none that this knows: then nothing is done at all, since there is nobody to tell.
    pub fn from_environment() -> Option<Self> {
        let mode = match var_os("DRS_MODE") {
            None => Mode::Auto,
            Some(word) if word.is_empty() => Mode::Auto,
            Some(word) => word.to_str()?.parse().ok()?,
        };
        let log = var_os("DRS_LOG")
            .filter(|path| !path.is_empty())
            .map(PathBuf::from);
        Some(Self {
            mode: Some(mode),
            log,
        })
    }
}
