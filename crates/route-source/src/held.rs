//! Routes that failed this machine, and are left alone for a while: what a source that is wrong or
//! lies is remembered by. Kept on the disk, never taken from a table, and nothing that anybody has
//! to keep.
#![deny(clippy::indexing_slicing)] // what is read here comes from a file

use std::path::PathBuf;
use std::time::Duration;

use longhaul_control_client::settings::{read_within, replace};
use longhaul_proto::{Endpoint, Route};
use serde::{Deserialize, Serialize};

/// How long a route is left alone.
pub const HELD_FOR: Duration = Duration::from_secs(600);
/// Most routes kept.
const MAX_HELD: usize = 256;
/// Longest file that is read, in bytes.
const MAX_BYTES: u64 = 512 << 10;

/// Those that are, at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    routes: Vec<HeldRoute>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct HeldRoute {
    to: String,
    route: String,
    /// Milliseconds since the Unix epoch.
    until_ms: u64,
}

impl Held {
    /// Whether a route to a destination has failed this machine not long ago.
    #[must_use]
    pub fn is_held(&self, to: &Endpoint, route: &Route) -> bool {
        let (to, route) = (to.to_string(), route.to_string());
        self.routes
            .iter()
            .any(|held| held.to == to && held.route == route)
    }

    /// Reads the text of a file; what cannot be read is as if it were not there. Those whose time
    /// is over by `now_ms` are left out, and those that would be held for longer than anything is.
    #[must_use]
    pub fn parse(text: &str, now_ms: u64) -> Self {
        let mut held: Self = serde_json::from_str(text).unwrap_or_default();
        let longest = now_ms.saturating_add(millis());
        held.routes
            .retain(|held| held.until_ms > now_ms && held.until_ms <= longest);
        held.routes.truncate(MAX_HELD);
        held
    }

    /// Leaves a route alone from now on. The direct one never is.
    pub fn hold(&mut self, to: &Endpoint, route: &Route, now_ms: u64) {
        if route.is_direct() {
            return;
        }
        let new = HeldRoute {
            to: to.to_string(),
            route: route.to_string(),
            until_ms: now_ms.saturating_add(millis()),
        };
        self.routes
            .retain(|held| held.to != new.to || held.route != new.route);
        self.routes.insert(0, new);
        self.routes.truncate(MAX_HELD);
    }
}

fn millis() -> u64 {
    u64::try_from(HELD_FOR.as_millis()).unwrap_or(u64::MAX)
}

/// The file that they are kept in.
#[derive(Debug, Clone)]
pub struct HeldFile(pub PathBuf);

impl HeldFile {
    /// Those that are held at `now_ms`.
    #[must_use]
    pub fn read(&self, now_ms: u64) -> Held {
        let text = read_within(&self.0, MAX_BYTES).and_then(|text| String::from_utf8(text).ok());
        Held::parse(&text.unwrap_or_default(), now_ms)
    }

    /// Leaves a route alone from `now_ms` on. A file that cannot be written is not: the next copy
    /// finds out again.
    pub fn hold(&self, to: &Endpoint, route: &Route, now_ms: u64) {
        let mut held = self.read(now_ms);
        held.hold(to, route, now_ms);
        let text = serde_json::to_vec(&held).unwrap_or_default();
        if let Err(error) = replace(&self.0, &text) {
            tracing::debug!(file = %self.0.display(), %error, "a route that failed is not remembered");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_that_failed_is_left_alone_for_its_time_and_no_longer() {
        let dir = tempfile::tempdir().unwrap();
        let file = HeldFile(dir.path().join("held.json"));
        let (to, other): (Endpoint, Endpoint) = ("h:1".parse().unwrap(), "h:2".parse().unwrap());
        let route: Route = "a,b".parse().unwrap();
        assert_eq!(file.read(5), Held::default());
        file.hold(&to, &route, 1000);
        file.hold(&to, &Route::direct(), 1000);
        let until = 1000 + millis();
        let held = |now| file.read(now).is_held(&to, &route);
        assert!(held(1000) && held(until - 1) && !held(until));
        // A clock that was set back holds nothing for ever.
        assert!(!held(999));
        let now = file.read(1000);
        assert!(!now.is_held(&other, &route) && !now.is_held(&to, &Route::direct()));
        for depot in 0..2 * MAX_HELD {
            let route = format!("d{depot}").parse().unwrap();
            file.hold(&to, &route, 1001);
        }
        assert_eq!(file.read(1001).routes.len(), MAX_HELD);
        for broken in ["", "{", "[]", "{\"routes\": 3}", "\u{0}"] {
            std::fs::write(&file.0, broken).unwrap();
            assert_eq!(file.read(1001), Held::default(), "{broken}");
        }
    }
}
