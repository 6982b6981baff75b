//! Programs whose connections are spread over the paths of one reservation: a controller, a router
//! that selects the path by source port, and GridFTP.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::common::bed::{Bed, is_set_up};
use crate::common::{Service, listening, noise, program};

/// Size of a file: small, so that the test is quick.
const BYTES: usize = 16 << 20;
/// Port of GridFTP's control connection.
const GRIDFTP_PORT: u16 = 2811;

/// Everything takes the short path by default.
const NETWORK: &str = r#"
title = "a router before two paths"
[nodes.client]
[nodes.west]
[nodes.server]
[links.access]
ends = ["client", "west"]
delay = "1 ms"
rate = "1 Gbit/s"
[links.short]
ends = ["west", "server"]
delay = "5 ms"
rate = "40 Mbit/s"
[links.long]
ends = ["west", "server"]
delay = "15 ms"
rate = "40 Mbit/s"
"#;

/// Starts the router, and a controller beside the lab.
fn start() -> Option<Bed> {
    let mut bed = Bed::start(NETWORK, None)?;
    // In a lab, a device has the name of its link.
    let link = |name: &str| {
        json!({
            "interface": name, "gateways": [], "rate": 38_000_000, "reservable": 1_000_000
        })
    };
    bed.start_router(
        "west",
        &json!({"short": link("short"), "long": link("long")}),
    );
    bed.start_controller(&bed.agents(&["west"]));
    bed.import(&map(&bed));
    Some(bed)
}

/// Returns a map with a site in the middle of each path, so that paths can be named.
fn map(bed: &Bed) -> Value {
    let link = |name: &str, from: &str, to: &str| {
        json!({"name": name, "from": from, "to": to,
            "forward": {"capacity": {"rate_bps": 38e6}, "reservable": {"share": 1.0}}})
    };
    json!({
        "sites": (["west", "s", "l", "east"].map(|site| json!({"name": site}))),
        "hosts": [
            {"name": "client", "site": "west", "addresses": [bed.address("client")]},
            {"name": "server", "site": "east", "addresses": [bed.address("server")]},
        ],
        "links": [
            link("short", "west", "s"), link("short-far", "s", "east"),
            link("long", "west", "l"), link("long-far", "l", "east"),
        ],
    })
}

/// Reserves paths of these rates in Mbit/s, and waits until they are set up. Returns the ID.
fn reserve(bed: &Bed, short: u32, long: u32) -> String {
    let (short, long) = (
        format!("west,s,east={short}M"),
        format!("west,l,east={long}M"),
    );
    let paths = ["--path", &short, "--path", &long];
    let reserved = bed.reserve(&[&paths[..], &["--for", "1 h", "--provision"]].concat());
    let id = reserved.unwrap()["id"].to_string();
    bed.becomes(&id, "set up", is_set_up);
    id
}

/// Returns the bytes that the short and the long path have delivered to the server.
fn delivered(bed: &Bed) -> [u64; 2] {
    let report = bed.lab.links().unwrap();
    let bytes = |name: &str| {
        let found = report.links.iter().find(|link| link.counters.link == name);
        found.unwrap().counters.forward.bytes
    };
    ["short", "long"].map(bytes)
}

/// Starts a GridFTP server that anybody may write to, with files in `there`.
fn gridftp(bed: &mut Bed) -> Option<PathBuf> {
    let server = program("globus-gridftp-server");
    let (Some(server), Some(client)) = (server, program("globus-url-copy")) else {
        eprintln!("left out: GridFTP is not installed");
        return None;
    };
    if !rustix::process::getuid().is_root() {
        eprintln!("left out: only root can start an anonymous GridFTP server");
        return None;
    }
    let there = bed.path("there");
    fs::create_dir(&there).unwrap();
    for (dir, mode) in [(bed.dir.path(), 0o711), (there.as_path(), 0o777)] {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(dir, fs::Permissions::from_mode(mode)).unwrap();
    }
    let mut command = bed.lab.command("server", server).unwrap();
    command
        .env("GLOBUS_HOSTNAME", bed.address("server"))
        .args([
            "-p",
            &GRIDFTP_PORT.to_string(),
            "-aa",
            "-no-detach",
            "-disable-usage-stats",
        ])
        .args(["-anonymous-user", "nobody", "-anonymous-group", "nogroup"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    bed.keep("gridftp", Service(command.spawn().unwrap()));
    listening(&bed.lab, "server", GRIDFTP_PORT);
    Some(client)
}

/// Copies `data` with eight connections over the paths of a reservation, and checks what arrived.
/// Returns the bytes that the short and the long path carried.
fn copied(bed: &Bed, client: &Path, id: &str, spread: &str) -> [u64; 2] {
    let before = delivered(bed);
    let there = bed.path("there").join(format!("{id}-{spread}"));
    let mut run = bed.longhaul("client", "control");
    run.args(["run", "--reservation", id, "--spread", spread, "--"])
        .arg(client);
    run.env("GLOBUS_HOSTNAME", bed.address("client"));
    run.args(["-fast", "-p", "8"]);
    run.arg(format!("file://{}", bed.path("data").display()));
    let url = format!(
        "ftp://{}:{GRIDFTP_PORT}{}",
        bed.address("server"),
        there.display()
    );
    let output = run.arg(url).output().unwrap();
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complained}");
    assert!(fs::read(&there).unwrap() == fs::read(bed.path("data")).unwrap());
    let after = delivered(bed);
    std::array::from_fn(|path| after[path] - before[path])
}

#[test]
fn gridftp_uses_all_paths_of_its_reservation() {
    let Some(mut bed) = start() else { return };
    let Some(client) = gridftp(&mut bed) else {
        return;
    };
    fs::write(bed.path("data"), noise(BYTES, 11)).unwrap();
    let id = reserve(&bed, 24, 8);
    // Each connection carries about as much as any other: six of eight are on the short path.
    let [short, long] = copied(&bed, &client, &id, "rate");
    let bytes = BYTES as u64;
    assert!(long > bytes / 8 && long < bytes / 2, "{short} and {long}");
    assert!(short > bytes / 2, "{short} and {long}");
    // Stated shares put all of them on the long path, which nothing takes by itself.
    let [short, long] = copied(&bed, &client, &id, "0:1");
    assert!(long > bytes && short < bytes / 8, "{short} and {long}");
}

#[test]
fn unusable_reservation_is_reported_before_the_program_runs() {
    let Some(bed) = start() else { return };
    let refused = |arguments: &[&str]| {
        let mut run = bed.longhaul("client", "control");
        let output = run
            .arg("run")
            .args(arguments)
            .args(["--", "true"])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(125), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let unknown = refused(&["--reservation", "77"]);
    assert!(unknown.contains("cannot use reservation 77: "), "{unknown}");
    let reserved = bed.reserve(&["--for", "1 h", "--rate", "1M"]);
    let id = reserved.unwrap()["id"].to_string();
    let whole = refused(&["--reservation", &id]);
    assert!(whole.contains("has no source ports"), "{whole}");
    bed.operate(&["reservations", &id, "cancel"]);
    let over = refused(&["--reservation", &id]);
    assert!(over.contains("is over: make another one"), "{over}");
}
