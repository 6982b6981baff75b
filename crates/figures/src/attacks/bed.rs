//! Keys, files, and one measured copy after another.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use longhaul_hostile::Usage;

use super::attack::Victim;
use super::attacker::HELD_FILE;
use super::place::Place;
use super::{Attack, Build, Run};
use crate::identities::Identities;
use crate::{copy, dataset};

/// What is copied, in bytes: two seconds at the links' rate.
const BYTES: u64 = 24 << 20;
/// How often the attacked process is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// Keys and files.
pub struct Bed {
    /// Keys of the honest.
    pub identities: Identities,
    /// Where the attacker's key is.
    pub attacker_home: PathBuf,
    /// The attacker's key, which `serve` and the depot's policy list.
    pub attacker_key: String,
    /// Files, logs and copies.
    pub scratch: tempfile::TempDir,
}

impl Bed {
    /// Makes keys with `longhaul`, and files.
    ///
    /// # Errors
    /// What `longhaul keys` says, or the file system.
    pub fn make(longhaul: &Path) -> Result<Self> {
        let scratch = copy::scratch()?;
        let keys = scratch.path().join("keys");
        let identities = Identities::create(longhaul, &keys)?;
        let attacker_home = keys.join("attacker");
        let attacker_key = crate::identities::new_key(longhaul, &attacker_home)?;
        dataset::sized_file(&scratch.path().join("root/file"), BYTES, 1)?;
        dataset::sized_file(&scratch.path().join("root").join(HELD_FILE), 4 << 20, 2)?;
        let bed = Self {
            identities,
            attacker_home,
            attacker_key,
            scratch,
        };
        bed.write_policy()?;
        Ok(bed)
    }

    /// The depot's policy.
    pub fn policy_file(&self) -> PathBuf {
        self.scratch.path().join("policy.toml")
    }

    /// The attacker is listed, for somewhere else.
    fn write_policy(&self) -> Result<()> {
        let honest = fs::read_to_string(&self.identities.depot_policy)?;
        let attacker = format!(
            "[[allow]]\nprincipals = [\"{}\"]\nto = [\"198.51.100.0/24\", \"*.example.net\"]\n",
            self.attacker_key
        );
        fs::write(self.policy_file(), honest + &attacker).context("cannot write the policy")
    }

    /// One honest copy from fresh processes of `program`.
    ///
    /// # Errors
    /// A process cannot be started. A copy that fails is a result.
    pub fn run(
        &self,
        program: &Path,
        attack: Attack,
        build: Build,
        round: u32,
        under_attack: bool,
    ) -> Result<Run> {
        let place = Place::up(self)?;
        let root = tempfile::tempdir_in(self.scratch.path())?;
        for name in ["file", HELD_FILE] {
            fs::hard_link(
                self.scratch.path().join("root").join(name),
                root.path().join(name),
            )?;
        }
        let serve = place.serve(program, root.path())?;
        let depot = place.depot(program)?;
        let victim = match attack.victim() {
            Victim::Serve => &serve,
            Victim::Depot => &depot,
        };
        let process = victim.child.id();
        let attacker = under_attack
            .then(|| place.attacker(attack, &victim.key))
            .transpose()?;
        let began = Instant::now();
        let log_before = fs::metadata(&victim.log)?.len();
        let over = AtomicBool::new(false);
        let (copied, descriptors) = thread::scope(|scope| {
            let watch = scope.spawn(|| {
                let mut most = 0;
                while !over.load(Ordering::Relaxed) {
                    most = most.max(Usage::of(process).unwrap_or_default().descriptors);
                    thread::sleep(LOOK);
                }
                most
            });
            let copied = place.copy(program, attack, &serve.key);
            over.store(true, Ordering::Relaxed);
            (copied, watch.join().unwrap_or_default())
        });
        let seconds = began.elapsed().as_secs_f64();
        let usage = Usage::of(process).unwrap_or_default();
        let logged = fs::metadata(&victim.log)?.len() - log_before;
        drop(attacker);
        let valid = place.lab.links()?.valid;
        let mut run = Run {
            attack,
            build,
            round,
            under_attack,
            begins_s: None,
            rate_bps: None,
            error: None,
            peak_memory: usage.most_resident,
            peak_descriptors: descriptors.max(usage.descriptors),
            log_bytes_per_s: logged as f64 / seconds,
            valid,
        };
        match copied? {
            Ok((begins, lasts)) => {
                run.begins_s = Some(begins);
                run.rate_bps = Some(BYTES as f64 * 8.0 / lasts);
            }
            Err(told) => run.error = Some(told),
        }
        Ok(run)
    }
}
