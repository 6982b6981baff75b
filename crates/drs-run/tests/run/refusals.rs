//! Tests of programs that cannot be preloaded, and of mistakes.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::{compiled, drs_run, refused, reported};

fn with(program: &std::path::Path) -> std::process::Command {
    let mut command = drs_run(&[]);
    command.arg(program);
    command
}

#[test]
fn static_programs_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("still.c");
    fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let program = folder.path().join("still");
    let built = std::process::Command::new("cc")
        .arg("-static")
        .arg("-o")
        .args([&program, &source])
        .output()
        .unwrap();
    if !built.status.success() {
        eprintln!("left out: no static C library here");
        return;
    }
    refused(with(&program), 126, &["statically linked", "still"]);
}

#[test]
fn privileged_programs_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "behaviour", &[]);
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    refused(with(&program), 126, &["setuid", "behaviour"]);
    fs::set_permissions(&program, fs::Permissions::from_mode(0o2755)).unwrap();
    refused(with(&program), 126, &["setgid"]);
}

#[test]
fn missing_programs_are_refused() {
    refused(
        with("no-such-program".as_ref()),
        127,
        &["no-such-program", "PATH"],
    );
    refused(
        with("/no/such/program".as_ref()),
        127,
        &["/no/such/program"],
    );
    refused(with("/etc/passwd".as_ref()), 126, &["/etc/passwd"]);
    refused(with("/etc".as_ref()), 126, &["/etc"]);
}

#[test]
fn unwritable_log_is_reported_before_the_program_runs() {
    let mut command = drs_run(&["--log", "/no/such/folder/log"]);
    command.args(["sh", "-c", "echo ran"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{}", reported(&output));
    assert_eq!(output.stdout, b"");
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("/no/such/folder/log")
    );
}

#[test]
fn a_library_that_is_not_there_is_reported() {
    let mut command = drs_run(&[]);
    command.env("DRS_PRELOAD", "/no/such/library.so").arg("sh");
    refused(command, 125, &["DRS_PRELOAD", "/no/such/library.so"]);
}

#[test]
fn codes_and_signals_of_the_program_are_passed_on() {
    for options in [&["--summary"][..], &[]] {
        let mut command = drs_run(options);
        let output = command.args(["sh", "-c", "exit 42"]).output().unwrap();
        assert_eq!(output.status.code(), Some(42), "{}", reported(&output));
    }
    let mut command = drs_run(&["--summary"]);
    let output = command.args(["sh", "-c", "kill -9 $$"]).output().unwrap();
    assert_eq!(output.status.code(), Some(137), "{}", reported(&output));
}
