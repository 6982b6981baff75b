//! The ordinary user that runs the measured relays, with the limits of the packaged service.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use anyhow::{Context, Result};
use rustix::process::{Resource, getrlimit};

/// The packaged unit of the depot. Every relay gets its limit on open files.
const UNIT: &str = include_str!("../../../../../packaging/systemd/system/longhaul-depot.service");
/// Setting of the unit that limits open files.
const LIMIT_SETTING: &str = "LimitNOFILE=";
/// Number of a user who owns nothing else.
const USER: u32 = 54_321;

/// Returns the number of files that a relay may open: that of the unit, or the hard limit of this
/// process, if that is lower and cannot be raised.
pub fn max_open_files() -> u64 {
    static LIMIT: LazyLock<u64> = LazyLock::new(|| {
        let hard = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        let stated = unit_limit().unwrap_or(hard);
        if hard >= stated || can_raise(stated) {
            stated
        } else {
            hard
        }
    });
    *LIMIT
}

/// Returns the number of files that the unit lets a depot open.
fn unit_limit() -> Option<u64> {
    let mut settings = UNIT.lines();
    settings.find_map(|line| line.strip_prefix(LIMIT_SETTING)?.parse().ok())
}

/// Returns true if this user may raise its hard limit to `files`.
fn can_raise(files: u64) -> bool {
    let mut prlimit = Command::new("prlimit");
    prlimit.args([&limit_option(files), "true"]);
    let status = prlimit.stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// Returns the option of prlimit(1) that sets both limits on open files.
pub fn limit_option(files: u64) -> String {
    format!("--nofile={files}:{files}")
}

/// Makes a folder that the ordinary user can enter, memory-backed if possible.
///
/// # Errors
/// It cannot be made.
pub fn folder() -> Result<tempfile::TempDir> {
    let memory = Path::new("/dev/shm");
    let base = match memory.is_dir() {
        true => memory.to_path_buf(),
        false => std::env::temp_dir(),
    };
    let folder = tempfile::Builder::new()
        .prefix("longhaul-load-")
        .tempdir_in(&base)
        .with_context(|| format!("cannot make a folder in {}", base.display()))?;
    give(folder.path())?;
    Ok(folder)
}

/// Gives a file or folder to the ordinary user, if this is root.
///
/// # Errors
/// Its owner cannot be changed.
pub fn give(path: &Path) -> Result<()> {
    if !is_root() {
        return Ok(());
    }
    std::os::unix::fs::chown(path, Some(USER), Some(USER))
        .with_context(|| format!("cannot change the owner of {}", path.display()))
}

/// Returns the command of a program as the ordinary user, without privileges and with
/// [`max_open_files`]. Its process becomes the program.
pub fn command(program: &Path) -> Command {
    let mut command = Command::new("prlimit");
    command.arg(limit_option(max_open_files()));
    if is_root() {
        let user = USER.to_string();
        command
            .args(["setpriv", "--reuid", &user, "--regid", &user])
            .args(["--clear-groups", "--no-new-privs"])
            .args(["--inh-caps=-all", "--bounding-set=-all"]);
    }
    command.arg(program);
    command
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[cfg(test)]
mod tests {
    use super::super::SESSIONS;
    use super::*;

    #[test]
    fn unit_has_room_for_the_measured_sessions() {
        let limit = unit_limit().unwrap();
        assert!(limit > 2 * SESSIONS as u64 + 1000, "{limit}");
    }

    #[test]
    fn a_program_runs_under_the_limit_of_the_unit() {
        let limit = max_open_files();
        let output = command(Path::new("sh"))
            .args(["-c", "ulimit -n; id -u"])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout.clone()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines.first(),
            Some(&limit.to_string().as_str()),
            "{output:?}"
        );
        assert_ne!(lines.get(1), Some(&"0"));
    }
}
