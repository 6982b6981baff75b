//! Systemd units for one user.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::exit::Exit;
use crate::{answer, home, logging};

/// Unit of a resident command of this program.
pub struct Unit<'a> {
    /// Name of the unit, without `.service`.
    pub name: &'a str,
    /// Description for people.
    pub description: &'a str,
    /// Arguments of this program.
    pub arguments: &'a [String],
    /// Seconds that stopping may take, and the reason for that time.
    pub stop: (u64, &'a str),
}

/// Writes the unit, and prints how to start it.
pub fn install(unit: &Unit<'_>) -> Result<Exit> {
    logging::start("error");
    let program = std::env::current_exe().context("cannot find this program's file")?;
    let dir = unit_dir().context(
        "neither XDG_CONFIG_HOME nor HOME is set: set XDG_CONFIG_HOME to the directory \
                  for units",
    )?;
    std::fs::create_dir_all(&dir)
        .with_context(|| format!("cannot make the directory {}", home::display_path(&dir)))?;
    let name = unit.name;
    let file = dir.join(format!("{name}.service"));
    let kept = ["LONGHAUL_HOME", "LONGHAUL_STATE"].map(|name| (name, std::env::var(name).ok()));
    std::fs::write(&file, text(unit, &program, &kept))
        .with_context(|| format!("cannot write {}", home::display_path(&file)))?;
    answer::write_line(format!("wrote {}", home::display_path(&file)));
    answer::write_line(format!(
        "start it, now and at each login: systemctl --user daemon-reload && systemctl --user \
         enable --now {name}"
    ));
    answer::write_line(
        "to have it run while you are not logged in as well: loginctl enable-linger",
    );
    Ok(Exit::Success)
}

/// Returns the directory of a user's units.
fn unit_dir() -> Option<PathBuf> {
    let from = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let config = from("XDG_CONFIG_HOME").or_else(|| Some(from("HOME")?.join(".config")))?;
    Some(config.join("systemd/user"))
}

/// Formats the unit. It runs the program from its current path, with the listed variables of this
/// environment.
fn text(unit: &Unit<'_>, program: &Path, kept: &[(&str, Option<String>)]) -> String {
    let set = kept.iter().filter_map(|(name, value)| {
        let value = value.as_ref()?;
        Some(format!(
            "Environment={}\n",
            quoted(&format!("{name}={value}"))
        ))
    });
    let environment: String = set.collect();
    // A dollar sign begins a variable only in the command.
    let program = quoted(&program.to_string_lossy()).replace('$', "$$");
    let arguments: String = unit
        .arguments
        .iter()
        .map(|argument| format!(" {}", word(argument).replace('$', "$$")))
        .collect();
    let Unit {
        description,
        stop: (seconds, why),
        ..
    } = unit;
    format!(
        "[Unit]\n\
         Description={description}\n\
         After=network-online.target\n\
         \n\
         [Service]\n\
         Type=notify\n\
         ExecStart={program}{arguments}\n\
         {environment}\
         Restart=on-failure\n\
         RestartSec=2\n\
         # {why}\n\
         TimeoutStopSec={seconds}\n\
         \n\
         [Install]\n\
         WantedBy=default.target\n"
    )
}

/// Formats a word, quoted only if necessary.
fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,=".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => text.to_owned(),
        false => quoted(text),
    }
}

/// Quotes a word for a unit (systemd.syntax(7)), with special characters escaped.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '%' => quoted.push_str("%%"),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_names_the_program_and_its_directories() {
        let kept = [
            ("LONGHAUL_HOME", Some("/a \"b\" $c 100%".to_owned())),
            ("LONGHAUL_STATE", None),
        ];
        let arguments = ["agent", "--name", "a $b"].map(str::to_owned);
        let unit = Unit {
            name: "longhaul-agent",
            description: "Longhaul agent",
            arguments: &arguments,
            stop: (30, "It has to end."),
        };
        let unit = text(&unit, Path::new("/opt/long haul/$x/longhaul"), &kept);
        assert!(
            unit.contains("ExecStart=\"/opt/long haul/$$x/longhaul\" agent --name \"a $$b\"\n"),
            "{unit}"
        );
        assert!(
            unit.contains("Environment=\"LONGHAUL_HOME=/a \\\"b\\\" $c 100%%\"\n"),
            "{unit}"
        );
        assert!(
            !unit.contains("LONGHAUL_STATE") && !unit.contains("  "),
            "{unit}"
        );
    }
}
