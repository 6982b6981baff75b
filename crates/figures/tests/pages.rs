//! The published pages say what the published runs say, and so do the documents that quote figures.

#![allow(clippy::unwrap_used)] // a test that fails may panic

use std::path::Path;
use std::process::Command;

fn figures(arguments: &[&str]) -> (bool, String) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new(env!("CARGO_BIN_EXE_longhaul-figures"))
        .current_dir(root)
        .args(arguments)
        .output()
        .unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
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
        text.lines().last().unwrap().starts_with("all of them: about "),
        "{text}"
    );
}

#[test]
fn what_there_is_not_is_said_in_one_line() {
    let (success, text) = figures(&["figures", "nothing-like-it"]);
    assert!(!success);
    assert!(
        text.starts_with("longhaul-figures: there is no experiment \"nothing-like-it\": there are depots, "),
        "{text}"
    );
    assert_eq!(text.lines().count(), 1, "{text}");
}
