//! Origin of a run: code, kernel, processor, day.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::record::Provenance;

/// Paths of the measured code and its scenarios. A change elsewhere (documents, results) does not
/// change the program.
const CODE: [&str; 3] = ["crates", "scenarios", "Cargo.lock"];

impl Provenance {
    /// Returns the origin of a run made now on this machine, in a lab with this backend, with the
    /// processors kept awake or not.
    pub fn here(commit: &str, backend: &str, awake: bool) -> Self {
        Self {
            commit: commit.to_owned(),
            kernel: rustix::system::uname()
                .release()
                .to_string_lossy()
                .into_owned(),
            backend: backend.to_owned(),
            processor: processor(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()),
            awake,
            date: jiff::Timestamp::now().strftime("%Y-%m-%d").to_string(),
        }
    }
}

/// Returns the last commit that changed the code below `root`, with a digest of later changes, if
/// any: `1a2b3c4` or `1a2b3c4+5d6e7f80`. `unknown` if git does not tell.
pub fn commit(root: &Path) -> String {
    let git = |arguments: &[&str]| -> Option<String> {
        let output = Command::new("git")
            .arg("-C")
            .arg(root)
            .args(arguments)
            .arg("--")
            .args(CODE)
            .output()
            .ok()?;
        output
            .status
            .success()
            .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let Some(last) = git(&["log", "-1", "--format=%h"]).filter(|last| !last.trim().is_empty())
    else {
        return "unknown".to_owned();
    };
    let last = last.trim();
    match git(&["diff", "HEAD"]) {
        Some(changes) if !changes.is_empty() => {
            let digest = blake3::hash(changes.as_bytes()).to_hex();
            format!("{last}+{}", &digest[..8])
        }
        _ => last.to_owned(),
    }
}

/// Returns `2 x Some Processor`, from the text of /proc/cpuinfo.
fn processor(cpuinfo: &str) -> String {
    let mut models = cpuinfo
        .lines()
        .filter_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map(|(_, model)| model.trim());
    match models.next() {
        Some(first) => format!("{} x {first}", 1 + models.count()),
        None => format!(
            "{} x {}",
            std::thread::available_parallelism().map_or(1, usize::from),
            std::env::consts::ARCH
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_counted() {
        assert_eq!(
            processor("model name\t: A 1\nflags: x\nmodel name\t: A 1\n"),
            "2 x A 1"
        );
    }
}
