//! The help of the command line: commands in groups, and examples of each.

use clap::Command;
use clap::builder::StyledStr;

mod examples;
mod groups;
#[cfg(test)]
mod tests;

use examples::EXAMPLES;
use groups::GROUPS;

/// Width of the list of commands, in columns.
const COLUMNS: usize = 80;
/// Column in which the descriptions of commands begin.
const DESCRIPTION_COLUMN: usize = 16;

/// Adds groups and examples to the help of the program and all its commands.
pub fn complete(root: Command) -> Command {
    let template = template(&root);
    with_examples(root, "").help_template(template)
}

/// Returns the help of the program, with its commands in groups.
fn template(root: &Command) -> StyledStr {
    let header = root.get_styles().get_header();
    let heading = |text: &str| format!("{}{text}:{}", header.render(), header.render_reset());
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (name, commands) in GROUPS {
        text += &format!("\n{}\n", heading(name));
        for command in *commands {
            let about = match root.find_subcommand(command) {
                Some(found) => found.get_about().map(StyledStr::to_string),
                // clap adds it later.
                None => Some("Print the help of a command".to_owned()),
            };
            text += &list_line(command, &about.unwrap_or_default());
        }
    }
    text += &format!("\n{}\n{{options}}{{after-help}}", heading("Options"));
    text.into()
}

/// Formats a command and its description, which continues on further lines.
fn list_line(command: &str, about: &str) -> String {
    let mut text = format!("  {command:<width$}", width = DESCRIPTION_COLUMN - 2);
    let mut column = DESCRIPTION_COLUMN;
    for word in about.split_whitespace() {
        let is_first = column == DESCRIPTION_COLUMN;
        if !is_first && column + 1 + word.len() > COLUMNS {
            text += &format!("\n{:DESCRIPTION_COLUMN$}", "");
            column = DESCRIPTION_COLUMN;
        } else if !is_first {
            text.push(' ');
            column += 1;
        }
        text += word;
        column += word.len();
    }
    text.push('\n');
    text
}

/// Adds the examples of the command at `path`, words joined by a space, and of those below it.
fn with_examples(command: Command, path: &str) -> Command {
    let command = match EXAMPLES.iter().find(|(of, _)| *of == path) {
        Some((_, examples)) => {
            let before = command.get_after_help().map(StyledStr::to_string);
            let text = [before, Some(list_examples(examples))];
            let text: Vec<String> = text.into_iter().flatten().collect();
            command.after_help(text.join("\n\n"))
        }
        None => command,
    };
    command.mut_subcommands(|below| {
        let path = format!("{path} {}", below.get_name());
        with_examples(below, path.trim_start())
    })
}

fn list_examples(examples: &[(&str, &str)]) -> String {
    let lines = examples
        .iter()
        .map(|(line, purpose)| format!("\n  {line}\n      {purpose}"));
    format!("Examples:{}", lines.collect::<String>())
}
