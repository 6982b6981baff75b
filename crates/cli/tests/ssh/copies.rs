//! Files and trees to a host, from it, and between two.

use std::fs;

use crate::hosts::{Hosts, PORTS, noise, same};

#[test]
fn files_and_trees_are_copied_without_a_server() {
    let Some(hosts) = Hosts::up(&["alpha", "beta"]) else {
        return;
    };
    noise(&hosts.path("here/big"), 3 << 20);
    fs::create_dir(hosts.path("here/tree")).unwrap();
    for n in 0..40 {
        noise(&hosts.path(&format!("here/tree/f{n}")), 1000 + n);
    }
    // A busy machine may be so slow to connect that the host tries, too, which is blocked here.
    hosts.block_data_ports_of("client");
    let to_home = hosts.cp(&["--port-range", PORTS, "here/big", "alpha:"]);
    to_home.assert_done();
    assert_eq!(to_home.routes[0], "direct", "{:?}", to_home.notices);
    assert_eq!(to_home.notices, Vec::<String>::new());
    assert!(same(
        &hosts.path("here/big"),
        &hosts.home("alpha").join("big")
    ));

    hosts.cp(&["-r", "here/tree", "alpha:copied"]).assert_done();
    assert!(same(
        &hosts.path("here/tree"),
        &hosts.home("alpha").join("copied")
    ));
    hosts.cp(&["alpha:big", "here/back"]).assert_done();
    assert!(same(&hosts.path("here/big"), &hosts.path("here/back")));
    // The user who runs the command decides for both ends.
    let unencrypted = hosts.cp(&["--no-encrypt", "alpha:big", "here/unencrypted"]);
    unencrypted.assert_done();
    assert_eq!(unencrypted.report["encrypted"], false);
    assert!(same(
        &hosts.path("here/big"),
        &hosts.path("here/unencrypted")
    ));
    let absolute = "alpha:/run/ana/copied";
    hosts
        .cp(&["-r", absolute, "alpha:~/big", "here/"])
        .assert_done();
    assert!(same(&hosts.path("here/tree"), &hosts.path("here/copied")));

    // A link at the host belongs to its user.
    std::os::unix::fs::symlink("copied", hosts.home("alpha").join("link")).unwrap();
    hosts.cp(&["alpha:link/f3", "here/f3"]).assert_done();
    hosts.cp(&["here/big", "alpha:link/"]).assert_done();
    assert!(hosts.home("alpha").join("copied/big").is_file());

    // An existing file that differs stays, unless asked.
    noise(&hosts.path("here/other"), 1000);
    let exists = hosts.cp(&["here/other", "alpha:big"]);
    assert_eq!(
        exists.report["failures"][0]["kind"], "exists",
        "{}",
        exists.report
    );
    hosts
        .cp(&["--overwrite", "here/other", "alpha:big"])
        .assert_done();
    assert!(same(
        &hosts.path("here/other"),
        &hosts.home("alpha").join("big")
    ));

    let nowhere = hosts.cp(&["here/big", "alpha:no/such/place"]);
    assert_eq!(nowhere.code, Some(1), "{}", nowhere.report);
    assert!(
        nowhere.error().contains("make that directory first"),
        "{}",
        nowhere.error()
    );
    let missing = hosts.cp(&["alpha:missing", "here/missing"]);
    assert_eq!(
        missing.report["failures"][0]["kind"], "not_found",
        "{}",
        missing.report
    );
}

#[test]
fn a_copy_between_two_hosts_does_not_pass_here() {
    let Some(hosts) = Hosts::up(&["alpha", "beta"]) else {
        return;
    };
    noise(&hosts.home("alpha").join("big"), 8 << 20);
    let before = hosts.carried("client");
    let copied = hosts.cp(&["alpha:big", "beta:got"]);
    copied.assert_done();
    assert_eq!(copied.report["direction"], "between");
    assert_eq!(copied.report["bytes"], 8 << 20);
    assert_eq!(copied.report["verification"]["of"], "file");
    assert!(same(
        &hosts.home("alpha").join("big"),
        &hosts.home("beta").join("got")
    ));
    let here = hosts.carried("client") - before;
    assert!(here < 1 << 20, "{here} bytes came here");

    // In the other direction, where the destination admits no connections.
    hosts.block_data_ports_of("beta");
    let turned = hosts.cp(&["--port-range", PORTS, "alpha:big", "beta:again"]);
    turned.assert_done();
    assert!(
        turned.notices[0].contains("it connects to alpha instead"),
        "{:?}",
        turned.notices
    );
    assert!(same(
        &hosts.home("alpha").join("big"),
        &hosts.home("beta").join("again")
    ));

    hosts.block_data_ports_of("alpha");
    let apart = hosts.cp(&["--port-range", PORTS, "alpha:big", "beta:never"]);
    assert_eq!(apart.code, Some(3), "{}", apart.report);
    assert!(
        apart.error().contains("cannot reach each other"),
        "{}",
        apart.error()
    );
}

#[test]
fn files_are_listed_renamed_and_removed_over_ssh() {
    let Some(hosts) = Hosts::up(&["alpha"]) else {
        return;
    };
    let ok = |command: &str, arguments: &[&str]| {
        let (code, out, errors) = hosts.files(command, arguments);
        assert_eq!(code, Some(0), "{command} {arguments:?}: {errors}");
        out
    };
    ok("mkdir", &["-p", "alpha:runs/new"]);
    noise(&hosts.home("alpha").join("runs/f"), 3000);
    assert_eq!(ok("ls", &["alpha:runs"]), "f\nnew/\n");
    assert_eq!(ok("ls", &["alpha:"]), "runs/\n");
    let line = ok("stat", &["--json", "alpha:runs/f"]);
    let entry: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(
        (&entry["kind"], &entry["bytes"]),
        (&"file".into(), &3000.into())
    );
    ok("mv", &["alpha:runs/f", "alpha:runs/new/"]);
    assert_eq!(ok("ls", &["alpha:runs/new", "alpha:runs"]), "f\nnew/\n");
    let (code, _, errors) = hosts.files("rm", &["alpha:runs", "alpha:none"]);
    assert_eq!(code, Some(1), "{errors}");
    assert!(
        errors.contains("give -r") && errors.lines().count() == 2,
        "{errors}"
    );
    ok("rm", &["-r", "alpha:runs"]);
    assert!(!hosts.home("alpha").join("runs").exists());
}
