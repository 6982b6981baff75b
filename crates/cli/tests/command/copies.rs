//! Copies that succeed, and copies that cannot begin.

use serde_json::Value;

use crate::common::ClosedPort;
use crate::stage::*;

fn report(output: &std::process::Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text
        .lines()
        .last()
        .unwrap_or_else(|| panic!("no report; {}", errors(output)));
    serde_json::from_str(last).unwrap()
}

#[test]
fn trees_are_copied_direct_and_through_depots() {
    let stage = Stage::new();
    let server = stage.serve(&[]);
    let (first, second) = (stage.depot("d1", None), stage.depot("d2", None));
    std::fs::create_dir_all(stage.path("here/t/sub")).unwrap();
    let data = stage.noise("here/t/big", 3_000_000);
    std::fs::write(stage.path("here/t/sub/small"), "small").unwrap();
    let chain = format!("{},{}", first.address, second.address);
    for (n, route) in ["direct", &first.address, &chain].into_iter().enumerate() {
        let there = format!("lh://{}/t{n}", server.address);
        let output = stage.cp(
            &server,
            &[
                "-r",
                "--json",
                "--streams",
                "1",
                "--route",
                route,
                "here/t",
                &there,
            ],
        );
        assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
        assert_eq!(
            std::fs::read(stage.path(&format!("root/t{n}/big"))).unwrap(),
            data
        );
        let report = report(&output);
        assert_eq!(
            (&report["ok"], &report["bytes"], &report["files"]),
            (&true.into(), &3_000_005.into(), &2.into())
        );
        assert_eq!(report["streams"][0]["route"], route);
        assert_eq!(report["streams"][0]["bytes"], 3_000_005);
        // The replacements for calls of Linux know nothing of a connection.
        let is_known = report["streams"][0]["retransmits"].is_u64();
        assert_eq!(is_known, longhaul_platform::IS_LINUX);
        assert_eq!(
            (
                &report["verification"]["verified"],
                &report["verification"]["of"]
            ),
            (&true.into(), &"tree".into())
        );
        assert!(
            report["goodput_bps"].as_f64().unwrap() > 0.0
                && report["seconds"].as_f64().unwrap() > 0.0
        );
        let back = format!("here/back{n}");
        let output = stage.cp(&server, &["-r", "--json", "--route", route, &there, &back]);
        assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
        assert_eq!(std::fs::read(stage.path(&back).join("big")).unwrap(), data);
        assert_eq!(
            std::fs::read(stage.path(&back).join("sub/small")).unwrap(),
            b"small"
        );
    }
    assert!(no_temps(stage.tmp.path()));
}

