//! Random trees, copied over ssh by ordinary users while either side is ended at random moments.

use std::path::PathBuf;
use std::process::Child;

use crate::common::trees::{Kind, interrupted_copies_equal_rsync, start};
use crate::hosts::Hosts;

struct OverSsh {
    hosts: Hosts,
    is_push: bool,
}

impl Kind for OverSsh {
    fn sources(&self) -> PathBuf {
        match self.is_push {
            true => self.hosts.path("here"),
            false => self.hosts.home("alpha"),
        }
    }

    fn targets(&self) -> PathBuf {
        match self.is_push {
            true => self.hosts.home("alpha"),
            false => self.hosts.path("here"),
        }
    }

    fn attempt(&mut self, name: &str) -> Child {
        let (from, to) = match self.is_push {
            true => (format!("here/{name}"), format!("alpha:{name}/")),
            false => (format!("alpha:{name}"), format!("here/{name}/")),
        };
        let mut command = self.hosts.unprivileged();
        start(command.args(["cp", "-F", "config", "-r", &from, &to]))
    }

    fn others(&self) -> usize {
        1
    }

    fn end_other(&mut self, _: usize, signal: &str) {
        self.hosts.signal_far_sides(signal);
    }

    /// Each attempt starts a far side.
    fn repair(&mut self) {}
}

fn equal_rsync(is_push: bool) {
    if let Some(hosts) = Hosts::up(&["alpha"]) {
        interrupted_copies_equal_rsync(&mut OverSsh { hosts, is_push });
    }
}

#[test]
fn interrupted_trees_pushed_over_ssh_equal_rsync() {
    equal_rsync(true);
}

#[test]
fn interrupted_trees_pulled_over_ssh_equal_rsync() {
    equal_rsync(false);
}
