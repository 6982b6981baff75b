//! Cost of setup: the smallest copy, direct and through depots.

use super::copies::{Copies, Planned};
use crate::setting::{self, CopyRoute, Mnemonic};

/// The experiment.
pub const FIRST_BYTE: Copies = Copies {
    name: "first-byte",
    title: "What set-up costs: a file of one byte, direct and through depots",
    head: "A file of one byte, from the start of the copy to its verified end. The direct paths' \
        round trips are 120 and 150 ms: depots add none.",
    seeds: 2,
    copies: || {
        [
            setting::clean_long(),
            setting::mnemonic_tuned(Mnemonic::Long, "cubic"),
        ]
        .into_iter()
        .flat_map(|setting| {
            CopyRoute::BOTH.map(|way| Planned {
                setting: setting.clone(),
                bytes: 1,
                way,
                streams: Some(1),
            })
        })
        .collect()
    },
};