#[test]
fn one_file_reports_its_own_hash_and_local_copies_work() {
    let stage = Stage::new();
    stage.noise("here/f", 100_000);
    let output = stage
        .longhaul("me")
        .args(["cp", "--json", "here/f", "here/g"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let report = report(&output);
    assert_eq!(report["verification"]["of"], "file");
    let events = String::from_utf8_lossy(&output.stdout);
    let root = report["verification"]["root"].as_str().unwrap();
    assert!(
        events
            .lines()
            .any(|line| line.contains("\"done\"") && line.contains(root))
    );
    assert_eq!(
        std::fs::read(stage.path("here/f")).unwrap(),
        std::fs::read(stage.path("here/g")).unwrap()
    );
    // Copying into itself would never end.
    let output = stage
        .longhaul("me")
        .args(["cp", "-r", "here", "here/inside"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
}

#[test]
fn each_kind_of_failure_has_its_exit_code_and_one_line() {
    let stage = Stage::new();
    let server = stage.serve(&[]);
    stage.noise("here/f", 1000);
    let there = format!("lh://{}/f", server.address);
    let code = |output: std::process::Output, expected: i32, words: &[&str]| {
        let reported = errors(&output);
        assert_eq!(output.status.code(), Some(expected), "{reported}");
        for word in words {
            assert!(reported.contains(word), "{word:?} in {reported:?}");
        }
        assert!(!reported.contains("panicked"), "{reported}");
    };
    // Usage errors.
    code(stage.cp(&server, &["here/f"]), 2, &[]);
    code(
        stage.cp(&server, &["here/f", &there, "here/g"]),
        2,
        &["run one command for each"],
    );
    code(
        stage.cp(&server, &[&there, &there]),
        2,
        &["from a server to itself"],
    );
    code(
        stage.cp(&server, &["here/none", &there]),
        2,
        &["here/none", "no such file"],
    );
    code(stage.cp(&server, &["here/f", "lh://"]), 2, &["lh://"]);
    // Some files fail: a directory without -r; one that exists. All fail: one that is missing.
    code(stage.cp(&server, &["here", &there]), 1, &["-r"]);
    code(
        stage.cp(
            &server,
            &[&format!("lh://{}/none", server.address), "here/x"],
        ),
        2,
        &["/none", "no such file"],
    );
    code(stage.cp(&server, &["here/f", &there]), 0, &[]);
    std::fs::write(stage.path("root/f"), "other").unwrap();
    code(
        stage.cp(&server, &["here/f", &there]),
        1,
        &["here/f", "--overwrite"],
    );
    code(
        stage.cp(&server, &["--overwrite", "here/f", &there]),
        0,
        &[],
    );
    // No route: nothing listens there.
    let closed = ClosedPort::new();
    let gone = &closed.address.to_string();
    code(
        stage.cp(&server, &["--route", gone, "here/f", &there]),
        3,
        &[gone],
    );
    // Not authorised: an unknown key, a wrong key, an unknown server without a terminal, a path
    // that is not granted.
    let stranger = stage
        .longhaul("stranger")
        .args(["cp", "--host-key", &server.key, "here/f", &there])
        .output()
        .unwrap();
    code(stranger, 4, &["does not know this key"]);
    let wrong = stage
        .longhaul("me")
        .args(["cp", "--host-key", &stage.key("other"), "here/f", &there])
        .output()
        .unwrap();
    code(wrong, 4, &[&server.key, "expected"]);
    let unknown = stage
        .longhaul("me")
        .args(["cp", "here/f", &there])
        .output()
        .unwrap();
    code(unknown, 4, &[&server.key, "--host-key", "--accept-new"]);
    let restricted = Stage::new();
    let key = restricted.key("reader");
    let server = restricted.serve(&["--read", &key]);
    restricted.noise("here/f", 1000);
    let there = format!("lh://{}/f", server.address);
    let reader = restricted
        .longhaul("reader")
        .args(["cp", "--host-key", &server.key, "here/f", &there])
        .output()
        .unwrap();
    code(reader, 4, &["write"]);
    assert!(!restricted.path("root/f").exists());
}

#[test]
fn a_changed_server_key_is_refused() {
    let stage = Stage::new();
    let server = stage.serve(&[]);
    stage.noise("here/f", 1000);
    let there = format!("lh://{}/", server.address);
    let cp = |more: &[&str]| {
        stage
            .longhaul("me")
            .arg("cp")
            .args(more)
            .args(["here/f", &there])
            .output()
            .unwrap()
    };
    assert_eq!(cp(&["--accept-new"]).status.code(), Some(0));
    assert_eq!(cp(&[]).status.code(), Some(0), "known by now");
    let known = std::fs::read_to_string(stage.path("me/known_hosts")).unwrap();
    assert!(known.contains(&server.address) && known.contains(&server.key));
    std::fs::write(
        stage.path("me/known_hosts"),
        known.replace(&server.key, &stage.key("other")),
    )
    .unwrap();
    let output = cp(&["--accept-new"]);
    assert_eq!(output.status.code(), Some(4), "{}", errors(&output));
    assert!(
        errors(&output).contains("someone may be intercepting"),
        "{}",
        errors(&output)
    );
}

#[test]
fn keys_are_made_listed_and_shown_and_never_replaced() {
    let stage = Stage::new();
    let keys = |more: &[&str]| {
        stage
            .longhaul("me")
            .arg("keys")
            .args(more)
            .output()
            .unwrap()
    };
    assert_eq!(keys(&["show", "work"]).status.code(), Some(2));
    assert!(keys(&["new"]).status.success() && keys(&["new", "work"]).status.success());
    assert_eq!(keys(&["new"]).status.code(), Some(2), "there is one");
    let list = String::from_utf8(keys(&["list"]).stdout).unwrap();
    assert_eq!(list.lines().count(), 2);
    let shown = String::from_utf8(keys(&["show", "work"]).stdout).unwrap();
    assert!(shown.starts_with("lhk1:") && list.contains(shown.trim()));
    assert_eq!(keys(&["show", "../me/identity"]).status.code(), Some(2));
}

#[test]
fn a_server_that_grants_nothing_or_has_no_root_does_not_start() {
    let stage = Stage::new();
    let serve = |more: &[&str]| {
        stage
            .longhaul("server")
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(more)
            .output()
            .unwrap()
    };
    let nobody = serve(&["--root", "root"]);
    assert_eq!(nobody.status.code(), Some(2));
    assert!(errors(&nobody).contains("--read"), "{}", errors(&nobody));
    let key = stage.key("me");
    assert_eq!(
        serve(&["--root", "nowhere", "--read", &key]).status.code(),
        Some(2)
    );
    assert_eq!(
        serve(&["--root", "root", "--read", "lhk1:nonsense"])
            .status
            .code(),
        Some(2)
    );
}

/// A service that the server does not offer is refused at once, by name and as a refusal.
#[test]
fn a_measurement_server_serves_no_files() {
    let stage = Stage::new();
    let server = stage.perf(&[]);
    stage.noise("here/f", 1000);
    let output = stage.cp(&server, &["here/f", &format!("lh://{}/f", server.address)]);
    let reported = errors(&output);
    assert_eq!(output.status.code(), Some(1), "{reported}");
    assert!(
        reported.contains("does not offer this service: copy; this one offers: perf"),
        "{reported}"
    );
}

#[test]
fn streams_spread_over_source_addresses() {
    let stage = Stage::new();
    let server = stage.serve(&[]);
    // So large that a stream from each address is established before the copy ends.
    let data = stage.noise("here/f", 64 << 20);
    let there = format!("lh://{}/f", server.address);
    let sources = ["127.0.0.2", "127.0.0.3"];
    let arguments = [
        "--json",
        "--streams",
        "4",
        "--source",
        sources[0],
        "--source",
        sources[1],
        "here/f",
        &there,
    ];
    let output = stage.cp(&server, &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    assert!(std::fs::read(stage.path("root/f")).unwrap() == data);
    let report = report(&output);
    let routes = report["routes"].as_array().unwrap();
    let names: Vec<&str> = routes
        .iter()
        .map(|route| route["route"].as_str().unwrap())
        .collect();
    assert_eq!(names.len(), 2, "{report}");
    for source in sources {
        assert!(
            names.contains(&format!("direct from {source}").as_str()),
            "{report}"
        );
    }
    let bytes: u64 = routes
        .iter()
        .map(|route| route["bytes"].as_u64().unwrap())
        .sum();
    assert!(bytes >= data.len() as u64, "{report}");
}

#[test]
fn foreign_source_addresses_are_reported() {
    let stage = Stage::new();
    let server = stage.serve(&[]);
    stage.noise("here/f", 1000);
    let there = format!("lh://{}/f", server.address);
    let output = stage.cp(&server, &["--source", "192.0.2.1", "here/f", &there]);
    assert_eq!(output.status.code(), Some(3), "{}", errors(&output));
    let output = stage.cp(&server, &["--source", "127.0.0.2", "here/f", "here/g"]);
    assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
}

#[test]
fn losses_of_metadata_are_reported_in_both_directions() {
    use std::os::unix::fs::PermissionsExt;
    let stage = Stage::new();
    let server = stage.serve(&[]);
    let there = |path: &str| format!("lh://{}/{path}", server.address);
    for at in ["here/t", "root/t"] {
        std::fs::create_dir(stage.path(at)).unwrap();
        // One file that is sent whole, and one in blocks.
        stage.noise(&format!("{at}/small"), 1000);
        stage.noise(&format!("{at}/large"), 1_000_000);
        for name in ["small", "large"] {
            let file = stage.path(&format!("{at}/{name}"));
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o2755)).unwrap();
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(&file, "user.note", b"x", flags).unwrap();
        }
    }
    for [from, to] in [["here/t", &there("pushed")], [&there("t"), "here/pulled"]] {
        let output = stage.cp(&server, &["--json", "-r", from, to]);
        assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
        let not_kept = &report(&output)["not_kept"];
        let counts =
            ["owners", "set_id_bits", "acls", "extended_attributes"].map(|name| &not_kept[name]);
        assert_eq!(counts, [0, 2, 0, 2], "{from}: {not_kept}");
    }
}
