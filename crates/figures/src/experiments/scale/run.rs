//! One copy within one node, over its loopback interface, and the resources of its processes.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::tree::{count, has_room, make};
use super::{Cell, CopiedData, Observation, ScaleMethod, Usage};
use crate::children::Server;
use crate::copy::{SERVER_PORT, Source, first_copy, serve_for};
use crate::experiment::Here;
use crate::peers;
use crate::peers::one_copy::{Job, PeerDirection, one_copy};
use crate::watched_copy::WatchedCopy;

/// Both ends are in one node. The other node exists because a lab needs a link.
pub const LAB: &str = include_str!("../../../labs/scale.toml");
/// Maximum time of a copy.
const COPY_TIMEOUT: Duration = Duration::from_secs(900);
/// Interval at which the processes are sampled. The kernel records their maximum memory.
const USAGE_SAMPLE_PERIOD: Duration = Duration::from_millis(50);

/// Makes the data, and copies it.
///
/// # Errors
/// The space is insufficient, a program cannot be started, or the copy fails.
pub fn run(here: &Here<'_, ()>, cell: Cell) -> Result<Observation> {
    let sent = here.folder.join("sent");
    std::fs::create_dir(&sent)?;
    let files = cell.what.shape().0;
    make(&sent, cell.what)?;
    // If memory has no room for the same number of inodes again, the copy goes to disk.
    let elsewhere = (!has_room(here.folder, files))
        .then(tempfile::tempdir)
        .transpose()?;
    let arrived = elsewhere
        .as_ref()
        .map_or(here.folder, |folder| folder.path());
    ensure!(
        has_room(arrived, files),
        "{} has no inodes left for {files} files",
        arrived.display()
    );
    let arrived = arrived.join("arrived");
    std::fs::create_dir(&arrived)?;
    if cell.way == ScaleMethod::Rsync {
        return by_rsync(here, &sent);
    }
    let (root, grant) = match cell.way {
        ScaleMethod::Push => (&arrived, "--write"),
        _ => (&sent, "--read"),
    };
    let server = serve_for(here.tools, here.lab, "host", root, &[grant])?;
    let (seconds, client, server) = copy(here, cell, &server, &sent, &arrived)?;
    let (files, bytes) = count(&arrived.join("data"))?;
    ensure!(
        (files, bytes) == count(&sent.join("data"))?,
        "{files} files of {bytes} bytes arrived"
    );
    if cell.what == CopiedData::Sparse {
        let there = std::os::unix::fs::MetadataExt::blocks(&arrived.join("data").metadata()?);
        ensure!(
            there < 1 << 14,
            "the hole did not stay one: {there} blocks of 512 bytes"
        );
    }
    Ok(Observation {
        files,
        bytes,
        seconds,
        client: Some(client),
        server: Some(server),
    })
}

/// Copies with `longhaul cp`. Returns the seconds, and the resources of client and server.
fn copy(
    here: &Here<'_, ()>,
    cell: Cell,
    server: &Server,
    sent: &Path,
    arrived: &Path,
) -> Result<(f64, Usage, Usage)> {
    let mut command = first_copy(here, "host")?;
    let there = format!("lh://{}:{SERVER_PORT}", here.lab.address("host")?);
    command.args(["-r", "--quiet"]);
    if let Some(streams) = cell.what.streams() {
        command.args(["--streams", &streams.to_string()]);
    }
    match cell.way {
        ScaleMethod::Push => command.arg(sent.join("data")).arg(format!("{there}/")),
        _ => command.arg(format!("{there}/data")).arg(arrived),
    };
    let began = Instant::now();
    let copy = WatchedCopy::start(command)?;
    let (client, server) = (copy.process(), server.process());
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut last = Usage::default();
            while !over.load(Ordering::Relaxed) {
                // The kernel reports no memory of a process that has ended.
                last = usage(client)
                    .filter(|now| now.peak_mib > 0.0)
                    .unwrap_or(last);
                thread::sleep(USAGE_SAMPLE_PERIOD);
            }
            last
        });
        let ended = copy.end(COPY_TIMEOUT);
        let seconds = began.elapsed().as_secs_f64();
        over.store(true, Ordering::Relaxed);
        let client = watch.join().unwrap_or_default();
        let (ended, _) = ended?;
        if ended.code != Some(0) {
            bail!(
                "longhaul cp ended with {:?}: {}",
                ended.code,
                ended.errors.trim()
            );
        }
        let server = usage(server).context("the server has ended")?;
        Ok((seconds, client, server))
    })
}

/// Returns the resources that a process has used so far.
fn usage(process: u32) -> Option<Usage> {
    let usage = longhaul_hostile::Usage::read(process).ok()?;
    Some(Usage {
        peak_mib: usage.most_resident as f64 / f64::from(1 << 20),
        cpu_seconds: usage.processor_seconds,
    })
}

fn by_rsync(here: &Here<'_, ()>, sent: &Path) -> Result<Observation> {
    let source = Source {
        root: sent.to_path_buf(),
        name: "data".into(),
    };
    let job = Job {
        lab: here.lab,
        client: "host",
        server: "host",
        relay: None,
        scratch: here.folder,
        source: &source,
        direction: PeerDirection::Fetch,
        streams: 1,
    };
    let timed = one_copy(&peers::find("rsync")?, &job)?;
    Ok(Observation {
        files: timed.contents.files,
        bytes: timed.contents.bytes,
        seconds: timed.seconds,
        client: None,
        server: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_of_this_process_is_measured() {
        let usage = usage(std::process::id()).unwrap();
        assert!(usage.peak_mib > 0.5 && usage.cpu_seconds >= 0.0);
    }
}
