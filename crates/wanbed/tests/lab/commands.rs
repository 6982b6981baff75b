//! Tests of the command line.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use wanbed::{Lab, exit_code};

use super::{PROGRAM, lab, name, scenario_file};

fn wanbed(arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).env_remove("WANBED_LAB");
    command
}

/// Returns true if this machine can have labs, and prints a message if not.
fn possible() -> bool {
    lab(super::ROW).is_some()
}

fn output(command: &mut Command) -> (Option<i32>, String, String) {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[test]
fn up_exec_links_down() {
    if !possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (file, name) = (scenario_file(directory.path()), name("up"));
    let (code, said, wrong) = output(&mut wanbed(&[
        "up",
        file.to_str().unwrap(),
        "--name",
        &name,
        "--seed",
        "5",
    ]));
    assert_eq!(code, Some(0), "{wrong}");
    assert!(
        said.contains(&format!("lab {name} is up: a row (seed 5, ")),
        "{said}"
    );

    let mut exec = wanbed(&[
        "exec",
        "--name",
        &name,
        "right",
        "--",
        "sh",
        "-c",
        "cat /etc/hosts; pwd; exit 9",
    ]);
    let (code, said, _) = output(exec.current_dir(directory.path()));
    assert_eq!(code, Some(9));
    assert!(
        said.contains("10.77.0.1 left\n10.77.0.2 middle\n10.77.0.3 right\n"),
        "{said}"
    );
    assert!(
        said.ends_with(&format!("{}\n", directory.path().display())),
        "{said}"
    );

    let (code, said, _) = output(&mut wanbed(&["links", "--name", &name, "--json"]));
    assert_eq!(code, Some(0));
    let report: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        (&report["seed"], &report["links"][0]["link"]),
        (&5.into(), &"near".into()),
        "{said}"
    );
    for field in ["bytes", "packets", "drops_queue", "queue_bytes", "lag"] {
        assert!(
            !report["links"][1]["backward"][field].is_null(),
            "{field} is missing: {said}"
        );
    }

    let (code, _, wrong) = output(&mut wanbed(&["exec", "--name", &name, "nowhere", "true"]));
    assert_eq!(
        (code, wrong),
        (
            Some(1),
            format!(
                "wanbed: lab {name} has no node \"nowhere\": its nodes are left, middle, right\n"
            )
        )
    );
    let (code, _, wrong) = output(&mut wanbed(&[
        "up",
        file.to_str().unwrap(),
        "--name",
        &name,
    ]));
    assert!(
        code == Some(1) && wrong.contains("is up already"),
        "{wrong}"
    );

    assert_eq!(output(&mut wanbed(&["down", "--name", &name])).0, Some(0));
    assert!(!Lab::list().unwrap().contains(&name));
    let (code, _, wrong) = output(&mut wanbed(&["down", "--name", &name]));
    assert!(
        code == Some(1) && wrong.starts_with(&format!("wanbed: no lab named {name:?} is up")),
        "{wrong}"
    );
}

#[test]
fn run_gives_its_command_the_lab_and_takes_its_exit_code() {
    if !possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (file, name) = (scenario_file(directory.path()), name("run"));
    let script = "echo $WANBED_LAB $WANBED_ADDRESS_RIGHT; \"$WANBED\" exec left cat \
        /proc/sys/net/ipv4/tcp_congestion_control; exit 42";
    let mut run = wanbed(&[
        "run",
        file.to_str().unwrap(),
        "--name",
        &name,
        "--set",
        "nodes.*.congestion=bbr",
        "--",
        "sh",
        "-c",
        script,
    ]);
    let (code, said, wrong) = output(&mut run);
    // A machine without BBR says so, which is correct as well.
    if !wrong.contains("congestion control \"bbr\" is not in this kernel") {
        assert_eq!(code, Some(42), "{wrong}");
        assert_eq!(said, format!("{name} 10.77.0.3\nbbr\n"));
    }
    assert!(!Lab::list().unwrap().contains(&name));
}

/// Starts `wanbed run` with a script that keeps running, and waits until it and its process in a
/// node run.
fn staying_run(directory: &Path, name: &str, script: &str) -> Child {
    let file = scenario_file(directory);
    let mut run = wanbed(&[
        "run",
        file.to_str().unwrap(),
        "--name",
        name,
        "--",
        "sh",
        "-c",
        script,
    ]);
    let mut child = run.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "ready\n");
    child
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn signals_end_the_command_and_the_lab() {
    if !possible() {
        return;
    }
    let script = "\"$WANBED\" exec left sh -c 'echo ready; exec sleep 100000' & exec sleep 100000";
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let directory = tempfile::tempdir().unwrap();
        let name = name(&format!("signal{code}"));
        let mut run = staying_run(directory.path(), &name, script);
        send(&run, signal);
        assert_eq!(exit_code(run.wait().unwrap()), code);
        assert!(!Lab::list().unwrap().contains(&name));
    }
}

#[test]
fn a_run_that_is_killed_takes_its_lab_along() {
    if !possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let name = name("killed");
    let mut run = staying_run(directory.path(), &name, "echo ready; exec sleep 100000");
    let lab = Lab::attach(&name).unwrap();
    let mut inside = lab
        .command("right", "sleep")
        .unwrap()
        .arg("100000")
        .spawn()
        .unwrap();
    send(&run, Signal::KILL);
    assert_eq!(run.wait().unwrap().signal(), Some(9));
    assert!(
        inside.wait().unwrap().signal().is_some(),
        "what ran in a node is ended"
    );
    lab.wait_until_gone();
    assert!(!Lab::list().unwrap().contains(&name));
}

#[test]
fn mistakes_are_one_line_each() {
    let directory = tempfile::tempdir().unwrap();
    let file = scenario_file(directory.path());
    let text = std::fs::read_to_string(&file)
        .unwrap()
        .replace("3 ms", "3 mm");
    std::fs::write(&file, text).unwrap();
    let path = file.to_str().unwrap();
    let (code, said, wrong) = output(&mut wanbed(&["run", path, "--", "true"]));
    assert_eq!((code, said.as_str()), (Some(1), ""));
    assert!(
        wrong.starts_with(&format!(
            "wanbed: {path}:8: links.near.delay: \"3 mm\" is not a time"
        )),
        "{wrong}"
    );
    let (code, _, wrong) = output(&mut wanbed(&["check", "/no/such/file.toml"]));
    assert_eq!(code, Some(1));
    assert_eq!(
        wrong,
        "wanbed: /no/such/file.toml: No such file or directory (os error 2): check the path and \
         its permissions\n"
    );
}

#[test]
fn every_scenario_in_the_repository_is_sound() {
    let scenarios = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let mut seen = 0;
    for entry in std::fs::read_dir(scenarios).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_some_and(|extension| extension == "toml")
        {
            let network = wanbed::Scenario::read(&path)
                .unwrap()
                .resolve(&wanbed::Overrides::default());
            assert!(
                network.is_ok_and(|network| !network.title.is_empty()),
                "{}",
                path.display()
            );
            seen += 1;
        }
    }
    assert!(seen >= 8, "the papers' scenarios are there: {seen}");
}
