//! Keys and files, and one measured copy after the other.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use longhaul_hostile::Usage;

use super::attack::Victim;
use super::attacker::HELD_FILE;
use super::place::AttackBed;
use super::{Cell, Observation};
use crate::dataset;
use crate::experiment::Here;
use crate::identities::new_key;
use crate::tools::Tools;

/// Bytes that are copied: two seconds at the links' rate.
const BYTES: u64 = 24 << 20;
/// Interval at which the attacked process is sampled.
const USAGE_SAMPLE_PERIOD: Duration = Duration::from_millis(50);

/// Keys and files of all runs.
pub struct Bed {
    /// Folder of the attacker's key.
    pub attacker_home: PathBuf,
    /// Key of the attacker, which `serve` and the depot's policy list.
    pub attacker_key: String,
    /// Folder that is served.
    root: PathBuf,
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

    /// Makes one honest copy with fresh processes.
    ///
    /// # Errors
    /// A process cannot be started. A copy that fails is a result.
    pub fn run(&self, here: &Here<'_, Self>, cell: &Cell) -> Result<Observation> {
        let place = AttackBed::set_up(here)?;
        let root = here.folder.join("root");
        fs::create_dir(&root)?;
        for name in ["file", HELD_FILE] {
            fs::hard_link(self.root.join(name), root.join(name))?;
        }
        let serve = place.serve(&root)?;
        let depot = place.depot()?;
        let victim = match cell.attack.victim() {
            Victim::Serve => &serve,
            Victim::Depot => &depot,
        };
        let process = victim.child.id();
        let attacker = cell
            .under_attack
            .then(|| place.attacker(cell.attack, &victim.key))
            .transpose()?;
        let began = Instant::now();
        let log_before = fs::metadata(&victim.log)?.len();
        let over = AtomicBool::new(false);
        let (copied, descriptors) = thread::scope(|scope| {
            let watch = scope.spawn(|| {
                let mut most = 0;
                while !over.load(Ordering::Relaxed) {
                    most = most.max(Usage::read(process).unwrap_or_default().descriptors);
                    thread::sleep(USAGE_SAMPLE_PERIOD);
                }
                most
            });
            let copied = place.copy(cell.attack, &serve.key);
            over.store(true, Ordering::Relaxed);
            (copied, watch.join().unwrap_or_default())
        });
        let seconds = began.elapsed().as_secs_f64();
        let usage = Usage::read(process).unwrap_or_default();
        let logged = fs::metadata(&victim.log)?.len() - log_before;
        drop(attacker);
        let mut seen = Observation {
            begins_s: None,
            rate_bps: None,
            error: None,
            peak_memory: usage.most_resident,
            peak_descriptors: descriptors.max(usage.descriptors),
            log_bytes_per_s: logged as f64 / seconds,
        };
        match copied? {
            Ok((begins, lasts)) => {
                seen.begins_s = Some(begins);
                seen.rate_bps = Some(BYTES as f64 * 8.0 / lasts);
            }
            Err(reason) => seen.error = Some(reason),
        }
        Ok(seen)
    }
}
