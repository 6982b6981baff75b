//! `longhaul agent install`: a unit for systemd, for one user.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::exit::Exit;
use crate::{answer, home, logging};

/// The unit's name.
const UNIT: &str = "longhaul-agent.service";

/// Writes the unit, and says how to start it.
pub fn install() -> Result<Exit> {
    logging::start("error");
    let program = std::env::current_exe().context("cannot tell where this program is")?;
    let dir =
        unit_dir().context("neither XDG_CONFIG_HOME nor HOME is set: say where units are to be kept")?;
    std::fs::create_dir_all(&dir)
        .with_context(|| format!("cannot make the directory {}", home::shown(&dir)))?;
    let file = dir.join(UNIT);
    let kept = ["LONGHAUL_HOME", "LONGHAUL_STATE"].map(|name| (name, std::env::var(name).ok()));
    std::fs::write(&file, unit(&program, &kept))
        .with_context(|| format!("cannot write {}", home::shown(&file)))?;
    answer::line(format!("wrote {}", home::shown(&file)));
    answer::line(
        "start it, now and at each login: systemctl --user daemon-reload && systemctl --user enable --now longhaul-agent",
    );
    answer::line("to have it run while you are not logged in as well: loginctl enable-linger");
    Ok(Exit::Success)
}

/// Where a user's units are.
fn unit_dir() -> Option<PathBuf> {
    let from = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let config = from("XDG_CONFIG_HOME").or_else(|| Some(from("HOME")?.join(".config")))?;
    Some(config.join("systemd/user"))
}

/// The unit: the program from where it is now, with what this command found in its environment.
fn unit(program: &Path, kept: &[(&str, Option<String>)]) -> String {
    let set = kept.iter().filter_map(|(name, value)| {
        let value = value.as_ref()?;
        Some(format!("Environment={}\n", quoted(&format!("{name}={value}"))))
    });
    let environment: String = set.collect();
    // Only in what is run is a dollar the beginning of a variable.
    let program = quoted(&program.to_string_lossy()).replace('$', "$$");
    format!(
        "[Unit]\n\
         Description=Longhaul agent: copies in the background\n\
         After=network-online.target\n\
         \n\
         [Service]\n\
         ExecStart={program} agent\n\
         {environment}\
         Restart=on-failure\n\
         RestartSec=2\n\
         # Copies make durable what they have before they end.\n\
         TimeoutStopSec=30\n\
         \n\
         [Install]\n\
         WantedBy=default.target\n"
    )
}

/// As a word of a unit (systemd.syntax(7)): quoted, with what means something there escaped.
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
    fn a_unit_names_the_program_and_where_it_keeps_what_is_its_own() {
        let kept = [
            ("LONGHAUL_HOME", Some("/a \"b\" $c 100%".to_owned())),
            ("LONGHAUL_STATE", None),
        ];
        let unit = unit(Path::new("/opt/long haul/$x/longhaul"), &kept);
        assert!(
            unit.contains("ExecStart=\"/opt/long haul/$$x/longhaul\" agent\n"),
            "{unit}"
        );
        assert!(
            unit.contains("Environment=\"LONGHAUL_HOME=/a \\\"b\\\" $c 100%%\"\n"),
            "{unit}"
        );
        assert!(!unit.contains("LONGHAUL_STATE") && !unit.contains("  "), "{unit}");
    }
}
