//! Settings from the environment.

use std::env::var_os;
use std::path::PathBuf;

use drs::Mode;
use longhaul_ramp_protocol::{MAX_PURPOSE_BYTES, SOCKET_VARIABLE};

use crate::filter::FILTERS_VARIABLE;

/// Variable that turns on routes. It also says what happens to a connection if the on-ramp does not
/// answer: `open` makes it directly, `closed` refuses it.
pub const ROUTES_VARIABLE: &str = "LONGHAUL_ROUTES";
/// Variable with the purpose of the program's connections, as text.
pub const PURPOSE_VARIABLE: &str = "LONGHAUL_PURPOSE";
/// Variable with the bytes that each of them will carry.
pub const SIZE_VARIABLE: &str = "LONGHAUL_SIZE";
/// Variable with the requested rate, in bit/s.
pub const RATE_VARIABLE: &str = "LONGHAUL_RATE";
/// Variable with their maximum duration, in seconds.
pub const DURATION_VARIABLE: &str = "LONGHAUL_DURATION";

/// Settings of the process, read once when the library is loaded.
pub struct PreloadSettings {
    /// Mode of right-sizing; `None` if it is off.
    pub mode: Option<Mode>,
    /// Settings of routes; `None` if they are off.
    pub routes: Option<RouteSettings>,
    /// Socket of the on-ramp.
    pub ramp: Option<PathBuf>,
    /// Path of the log.
    pub log: Option<PathBuf>,
    /// Number of filters of system calls that the process inherits from its parent.
    pub filters: Option<u32>,
}

/// Settings of routes.
pub struct RouteSettings {
    /// If true, connections without a route are refused.
    pub closed: bool,
    /// Purpose of the connections.
    pub purpose: Option<String>,
    /// Size of a transfer in bytes.
    pub size: Option<u64>,
    /// Requested rate in bit/s.
    pub rate: Option<u64>,
    /// Maximum duration in seconds.
    pub duration: Option<u64>,
}

impl PreloadSettings {
    /// Reads `DRS_MODE`, `DRS_LOG` and the variables of this module. Right-sizing is on if no mode
    /// is set, or `DRS_MODE` sets it. Returns `None` if a word is unknown: then the library does
    /// nothing at all, because nobody would see a message.
    pub fn from_environment() -> Option<Self> {
        let path = |name| {
            var_os(name)
                .filter(|path| !path.is_empty())
                .map(PathBuf::from)
        };
        let routes = match var_os(ROUTES_VARIABLE) {
            None => None,
            Some(word) => Some(RouteSettings::parse(word.to_str()?)?),
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
    fn parse(word: &str) -> Option<Self> {
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
                .filter(|words| !words.is_empty() && words.len() <= MAX_PURPOSE_BYTES),
            size: number(SIZE_VARIABLE),
            rate: number(RATE_VARIABLE),
            duration: number(DURATION_VARIABLE),
        })
    }
}
