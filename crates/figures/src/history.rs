//! Commits of runs, and their presence in the history.
//!
//! A run names the commit of its code. If the commit's branch was rebased afterwards, no history
//! has it, and nobody can look up the code. The pages then mark the code as unknown.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use serde::Deserialize;

use crate::store::Store;

/// Name of the file that lists the commits without a history. It is read if git has no complete
/// history.
const FILE: &str = "unknown-commits";

/// Commit of a run whose code git did not know when the run was made.
const UNKNOWN: &str = "unknown";

/// Commits that runs name and the history lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LostCommits(BTreeSet<String>);

/// The part of a run that names its commit.
#[derive(Deserialize)]
struct Run {
    made: MadeBy,
}

#[derive(Deserialize)]
struct MadeBy {
    commit: String,
}

impl LostCommits {
    /// Finds the lost commits of the runs in `out`. Without a complete history of this project in
    /// git, those are the ones that the list in `out` names.
    ///
    /// # Errors
    /// A file of runs, or the list, cannot be read.
    pub fn find(out: &Path, experiments: impl Iterator<Item = &'static str>) -> Result<Self> {
        let mut named = BTreeSet::new();
        for name in experiments {
            let runs: Vec<Run> = Store::open(out, name).read()?;
            named.extend(
                runs.into_iter()
                    .map(|run| base(&run.made.commit).to_owned()),
            );
        }
        match lost(&named, &history(Path::new("."))) {
            Some(lost) => Ok(Self(lost)),
            None => Ok(Self(Store::open(out, FILE).read()?.into_iter().collect())),
        }
    }

    /// Returns the list's file in `out` and what it should hold.
    ///
    /// # Errors
    /// The commits cannot be written as JSON.
    pub fn list(&self, out: &Path) -> Result<(std::path::PathBuf, String)> {
        let all: Vec<&String> = self.0.iter().collect();
        Ok((Store::open(out, FILE).path().to_owned(), Store::text(&all)?))
    }

    /// Returns true if nothing is known of the code that a run with this commit measured.
    pub fn has(&self, commit: &str) -> bool {
        base(commit) == UNKNOWN || self.0.contains(base(commit))
    }

    /// Describes the code of a run.
    pub fn describe(&self, commit: &str) -> String {
        match commit.split_once('+') {
            _ if commit == UNKNOWN => "an unknown commit".to_owned(),
            _ if self.has(commit) => {
                format!("an unknown commit (recorded as {commit}, which the history does not have)")
            }
            Some((base, changes)) => {
                format!("{base} with changes that are in no commit ({changes})")
            }
            None => commit.to_owned(),
        }
    }
}

#[cfg(test)]
impl<const N: usize> From<[&str; N]> for LostCommits {
    fn from(commits: [&str; N]) -> Self {
        Self(commits.into_iter().map(str::to_owned).collect())
    }
}

/// Returns the commit that was changed, without the digest of the changes.
fn base(commit: &str) -> &str {
    commit.split_once('+').map_or(commit, |(base, _)| base)
}

/// Returns the named commits that are not in the history. `None` if the history has none of them:
/// it is then that of another project, or one that begins later.
fn lost(named: &BTreeSet<String>, history: &[String]) -> Option<BTreeSet<String>> {
    let has = |commit: &str| history.iter().any(|full| full.starts_with(commit));
    let lost: BTreeSet<String> = named
        .iter()
        .filter(|commit| *commit != UNKNOWN && !has(commit))
        .cloned()
        .collect();
    (lost.len() < named.len()).then_some(lost)
}

/// Returns the full names of the commits before `HEAD`; none where git does not have all of them.
fn history(root: &Path) -> Vec<String> {
    let git = |arguments: &[&str]| -> Option<String> {
        let output = Command::new("git")
            .arg("-C")
            .arg(root)
            .args(arguments)
            .output()
            .ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        output.status.success().then_some(text)
    };
    match git(&["rev-parse", "--is-shallow-repository"]) {
        Some(shallow) if shallow.trim() == "false" => {
            let commits = git(&["rev-list", "HEAD"]).unwrap_or_default();
            commits.lines().map(str::to_owned).collect()
        }
        _ => vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(commits: &[&str]) -> BTreeSet<String> {
        commits.iter().map(|commit| (*commit).to_owned()).collect()
    }

    #[test]
    fn commits_that_the_history_lacks_are_lost() {
        let history = ["1a2b3c4d5e".to_owned(), "99887766aa".to_owned()];
        let named = set(&["1a2b3c4", "5555555", UNKNOWN]);
        assert_eq!(lost(&named, &history).unwrap(), set(&["5555555"]));
    }

    #[test]
    fn history_of_another_project_is_ignored() {
        let named = set(&["1a2b3c4", "5555555"]);
        assert_eq!(lost(&named, &["99887766aa".to_owned()]), None);
        assert_eq!(lost(&named, &[]), None);
    }

    #[test]
    fn lost_commit_is_called_unknown() {
        let lost = LostCommits::from(["5555555"]);
        let unknown = "an unknown commit (recorded as 5555555, which the history does not have)";
        assert_eq!(lost.describe("5555555"), unknown);
        assert!(lost.has("5555555+00ff00ff") && lost.has(UNKNOWN) && !lost.has("1a2b3c4"));
        assert_eq!(lost.describe("1a2b3c4"), "1a2b3c4");
        assert_eq!(
            lost.describe("1a2b3c4+00ff00ff"),
            "1a2b3c4 with changes that are in no commit (00ff00ff)"
        );
    }

    #[test]
    fn recorded_list_counts_without_a_history() {
        let folder = tempfile::tempdir().unwrap();
        Store::open(folder.path(), "some")
            .write(&[serde_json::json!({"made": {"commit": "not-a-commit"}})])
            .unwrap();
        let (path, text) = LostCommits::from(["not-a-commit"])
            .list(folder.path())
            .unwrap();
        std::fs::write(path, text).unwrap();
        let lost = LostCommits::find(folder.path(), ["some"].into_iter()).unwrap();
        assert_eq!(lost, LostCommits::from(["not-a-commit"]));
    }
}
