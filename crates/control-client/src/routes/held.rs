//! Routes that failed on this machine, and are held back for a while. This limits the damage of a
//! wrong or hostile source. The record is kept on disk, never taken from a table, and may be lost.
#![deny(clippy::indexing_slicing)] // what is read here comes from a file

use std::path::PathBuf;
use std::time::Duration;

use crate::settings::{read_bounded, replace_file};
use longhaul_proto::{Endpoint, Route};
use serde::{Deserialize, Serialize};

/// Time for which a route is held back.
pub const HOLD_DURATION: Duration = Duration::from_secs(600);
/// Maximum number of routes to keep.
const MAX_HELD_ROUTES: usize = 256;
/// Maximum size of the file, in bytes.
const MAX_FILE_BYTES: u64 = 512 << 10;

/// Routes that are held back at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldRoutes {
    routes: Vec<HeldRoute>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct HeldRoute {
    to: String,
    route: String,
    /// End of the hold, in milliseconds since the Unix epoch.
    until_ms: u64,
}

impl HeldRoutes {
    /// Returns true if a route to a destination failed on this machine recently.
    #[must_use]
    pub fn is_held(&self, to: &Endpoint, route: &Route) -> bool {
        let (to, route) = (to.to_string(), route.to_string());
        self.routes
            .iter()
            .any(|held| held.to == to && held.route == route)
    }

    /// Parses the text of a file; an unreadable one counts as empty. Holds that are over at
    /// `now_ms` are left out, and those that end later than any hold can.
    #[must_use]
    pub fn parse(text: &str, now_ms: u64) -> Self {
        let mut held: Self = serde_json::from_str(text).unwrap_or_default();
        let longest = now_ms.saturating_add(hold_millis());
        held.routes
            .retain(|held| held.until_ms > now_ms && held.until_ms <= longest);
        held.routes.truncate(MAX_HELD_ROUTES);
        held
    }

    /// Holds a route back from now on. The direct route is never held back.
    pub fn hold_back(&mut self, to: &Endpoint, route: &Route, now_ms: u64) {
        if route.is_direct() {
            return;
        }
        let new = HeldRoute {
            to: to.to_string(),
            route: route.to_string(),
            until_ms: now_ms.saturating_add(hold_millis()),
        };
        self.routes
            .retain(|held| held.to != new.to || held.route != new.route);
        self.routes.insert(0, new);
        self.routes.truncate(MAX_HELD_ROUTES);
    }
}

fn hold_millis() -> u64 {
    u64::try_from(HOLD_DURATION.as_millis()).unwrap_or(u64::MAX)
}

/// File of the routes that are held back.
#[derive(Debug, Clone)]
pub struct HeldFile(pub PathBuf);

impl HeldFile {
    /// Returns the routes that are held back at `now_ms`.
    #[must_use]
    pub fn read(&self, now_ms: u64) -> HeldRoutes {
        let text =
            read_bounded(&self.0, MAX_FILE_BYTES).and_then(|text| String::from_utf8(text).ok());
        HeldRoutes::parse(&text.unwrap_or_default(), now_ms)
    }

    /// Holds a route back from `now_ms` on. A write error is ignored: the next copy will notice
    /// again.
    pub fn hold_back(&self, to: &Endpoint, route: &Route, now_ms: u64) {
        let mut held = self.read(now_ms);
        held.hold_back(to, route, now_ms);
        let text = serde_json::to_vec(&held).unwrap_or_default();
        if let Err(error) = replace_file(&self.0, &text) {
            tracing::debug!(
                file = %self.0.display(),
                %error,
                "cannot record that a route failed"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_route_is_held_back_for_exactly_its_time() {
        let dir = tempfile::tempdir().unwrap();
        let file = HeldFile(dir.path().join("held.json"));
        let (to, other): (Endpoint, Endpoint) = ("h:1".parse().unwrap(), "h:2".parse().unwrap());
        let route: Route = "a,b".parse().unwrap();
        assert_eq!(file.read(5), HeldRoutes::default());
        file.hold_back(&to, &route, 1000);
        file.hold_back(&to, &Route::direct(), 1000);
        let until = 1000 + hold_millis();
        let held = |now| file.read(now).is_held(&to, &route);
        assert!(held(1000) && held(until - 1) && !held(until));
        // With a clock that was set back, nothing is held forever.
        assert!(!held(999));
        let now = file.read(1000);
        assert!(!now.is_held(&other, &route) && !now.is_held(&to, &Route::direct()));
        for depot in 0..2 * MAX_HELD_ROUTES {
            let route = format!("d{depot}").parse().unwrap();
            file.hold_back(&to, &route, 1001);
        }
        assert_eq!(file.read(1001).routes.len(), MAX_HELD_ROUTES);
        for broken in ["", "{", "[]", "{\"routes\": 3}", "\u{0}"] {
            std::fs::write(&file.0, broken).unwrap();
            assert_eq!(file.read(1001), HeldRoutes::default(), "{broken}");
        }
    }
}
