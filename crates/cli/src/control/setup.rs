//! The operator's `control.toml`: the nodes that the controller provisions, the live topology that
//! it follows, and the certificates that it trusts.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use longhaul_control::domains::DomainSettings;
use longhaul_control::domains::settings::DomainText;
use longhaul_control::reservations::document::Roots;
use longhaul_control::topology::OspfConfig;
use longhaul_hop::read_trusted_file;
use longhaul_provisioning::nodes::SetupConfig;
use serde::Deserialize;

use crate::home;

/// Name of the file in the controller's directory.
pub const CONFIG_FILE: &str = "control.toml";

/// Content of `control.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ControlFile {
    /// Nodes to provision, and their settings.
    #[serde(default)]
    setup: SetupConfig,
    /// Live topology to follow.
    #[serde(default)]
    ospf: OspfConfig,
    /// Settings of reservations.
    #[serde(default)]
    reservations: ReservationSettings,
    /// The controller's domain, its edges and its peers.
    domain: Option<DomainText>,
}

/// Settings of reservations.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReservationSettings {
    /// A PEM file of root certificates. Certificates in signed requests may lead to these.
    roots: Option<PathBuf>,
}

/// Validated configuration of the controller.
#[derive(Debug, Default)]
pub struct ControllerConfig {
    /// Nodes to provision, and their settings.
    pub setup: SetupConfig,
    /// Live topology to follow, if any.
    pub ospf: OspfConfig,
    /// Roots that certificates in signed requests may lead to.
    pub roots: Roots,
    /// Domain of the controller.
    pub domain: Option<DomainSettings>,
}

/// Reads the named file. Without a name, reads the file in the directory if it exists.
pub fn read(named: Option<&Path>, dir: &Path) -> Result<ControllerConfig> {
    let usual = dir.join(CONFIG_FILE);
    let file = match named {
        Some(file) => file,
        None if usual.exists() => &usual,
        None => return Ok(ControllerConfig::default()),
    };
    let shown = home::display_path(file);
    let text = read_trusted_file(file).with_context(|| format!("cannot read {shown}"))?;
    let config: ControlFile = toml::from_str(&text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start));
        let line = before.map_or(1, |before| before.matches('\n').count() + 1);
        anyhow!("{shown}, line {line}: {}", error.message())
    })?;
    // Configuration errors are reported with the file's name, before anything starts.
    config.setup.drivers().with_context(|| shown.clone())?;
    config.ospf.sources().with_context(|| shown.clone())?;
    let roots = match &config.reservations.roots {
        None => Roots::default(),
        Some(named) => {
            // Relative paths are relative to the file.
            let named = file.parent().unwrap_or(dir).join(named);
            let shown = home::display_path(&named);
            let pem = read_trusted_file(&named).with_context(|| format!("cannot read {shown}"))?;
            Roots::from_pem(pem.as_bytes()).with_context(|| shown.clone())?
        }
    };
    let domain = config.domain.map(DomainSettings::try_from);
    Ok(ControllerConfig {
        setup: config.setup,
        ospf: config.ospf,
        roots,
        domain: domain.transpose().with_context(|| shown.clone())?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses a controller's directory with this `control.toml` and a root certificate.
    fn read_text(text: &str) -> Result<ControllerConfig> {
        let dir = tempfile::tempdir().unwrap();
        let root = rcgen::generate_simple_self_signed(Vec::new()).unwrap();
        std::fs::write(dir.path().join("grid-roots.pem"), root.cert.pem()).unwrap();
        std::fs::write(dir.path().join("none.pem"), "no certificate").unwrap();
        std::fs::write(dir.path().join(CONFIG_FILE), text).unwrap();
        // However the file is named, relative paths in it are relative to its directory.
        let named = read(Some(&dir.path().join(CONFIG_FILE)), Path::new("/nowhere"));
        assert_eq!(named.is_ok(), read(None, dir.path()).is_ok());
        named
    }

    #[test]
    fn roots_are_relative_to_their_file() {
        let roots = |text| format!("{:?}", read_text(text).unwrap().roots);
        let none = format!("{:?}", Roots::default());
        assert_eq!(roots(""), none);
        assert_ne!(roots("[reservations]\nroots = \"grid-roots.pem\"\n"), none);
        let nowhere = read(None, Path::new("/nowhere")).unwrap();
        assert_eq!(format!("{:?}", nowhere.roots), none);
    }

    #[test]
    fn configuration_errors_name_the_file() {
        for (text, word) in [
            ("[reservations]\nroots = \"missing.pem\"\n", "missing.pem"),
            (
                "[reservations]\nroots = \"none.pem\"\n",
                "none.pem: cannot read the root certificates",
            ),
            (
                "[reservations]\nroot = \"grid-roots.pem\"\n",
                "control.toml, line 2: ",
            ),
            ("[reservations\n", "control.toml, line 1: "),
            (
                "[[ospf.source]]\nsocket = \"/run/frr/ospfd.vty\"\n",
                "control.toml: ospf.routers: name",
            ),
        ] {
            let error = format!("{:#}", read_text(text).unwrap_err());
            assert!(error.contains(word), "{error}");
        }
    }
}
