//! Stores and web servers of other projects, and a proxy that stops in the middle of a copy.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, mpsc};

/// A running server of another project.
pub struct Peer {
    child: Child,
    /// Host and port.
    pub address: String,
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Peer {
    /// Starts an S3. Returns `None`, and prints why, if it cannot be installed.
    pub fn s3() -> Option<Self> {
        Self::moto(&[])
    }

    /// Starts an S3 that knows no access key.
    pub fn s3_that_knows_nobody() -> Option<Self> {
        Self::moto(&[("INITIAL_NO_AUTH_ACTION_COUNT", "0")])
    }

    fn moto(environment: &[(&str, &str)]) -> Option<Self> {
        let mut command = Command::new(installed("moto")?);
        command
            .args(["-H", "127.0.0.1", "-p", "0"])
            .envs(environment.iter().copied());
        Some(Self::start(command, "Running on http://"))
    }

    /// Serves a directory by WebDAV, with this login. It answers plain requests and ranges, too.
    pub fn webdav(directory: &Path, login: Option<(&str, &str)>) -> Option<Self> {
        let mut command = Command::new(installed("rclone")?);
        command
            .args(["serve", "webdav", "--addr", "127.0.0.1:0", "--config", ""])
            .arg(directory);
        if let Some((user, password)) = login {
            command.args(["--user", user, "--pass", password]);
        }
        Some(Self::start(command, "WebDav Server started on http://"))
    }

    /// Serves the files of a directory by HTTP, without ranges.
    pub fn http_without_ranges(directory: &Path) -> Self {
        let mut command = Command::new("python3");
        command
            .args(["-u", "-m", "http.server", "--bind", "127.0.0.1"])
            .arg("--directory")
            .arg(directory)
            .arg("0");
        Self::start(command, "(http://")
    }

    /// Starts a program that prints its address behind `before`.
    fn start(mut command: Command, before: &'static str) -> Self {
        let (reader, writer) = std::io::pipe().unwrap();
        command
            .stdin(Stdio::null())
            .stdout(writer.try_clone().unwrap())
            .stderr(writer);
        let child = command.spawn().unwrap();
        drop(command);
        let (found, address) = mpsc::channel();
        // What it prints later is read, too, as it would stop otherwise.
        std::thread::spawn(move || {
            for line in BufReader::new(reader).lines().map_while(Result::ok) {
                if let Some((_, rest)) = line.split_once(before) {
                    let end = rest.find(['/', ')', ' ']).unwrap_or(rest.len());
                    let _ = found.send(rest[..end].to_owned());
                }
            }
        });
        Self {
            child,
            address: address.recv().unwrap(),
        }
    }

    /// Sends a request without credentials.
    pub fn request(&self, method: &str, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            self.address
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

/// Returns the program of a peer, and installs it first if needed.
fn installed(name: &str) -> Option<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/endpoints");
    let output = Command::new(script).arg(name).output().unwrap();
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        eprintln!("not tested: {name} cannot be installed: {}", why.trim());
        return None;
    }
    let path = String::from_utf8(output.stdout).unwrap();
    Some(PathBuf::from(path.trim()))
}

/// A proxy that carries a number of bytes from the client, or from the server, and then nothing any
/// more.
pub struct StallingProxy {
    pub address: String,
}

/// Direction whose bytes are limited.
#[derive(Clone, Copy, PartialEq)]
pub enum Limited {
    FromClient,
    FromServer,
}

impl StallingProxy {
    pub fn new(server: &str, limited: Limited, bytes: i64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (server, left) = (server.to_owned(), Arc::new(AtomicI64::new(bytes)));
        let unlimited = Arc::new(AtomicI64::new(i64::MAX));
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(&server) else {
                    return;
                };
                let limits = match limited {
                    Limited::FromClient => [left.clone(), unlimited.clone()],
                    Limited::FromServer => [unlimited.clone(), left.clone()],
                };
                let [up, down] = limits;
                let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                std::thread::spawn(move || carry(from, to, &up));
                std::thread::spawn(move || carry(server, client, &down));
            }
        });
        Self { address }
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, left: &AtomicI64) {
    let mut data = vec![0; 64 << 10];
    loop {
        let read = from.read(&mut data).unwrap_or(0);
        if read == 0 || to.write_all(&data[..read]).is_err() {
            let _ = to.shutdown(Shutdown::Write);
            return;
        }
        if left.fetch_sub(read as i64, Ordering::Relaxed) <= read as i64 {
            // The connection stays open and silent, until the test ends.
            loop {
                std::thread::park();
            }
        }
    }
}
