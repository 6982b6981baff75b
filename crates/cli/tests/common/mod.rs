//! Shared by the command's tests: keys, running services, labs, and data.

#![allow(dead_code, reason = "each program of tests uses some of it")]

pub mod archive;
pub mod bed;
pub mod login;
pub mod mirror;

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use wanbed::Lab;

pub mod trees;

/// A process that is ended on drop.
pub struct Service(pub Child);

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Service {
    /// Sends it a signal.
    pub fn signal(&self, name: &str) {
        signal(&self.0, name);
    }
}

/// Sends a signal to a process this test started.
pub fn signal(child: &Child, name: &str) {
    let status = Command::new("kill")
        .arg(format!("-{name}"))
        .arg(child.id().to_string())
        .status();
    assert!(status.unwrap().success());
}

/// Starts a server, and waits for its first line, which has its address.
pub fn started(mut command: Command) -> Service {
    let mut service = Service(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(service.0.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert!(line.starts_with("listening on "), "{line}");
    service
}

/// Makes a key in `home`, and returns it.
pub fn new_key(home: &Path) -> String {
    key(home, "new")
}

/// Returns the key of `home`.
pub fn key_of(home: &Path) -> String {
    key(home, "show")
}

fn key(home: &Path, action: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_longhaul"))
        .args(["keys", action])
        .env("LONGHAUL_HOME", home)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    said.split_whitespace().next().unwrap().to_owned()
}

/// Returns true if this machine allows labs. Otherwise prints the reason.
pub fn has_labs() -> bool {
    let Err(reason) = Lab::possible() else {
        return true;
    };
    assert!(
        matches!(reason, wanbed::Error::NoNamespaces { .. }),
        "{reason}"
    );
    eprintln!("not tested: {reason}");
    false
}

/// Waits until a process listens at this TCP port of a lab's node.
pub fn listening(lab: &Lab, node: &str, port: u16) {
    loop {
        let listed = lab
            .command(node, "ss")
            .unwrap()
            .args(["-Hltn"])
            .output()
            .unwrap();
        if String::from_utf8_lossy(&listed.stdout).contains(&format!(":{port} ")) {
            return;
        }
        std::thread::yield_now();
    }
}

/// Finds a program. Administrators' programs are often missing in an ordinary user's PATH.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// Makes a script that is a program, or replaces it.
///
/// Another program writes it. A process that another test starts at this moment would hold this
/// test's open file, and a file that is open for writing cannot be executed.
pub fn write_program(file: &Path, script: &str) {
    let (text, new) = (file.with_extension("text"), file.with_extension("new"));
    std::fs::write(&text, script).unwrap();
    let mut install = Command::new("install");
    let installed = install.args(["-m", "755"]).args([&text, &new]).status();
    assert!(installed.unwrap().success());
    std::fs::rename(new, file).unwrap();
    std::fs::remove_file(text).unwrap();
}

/// A TCP port of loopback that refuses connections. It is taken, so that no other process listens
/// there meanwhile.
pub struct ClosedPort {
    _bound: OwnedFd,
    pub address: SocketAddr,
}

impl ClosedPort {
    pub fn new() -> Self {
        let flags = SocketFlags::CLOEXEC;
        let bound = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None);
        let bound = bound.unwrap();
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        rustix::net::bind(&bound, &any).unwrap();
        let address = rustix::net::getsockname(&bound).unwrap();
        Self {
            address: address.try_into().unwrap(),
            _bound: bound,
        }
    }
}

/// Returns bytes that compress badly and differ from position to position.
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let next = || {
        // xorshift64 (Marsaglia, 2003)
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}
