//! A depot that is an off-ramp as well: one process, one key, one policy, one metrics page.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use longhaul_session::{ConnectOptions, Identity, ServerTrust, connect};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::common::{Service, new_key};

#[test]
fn a_depot_is_an_offramp_as_well() {
    let directory = tempfile::tempdir().unwrap();
    let identity = Identity::generate().unwrap();
    let key = identity.public();
    let policy = directory.path().join("policy.toml");
    let rules = format!(
        "[[allow]]\nprincipals = [\"{key}\"]\nto = [\"127.0.0.1\"]\nports = [\"any\"]\n\
         [[allow]]\nprincipals = [\"{key}\"]\nservers = [\"127.0.0.1\"]\nports = [\"any\"]\n"
    );
    fs::write(&policy, rules).unwrap();
    new_key(&directory.path().join("depot"));
    let mut depot = Command::new(env!("CARGO_BIN_EXE_longhaul"))
        .env("LONGHAUL_HOME", directory.path().join("depot"))
        .args([
            "depot",
            "--json",
            "--listen",
            "127.0.0.1:0",
            "--offramp",
            "127.0.0.1:0",
        ])
        .args(["--metrics", "127.0.0.1:0", "--policy"])
        .arg(&policy)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map(Service)
        .unwrap();
    let mut line = String::new();
    let mut out = BufReader::new(depot.0.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    let reported: serde_json::Value = serde_json::from_str(&line).unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let (relay, offramp) = (
        text(&reported["addresses"][0]),
        text(&reported["offramps"][0]),
    );
    assert_ne!(relay, offramp);

    // Any server that reads to the end and answers.
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = server.local_addr().unwrap();
    let serving = std::thread::spawn(move || {
        for _ in 0..2 {
            let (mut stream, _) = server.accept().unwrap();
            let mut received = Vec::new();
            stream.read_to_end(&mut received).unwrap();
            stream.write_all(&received).unwrap();
        }
    });
    let identity = Arc::new(identity);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    // Directly, and through the same process as a depot.
    for route in ["direct", &relay] {
        let options = ConnectOptions::through_offramp(
            at.into(),
            route.parse().unwrap(),
            offramp.parse().unwrap(),
            identity.clone(),
            ServerTrust::Pinned(text(&reported["key"]).parse().unwrap()),
        );
        let echoing = async {
            let mut session = connect(&options).await.unwrap();
            session.write_all(b"words").await.unwrap();
            session.shutdown().await.unwrap();
            let mut back = String::new();
            session.read_to_string(&mut back).await.unwrap();
            assert_eq!(back, "words", "{route}");
        };
        runtime
            .block_on(async { tokio::time::timeout(Duration::from_secs(60), echoing).await })
            .unwrap();
    }
    serving.join().unwrap();

    let mut page = String::new();
    while !page.contains("longhaul_offramp_sessions_ended_total{ending=\"finished\"} 2")
        || !page.contains("longhaul_depot_sessions_ended_total{ending=\"finished\"} 1")
    {
        let mut stream = TcpStream::connect(reported["metrics"].as_str().unwrap()).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        page.clear();
        stream.read_to_string(&mut page).unwrap();
    }
    assert_eq!(page.matches("# EOF").count(), 1);
    depot.signal("TERM");
    assert_eq!(depot.0.wait().unwrap().code(), Some(0));
}

#[test]
fn an_offramp_without_servers_does_not_start() {
    let directory = tempfile::tempdir().unwrap();
    let policy = directory.path().join("policy.toml");
    fs::write(
        &policy,
        "[[allow]]\nprincipals = [\"*\"]\nto = [\"192.0.2.1\"]\n",
    )
    .unwrap();
    new_key(&directory.path().join("home"));
    for arguments in [
        &["offramp", "--listen", "127.0.0.1:0"][..],
        &[
            "depot",
            "--listen",
            "127.0.0.1:0",
            "--offramp",
            "127.0.0.1:0",
        ],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_longhaul"))
            .env("LONGHAUL_HOME", directory.path().join("home"))
            .args(arguments)
            .arg("--policy")
            .arg(&policy)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let reported = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && reported.contains("servers"),
            "{reported}"
        );
    }
}
