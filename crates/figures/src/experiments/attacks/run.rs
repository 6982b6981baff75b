//! One measured copy after the other.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use longhaul_hostile::Usage;

use super::attack::Victim;
use super::attacker::HELD_FILE;
use super::bed::{BYTES, Bed};
use super::place::AttackBed;
use super::{Cell, Observation};
use crate::experiment::Here;

/// Interval at which the attacked process is sampled.
const USAGE_SAMPLE_PERIOD: Duration = Duration::from_millis(50);

impl Bed {
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
