//! Tests that nothing is left of a lab, however it ends.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command};

use rustix::process::{Pid, Signal, kill_process};
use wanbed::{Error, Lab, Overrides};

use super::{NetworkNamespace, ROW, lab, lab_with, name, network_namespace, processes_in};

/// Returns a process in a node that runs until it is ended.
fn sleeper(lab: &Lab) -> Child {
    lab.command("left", "sleep")
        .unwrap()
        .arg("100000")
        .spawn()
        .unwrap()
}

/// Returns the output of `ip` about this machine itself, without times that count down.
fn host() -> String {
    let say = |arguments: &[&str]| {
        let output = Command::new("ip").args(arguments).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let mut counts_down = false;
        let stays = |word: &&str| {
            let follows = counts_down;
            counts_down = ["valid_lft", "preferred_lft", "expires"].contains(word);
            !follows
        };
        let words: Vec<&str> = text.split(' ').filter(stays).collect();
        words.join(" ")
    };
    [
        say(&["-o", "link"]),
        say(&["-o", "address"]),
        say(&["route", "show", "table", "all"]),
        say(&["rule"]),
    ]
    .concat()
}

#[test]
fn host_is_unchanged_after_a_lab() {
    let before = host();
    let Some(lab) = lab(ROW) else { return };
    assert_eq!(host(), before, "while it is up");
    let namespaces: Vec<NetworkNamespace> = ["left", "middle", "right"]
        .iter()
        .map(|node| network_namespace(&lab, node))
        .collect();
    let mut sleeper = sleeper(&lab);
    assert_eq!(processes_in(&namespaces[0]), [sleeper.id()]);
    let name = lab.name().to_owned();
    let report = lab.down().unwrap();
    assert_eq!(report.links.len(), 2);

    assert_eq!(
        sleeper.wait().unwrap().signal(),
        Some(15),
        "what runs in a node is told to end"
    );
    assert_eq!(host(), before, "after it is down");
    for namespace in &namespaces {
        assert_eq!(processes_in(namespace), [0_u32; 0]);
    }
    assert!(!Lab::list().unwrap().contains(&name));
    assert!(matches!(Lab::attach(&name), Err(Error::NoLab { .. })));
}

#[test]
fn a_process_that_will_not_end_is_killed() {
    let Some(lab) = lab(ROW) else { return };
    let mut stubborn = lab.command("right", "sh").unwrap();
    stubborn
        .args([
            "-c",
            "trap '' TERM; echo ready; while :; do sleep 1000; done",
        ])
        .stdout(std::process::Stdio::piped());
    let mut stubborn = stubborn.spawn().unwrap();
    let mut ready = [0; 6];
    std::io::Read::read_exact(stubborn.stdout.as_mut().unwrap(), &mut ready).unwrap();
    drop(lab);
    assert_eq!(stubborn.wait().unwrap().signal(), Some(9));
}

#[test]
fn lab_is_gone_after_its_process_is_killed() {
    let Some(lab) = lab(ROW) else { return };
    let (name, namespace, mut sleeper) = (
        lab.name().to_owned(),
        network_namespace(&lab, "left"),
        sleeper(&lab),
    );
    kill_process(
        Pid::from_raw(lab.process().cast_signed()).unwrap(),
        Signal::KILL,
    )
    .unwrap();
    assert!(sleeper.wait().unwrap().signal().is_some());
    lab.wait_until_gone();
    assert_eq!(processes_in(&namespace), [0_u32; 0]);
    assert!(!Lab::list().unwrap().contains(&name));
}

#[test]
fn two_labs_stand_side_by_side() {
    let (Some(one), Some(two)) = (lab(ROW), lab(ROW)) else {
        return;
    };
    assert_ne!(one.name(), two.name());
    assert_ne!(
        network_namespace(&one, "left").name,
        network_namespace(&two, "left").name
    );
    assert_eq!(one.address("right").unwrap(), two.address("right").unwrap());
    drop(one);
    assert!(
        two.command("left", "true")
            .unwrap()
            .status()
            .unwrap()
            .success()
    );
    assert!(two.links().is_ok());
}

#[test]
fn a_name_is_free_again_once_its_lab_is_gone() {
    let overrides = Overrides::default().name(name("again"));
    let Some(first) = lab_with(ROW, &overrides) else {
        return;
    };
    let text = wanbed::Scenario::from_text("row.toml", ROW);
    assert!(matches!(
        Lab::up(&text, &overrides),
        Err(Error::NameTaken(_))
    ));
    drop(first);
    assert!(Lab::up(&text, &overrides).is_ok());
}
