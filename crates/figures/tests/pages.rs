//! The published pages say what the published runs say, and so do the documents that quote figures.

#![allow(clippy::unwrap_used)] // a test that fails may panic

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn figures(arguments: &[&str]) -> (bool, String) {
    figures_in(&root(), arguments)
}

fn figures_in(folder: &Path, arguments: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_longhaul-figures"))
        .current_dir(folder)
        .args(arguments)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text)
}

#[test]
fn every_page_and_every_quoted_figure_is_what_its_runs_say() {
    let (success, text) = figures(&["figures", "--check"]);
    assert!(success, "{text}");
}

#[test]
fn every_experiment_is_listed_with_what_it_takes() {
    let (success, text) = figures(&["figures"]);
    assert!(success, "{text}");
    assert!(
        text.lines()
            .any(|line| line.starts_with("depots ") && line.contains(" runs, about ")),
        "{text}"
    );
    assert!(
        text.lines()
            .last()
            .unwrap()
            .starts_with("all of them: about "),
        "{text}"
    );
}

#[test]
fn unknown_experiment_is_refused_in_one_line() {
    let (success, text) = figures(&["figures", "nothing-like-it"]);
    assert!(!success);
    assert!(
        text.starts_with(
            "longhaul-figures: there is no experiment \"nothing-like-it\": there are depots, "
        ),
        "{text}"
    );
    assert_eq!(text.lines().count(), 1, "{text}");
}

/// A project with the published runs of one experiment, and this README.
fn project(experiment: &str, readme: &str) -> tempfile::TempDir {
    let project = tempfile::tempdir().unwrap();
    let results = Path::new("docs/results");
    fs::create_dir_all(project.path().join(results)).unwrap();
    let runs = results.join(format!("{experiment}.json"));
    fs::copy(root().join(&runs), project.path().join(&runs)).unwrap();
    fs::write(project.path().join("README.md"), readme).unwrap();
    project
}

#[test]
fn single_run_is_marked_where_it_is_published_and_quoted() {
    let mark = "It carries <!-- figure lsr iperf3-paced-share@codel --><!-- /figure -->.\n";
    let project = project("lsr", mark);
    let (success, text) = figures_in(project.path(), &["figures", "--render"]);
    assert!(success, "{text}");
    let readme = fs::read_to_string(project.path().join("README.md")).unwrap();
    assert!(readme.contains("-->99.6 % (single)<!--"), "{readme}");
    let page = fs::read_to_string(project.path().join("docs/results/lsr.md")).unwrap();
    assert!(page.contains("2313 (single) |"), "{page}");
    assert!(!page.contains("(2313..2313)"), "{page}");
}

#[test]
fn check_fails_where_one_run_is_called_a_median() {
    let claim = "The median is <!-- figure lsr longhaul-share --><!-- /figure -->.\n";
    let project = project("lsr", claim);
    let (success, text) = figures_in(project.path(), &["figures", "--render"]);
    assert!(success, "{text}");
    let (success, text) = figures_in(project.path(), &["figures", "--check"]);
    assert!(!success);
    let expected = "one run passes for a median: README.md calls lsr longhaul-share a median; ";
    assert!(text.contains(expected), "{text}");
    let corrected = claim.replace("The median", "One run");
    fs::write(project.path().join("README.md"), corrected).unwrap();
    figures_in(project.path(), &["figures", "--render"]);
    let (success, text) = figures_in(project.path(), &["figures", "--check"]);
    assert!(success, "{text}");
}

#[test]
fn runs_of_a_lost_commit_are_of_an_unknown_one() {
    let project = project("forecast", "");
    fs::write(
        project.path().join("docs/results/unknown-commits.json"),
        "[\n\"144b1b7\"\n]\n",
    )
    .unwrap();
    let (success, text) = figures_in(project.path(), &["figures", "--render"]);
    assert!(success, "{text}");
    let page = fs::read_to_string(project.path().join("docs/results/forecast.md")).unwrap();
    assert!(
        page.contains("from an unknown commit (recorded as 144b1b7,"),
        "{page}"
    );
}
