//! Tests of labs of an unprivileged user. Root becomes one for the test; for others all tests are
//! of this kind.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use super::{PROGRAM, scenario_file};

/// "nobody" almost everywhere; any user without privileges will do.
const NOBODY: u32 = 65_534;

fn open_to_all(path: &Path) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn unprivileged_user_can_have_labs() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    open_to_all(directory.path());
    let program = directory.path().join("wanbed");
    // Another process writes it: a program that another test starts at this moment would also hold
    // a file that this one writes, and such a file cannot be executed.
    let copied = Command::new("cp").arg(PROGRAM).arg(&program).status();
    assert!(copied.unwrap().success());
    open_to_all(&program);
    let file = scenario_file(directory.path());
    open_to_all(&file);

    let script = "\"$WANBED\" list && \"$WANBED\" exec left cat /etc/hosts && \"$WANBED\" check \
        --json --name \"$WANBED_LAB\"";
    let mut run = Command::new(&program);
    run.args([
        "run",
        file.to_str().unwrap(),
        "--set",
        "links.*.rate=20 Mbit/s",
        "--",
        "sh",
        "-c",
        script,
    ]);
    run.uid(NOBODY)
        .gid(NOBODY)
        .current_dir("/")
        .env_remove("XDG_RUNTIME_DIR")
        .env_remove("WANBED_LAB");
    let output = run.output().unwrap();
    let (said, wrong) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    if wrong.contains("may not make network namespaces") {
        eprintln!("skipped: {wrong}");
        return;
    }
    let carried_by = |port: &str| said.contains(&format!("\ta row\tseed 1\t{port}\n"));
    assert!(carried_by("tun") || carried_by("packet"), "{said}{wrong}");
    assert!(said.contains("10.77.0.3 right"), "{said}{wrong}");
    let check: serde_json::Value = serde_json::from_str(&said[said.find('{').unwrap()..]).unwrap();
    let links = check["links"].as_array().unwrap();
    assert_eq!(links.len(), 4, "both directions of both links: {said}");
    for link in links {
        // Delay and rate depend on this machine's current speed; that all packets arrive does not.
        let loss = link["findings"]
            .as_array()
            .unwrap()
            .iter()
            .find(|finding| finding["what"] == "loss")
            .unwrap();
        assert_eq!(loss["verdict"], "as-asked", "{said}");
    }
    let place = format!("/tmp/wanbed-{NOBODY}");
    assert!(!Path::new(&place).exists(), "nothing is left");
}
