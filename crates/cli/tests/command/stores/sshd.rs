//! Hosts with sshd, one for each kind of login.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::program;
use crate::stage::{Stage, make_ssh_keys, until};

/// Name of a host with longhaul, whose home directory is `login`.
pub const LOGIN: &str = "login-host";
/// Name of a host without it that offers SFTP, with the same home directory.
pub const BARE: &str = "bare-host";
/// Name of a host that has SFTP and nothing else.
pub const SFTP: &str = "sftp-host";

/// Hosts of one test.
pub struct Hosts {
    /// Settings for ssh, in which they are named.
    pub config: PathBuf,
}

impl Hosts {
    /// Creates them, with the directories `login` and `sftp`. `None`, with a line, if there is no
    /// sshd.
    pub fn new(stage: &Stage) -> Option<Self> {
        let is_root = rustix::process::geteuid().is_root();
        let Some(sshd) = program("sshd").filter(|_| is_root) else {
            eprintln!("ssh is not tested: sshd is missing, or does not run without root here");
            return None;
        };
        make_ssh_keys(stage);
        fs::create_dir_all("/run/sshd").unwrap();
        for home in ["login", "sftp"] {
            fs::create_dir(stage.path(home)).unwrap();
        }
        let longhaul = Path::new(env!("CARGO_BIN_EXE_longhaul")).parent().unwrap();
        let environment = |path: &str| {
            let home = stage.path("login");
            let settings = stage.path("login-settings");
            format!(
                "SetEnv \"PATH={path}/usr/bin:/bin\" \"HOME={}\" \"LONGHAUL_HOME={}\"\n",
                home.display(),
                settings.display()
            )
        };
        let with_longhaul = environment(&format!("{}:", longhaul.display()));
        let only_sftp = "ForceCommand internal-sftp\n".to_owned();
        let mut config = String::new();
        for (host, settings) in [
            (LOGIN, with_longhaul),
            (BARE, environment("")),
            (SFTP, only_sftp),
        ] {
            let lines = format!(
                "HostKey {}\nAuthorizedKeysFile {}\nPermitRootLogin prohibit-password\nUsePAM no\n\
                 StrictModes no\nPrintMotd no\nSubsystem sftp internal-sftp\n{settings}",
                stage.path("host-key").display(),
                stage.path("user-key.pub").display(),
            );
            let file = stage.path(&format!("{host}.conf"));
            fs::write(&file, lines).unwrap();
            config += &format!(
                "Host {host}\nProxyCommand {} -i -f {}\n",
                sshd.display(),
                file.display()
            );
        }
        config += &format!(
            "Host *\nHostName localhost\nUser root\nIdentityFile {}\nIdentitiesOnly yes\n\
             BatchMode yes\nStrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n\
             LogLevel ERROR\n",
            stage.path("user-key").display()
        );
        let file = stage.path("ssh_config");
        fs::write(&file, config).unwrap();
        Some(Self { config: file })
    }

    /// Waits until no login runs longhaul any more.
    pub fn wait_for_far_sides(&self, stage: &Stage) {
        let folder = stage.path("login-settings").display().to_string();
        let is_far_side = |process: &Path| {
            let read = |file| fs::read(process.join(file)).unwrap_or_default();
            let environment = read("environ");
            String::from_utf8_lossy(&read("cmdline")).contains("--over-stdio")
                && String::from_utf8_lossy(&environment).contains(&folder)
        };
        until("the far side ends with its client", || {
            let mut processes = fs::read_dir("/proc").unwrap().flatten();
            !processes.any(|process| is_far_side(&process.path()))
        });
    }
}
