//! A stand-in for ssh: it logs in to this machine, as a user with a home directory of its own.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::write_program;

/// A host whose login is the stand-in. Everything is beneath one directory.
pub struct Login {
    dir: PathBuf,
}

impl Login {
    /// Makes the host beneath `dir`, with longhaul in the login's PATH.
    pub fn new(dir: PathBuf) -> Self {
        fs::create_dir_all(dir.join("home")).unwrap();
        fs::create_dir(dir.join("bin")).unwrap();
        symlink(env!("CARGO_BIN_EXE_longhaul"), dir.join("bin/longhaul")).unwrap();
        let login = Self { dir };
        login.begins_with("");
        login
    }

    /// Returns the login's home directory.
    pub fn home(&self) -> PathBuf {
        self.dir.join("home")
    }

    /// Sets a script that each login starts with, as a startup file does.
    pub fn begins_with(&self, script: &str) {
        let dir = self.dir.display();
        let ssh = format!(
            "#!/bin/sh\n[ \"$1\" = -G ] && {{ echo hostname 127.0.0.1; exit; }}\n\
             for command; do :; done\n\
             export HOME={dir}/home PATH={dir}/bin:/usr/bin:/bin\ncd\n{script}\n\
             exec /bin/sh -c \"$command\"\n"
        );
        write_program(&self.dir.join("ssh"), &ssh);
    }

    /// Sets a program that runs instead of longhaul and may start it.
    pub fn runs_longhaul_by(&self, script: &str) {
        fs::remove_file(self.dir.join("bin/longhaul")).unwrap();
        write_program(&self.dir.join("bin/longhaul"), script);
    }

    /// Runs `longhaul cp --json` from the directory `here`.
    pub fn cp(&self, here: &Path, arguments: &[&str]) -> Output {
        let mut command = self.command(here, arguments);
        command.stdin(Stdio::null()).output().unwrap()
    }

    /// Returns `longhaul cp --json` from the directory `here`.
    pub fn command(&self, here: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
        command
            .args(["cp", "--json", "--ssh"])
            .arg(self.dir.join("ssh"))
            .args(arguments)
            .env("LONGHAUL_HOME", self.dir.join("settings"))
            .current_dir(here);
        command
    }
}
