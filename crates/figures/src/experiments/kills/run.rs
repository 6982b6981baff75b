//! One copy that is killed and resumed until it is complete.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::mix::{Mix, NAME};
use super::state::Sign;
use super::{Cell, KillDirection, Observation, Side};
use crate::children::Server;
use crate::copy::{SERVER_PORT, first_copy, serve_for};
use crate::experiment::Here;
use crate::watched_copy::{Received, WatchedCopy};

/// A path that is slow compared with the machine. A copy then lasts long enough to be killed
/// halfway, and retransmitted data shows in the carried bytes.
pub const LAB: &str = include_str!("../../../labs/kills.toml");
/// Rate of the path, in bytes per second.
pub const BYTES_PER_SECOND: f64 = 100e6 / 8.0;

/// Maximum time of a command, and of the wait for a state.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(40);
/// Maximum number of commands for one copy.
const MAX_COMMANDS: u32 = 8;

/// Makes the copy.
///
/// # Errors
/// A program cannot be started, or the copy does not finish.
pub fn run(here: &Here<'_, Mix>, cell: &Cell) -> Result<Observation> {
    let arrived = here.folder.join("arrived");
    std::fs::create_dir(&arrived).context("cannot make a folder for what arrives")?;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(here.seed);
    let planned = cell.kill.map_or(0, |kill| kill.state.kills());
    let (mut kills, mut commands) = (0, 0);
    let mut server = Some(server(here, cell, &arrived)?);
    let started = Instant::now();
    loop {
        commands += 1;
        if commands > MAX_COMMANDS {
            bail!("{MAX_COMMANDS} commands did not complete the copy");
        }
        let mut copy = WatchedCopy::start(command(here, cell, &arrived)?)?;
        if let Some(kill) = cell.kill
            && commands <= planned
        {
            let due = match kill.state.sign(commands - 1, random.random_range(0.0..1.0)) {
                Sign::After(time) => copy.until(time, |_| false) == Received::Nothing,
                Sign::Event(wanted) => match copy.until(COMMAND_TIMEOUT, wanted) {
                    Received::It => true,
                    Received::End => false,
                    Received::Nothing => {
                        bail!("it did not come to be killed: {}", kill.state.words())
                    }
                },
            };
            let client_was_there = match kill.side {
                Side::Client | Side::Both if due => copy.kill()?,
                _ => false,
            };
            let kills_server = due && kill.side != Side::Client;
            if kills_server {
                // Ends the old server, and frees its port, before the new one starts.
                drop(server.take());
                server = Some(self::server(here, cell, &arrived)?);
            }
            kills += u32::from(client_was_there || kills_server);
            if client_was_there {
                continue;
            }
        }
        let (ended, _) = copy.end(COMMAND_TIMEOUT)?;
        match ended.code {
            Some(0) => break,
            // The connection broke, or the server was not up yet. Both are expected.
            Some(3 | 5) if kills > 0 => {}
            code => bail!("longhaul cp ended with {code:?}: {}", ended.errors.trim()),
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    drop(server);
    let difference = here.setup.compare(&arrived)?;
    Ok(Observation {
        kills,
        commands,
        carried: carried(here, cell)?,
        seconds,
        wrong_bytes: difference.wrong_bytes,
        lost_files: difference.lost_files,
        leftovers: difference.leftovers,
    })
}

fn server(here: &Here<'_, Mix>, cell: &Cell, arrived: &Path) -> Result<Server> {
    let root = match cell.direction {
        KillDirection::Push => arrived,
        KillDirection::Pull => &here.setup.root,
    };
    serve_for(here.tools, here.lab, "server", root, &["--read", "--write"])
}

fn command(here: &Here<'_, Mix>, cell: &Cell, arrived: &Path) -> Result<std::process::Command> {
    let mut command = first_copy(here, "client")?;
    let there = format!("lh://{}:{SERVER_PORT}", here.lab.address("server")?);
    command.args(["-r", "--json"]);
    match cell.direction {
        KillDirection::Push => command
            .arg(here.setup.root.join(NAME))
            .arg(format!("{there}/")),
        KillDirection::Pull => command.arg(format!("{there}/{NAME}")).arg(arrived),
    };
    Ok(command)
}

/// Returns the bytes that the path delivered in the direction of the files.
fn carried(here: &Here<'_, Mix>, cell: &Cell) -> Result<u64> {
    let report = here.lab.links()?;
    let link = report.links.first().context("the lab has no link")?;
    let direction = match cell.direction {
        KillDirection::Push => &link.counters.forward,
        KillDirection::Pull => &link.counters.backward,
    };
    Ok(direction.bytes)
}
