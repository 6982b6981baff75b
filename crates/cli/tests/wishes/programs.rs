//! Unmodified programs get a circuit for the rate that they state, and lose it on time.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;

use crate::bed::{WEB_PORT, are_same, succeeds};
use crate::common::bed::Bed;
use crate::common::noise;

/// Enough for some fifteen seconds: half of them at the circuit's rate.
const BYTES: usize = 45 << 20;
const SINK_PORT: u16 = 8090;
const SQL_PORT: u16 = 5432;
const GRIDFTP_PORT: u16 = 2811;
/// User for servers that refuse to run as root: `nobody`.
const NOBODY: u32 = 65534;

const AS_NOBODY: [&str; 4] = ["--reuid=65534", "--regid=65534", "--clear-groups", "--"];

/// Writes everything that arrives to a file.
const SINK: &str = "
import socket, sys
with socket.create_server(('0.0.0.0', int(sys.argv[1]))) as server:
    while True:
        conn, _ = server.accept()
        with conn, open(sys.argv[2], 'wb') as file:
            while data := conn.recv(65536):
                file.write(data)
        open(sys.argv[2] + '.whole', 'wb').close()
";

/// Sends a file.
const SOURCE: &str = "
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as conn:
    with open(sys.argv[3], 'rb') as file:
        conn.sendfile(file)
";

/// Asserts that the book has one reservation of the client with this description and end.
fn is_booked(bed: &Bed, description: &str, life: &str) {
    let client = bed.key("client");
    let is_it = || {
        let all = bed.reservations();
        let mut made = all.iter().filter(|one| one["description"] == description);
        let first = made
            .next()
            .unwrap_or_else(|| panic!("{description}: {all:#?}"));
        assert_eq!(first["owner"], client, "{first:#}");
        assert!(first.get("delegate").is_none(), "{first:#}");
        first["state"]["life"] == life
    };
    bed.until(description, is_it);
}

#[test]
fn curl_gets_a_circuit_and_loses_it_on_time() {
    let Some(mut bed) = Bed::up() else { return };
    // It lasts longer than the circuit.
    bed.serve_web(2 * BYTES);
    bed.start_onramp("", &[]);
    let wish = [
        "--rate",
        "20M",
        "--for",
        "20s",
        "--purpose",
        "nightly fetch",
    ];
    let curl = bed.curl(&wish);
    bed.until("classes", || bed.has_classes("server", "client"));
    bed.until("no classes", || bed.has_no_classes());
    bed.is_fetched(curl);
    is_booked(&bed, "nightly fetch", "passed-end-time");
    bed.logged("is over: continues as best effort");
    assert_eq!(bed.reservations().len(), 1, "{:#?}", bed.reservations());
}

#[test]
fn python_returns_its_circuit_when_it_ends() {
    let Some(mut bed) = Bed::up() else { return };
    fs::write(bed.path("data"), noise(BYTES, 3)).unwrap();
    let (port, sunk) = (SINK_PORT.to_string(), bed.path("sunk"));
    let sink = ["-c", SINK, &port, sunk.to_str().unwrap()];
    bed.serve("python3", &sink, SINK_PORT);
    bed.start_onramp("", &[]);
    // The environment states the wish: this is all that `longhaul run` does with its options.
    let mut python = bed.program(&["--rate", "20M", "--for", "10min"], "python3");
    python
        .args(["-c", SOURCE, &bed.address("server"), &port])
        .arg(bed.path("data"));
    let python = python.spawn().unwrap();
    bed.until("classes", || bed.has_classes("client", "server"));
    succeeds(python, "python3");
    bed.until("all of it", || bed.path("sunk.whole").exists());
    assert!(are_same(&bed.path("data"), &sunk));
    bed.until("no classes", || bed.has_no_classes());
    is_booked(&bed, "longhaul: a connection", "terminated");
}

