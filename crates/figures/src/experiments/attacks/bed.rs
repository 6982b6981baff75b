//! Keys and files of all runs.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::attacker::HELD_FILE;
use crate::dataset;
use crate::identities::new_key;
use crate::tools::Tools;

/// Bytes that are copied: two seconds at the links' rate.
pub const BYTES: u64 = 24 << 20;

/// Keys and files of all runs.
pub struct Bed {
    /// Folder of the attacker's key.
    pub attacker_home: PathBuf,
    /// Key of the attacker, which `serve` and the depot's policy list.
    pub attacker_key: String,
    /// Folder that is served.
    pub root: PathBuf,
    /// Policy of the depot.
    pub policy_file: PathBuf,
}

impl Bed {
    /// Creates a key with `longhaul`, and files.
    ///
    /// # Errors
    /// `longhaul keys` or the file system fails.
    pub fn make(tools: &Tools) -> Result<Self> {
        let folder = tools.scratch.path().join("attacks");
        let attacker_home = folder.join("attacker");
        let attacker_key = new_key(&tools.longhaul, &attacker_home)?;
        let root = folder.join("root");
        dataset::sized_file(&root.join("file"), BYTES, 1)?;
        dataset::sized_file(&root.join(HELD_FILE), 4 << 20, 2)?;
        // The attacker is listed for another destination.
        let policy_file = folder.join("policy.toml");
        let honest = fs::read_to_string(&tools.identities.depot_policy)?;
        let attacker = format!(
            "[[allow]]\nprincipals = [\"{attacker_key}\"]\n\
             to = [\"198.51.100.0/24\", \"*.example.net\"]\n"
        );
        fs::write(&policy_file, honest + &attacker).context("cannot write the policy")?;
        Ok(Self {
            attacker_home,
            attacker_key,
            root,
            policy_file,
        })
    }
}
