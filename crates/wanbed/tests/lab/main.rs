//! Tests of real labs, in network namespaces: their traffic, and that nothing is left of them.
//!
//! Without root and user namespaces the tests skip, with a message.
// a test may fail by panicking, also outside its #[test] function
#![allow(clippy::unwrap_used, clippy::panic)]

mod carries;
mod commands;
mod ipv6;
mod leaves_nothing;
mod noise;
mod rootless;

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::net::AddressFamily;
use wanbed::{Error, Lab, Overrides, Scenario};

/// Two hosts with a router between; 4 ms one way.
const ROW: &str = r#"
title = "a row"
[nodes]
left = { congestion = "reno" }
middle = {}
right = {}
[links]
near = { ends = ["left", "middle"], delay = "3 ms", rate = "200 Mbit/s" }
far = { ends = ["middle", "right"], delay = "1 ms", rate = "200 Mbit/s" }
"#;

const PROGRAM: &str = env!("CARGO_BIN_EXE_wanbed");

/// Brings a lab up. If this machine cannot have labs, returns `None` and prints the reason.
fn lab(text: &str) -> Option<Lab> {
    lab_with(text, &Overrides::default())
}

fn lab_with(text: &str, overrides: &Overrides) -> Option<Lab> {
    match Lab::up(&Scenario::from_text("test.toml", text), overrides) {
        Ok(lab) => Some(lab),
        Err(error @ Error::NoNamespaces(_)) => {
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Returns a name that no other test run uses.
fn name(test: &str) -> String {
    format!("{test}-{}", std::process::id())
}

fn scenario_file(directory: &Path) -> PathBuf {
    let file = directory.join("row.toml");
    std::fs::write(&file, ROW).unwrap();
    file
}

/// A network namespace. While this exists, the kernel gives its number to no other namespace.
struct NetworkNamespace {
    /// Name of the form `net:[NUMBER]`.
    name: PathBuf,
    _file: File,
}

/// Returns the network namespace of a node.
fn network_namespace(lab: &Lab, node: &str) -> NetworkNamespace {
    let mut process = lab
        .command(node, "cat")
        .unwrap()
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let path = format!("/proc/{}/ns/net", process.id());
    let namespace = NetworkNamespace {
        name: std::fs::read_link(&path).unwrap(),
        _file: File::open(&path).unwrap(),
    };
    drop(process.stdin.take());
    assert!(process.wait().unwrap().success());
    namespace
}

/// Returns the processes on this machine in that namespace.
fn processes_in(namespace: &NetworkNamespace) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let number = |entry: &std::fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
    entries
        .filter(|entry| {
            std::fs::read_link(entry.path().join("ns/net")).is_ok_and(|link| link == namespace.name)
        })
        .filter_map(|entry| number(&entry))
        .collect()
}

/// Returns a command that runs one of the ignored tests below inside a node, as a separate program.
fn inside(lab: &Lab, node: &str, part: &str, argument: &str) -> Command {
    let mut command = lab.command(node, std::env::current_exe().unwrap()).unwrap();
    command
        .args([
            "--exact",
            part,
            "--ignored",
            "--nocapture",
            "--test-threads=1",
        ])
        .env("PART", argument);
    command
}

/// Starts an echo server in a node, at any address or at that of `host`, and waits until it
/// listens. It serves one connection.
fn echo_server(lab: &Lab, node: &str, host: &str) -> (Child, u16) {
    let mut child = inside(lab, node, "part_echo_server", host)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let mut byte = [0];
    let output = child.stdout.as_mut().unwrap();
    // "PORT 1234;" appears somewhere in the output of the test harness.
    while !(said.contains("PORT ") && said.ends_with(';')) {
        assert_eq!(
            output.read(&mut byte).unwrap(),
            1,
            "the server ended: {said}"
        );
        said.push(char::from(byte[0]));
    }
    let port = said
        .split("PORT ")
        .nth(1)
        .unwrap()
        .trim_end_matches(';')
        .parse()
        .unwrap();
    (child, port)
}

#[test]
#[ignore = "a part of other tests, run inside a node"]
fn part_echo_server() {
    let host = std::env::var("PART").unwrap();
    let listener = TcpListener::bind((host.as_str(), 0)).unwrap();
    println!("PORT {};", listener.local_addr().unwrap().port());
    let (mut stream, _) = listener.accept().unwrap();
    let mut reader = stream.try_clone().unwrap();
    std::io::copy(&mut reader, &mut stream).unwrap();
}

/// Sends a megabyte to the echo server, and prints the fastest round trip of ten in microseconds.
/// PART is "host port [source port]".
#[test]
#[ignore = "a part of other tests, run inside a node"]
fn part_echo_client() {
    let part = std::env::var("PART").unwrap();
    let words: Vec<&str> = part.split(' ').collect();
    let (host, port) = (words[0], words[1].parse::<u16>().unwrap());
    let mut stream = match words.get(2) {
        None => TcpStream::connect((host, port)).unwrap(),
        Some(source) => connect_from(source.parse().unwrap(), host, port),
    };
    stream.set_nodelay(true).unwrap();
    let mut fastest = std::time::Duration::MAX;
    for byte in 0..10 {
        let begun = std::time::Instant::now();
        stream.write_all(&[byte]).unwrap();
        let mut back = [0xff];
        stream.read_exact(&mut back).unwrap();
        assert_eq!(back, [byte]);
        fastest = fastest.min(begun.elapsed());
    }
    let sent: Vec<u8> = (0..1_000_000_u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let mut writer = stream.try_clone().unwrap();
    let copy = sent.clone();
    let writing = std::thread::spawn(move || {
        writer.write_all(&copy).unwrap();
        writer.shutdown(std::net::Shutdown::Write).unwrap();
    });
    let mut back = Vec::new();
    stream.read_to_end(&mut back).unwrap();
    writing.join().unwrap();
    assert!(back == sent, "what came back is not what was sent");
    println!("RTT {};", fastest.as_micros());
}

fn connect_from(source: u16, host: &str, port: u16) -> TcpStream {
    use std::net::ToSocketAddrs;
    let target = (host, port).to_socket_addrs().unwrap().next().unwrap();
    let (family, any) = match target {
        SocketAddr::V4(_) => (AddressFamily::INET, Ipv4Addr::UNSPECIFIED.into()),
        SocketAddr::V6(_) => (AddressFamily::INET6, Ipv6Addr::UNSPECIFIED.into()),
    };
    let socket = rustix::net::socket(family, rustix::net::SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddr::new(any, source)).unwrap();
    rustix::net::connect(&socket, &target).unwrap();
    socket.into()
}