#[test]
fn globus_url_copy_gets_a_circuit_for_each_stream() {
    let Some(mut bed) = Bed::up() else { return };
    fs::write(bed.path("data"), noise(BYTES, 3)).unwrap();
    fs::set_permissions(bed.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(bed.path("store")).unwrap();
    chown(bed.path("store"), Some(NOBODY), Some(NOBODY)).unwrap();
    let port = GRIDFTP_PORT.to_string();
    let options = ["-p", &port, "-aa", "-no-detach", "-disable-usage-stats"];
    let server = [&AS_NOBODY[..], &["globus-gridftp-server"], &options].concat();
    bed.serve("setpriv", &server, GRIDFTP_PORT);
    bed.start_onramp("", &[]);
    let wish = ["--rate", "20M", "--for", "10min", "--purpose", "gridftp"];
    let mut copy = bed.program(&wish, "globus-url-copy");
    copy.args(["-fast", "-p", "2"])
        .env("GLOBUS_HOSTNAME", bed.address("client"));
    copy.arg(format!("file://{}", bed.path("data").display()));
    let there = bed.path("store/data");
    copy.arg(format!(
        "ftp://{}:{port}{}",
        bed.address("server"),
        there.display()
    ));
    let copy = copy.spawn().unwrap();
    bed.until("classes", || bed.has_classes("client", "server"));
    succeeds(copy, "globus-url-copy");
    assert!(are_same(&bed.path("data"), &there));
    bed.until("no classes", || bed.has_no_classes());
    is_booked(&bed, "gridftp", "terminated");
    let streams = bed.reservations().len();
    assert!(
        (1..=2).contains(&streams),
        "control connections reserve nothing: {streams}"
    );
}

#[test]
fn psql_gets_a_circuit() {
    let Some(mut bed) = Bed::up() else { return };
    fs::set_permissions(bed.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let cluster = bed.path("cluster");
    fs::create_dir(&cluster).unwrap();
    chown(&cluster, Some(NOBODY), Some(NOBODY)).unwrap();
    let made = Command::new("setpriv")
        .args(AS_NOBODY)
        .args([
            "initdb",
            "--auth=trust",
            "--username=ana",
            "--no-sync",
            "-D",
        ])
        .arg(&cluster)
        .output()
        .unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    fs::write(
        cluster.join("pg_hba.conf"),
        "host all all 0.0.0.0/0 trust\n",
    )
    .unwrap();
    let folder = cluster.to_str().unwrap();
    let server = [
        "postgres",
        "-D",
        folder,
        "-k",
        folder,
        "-c",
        "listen_addresses=*",
    ];
    let memory = ["-c", "dynamic_shared_memory_type=mmap"];
    let arguments = [&AS_NOBODY[..], &server, &memory].concat();
    bed.serve("setpriv", &arguments, SQL_PORT);
    bed.start_onramp("", &[]);
    let wish = ["--rate", "20M", "--for", "10min", "--purpose", "a query"];
    let mut psql = bed.program(&wish, "psql");
    let lines = 45_000;
    let query =
        format!("copy (select repeat('x', 1000) from generate_series(1, {lines})) to stdout");
    psql.args([
        "-h",
        &bed.address("server"),
        "-U",
        "ana",
        "-d",
        "postgres",
        "-c",
        &query,
    ]);
    let out = fs::File::create(bed.path("rows")).unwrap();
    let psql = psql.stdout(out).spawn().unwrap();
    bed.until("classes", || bed.has_classes("server", "client"));
    succeeds(psql, "psql");
    assert_eq!(fs::read(bed.path("rows")).unwrap().len(), lines * 1001);
    bed.until("no classes", || bed.has_no_classes());
    is_booked(&bed, "a query", "terminated");
}

#[test]
fn a_rule_moves_a_long_flow_in_mid_flight() {
    let Some(mut bed) = Bed::up() else { return };
    bed.serve_web(BYTES);
    // Faster than the flow, which the first link holds to 40 Mbit/s. Its connections state nothing.
    let server = bed.address("server");
    bed.start_onramp(
        &format!(
            "[[route]]\nto = [\"{server}\"]\nreserve = {{ rate = \"45M\", for = \"1min\", \
             after = \"4M\", above = \"1M\" }}\n"
        ),
        &[],
    );
    let curl = bed.curl(&[]);
    bed.logged("circuit of reservation 1: 45");
    bed.is_fetched(curl);
    bed.logged("reservation 1 was returned");
    let [one] = &bed.reservations()[..] else {
        panic!("{:#?}", bed.reservations())
    };
    assert_eq!(one["filter"]["source_ports"]["first"], WEB_PORT, "{one:#}");
}
