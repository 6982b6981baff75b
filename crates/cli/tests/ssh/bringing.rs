//! Hosts without longhaul, to which it is copied.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::common::write_program;
use crate::hosts::{Hosts, noise, same};

#[test]
fn a_host_without_longhaul_is_brought_it() {
    let Some(hosts) = Hosts::up(&[]) else { return };
    noise(&hosts.path("here/big"), 3 << 20);
    let refused = hosts.cp(&["here/big", "alpha:"]);
    assert_eq!(refused.code, Some(3), "{}", refused.report);
    assert!(
        refused.error().contains("--bootstrap"),
        "{}",
        refused.error()
    );

    hosts
        .cp(&["--bootstrap", "here/big", "alpha:"])
        .assert_done();
    assert!(same(
        &hosts.path("here/big"),
        &hosts.home("alpha").join("big")
    ));
    let cache = hosts.home("alpha").join(".cache/longhaul");
    let kept: Vec<_> = fs::read_dir(&cache)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(kept.len(), 1);
    let program = kept[0].join("longhaul");
    assert_eq!(
        fs::metadata(&program).unwrap().permissions().mode() & 0o777,
        0o700
    );
    let brought = fs::metadata(&program).unwrap().modified().unwrap();

    // It is used from now on, requested or not, as long as it is what was copied there.
    hosts.cp(&["alpha:big", "here/back"]).assert_done();
    hosts
        .cp(&["--bootstrap", "alpha:big", "here/again"])
        .assert_done();
    assert_eq!(fs::metadata(&program).unwrap().modified().unwrap(), brought);
    // Replaced, as the last copy's may still be running.
    write_program(&program, "#!/bin/sh\necho changed\n");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(hosts.cp(&["alpha:big", "here/never"]).code, Some(3));
    hosts
        .cp(&["--bootstrap", "alpha:big", "here/mended"])
        .assert_done();
}
