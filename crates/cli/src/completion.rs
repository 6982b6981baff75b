//! Completion of the command line in shells. The shell asks this program for candidates.

use std::ffi::{OsStr, OsString};

use anyhow::{Result, anyhow};
use clap::Command;
use clap_complete::Shell;
use clap_complete::engine::{
    ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use clap_complete::env::{CompleteEnv, Shells};

mod candidates;
mod far_paths;
mod ssh_hosts;

/// Environment variable that names the shell that asks for candidates.
const VARIABLE: &str = "LONGHAUL_COMPLETE";

/// Script for bash. Bash splits words at colons as well, so the script joins them before it asks,
/// and cuts the joined part from the candidates.
const BASH: &str = include_str!("completion/longhaul.bash");

/// Returns the candidates for what is typed of a value.
type Completer = fn(&OsStr) -> Vec<CompletionCandidate>;

/// Arguments whose values are completed: path of the command, ID of the argument, and completer.
const COMPLETED: &[(&str, &str, Completer)] = &[
    ("cp", "paths", any_path),
    ("submit", "paths", any_path),
    ("sync", "source", any_path),
    ("sync", "destination", any_path),
    ("ls", "path", remote_path),
    ("stat", "path", remote_path),
    ("du", "path", any_path),
    ("find", "path", any_path),
    ("cat", "path", any_path),
    ("head", "path", any_path),
    ("sum", "path", any_path),
    ("verify", "end", any_path),
    ("mkdir", "path", remote_path),
    ("rm", "path", remote_path),
    ("mv", "from", remote_path),
    ("mv", "to", remote_path),
    ("leftovers", "place", any_path),
    ("places add", "root", any_path),
    ("places remove", "name", candidates::place_names),
    ("places test", "name", candidates::place_names),
    ("job", "id", candidates::jobs),
    ("pause", "ids", candidates::jobs),
    ("resume", "ids", candidates::jobs),
    ("cancel", "ids", candidates::jobs),
    ("retry", "ids", candidates::jobs),
    ("doctor", "host", candidates::servers),
    ("perf", "server", candidates::servers),
    ("route", "host", candidates::servers),
    ("trace", "path", candidates::servers),
];

/// Answers a shell that asks for candidates. Returns false if this is an ordinary run.
pub fn answer(command: impl Fn() -> Command) -> bool {
    if std::env::var_os(VARIABLE).is_none() {
        return false;
    }
    let here = std::env::current_dir().ok();
    CompleteEnv::with_factory(|| with_completers(command()))
        .var(VARIABLE)
        .try_complete(std::env::args_os(), here.as_deref())
        // A shell has no place for an error.
        .unwrap_or(true)
}

/// Returns the script that makes a shell ask for candidates.
///
/// # Errors
/// The script cannot be made for this shell.
pub fn script(shell: Shell) -> Result<Vec<u8>> {
    if shell == Shell::Bash {
        return Ok(BASH.replace("VARIABLE", VARIABLE).into_bytes());
    }
    let name = shell.to_string();
    let shells = Shells::builtins();
    let adapter = shells
        .completer(&name)
        .ok_or_else(|| anyhow!("{name}: there are no completions for this shell"))?;
    let mut text = Vec::new();
    adapter.write_registration(VARIABLE, "longhaul", "longhaul", "longhaul", &mut text)?;
    Ok(text)
}

fn with_completers(root: Command) -> Command {
    COMPLETED.iter().fold(root, |root, (path, id, completer)| {
        let names: Vec<&str> = path.split(' ').collect();
        with_completer(root, &names, id, *completer)
    })
}

fn with_completer(
    command: Command,
    path: &[&str],
    id: &str,
    completer: fn(&OsStr) -> Vec<CompletionCandidate>,
) -> Command {
    match path.split_first() {
        Some((name, below)) => {
            command.mut_subcommand(name, |found| with_completer(found, below, id, completer))
        }
        None => command.mut_arg(id, |arg| arg.add(ArgValueCompleter::new(completer))),
    }
}

/// Completes paths here and on other machines.
fn any_path(current: &OsStr) -> Vec<CompletionCandidate> {
    match far_paths::split(current) {
        Some(directory) => far_paths::list(&directory),
        None => {
            let mut found = PathCompleter::any().complete(current);
            found.extend(candidates::places(current));
            found
        }
    }
}

/// Completes paths on other machines.
fn remote_path(current: &OsStr) -> Vec<CompletionCandidate> {
    match far_paths::split(current) {
        Some(directory) => far_paths::list(&directory),
        None => candidates::places(current),
    }
}

/// Returns candidates that begin with what was typed, sorted, each once.
fn beginning_with(
    current: &OsStr,
    values: impl IntoIterator<Item = String>,
) -> Vec<CompletionCandidate> {
    let typed = current.as_encoded_bytes();
    let mut values: Vec<OsString> = values
        .into_iter()
        .filter(|value| value.as_bytes().starts_with(typed))
        .map(OsString::from)
        .collect();
    values.sort();
    values.dedup();
    values.into_iter().map(CompletionCandidate::new).collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn completed_arguments_exist() {
        // An unknown argument or command panics.
        let _ = with_completers(crate::Arguments::command());
    }

    #[test]
    fn every_shell_has_a_script() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let text = String::from_utf8(script(shell).unwrap()).unwrap();
            assert!(
                text.contains("longhaul") && text.contains(VARIABLE),
                "{text}"
            );
        }
    }

    #[test]
    fn candidates_begin_with_the_typed_text() {
        let values = ["b:", "a:", "ab:", "a:"].map(str::to_owned);
        let found = beginning_with("a".as_ref(), values);
        let found: Vec<&OsStr> = found.iter().map(CompletionCandidate::get_value).collect();
        assert_eq!(found, ["a:", "ab:"]);
    }
}
