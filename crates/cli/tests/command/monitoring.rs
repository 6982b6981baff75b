//! Flow marking, and the files in `packaging/monitoring`, checked with the programs that read them.

use std::io::Write;
use std::net::{TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::stage::{Service, Stage, errors};

/// Time limit for a datagram.
const LIMIT: Duration = Duration::from_secs(120);

fn packaging(file: &str) -> PathBuf {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/monitoring");
    PathBuf::from(root).join(file)
}

/// Runs a program of the system. Returns its output, or `None` if it is not installed.
fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let Ok(output) = Command::new(program).args(arguments).output() else {
        eprintln!("left out: {program} is not installed");
        return None;
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", errors(&output));
    Some(text)
}

/// Receives fireflies until `number` flows have ended. Returns the objects.
fn fireflies(collector: &UdpSocket, number: usize) -> Vec<Value> {
    collector.set_read_timeout(Some(LIMIT)).unwrap();
    let mut found: Vec<Value> = Vec::new();
    let ended = |found: &[Value]| {
        let ends = found
            .iter()
            .filter(|one| one["flow-lifecycle"]["state"] == "end");
        ends.count()
    };
    while ended(&found) < number {
        let mut bytes = [0; 2048];
        let length = collector.recv(&mut bytes).unwrap();
        let text = std::str::from_utf8(&bytes[..length]).unwrap();
        assert!(text.starts_with("<134>1 20"), "{text}");
        found.push(serde_json::from_str(&text[text.find('{').unwrap()..]).unwrap());
    }
    found
}

#[test]
fn servers_and_depots_mark_the_flows_of_copies() {
    const BYTES: usize = 300_000;
    let stage = Stage::new();
    let [at_server, at_depot] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    let to = [&at_server, &at_depot].map(|one| one.local_addr().unwrap().to_string());
    let [of_server, of_depot] =
        [0, 1].map(|at: usize| ["--scitags", "16:2", "--scitags-collector", &to[at]]);
    let server = stage.serve(&of_server);
    let depot = stage.depot_with("depot", &of_depot);
    stage.noise("here/f", BYTES);
    let target = format!("lh://{}/f", server.address);
    let arguments = [
        "--route",
        &depot.address,
        "--streams",
        "1",
        "here/f",
        &target,
    ];
    let copied = stage.cp(&server, &arguments);
    assert!(copied.status.success(), "{}", errors(&copied));

    let port = |service: &Service| -> u16 {
        let port = service.address.rsplit(':').next();
        port.unwrap().parse().unwrap()
    };
    let found = fireflies(&at_server, 1);
    let (started, ended) = (&found[0], found.last().unwrap());
    assert_eq!(started["flow-lifecycle"]["state"], "start", "{started}");
    assert_eq!(started["flow-id"], ended["flow-id"]);
    assert_eq!(ended["flow-id"]["dst-port"], port(&server), "{ended}");
    assert_eq!(ended["usage"]["received"], BYTES, "{ended}");
    let context = &ended["context"];
    assert_eq!(
        (&context["experiment-id"], &context["activity-id"]),
        (&16.into(), &2.into())
    );

    // Both hops, each of which carries the content and what belongs to the session.
    let found = fireflies(&at_depot, 2);
    let hop = |name: &str, service: &Service| {
        let is_end = |one: &&Value| {
            one["flow-lifecycle"]["state"] == "end" && one["flow-id"]["dst-port"] == port(service)
        };
        let end = found
            .iter()
            .find(is_end)
            .unwrap_or_else(|| panic!("{name}: {found:?}"));
        end["usage"].clone()
    };
    let (upstream, downstream) = (hop("upstream", &depot), hop("downstream", &server));
    assert!(
        upstream["received"].as_u64() >= Some(BYTES as u64),
        "{upstream}"
    );
    assert_eq!(upstream["received"], downstream["sent"]);
    assert_eq!(upstream["sent"], downstream["received"]);
}

#[test]
fn rules_of_prometheus_are_valid() {
    let rules = packaging("longhaul.rules.yml");
    run("promtool", &["check", "rules", rules.to_str().unwrap()]);
}

/// The filter of fail2ban matches strangers in real logs, as text and as JSON, and nobody else.
#[test]
fn filter_of_fail2ban_matches_strangers() {
    for format in ["text", "json"] {
        let stage = Stage::new();
        let options = ["--log-format", format];
        let (server_log, depot_log) = (stage.path("server.log"), stage.path("depot.log"));
        let server = stage.serve_logging_to(&server_log, &options);
        let depot = stage.depot_logging_to("depot", &depot_log, &options);
        std::fs::write(stage.path("here/f"), "content").unwrap();
        let target = format!("lh://{}/f", server.address);
        // Somebody who may, a key without rights at each, and peers that speak something else.
        let copied = stage.cp(&server, &["--route", &depot.address, "here/f", &target]);
        assert!(copied.status.success(), "{}", errors(&copied));
        for route in ["direct", &depot.address] {
            let mut command = stage.longhaul("stranger");
            command.args([
                "cp",
                "--route",
                route,
                "--host-key",
                &server.key,
                "here/f",
                &target,
            ]);
            let refused = command.output().unwrap();
            assert_eq!(refused.status.code(), Some(4), "{}", errors(&refused));
        }
        for service in [&server, &depot] {
            let mut stream = TcpStream::connect(&service.address).unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
            // The answer, or the end, follows the line in the log.
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        }
        assert_eq!((server.terminate(), depot.terminate()), (Some(0), Some(0)));
        for log in [&server_log, &depot_log] {
            let text = std::fs::read_to_string(log).unwrap();
            let filter = packaging("fail2ban/longhaul.conf");
            let files = [log.to_str().unwrap(), filter.to_str().unwrap()];
            let Some(found) = run("fail2ban-regex", &files) else {
                return;
            };
            let of_strangers =
                |line: &&str| line.contains("no session") || line.contains("OPEN refused");
            let lines = text.lines().count();
            let matched = text.lines().filter(of_strangers).count();
            assert!(matched >= 2, "{text}");
            let expected = format!("Lines: {lines} lines, 0 ignored, {matched} matched");
            assert!(
                found.contains(&expected),
                "{expected} not in\n{found}\n{text}"
            );
        }
    }
}
