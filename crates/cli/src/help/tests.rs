use clap::{Command, CommandFactory};

use super::*;
use crate::Arguments;

fn paths(command: &Command, path: &str, into: &mut Vec<String>) {
    for below in command
        .get_subcommands()
        .filter(|below| !below.is_hide_set())
    {
        let path = format!("{path} {}", below.get_name())
            .trim_start()
            .to_owned();
        paths(below, &path, into);
        into.push(path);
    }
}

/// A key, for the examples that shorten one.
const KEY: &str = "lhk1:niaoxkfuhg7uezck4tpxvi5vcz2haqx3oongy2zjg4d5exsra6sa";

/// Splits an example into words, as a shell does.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut is_quoted = false;
    for letter in line.chars() {
        match letter {
            '\'' => is_quoted = !is_quoted,
            ' ' if !is_quoted => words.push(String::new()),
            letter => words.last_mut().unwrap().push(letter),
        }
    }
    words
}

#[test]
fn every_command_is_in_one_group() {
    let root = Arguments::command();
    let mut named: Vec<&str> = root
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
        .map(Command::get_name)
        .chain(["help"])
        .collect();
    let groups = GROUPS.iter().flat_map(|(_, commands)| commands.iter());
    let mut grouped: Vec<&str> = groups.copied().collect();
    named.sort_unstable();
    grouped.sort_unstable();
    assert_eq!(grouped, named, "groups.rs lists every command once");
}

#[test]
fn every_command_has_examples() {
    let mut all = Vec::new();
    paths(&Arguments::command(), "", &mut all);
    for path in all {
        let help = match EXAMPLES.iter().find(|(of, _)| *of == path) {
            Some(_) => continue,
            // An older form: the examples are in the text of the command itself.
            None => {
                let mut command = Arguments::command();
                for name in path.split(' ') {
                    command = command.find_subcommand(name).unwrap().clone();
                }
                command.get_after_help().map(ToString::to_string)
            }
        };
        assert!(
            help.is_some_and(|help| help.contains("Examples:")),
            "examples.rs has none for {path}"
        );
    }
}

#[test]
fn examples_are_accepted_and_short() {
    for (path, examples) in EXAMPLES {
        for (line, purpose) in *examples {
            assert!(line.len() < 78 && purpose.len() < 74, "{line}: {purpose}");
            let words = words(&line.replace("lhk1:CLIENT...", KEY));
            assert!(
                line.starts_with(&format!("longhaul {path}")),
                "{line} is no example of {path}"
            );
            if let Err(error) = Arguments::command().try_get_matches_from(&words) {
                panic!("{line}: {error}");
            }
        }
    }
}

#[test]
fn cp_help_has_headings_and_five_examples() {
    let mut root = complete(Arguments::command());
    let cp = root.find_subcommand_mut("cp").unwrap();
    let help = cp.render_long_help().to_string();
    for heading in ["Which files:", "Existing files:", "Network:", "Output:"] {
        assert!(help.contains(heading), "{heading}\n{help}");
    }
    let examples = help.split("Examples:").nth(1).unwrap();
    assert_eq!(examples.matches("  longhaul cp ").count(), 5);
}

#[test]
fn program_help_is_at_most_80_columns_wide() {
    let help = complete(Arguments::command())
        .render_long_help()
        .to_string();
    let list = help.split("Options:").next().unwrap();
    for line in list.lines() {
        assert!(line.chars().count() <= COLUMNS, "{line}");
    }
    assert!(help.contains("\nCopy:\n  cp "), "{help}");
}
