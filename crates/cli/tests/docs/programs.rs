//! Checks that the project's programs accept a command line.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::page::Kind;
use crate::pages::{Doc, root};
use crate::shell::simple_commands;

/// Programs whose arguments are checked, and that make an indented block a block of commands.
pub const PROGRAMS: [&str; 6] = [
    "longhaul",
    "wanbed",
    "drs",
    "longhaul-figures",
    "make",
    "cargo",
];

/// A page whose commands make labs of their own. They are parsed, never run, and need no mark for
/// that.
pub const READ_ONLY: &str = "docs/wanbed.md";

/// A page that the tests of copies over ssh run, with hosts to log in to.
pub const OVER_SSH: &str = "docs/first-minutes.md";

/// A valid key, replacing the names that stand for keys in the text.
const SOME_KEY: &str = "lhk1:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

/// The folder that cargo builds the programs into.
pub fn folder() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_longhaul"))
        .parent()
        .unwrap_or(Path::new("/"))
}

/// Returns the errors in a page's command lines, and in their marks.
pub fn faults(doc: &Doc) -> Vec<String> {
    let mut faults = Vec::new();
    let mut check = |line: usize, command: &str| {
        for words in simple_commands(command) {
            if let Err(why) = understood(&words) {
                faults.push(format!("{}:{line}: {command}\n    {why}", doc.name));
            }
        }
    };
    for part in &doc.page.parts {
        if let Kind::Transcript(steps, _) | Kind::Commands(steps) | Kind::Indented(steps) =
            &part.kind
        {
            steps
                .iter()
                .for_each(|step| check(step.line, &step.command));
        }
    }
    for (line, span) in &doc.page.spans {
        if let Some(command) = command(span) {
            check(*line, command);
        }
    }
    for part in doc.page.parts.iter().filter(|_| doc.name != READ_ONLY) {
        let fault = match (&part.kind, &part.not_run) {
            (Kind::Commands(_), None) => {
                "a fence of sh says why it is not run, or is a transcript (console)"
            }
            (Kind::Indented(_), _) => {
                "commands stand in a fence: console, or sh with the reason why it is not run"
            }
            _ => continue,
        };
        faults.push(format!("{}:{}: {fault}", doc.name, part.line));
    }
    faults
}

/// Returns the command line in a code span, if it is one. An abbreviated one stands for all of its
/// kind: `longhaul cp ...`.
fn command(span: &str) -> Option<&str> {
    let (_, arguments) = span
        .split_once(' ')
        .filter(|(program, _)| PROGRAMS.contains(program))?;
    let words = arguments.starts_with(|c: char| c.is_ascii_lowercase() || c == '-');
    (words && !span.contains(['[', '<'])).then(|| span.trim_end_matches("..."))
}

fn understood(words: &[String]) -> Result<(), String> {
    let Some((program, arguments)) = words.split_first() else {
        return Ok(());
    };
    match program.as_str() {
        "longhaul" | "wanbed" | "drs" | "longhaul-figures" => takes(program, arguments),
        "make" => has_targets(arguments),
        "cargo" => has_packages(arguments),
        _ => Ok(()),
    }
}

/// Has the program parse the arguments with `--help` appended: it reports unknown arguments before
/// it prints help.
fn takes(program: &str, arguments: &[String]) -> Result<(), String> {
    let own = arguments.iter().take_while(|word| *word != "--");
    let file = built(program)?;
    let output = Command::new(file)
        .args(own.map(|word| with_keys(word)))
        .arg("--help")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

fn built(program: &str) -> Result<PathBuf, String> {
    let file = folder().join(program);
    let package = match program {
        "drs" => "drs-run",
        "longhaul" => "longhaul-cli",
        program => program,
    };
    match file.exists() {
        true => Ok(file),
        false => Err(format!("{program} is not built: cargo build -p {package}")),
    }
}

/// Replaces `lhk1:STORE...` and the like by a valid key.
fn with_keys(word: &str) -> String {
    match word.split_once("lhk1:") {
        None => word.to_owned(),
        Some((before, rest)) => {
            let after = rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '.');
            format!("{before}{SOME_KEY}{after}")
        }
    }
}

fn has_targets(arguments: &[String]) -> Result<(), String> {
    let folder = match arguments {
        [option, folder, ..] if option == "-C" => root().join(folder),
        _ => root(),
    };
    let file = folder.join("Makefile");
    let text =
        std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    let targets: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with(['\t', ' ', '#', '.']) && !line.contains(":="))
        .filter_map(|line| line.split_once(':'))
        .flat_map(|(names, _)| names.split_whitespace())
        .collect();
    let words = arguments.iter().skip(if folder == root() { 0 } else { 2 });
    for word in words.filter(|word| !word.contains('=')) {
        if !targets.contains(&word.as_str()) {
            return Err(format!("the Makefile has no target {word}"));
        }
    }
    Ok(())
}

/// Checks that named packages are in the workspace. Cargo's own options are not checked.
fn has_packages(arguments: &[String]) -> Result<(), String> {
    for pair in arguments.windows(2).filter(|pair| pair[0] == "-p") {
        let name = pair[1].strip_prefix("longhaul-").unwrap_or(&pair[1]);
        if !root().join("crates").join(name).is_dir() {
            return Err(format!("there is no package {}", pair[1]));
        }
    }
    Ok(())
}

#[test]
fn invalid_command_lines_are_found() {
    for (line, good) in [
        ("longhaul cp -r a b", true),
        ("longhaul cp --fast a b", false),
        ("longhaul perf --plan --rate 2.4Gbit/s --rtt 180ms", true),
        ("longhaul perf --plan --rate fast", false),
        (
            "longhaul serve --root /srv/data --read lhk1:LAPTOP...=dir",
            true,
        ),
        ("longhaul push", false),
        ("make test", true),
        ("make tests", false),
        ("cargo test -p longhaul-cli --test docs", true),
        ("cargo test -p longhaul-cp", false),
        ("apt-get install anything", true),
    ] {
        let words = simple_commands(line).remove(0);
        assert_eq!(understood(&words).is_ok(), good, "{line}");
    }
    assert_eq!(command("longhaul cp ..."), Some("longhaul cp "));
    assert_eq!(command("longhaul keys [list]"), None);
    assert_eq!(command("longhaul OPEN"), None);
    assert_eq!(command("none; make one"), None);
}
