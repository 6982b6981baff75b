//! `docs/first-minutes.md`: every command of the page is run in order, and its output is what the
//! page shows.

use std::fs;
use std::process::Stdio;

use crate::hosts::{Hosts, noise, same};
use crate::page::{self, Kind, Step};
use crate::shape::describes;

const PAGE: &str = include_str!("../../../../docs/first-minutes.md");
/// The host of the page, and its name in the lab: the one with the slow link.
const STORE: (&str, &str) = ("store.example", "beta");
/// Time limit in seconds for a command of the page.
const COMMAND_TIMEOUT_SECONDS: &str = "600";

#[test]
fn first_minutes_page_runs_as_written() {
    let Some(hosts) = Hosts::up(&[]) else { return };
    let home = hosts.path("client-home");
    fs::create_dir_all(home.join("results/plots")).unwrap();
    noise(&home.join("notes.txt"), 500);
    // It takes long enough over the slow link to be interrupted.
    noise(&home.join("big.dat"), 64 << 20);
    noise(&home.join("results/run-1.dat"), 3 << 20);
    noise(&home.join("results/plots/one.svg"), 9000);
    // A person would write this into ~/.ssh/config. ssh itself looks for that file in the home that
    // the system knows.
    let ssh = format!(
        "#!/bin/sh\nexec /usr/bin/ssh -F {} \"$@\"\n",
        hosts.path("config").display()
    );
    hosts.alias(STORE.0, STORE.1);
    hosts.program("ssh", &ssh);

    let page = page::read(PAGE, &["longhaul"]).unwrap();
    let mut faults = Vec::new();
    for part in page
        .parts
        .iter()
        .filter(|part| part.not_run.as_deref() != Some("takes minutes"))
    {
        let Kind::Transcript(steps, exit) = &part.kind else {
            continue;
        };
        let exits = std::iter::repeat_n(0, steps.len() - 1).chain([*exit]);
        faults.extend(
            steps
                .iter()
                .zip(exits)
                .filter_map(|(step, exit)| run(&hosts, step, exit)),
        );
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n\n"));
    assert!(same(
        &home.join("results/run-1.dat"),
        &home.join("again.dat")
    ));
}

/// Returns the difference from the page, if any.
fn run(hosts: &Hosts, step: &Step, exit: i32) -> Option<String> {
    let home = hosts.path("client-home");
    let path = format!("{}:/usr/bin:/bin", hosts.path("bin").display());
    let mut shell = hosts.lab.command("client", "timeout").unwrap();
    let output = shell
        .args([COMMAND_TIMEOUT_SECONDS, "sh", "-c"])
        .arg(format!("exec 2>&1; {}", step.command))
        .env("HOME", &home)
        .env("PATH", path)
        .env_remove("LONGHAUL_HOME")
        .env_remove("XDG_CONFIG_HOME")
        .current_dir(&home)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).replace(&*home.to_string_lossy(), "/home/ana");
    let printed: Vec<String> = text.lines().map(str::to_owned).collect();
    let as_shown = step.output.is_empty() || describes(&step.output, &printed, false);
    (output.status.code() != Some(exit) || !as_shown).then(|| {
        format!(
            "line {}: {}\n    ended with {}, not {exit}, or printed otherwise:\n{text}",
            step.line, step.command, output.status
        )
    })
}
