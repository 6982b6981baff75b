//! Tests of links with noise: TCP delivers its bytes, and the counters show the disturbances of its
//! segments.

use std::process::Stdio;

use wanbed::Overrides;

use super::{ROW, echo_server, inside, lab, lab_with};

#[test]
fn tcp_gets_through_jitter_reordering_marks_and_cross_traffic() {
    let text = ROW
        .replace("left = {", "left = { sysctl = { tcp_ecn = 1 },")
        .replace("right = {}", "right = { sysctl = { tcp_ecn = 1 } }");
    let overrides = Overrides::default()
        .set("links.*.rate", "20 Mbit/s")
        .set(
            "links.near.reorder",
            "{ probability = \"2%\", by = \"3 ms\" }",
        )
        .set(
            "links.near.jitter",
            "{ deviation = \"1 ms\", reorder = true }",
        )
        .set(
            "links.far.aqm",
            "{ kind = \"codel\", target = \"1 ms\", interval = \"10 ms\" }",
        )
        .set("links.far.ecn", "true")
        .set(
            "links.far.cross",
            "{ rate = \"20 Mbit/s\", on = \"10 ms\", off = \"10 ms\" }",
        );
    let Some(lab) = lab_with(&text, &overrides) else {
        return;
    };
    let (mut server, port) = echo_server(&lab, "right", "0.0.0.0");
    let client = inside(&lab, "left", "part_echo_client", &format!("right {port}"))
        .stdout(Stdio::piped())
        .output()
        .unwrap();
    assert!(client.status.success(), "{client:?}");
    assert!(server.wait().unwrap().success());
    let report = lab.down().unwrap();
    assert!(
        report.backend == "tun" || report.backend == "packet",
        "{}",
        report.backend
    );
    let [near, far] = &report.links[..] else {
        panic!("two links: {report:?}")
    };
    for way in [&near.counters.forward, &near.counters.backward] {
        assert!(way.reordered > 0 && way.cross_bytes == 0, "{way:?}");
        assert!(way.batching_us > 0, "{way:?}");
    }
    let marks = far.counters.forward.marks_ecn + far.counters.backward.marks_ecn;
    assert!(marks > 0 && far.counters.forward.cross_bytes > 0, "{far:?}");
}

/// Time in seconds over which the check takes the most bytes; the next constant is the multiple of
/// the bottleneck's rate that it allows there.
const MEASURED_OVER: f64 = 0.01;
const ALLOWED_SHARE: f64 = 1.3;

/// The delay falls from 60 to 10 ms 14 s after the start.
#[test]
fn a_check_sees_that_a_fall_of_the_delay_makes_no_burst() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("fall.csv");
    std::fs::write(
        &file,
        "at, rate, delay, loss\n0 s,, 60 ms,\n14 s,, 10 ms,\n",
    )
    .unwrap();
    let trace = format!(
        "delay = \"3 ms\", forward = {{ trace = {:?} }}",
        file.display().to_string()
    );
    let text = ROW
        .replace("200 Mbit/s", "20 Mbit/s")
        .replace("delay = \"3 ms\"", &trace);
    let Some(lab) = lab(&text) else { return };
    let check = lab.check(0, true).unwrap();
    let fall = check
        .findings
        .iter()
        .find(|finding| finding.what == "fall")
        .unwrap();
    // The machine, not the link, is responsible for late deliveries: segments due over that time
    // may have arrived at once.
    let late = lab.links().unwrap().links[0].counters.forward.lag.max as f64 / 1e6;
    let most = fall.asked.unwrap() * (MEASURED_OVER * ALLOWED_SHARE + late) / MEASURED_OVER;
    match fall.measured {
        Some(measured) => assert!(measured <= most, "{late} s late at most: {check:?}"),
        None => eprintln!("the machine was too slow to see the fall: {}", fall.text),
    }
}
