//! Cost of setup: the smallest copy, direct and through depots.

use super::copies::{Copies, Planned};
use crate::setting::{self, CopyRoute};

/// The experiment.
pub const FIRST_BYTE: Copies = Copies {
    name: "first-byte",
    title: "What set-up costs: a file of one byte, direct and through depots",
    head: "A file of one byte, from the start of the copy to its verified end. The direct paths' \
        round trips are 120 and 150 ms: depots add none.",
    seeds: 2,
    copies: || {
        let settings = ["clean-long", "mnemonic-25-100-25-cubic"].map(setting::named);
        let both = |setting| {
            CopyRoute::BOTH.map(|way| Planned {
                setting,
                bytes: 1,
                way,
                streams: Some(1),
            })
        };
        settings.into_iter().flatten().flat_map(both).collect()
    },
};
