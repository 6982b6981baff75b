//! Which nodes the controller has set up, and whose certificates it trusts: the operator's
//! `control.toml`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use longhaul_control::reservations::document::Roots;
use longhaul_hop::read_trusted_file;
use longhaul_setup::nodes::SetupConfig;
use serde::Deserialize;

use crate::home;

/// What it is called in the controller's directory.
pub const FILE: &str = "control.toml";

/// What an operator says of a controller.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ControlFile {
    /// Which nodes are set up, and how.
    #[serde(default)]
    setup: SetupConfig,
    /// What is said of reservations.
    #[serde(default)]
    reservations: Reservations,
}

/// What an operator says of reservations.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reservations {
    /// A file of certificates in PEM: roots that those in signed requests may lead to.
    roots: Option<PathBuf>,
}

/// What the file says.
#[derive(Debug, Default)]
pub struct Said {
    /// Which nodes are set up, and how.
    pub setup: SetupConfig,
    /// Roots that certificates in signed requests may lead to.
    pub roots: Roots,
}

/// Reads the file that is named; where none is, the one in the directory, if it is there.
pub fn read(named: Option<&Path>, dir: &Path) -> Result<Said> {
    let usual = dir.join(FILE);
    let file = match named {
        Some(file) => file,
        None if usual.exists() => &usual,
        None => return Ok(Said::default()),
    };
    let shown = home::shown(file);
    let text = read_trusted_file(file).with_context(|| format!("cannot read {shown}"))?;
    let config: ControlFile = toml::from_str(&text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start));
        let line = before.map_or(1, |before| before.matches('\n').count() + 1);
        anyhow!("{shown}, line {line}: {}", error.message())
    })?;
    // What makes no sense is reported with the file's name, before anything begins.
    config.setup.drivers().with_context(|| shown.clone())?;
    let roots = match &config.reservations.roots {
        None => Roots::default(),
        Some(named) => {
            // As the file itself stands there.
            let named = file.parent().unwrap_or(dir).join(named);
            let shown = home::shown(&named);
            let pem = read_trusted_file(&named).with_context(|| format!("cannot read {shown}"))?;
            Roots::of_pem(pem.as_bytes()).with_context(|| shown.clone())?
        }
    };
    Ok(Said {
        setup: config.setup,
        roots,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is read of a controller's directory that has such a `control.toml`, beside a root's
    /// certificate.
    fn said(text: &str) -> Result<Said> {
        let dir = tempfile::tempdir().unwrap();
        let root = rcgen::generate_simple_self_signed(Vec::new()).unwrap();
        std::fs::write(dir.path().join("grid-roots.pem"), root.cert.pem()).unwrap();
        std::fs::write(dir.path().join("none.pem"), "no certificate").unwrap();
        std::fs::write(dir.path().join(FILE), text).unwrap();
        // However the file is named, what it names stands beside it.
        let named = read(Some(&dir.path().join(FILE)), Path::new("/nowhere"));
        assert_eq!(named.is_ok(), read(None, dir.path()).is_ok());
        named
    }

    #[test]
    fn roots_are_read_beside_the_file_that_names_them() {
        let roots = |text| format!("{:?}", said(text).unwrap().roots);
        let none = format!("{:?}", Roots::default());
        assert_eq!(roots(""), none);
        assert_ne!(roots("[reservations]\nroots = \"grid-roots.pem\"\n"), none);
        let nowhere = read(None, Path::new("/nowhere")).unwrap();
        assert_eq!(format!("{:?}", nowhere.roots), none);
    }

    #[test]
    fn what_is_wrong_with_it_is_reported_with_the_name_of_the_file() {
        for (text, word) in [
            ("[reservations]\nroots = \"missing.pem\"\n", "missing.pem"),
            (
                "[reservations]\nroots = \"none.pem\"\n",
                "none.pem: no certificates of roots",
            ),
            (
                "[reservations]\nroot = \"grid-roots.pem\"\n",
                "control.toml, line 2: ",
            ),
            ("[reservations\n", "control.toml, line 1: "),
        ] {
            let error = format!("{:#}", said(text).unwrap_err());
            assert!(error.contains(word), "{error}");
        }
    }
}
