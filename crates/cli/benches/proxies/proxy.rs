//! The measured proxies: starting each, connecting through it, and reading its processor time.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Kind of proxy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    None,
    Forward,
    Socks,
    Http,
    Dante,
}

/// A running proxy, ended on drop.
pub struct Proxy {
    kind: Kind,
    at: SocketAddr,
    child: Option<Child>,
    _dir: tempfile::TempDir,
}

impl Kind {
    pub const ALL: [Self; 5] = [
        Self::None,
        Self::Forward,
        Self::Socks,
        Self::Http,
        Self::Dante,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Forward => "onramp forward",
            Self::Socks => "onramp socks",
            Self::Http => "onramp http",
            Self::Dante => "danted socks",
        }
    }
}

impl Proxy {
    /// Starts it. Returns `None` if it is not installed.
    pub fn start(kind: Kind, server: SocketAddr) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let (at, child) = match kind {
            Kind::None => (server, None),
            Kind::Dante => {
                let (at, child) = dante(&dir)?;
                (at, Some(child))
            }
            Kind::Forward => onramp(&dir, "forwards", &format!("--forward=0={server}")),
            Kind::Socks => onramp(&dir, "socks", "--socks=0"),
            Kind::Http => onramp(&dir, "http", "--http=0"),
        };
        Some(Self {
            kind,
            at,
            child,
            _dir: dir,
        })
    }

    /// Connects to the server.
    pub fn connect(&self, server: SocketAddr) -> TcpStream {
        let mut stream = TcpStream::connect(self.at).unwrap();
        stream.set_nodelay(true).unwrap();
        match self.kind {
            Kind::None | Kind::Forward => {}
            Kind::Socks | Kind::Dante => socks(&mut stream, server),
            Kind::Http => http(&mut stream, server),
        }
        stream
    }

    /// Returns the processor time used by it and by all its child processes.
    pub fn processor_time(&self) -> Duration {
        let Some(child) = &self.child else {
            return Duration::ZERO;
        };
        let mut used = HashMap::new();
        let mut parents = HashMap::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse::<u32>().ok())
            else {
                continue;
            };
            let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            // The fields after the name, which may contain anything (proc_pid_stat(5)).
            let Some((_, fields)) = stat.rsplit_once(')') else {
                continue;
            };
            let number = |index: usize| {
                fields
                    .split_whitespace()
                    .nth(index)
                    .and_then(|field| field.parse::<u64>().ok())
                    .unwrap_or(0)
            };
            parents.insert(pid, number(1) as u32);
            // Its own time, and that of its ended children.
            used.insert(pid, (11..=14).map(number).sum::<u64>());
        }
        let belongs = |mut pid: u32| loop {
            if pid == child.id() {
                return true;
            }
            match parents.get(&pid) {
                Some(&parent) if parent != 0 => pid = parent,
                _ => return false,
            }
        };
        let ticks: u64 = used
            .iter()
            .filter(|(pid, _)| belongs(**pid))
            .map(|(_, ticks)| ticks)
            .sum();
        Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // SIGTERM lets it end its child processes.
            let pid = rustix::process::Pid::from_child(child);
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            let _ = child.wait();
        }
    }
}

fn onramp(dir: &tempfile::TempDir, entry: &str, option: &str) -> (SocketAddr, Option<Child>) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_longhaul"))
        .args(["onramp", "--json", "--drain=1", option])
        .env("LONGHAUL_HOME", dir.path())
        .env("RUST_LOG", "error")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let places: serde_json::Value = serde_json::from_str(&line).unwrap();
    (
        places[entry][0].as_str().unwrap().parse().unwrap(),
        Some(child),
    )
}

fn dante(dir: &tempfile::TempDir) -> Option<(SocketAddr, Child)> {
    let at = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let config = dir.path().join("danted.conf");
    let text = format!(
        "internal: 127.0.0.1 port = {}\nexternal: 127.0.0.1\nsocksmethod: none\n\
         clientmethod: none\nuser.unprivileged: nobody\n\
         client pass {{ from: 127.0.0.0/8 to: 0.0.0.0/0 }}\n\
         socks pass {{ from: 127.0.0.0/8 to: 0.0.0.0/0 }}\n",
        at.port()
    );
    fs::write(&config, text).unwrap();
    let mut danted = Command::new("danted");
    danted
        .arg("-f")
        .arg(&config)
        .arg("-p")
        .arg(dir.path().join("pid"));
    let child = danted
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    // It prints nothing when it listens.
    while TcpStream::connect(at).is_err() {
        std::thread::yield_now();
    }
    Some((at, child))
}

fn socks(stream: &mut TcpStream, server: SocketAddr) {
    let SocketAddr::V4(to) = server else {
        panic!("an IPv4 address")
    };
    stream.write_all(&[5, 1, 0]).unwrap();
    stream.read_exact(&mut [0; 2]).unwrap();
    let request = [
        &[5, 1, 0, 1][..],
        &to.ip().octets(),
        &to.port().to_be_bytes(),
    ]
    .concat();
    stream.write_all(&request).unwrap();
    let mut reply = [0; 10];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(reply[1], 0, "connected");
}

fn http(stream: &mut TcpStream, server: SocketAddr) {
    stream
        .write_all(format!("CONNECT {server} HTTP/1.1\r\nHost: {server}\r\n\r\n").as_bytes())
        .unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
    assert!(head.starts_with(b"HTTP/1.1 200 "), "connected");
}
