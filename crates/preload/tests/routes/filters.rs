//! Tests of programs that restrict their system calls.

use std::path::Path;
use std::process::Command;

use crate::onramp::OnRamp;
use crate::support::{OBJECT, reported, succeeded};

#[test]
fn a_program_with_a_filter_of_system_calls_is_left_alone() {
    let onramp = OnRamp::start();
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let program = folder.path().join("filtered");
    let mut cc = Command::new("cc");
    cc.args(["-Wall", "-Wextra", "-Werror", "-o"]).arg(&program);
    cc.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/routes/filtered.c"));
    succeeded(&mut cc);
    let (name, filters) = longhaul_preload::launch::inherited_filters();
    for how in ["prctl", "seccomp", "execute"] {
        for mode in ["open", "closed"] {
            let mut command = Command::new(&program);
            command
                .arg(how)
                .env(name, &filters)
                .env("LD_PRELOAD", &*OBJECT)
                .env("DRS_MODE", "auto")
                .env("LONGHAUL_ROUTES", mode)
                .env("LONGHAUL_ONRAMP", &onramp.socket);
            let output = command.output().unwrap();
            assert_eq!(
                output.status.code(),
                Some(0),
                "{how}, {mode}: {}",
                reported(&output)
            );
            assert_eq!(output.stdout, b"survived\n", "{how}, {mode}");
        }
    }
}
