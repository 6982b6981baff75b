//! Checksums over ssh, computed at the host.

use std::fs;
use std::process::Output;

use crate::hosts::Hosts;

fn sum(hosts: &Hosts, arguments: &[&str]) -> Output {
    let mut command = hosts.unprivileged();
    command
        .args(["sum", "-F", "config"])
        .args(arguments)
        .output()
        .unwrap()
}

#[test]
fn checksums_over_ssh_are_computed_at_the_host() {
    let Some(hosts) = Hosts::up(&["alpha"]) else {
        return;
    };
    let home = hosts.home("alpha");
    fs::create_dir_all(home.join("runs")).unwrap();
    fs::write(home.join("runs/a"), "abc").unwrap();
    std::os::unix::fs::symlink("a", home.join("runs/link")).unwrap();
    let found = sum(
        &hosts,
        &["-a", "md5", "alpha:runs/a", "alpha:runs/link", "alpha:none"],
    );
    let md5 = "900150983cd24fb0d6963f7d28e17f72";
    assert_eq!(
        String::from_utf8_lossy(&found.stdout),
        format!("{md5}  alpha:runs/a\n{md5}  alpha:runs/link\n")
    );
    assert_eq!(found.status.code(), Some(1));
    let reported = String::from_utf8_lossy(&found.stderr);
    assert!(reported.contains("alpha:none: no such file"), "{reported}");
    fs::write(hosts.path("list"), format!("{md5}  a\n")).unwrap();
    let checked = sum(&hosts, &["--check", "list", "alpha:runs"]);
    assert_eq!(String::from_utf8_lossy(&checked.stdout), "a: OK\n");
    assert_eq!(checked.status.code(), Some(0));
}

#[test]
fn receipts_over_ssh_are_verified_at_the_host() {
    let Some(hosts) = Hosts::up(&["alpha"]) else {
        return;
    };
    fs::create_dir_all(hosts.path("runs/sub")).unwrap();
    fs::write(hosts.path("runs/sub/a"), "abc").unwrap();
    let run = |arguments: &[&str]| {
        let mut command = hosts.unprivileged();
        let output = command.args(arguments).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
            errors,
        )
    };
    let copy = [
        "cp",
        "-F",
        "config",
        "-rq",
        "--receipt",
        "receipt",
        "runs",
        "alpha:",
    ];
    let (code, _, errors) = run(&copy);
    assert_eq!(code, Some(0), "{errors}");
    let verify = ["verify", "-F", "config", "receipt", "alpha:runs"];
    let (code, text, errors) = run(&verify);
    assert_eq!(code, Some(0), "{text}{errors}");
    fs::write(hosts.home("alpha").join("runs/sub/a"), "abd").unwrap();
    let (code, text, errors) = run(&verify);
    assert_eq!(code, Some(1), "{errors}");
    assert!(text.contains("alpha:runs/sub/a: differs\n"), "{text}");
    assert_eq!(run(&["verify", "receipt"]).0, Some(0));
}
