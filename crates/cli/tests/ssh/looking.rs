//! `du`, `find`, `cat` and `head` over ssh.

use std::fs;

use crate::hosts::Hosts;

#[test]
fn files_of_a_host_are_looked_at_over_ssh() {
    let Some(hosts) = Hosts::up(&["alpha"]) else {
        return;
    };
    let runs = hosts.home("alpha").join("runs");
    fs::create_dir_all(runs.join("sub")).unwrap();
    fs::write(runs.join("sub/a"), "one\ntwo\n").unwrap();
    fs::write(runs.join("b"), "x").unwrap();
    let run = |arguments: &[&str]| {
        let mut command = hosts.unprivileged();
        command.arg(arguments[0]).args(["-F", "config"]);
        let output = command.args(&arguments[1..]).output().unwrap();
        let reported = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {reported}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(
        run(&["du", "alpha:runs"]),
        "8\talpha:runs/sub\n9\talpha:runs\n"
    );
    assert_eq!(run(&["find", "alpha:runs"]), "b\nsub/a\n");
    assert_eq!(
        run(&["cat", "alpha:runs/sub/a", "alpha:runs/b"]),
        "one\ntwo\nx"
    );
    assert_eq!(run(&["head", "-n", "1", "alpha:runs/sub/a"]), "one\n");
}
