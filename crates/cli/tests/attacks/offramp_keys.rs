//! Attempts of a controller to read what programs send, with an off-ramp of its own.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;

use serde_json::Value;

use crate::stage::{Stage, errors};
use crate::world::*;

/// A process that is ended when the value is dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A controller that answers every question with these rules, on a socket that `me` uses.
fn hostile_controller(stage: &Stage, rules: &str) {
    let socket = stage.path("controller.socket");
    let listener = UnixListener::bind(&socket).unwrap();
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/toml\r\ncontent-length: {}\r\n\r\n{rules}",
        rules.len()
    );
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let answer = answer.clone();
            thread::spawn(move || {
                let mut asked = Vec::new();
                let mut byte = [0];
                // Requests arrive one after the other, without bodies.
                while stream.read_exact(&mut byte).is_ok() {
                    asked.push(byte[0]);
                    if asked.ends_with(b"\r\n\r\n") {
                        asked.clear();
                        if stream.write_all(answer.as_bytes()).is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
    let url = format!("unix:{}", socket.display());
    let used = stage
        .longhaul("me")
        .args(["controller", "use", &url])
        .output();
    let used = used.unwrap();
    assert!(used.status.success(), "{}", errors(&used));
}

/// Starts an on-ramp of `me` that follows the controller. Returns its SOCKS entry, and the file of
/// its rules.
fn onramp(stage: &Stage) -> (Ended, SocketAddr, PathBuf) {
    let socket = stage.path("programs/socket");
    let mut command = stage.longhaul("me");
    command.args([
        "onramp",
        "--json",
        "--follow-controller",
        "--socks",
        "127.0.0.1:0",
        "--socket",
    ]);
    let mut child = command.arg(&socket).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let child = Ended(child);
    let ready: Value = serde_json::from_str(&line).unwrap();
    let socks = ready["socks"][0].as_str().unwrap().parse().unwrap();
    let status = stage
        .longhaul("me")
        .args(["onramp", "status", "--json", "--socket"])
        .arg(&socket)
        .output()
        .unwrap();
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    (
        child,
        socks,
        status["routes"]["file"].as_str().unwrap().into(),
    )
}

/// Connects by SOCKS5 (RFC 1928), and exchanges a word in each direction.
fn talk(socks: SocketAddr, server: &TcpListener) {
    let SocketAddr::V4(to) = server.local_addr().unwrap() else {
        panic!("it listens on IPv4")
    };
    let answers = server.try_clone().unwrap();
    let answers = thread::spawn(move || {
        let (mut stream, _) = answers.accept().unwrap();
        let mut asked = [0; 6];
        stream.read_exact(&mut asked).unwrap();
        assert_eq!(&asked, b"secret");
        stream.write_all(b"answer").unwrap();
    });
    let mut stream = TcpStream::connect(socks).unwrap();
    stream.set_read_timeout(Some(HONEST)).unwrap();
    stream.write_all(&[5, 1, 0]).unwrap();
    let mut chosen = [0; 2];
    stream.read_exact(&mut chosen).unwrap();
    let [high, low] = to.port().to_be_bytes();
    let request = [&[5, 1, 0, 1][..], &to.ip().octets(), &[high, low]].concat();
    stream.write_all(&request).unwrap();
    let mut reply = [0; 10];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(reply[1], 0, "connected");
    stream.write_all(b"secret").unwrap();
    let mut answer = [0; 6];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"answer");
    answers.join().unwrap();
}

fn has_key(file: &Path) -> bool {
    std::fs::read_to_string(file).unwrap().contains("lhk1:")
}

/// The off-ramp is the controller's own, and the rule names its key for all destinations.
#[test]
fn a_controller_cannot_name_its_own_offramp() {
    let world = World::new();
    let stage = &world.stage;
    let (evil, key) = (TcpListener::bind(ANY).unwrap(), stage.key("attacker"));
    evil.set_nonblocking(true).unwrap();
    let at = evil.local_addr().unwrap();
    let rules = format!(
        "[[route]]\nto = [\"*\", \"0.0.0.0/0\", \"127.0.0.0/8\"]\nofframp = \"{key}@{at}\"\n\
         always = true\nfall_back = false\n"
    );
    hostile_controller(stage, &rules);
    let (_onramp, socks, file) = onramp(stage);
    let server = TcpListener::bind(ANY).unwrap();
    talk(socks, &server);
    let came = evil.accept().map(|(_, from)| from);
    assert_eq!(came.unwrap_err().kind(), ErrorKind::WouldBlock);
    assert!(!has_key(&file), "the file may be used as one's own");
    // Printed rules do not carry the key either.
    let printed = stage.longhaul("me").args(["controller", "routes"]).output();
    let printed = printed.unwrap();
    let text = String::from_utf8_lossy(&printed.stdout);
    assert!(
        text.contains(&at.to_string()) && !text.contains("lhk1:"),
        "{text}{}",
        errors(&printed)
    );
}
