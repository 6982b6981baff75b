//! Completion in shells: the scripts in real shells, and what they ask the program.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::stage::*;

/// Returns the directory of the program, for a shell's PATH.
fn path() -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_longhaul"));
    let own = std::env::var("PATH").unwrap();
    format!("{}:{own}", program.parent().unwrap().display())
}

/// Runs a script in a shell. Returns the lines that it prints. `None` if there is no such shell.
fn shell(stage: &Stage, name: &str, script: &str) -> Option<Vec<String>> {
    let output = Command::new(name)
        .args(["-c", script])
        .env("PATH", path())
        .env("HOME", stage.path("home"))
        .env("LONGHAUL_HOME", stage.path("me"))
        .current_dir(stage.tmp.path())
        .stdin(Stdio::null())
        .output();
    let Ok(output) = output else {
        eprintln!("not tested: no {name} here");
        return None;
    };
    assert!(output.status.success(), "{script}: {}", errors(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    Some(text.lines().map(str::to_owned).collect())
}

/// Completes a line in bash, whose words are split as bash does.
fn bash(stage: &Stage, words: &[&str], line: &str) -> Option<Vec<String>> {
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let last = words.last().unwrap().trim_start_matches([':', '=']);
    let script = format!(
        "eval \"$(longhaul completions bash)\"; compopt() {{ :; }}; COMP_WORDS=({}); \
         COMP_CWORD={}; COMP_LINE='{line}'; COMP_POINT={}; _longhaul longhaul '{last}' x; \
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        quoted.join(" "),
        words.len() - 1,
        line.len(),
    );
    shell(stage, "bash", &script)
}

/// Completes until there are candidates: a listing at a server has a time limit of a few seconds,
/// which a busy machine may exceed.
fn found(complete: impl Fn() -> Option<Vec<String>>) -> Option<Vec<String>> {
    let mut candidates = None;
    until("candidates", || {
        candidates = complete();
        let is_empty = |found: &Vec<String>| found.iter().all(String::is_empty);
        !candidates.as_ref().is_some_and(is_empty)
    });
    candidates
}

fn stage() -> Stage {
    let stage = Stage::new();
    fs::create_dir_all(stage.path("home/.ssh")).unwrap();
    fs::write(stage.path("home/.ssh/config"), "Host dtn1 dtn2 *.lab\n").unwrap();
    fs::create_dir(stage.path("here/data-dir")).unwrap();
    stage
}

#[test]
fn bash_completes_commands_options_and_hosts() {
    let stage = stage();
    let complete = |words: &[&str], line: &str| bash(&stage, words, line);
    let Some(commands) = complete(&["longhaul", "reserva"], "longhaul reserva") else {
        return;
    };
    assert_eq!(commands, ["reservations"]);
    let options = complete(&["longhaul", "cp", "--excl"], "longhaul cp --excl").unwrap();
    assert_eq!(options, ["--exclude", "--exclude-from"]);
    let hosts = complete(&["longhaul", "cp", "dt"], "longhaul cp dt").unwrap();
    assert_eq!(hosts, ["dtn1:", "dtn2:"]);
    let hosts = complete(&["longhaul", "ls", "ana@dt"], "longhaul ls ana@dt").unwrap();
    assert_eq!(hosts, ["ana@dtn1:", "ana@dtn2:"]);
    let files = complete(&["longhaul", "cp", "here/da"], "longhaul cp here/da").unwrap();
    assert_eq!(files, ["here/data-dir/"]);
}

#[test]
fn shells_complete_servers_and_paths_there() {
    let stage = stage();
    let server = stage.serve(&[]);
    fs::create_dir_all(stage.path("root/runs/run 1")).unwrap();
    fs::write(stage.path("root/runs/readme"), "x").unwrap();
    let known = format!("{} {}\n", server.address, server.key);
    fs::write(stage.path("me/known_hosts"), known).unwrap();
    let (host, port) = server.address.split_once(':').unwrap();
    let url = format!("//{host}");
    let line = format!("longhaul ls lh:{url}:{port}/runs/re");
    let rest = format!("{port}/runs/re");
    let words = ["longhaul", "ls", "lh", ":", &url, ":", &rest];
    if let Some(found) = found(|| bash(&stage, &words, &line)) {
        assert_eq!(found, [format!("{port}/runs/readme")]);
    }
    if let Some(found) = bash(
        &stage,
        &["longhaul", "ls", "lh", ":", "//"],
        "longhaul ls lh://",
    ) {
        assert_eq!(found, [format!("//{}/", server.address)]);
    }
    let script = format!(
        "longhaul completions fish | source; complete -C 'longhaul cp lh:{url}:{port}/runs/r'"
    );
    if let Some(mut found) = found(|| shell(&stage, "fish", &script)) {
        found.sort();
        let base = format!("lh:{url}:{port}/runs");
        assert_eq!(found, [format!("{base}/readme"), format!("{base}/run 1/")]);
    }
}
