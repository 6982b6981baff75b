//! The preload object for tests, including those of the commands that load it, and checks of a
//! program's output.

use std::borrow::BorrowMut;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

/// The preload object, which cargo does not build for these tests, because nothing links it.
pub static OBJECT: LazyLock<PathBuf> = LazyLock::new(|| {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args(["build", "--quiet", "--locked", "--manifest-path"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../preload-object/Cargo.toml"))
        .arg("--target-dir")
        .arg(target);
    // Variables that cargo sets for this test would disturb another build.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("CARGO_PKG_") {
            cargo.env_remove(name);
        }
    }
    succeeded(&mut cargo);
    target.join("debug/liblonghaul_preload_object.so")
});

pub fn succeeded(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}",
        reported(&output)
    );
    output
}

pub fn reported(output: &Output) -> String {
    let [out, err] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    format!("{}\n{out}\n{err}", output.status)
}

/// Runs `command`, which must end with `code` and print one line with these words.
#[track_caller]
pub fn refused(mut command: impl BorrowMut<Command>, code: i32, words: &[&str]) {
    let output = command.borrow_mut().output().unwrap();
    assert_eq!(output.status.code(), Some(code), "{}", reported(&output));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said.lines().count(), 1, "one line: {said}");
    for word in words {
        assert!(said.contains(word), "{word:?} is not in: {said}");
    }
}
