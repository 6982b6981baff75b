//! Depots, servers and clients that die in the middle of a copy. The depots' policies limit the
//! rate, so that the copy lasts long enough.

use std::time::Instant;

use crate::stage::*;

const SLOW: Option<&str> = Some("8 Mbit/s");

#[test]
fn the_other_route_takes_over_when_a_depot_is_killed() {
    let stage = Stage::new();
    let server = stage.serve(&[]);
    let (mut first, second) = (stage.depot("d1", SLOW), stage.depot("d2", SLOW));
    let data = stage.noise("here/f", 20_000_000);
    let there = format!("lh://{}/f", server.address);
    let arguments = [
        "--route",
        &first.address,
        "--route",
        &second.address,
        "--streams",
        "2",
        "here/f",
        &there,
    ];
    let mut copy = stage.start_cp(&server, &arguments);
    copy.until_mid_copy();
    first.kill();
    stage.set_depot_rate("d2", &second, None);
    let (report, code, reported) = copy.report();
    assert_eq!(code, Some(0), "{report} {reported}");
    assert_eq!(
        (&report["ok"], &report["verification"]["verified"]),
        (&true.into(), &true.into())
    );
    let carried = |route: &str| -> u64 {
        let streams = report["streams"].as_array().unwrap();
        streams
            .iter()
            .filter(|s| s["route"] == route)
            .map(|s| s["bytes"].as_u64().unwrap())
            .sum()
    };
    assert!(carried(&second.address) > 0, "{report}");
    assert_eq!(std::fs::read(stage.path("root/f")).unwrap(), data);
    assert!(no_temps(&stage.path("root")));
}

#[test]
fn a_pull_survives_the_death_of_a_depot() {
    let stage = Stage::new();
    let server = stage.serve(&[]);
    let (mut first, second) = (stage.depot("d1", SLOW), stage.depot("d2", SLOW));
    let data = stage.noise("root/f", 20_000_000);
    let there = format!("lh://{}/f", server.address);
    let arguments = [
        "--route",
        &first.address,
        "--route",
        &second.address,
        "--streams",
        "2",
        &there,
        "here/f",
    ];
    let mut copy = stage.start_cp(&server, &arguments);
    copy.until_mid_copy();
    first.kill();
    stage.set_depot_rate("d2", &second, None);
    let (report, code, reported) = copy.report();
    assert_eq!(code, Some(0), "{report} {reported}");
    assert_eq!(std::fs::read(stage.path("here/f")).unwrap(), data);
}

#[test]
fn a_dead_only_route_ends_the_copy_and_names_the_depot() {
    let stage = Stage::new();
    let server = stage.serve(&[]);
    let mut depot = stage.depot_at_own_address("d", SLOW);
    stage.noise("here/f", 40_000_000);
    let there = format!("lh://{}/f", server.address);
    let mut copy = stage.start_cp(&server, &["--route", &depot.address, "here/f", &there]);
    copy.until_mid_copy();
    depot.kill();
    let killed = Instant::now();
    let (report, code, _) = copy.report();
    assert!(killed.elapsed() < MAX_END, "{:?}", killed.elapsed());
    assert_eq!(
        (code, &report["exit_code"]),
        (Some(5), &5.into()),
        "{report}"
    );
    let error = report["error"].as_str().unwrap();
    assert!(
        error.contains(&format!("depot 1 {}", depot.address)),
        "{error}"
    );
    assert!(!stage.path("root/f").exists());
    // At the latest when it is told to stop, the server makes the unfinished file durable, so that
    // it can be resumed.
    assert_eq!(server.terminate(), Some(0));
    let server = stage.serve(&[]);
    let there = format!("lh://{}/f", server.address);
    let (report, code, reported) = stage.start_cp(&server, &["here/f", &there]).report();
    assert_eq!(code, Some(0), "{report} {reported}");
    assert!(report["resumed_bytes"].as_u64() > Some(0), "{report}");
    assert!(no_temps(&stage.path("root")));
}

#[test]
fn an_interrupted_client_keeps_parts_or_removes_them() {
    for name in ["INT", "TERM"] {
        let stage = Stage::new();
        let server = stage.serve(&[]);
        let depot = stage.depot("d", SLOW);
        stage.noise("root/f", 40_000_000);
        let there = format!("lh://{}/f", server.address);
        let arguments = ["--route", &depot.address, &there, "here/f"];
        for keeps in [false, true] {
            let more = if keeps { &[][..] } else { &["--no-resume"] };
            let mut copy = stage.start_cp(&server, &[more, &arguments].concat());
            copy.until_mid_copy();
            signal(&copy.child, name);
            let (report, code, _) = copy.report();
            assert_eq!(
                (code, &report["exit_code"]),
                (Some(130), &130.into()),
                "{report}"
            );
            assert!(no_temps(&stage.path("here")) != keeps && !stage.path("here/f").exists());
        }
        let (report, code, reported) = stage.start_cp(&server, &[&there, "here/f"]).report();
        assert_eq!(code, Some(0), "{report} {reported}");
        assert!(report["resumed_bytes"].as_u64() > Some(0), "{report}");
        assert!(no_temps(&stage.path("here")));
    }
}

#[test]
fn a_killed_server_is_named_in_the_error() {
    let stage = Stage::new();
    let mut server = stage.serve_at_own_address();
    let depot = stage.depot("d", SLOW);
    stage.noise("here/f", 40_000_000);
    let there = format!("lh://{}/f", server.address);
    let mut copy = stage.start_cp(&server, &["--route", &depot.address, "here/f", &there]);
    copy.until_mid_copy();
    server.kill();
    let killed = Instant::now();
    let (report, code, _) = copy.report();
    assert!(killed.elapsed() < MAX_END, "{:?}", killed.elapsed());
    assert_eq!(code, Some(5), "{report}");
    assert!(
        report["error"].as_str().unwrap().contains(&server.address),
        "{report}"
    );
}
