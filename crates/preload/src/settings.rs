//! What the environment asks for.

use std::env::var_os;
use std::path::PathBuf;

use drs::Mode;
use longhaul_ramp::{MAX_PURPOSE, SOCKET_VARIABLE};

use crate::filter::FILTERS_VARIABLE;

/// Whether connections are brought onto routes, and what becomes of one where the on-ramp does not
/// answer: `open`, it is made directly, or `closed`, there is none.
pub const ROUTES_VARIABLE: &str = "LONGHAUL_ROUTES";
/// What the program's connections are for, in words.
pub const PURPOSE_VARIABLE: &str = "LONGHAUL_PURPOSE";
/// How much each of them will carry, in bytes.
pub const SIZE_VARIABLE: &str = "LONGHAUL_SIZE";
/// The rate that is wished for, in bits a second.
pub const RATE_VARIABLE: &str = "LONGHAUL_RATE";
/// How long they may take, in seconds.
pub const DURATION_VARIABLE: &str = "LONGHAUL_DURATION";

/// The settings of the process, read once when the library is loaded.
pub struct Settings {
    /// What may be done to connections, if anything.
    pub mode: Option<Mode>,
    /// What is wanted of routes, if anything.
    pub routes: Option<RouteSettings>,
    /// The on-ramp's socket.
    pub ramp: Option<PathBuf>,
    /// Where the log goes.
    pub log: Option<PathBuf>,
    /// Filters of system calls that the process inherits from who started it.
    pub filters: Option<u32>,
}

/// What is wanted of routes.
pub struct RouteSettings {
    /// No connection where there is no route.
    pub closed: bool,
    /// What the connections are for.
    pub purpose: Option<String>,
    /// Bytes.
    pub size: Option<u64>,
    /// Bits a second.
    pub rate: Option<u64>,
    /// Seconds.
    pub duration: Option<u64>,
}

impl Settings {
    /// `DRS_MODE`, `DRS_LOG` and those of this module. Right-sizing is what is meant where nothing
    /// is said, or `DRS_MODE` says it. `None` when a word is none that this knows: then nothing is
    /// done at all, since there is nobody to report to.
    pub fn from_environment() -> Option<Self> {
        let path = |name| {
            var_os(name)
                .filter(|path| !path.is_empty())
                .map(PathBuf::from)
        };
        let routes = match var_os(ROUTES_VARIABLE) {
            None => None,
            Some(word) => Some(RouteSettings::of(word.to_str()?)?),
        };
        let mode = match var_os("DRS_MODE") {
            None if routes.is_some() => None,
            None => Some(Mode::Auto),
            Some(word) if word.is_empty() => Some(Mode::Auto),
            Some(word) => Some(word.to_str()?.parse().ok()?),
        };
        Some(Self {
            mode,
            routes,
            ramp: path(SOCKET_VARIABLE),
            log: path("DRS_LOG"),
            filters: var_os(FILTERS_VARIABLE).and_then(|count| count.to_str()?.parse().ok()),
        })
    }
}

impl RouteSettings {
    fn of(word: &str) -> Option<Self> {
        let closed = match word {
            "open" => false,
            "closed" => true,
            _ => return None,
        };
        let text = |name| var_os(name)?.into_string().ok();
        let number = |name| text(name)?.parse().ok();
        Some(Self {
            closed,
            purpose: text(PURPOSE_VARIABLE)
                .filter(|words| !words.is_empty() && words.len() <= MAX_PURPOSE),
            size: number(SIZE_VARIABLE),
            rate: number(RATE_VARIABLE),
            duration: number(DURATION_VARIABLE),
        })
    }
}
