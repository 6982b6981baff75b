//! Random trees, copied by an ordinary user while the copying programs are ended at random moments.

use std::path::PathBuf;
use std::process::{Child, Command};

use crate::agent::Agent;
use crate::common::trees::{Kind, interrupted_copies_equal_rsync, start, unprivileged};
use crate::stage::*;

/// A kind of copy command.
#[derive(Clone, Copy, PartialEq)]
enum CopyKind {
    Local,
    Push,
    Pull,
    Job,
}

struct Programs {
    stage: Stage,
    way: CopyKind,
    server: Option<Service>,
    agent: Option<Agent>,
    /// The job that copies the tree.
    job: Option<(String, String)>,
}

/// Returns true if child processes ignore SIGHUP.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() & 1 != 0
}

impl Programs {
    fn new(way: CopyKind) -> Self {
        let stage = Stage::new();
        stage.key("me");
        let mut programs = Self {
            stage,
            way,
            server: None,
            agent: None,
            job: None,
        };
        programs.repair();
        programs
    }

    fn longhaul(&self, who: &str) -> Command {
        let mut command = unprivileged(env!("CARGO_BIN_EXE_longhaul"));
        command
            .env("LONGHAUL_HOME", self.stage.path(who))
            .env("RUST_LOG", "error")
            .current_dir(self.stage.tmp.path());
        command
    }

    fn serve(&self, listen: &str) -> Service {
        let key = self.stage.key("me");
        let mut command = self.longhaul("server");
        command.args([
            "serve", "--root", "root", "--listen", listen, "--read", &key, "--write", &key,
        ]);
        self.stage.service(command, "address")
    }

    fn server(&self) -> &Service {
        self.server.as_ref().unwrap()
    }

    /// Returns the arguments of `cp` and `submit`.
    fn paths(&self, name: &str) -> Vec<String> {
        let words: Vec<String> = match self.way {
            CopyKind::Local => vec!["-r".into(), format!("here/{name}"), format!("root/{name}/")],
            CopyKind::Push | CopyKind::Job => vec![
                "-r".into(),
                "--host-key".into(),
                self.server().key.clone(),
                format!("here/{name}"),
                format!("lh://{}/{name}/", self.server().address),
            ],
            CopyKind::Pull => vec![
                "-r".into(),
                "--host-key".into(),
                self.server().key.clone(),
                format!("lh://{}/{name}", self.server().address),
                format!("here/{name}/"),
            ],
        };
        words
    }

    /// Returns the number of the job that copies `name`, submitted if needed and told to resume.
    fn job(&mut self, name: &str) -> String {
        if let Some((of, id)) = &self.job
            && of == name
        {
            let id = id.clone();
            // A running job need not be told.
            let _ = self.longhaul("me").args(["retry", &id]).output().unwrap();
            return id;
        }
        let output = self
            .longhaul("me")
            .args(["submit", "--json"])
            .args(self.paths(name))
            .output()
            .unwrap();
        let job: serde_json::Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", errors(&output)));
        let id = job["id"].to_string();
        self.job = Some((name.to_owned(), id.clone()));
        id
    }

    fn is_done(&self, id: &str) -> bool {
        let output = self
            .longhaul("me")
            .args(["job", id, "--json"])
            .output()
            .unwrap();
        let job: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        job["state"] == "done"
    }
}

impl Kind for Programs {
    fn sources(&self) -> PathBuf {
        self.stage.path(if self.way == CopyKind::Pull {
            "root"
        } else {
            "here"
        })
    }

    fn targets(&self) -> PathBuf {
        self.stage.path(if self.way == CopyKind::Pull {
            "here"
        } else {
            "root"
        })
    }

    fn attempt(&mut self, name: &str) -> Child {
        if self.way != CopyKind::Job {
            return start(self.longhaul("me").arg("cp").args(self.paths(name)));
        }
        // A copy of existing files is a job of its own.
        if let Some((_, id)) = self.job.clone()
            && self.is_done(&id)
        {
            self.job = None;
        }
        let id = self.job(name);
        start(self.longhaul("me").args(["job", &id, "--follow"]))
    }

    fn others(&self) -> usize {
        match self.way {
            CopyKind::Local => 0,
            CopyKind::Push | CopyKind::Pull => 1,
            CopyKind::Job => 2,
        }
    }

    fn end_other(&mut self, other: usize, name: &str) {
        if other == 1 {
            // Under nohup, processes ignore SIGHUP.
            let is_ignored = name == "HUP" && ignores_hangup();
            self.agent
                .take()
                .unwrap()
                .end(if is_ignored { "KILL" } else { name });
            return;
        }
        // A server reads its grants again at SIGHUP.
        let name = if name == "HUP" { "KILL" } else { name };
        self.server.as_mut().unwrap().end(name);
    }

    fn repair(&mut self) {
        let ended = |server: &mut Service| server.ended().is_some();
        let address = match &mut self.server {
            None => Some("127.0.0.1:0".to_owned()),
            Some(server) => ended(server).then(|| server.address.clone()),
        };
        if self.way != CopyKind::Local
            && let Some(address) = address
        {
            self.server = Some(self.serve(&address));
        }
        if self.way == CopyKind::Job && self.agent.is_none() {
            self.agent = Some(Agent::start_by(self.longhaul("me"), &[]));
        }
    }
}

#[test]
fn interrupted_local_trees_equal_rsync() {
    interrupted_copies_equal_rsync(&mut Programs::new(CopyKind::Local));
}

#[test]
fn interrupted_pushed_trees_equal_rsync() {
    interrupted_copies_equal_rsync(&mut Programs::new(CopyKind::Push));
}

#[test]
fn interrupted_pulled_trees_equal_rsync() {
    interrupted_copies_equal_rsync(&mut Programs::new(CopyKind::Pull));
}

#[test]
fn interrupted_trees_of_jobs_equal_rsync() {
    interrupted_copies_equal_rsync(&mut Programs::new(CopyKind::Job));
}
