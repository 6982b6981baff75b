//! Where the streams of a copy came from.

use std::collections::BTreeSet;

use longhaul_accounts::record::{MAX_ROUTES, bounded};

use crate::client::StreamOrigin;

/// Where the streams of a copy came from.
#[derive(Default)]
pub(super) struct StreamOrigins {
    pub from: BTreeSet<String>,
    pub routes: BTreeSet<String>,
    pub purpose: Option<String>,
}

impl StreamOrigins {
    /// Adds the origin of a stream. Beyond [`MAX_ROUTES`], others are left out.
    pub(super) fn add(&mut self, origin: &StreamOrigin) {
        let add = |known: &mut BTreeSet<String>, text: String| {
            if known.len() < MAX_ROUTES {
                known.insert(text);
            }
        };
        if let Some(from) = origin.from {
            add(&mut self.from, from.ip().to_canonical().to_string());
        }
        add(&mut self.routes, bounded(&origin.route));
        if self.purpose.is_none() {
            self.purpose = origin.purpose.as_ref().map(bounded);
        }
    }
}
