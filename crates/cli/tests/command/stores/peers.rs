//! Stores and web servers of other projects.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

use crate::common::signal;

/// A running server of another project.
pub struct Peer {
    child: Child,
    /// Host and port.
    pub address: String,
    /// True if it has processes of its own, which it ends.
    has_workers: bool,
}

impl Drop for Peer {
    fn drop(&mut self) {
        match self.has_workers {
            true => signal(&self.child, "TERM"),
            false => drop(self.child.kill()),
        }
        let _ = self.child.wait();
    }
}

impl Peer {
    /// Starts an S3 that knows no access key. Returns `None`, and prints why, if it cannot be
    /// installed.
    pub fn s3_that_knows_nobody() -> Option<Self> {
        Self::moto(&[], &[("INITIAL_NO_AUTH_ACTION_COUNT", "0")])
    }

    /// Starts an S3 with further options and variables.
    pub fn moto(options: &[&str], environment: &[(&str, &str)]) -> Option<Self> {
        let mut command = Command::new(installed("moto")?);
        command
            .args(["-H", "127.0.0.1", "-p", "0"])
            .args(options)
            .envs(environment.iter().copied());
        Some(Self::start(command, "Running on "))
    }

    /// Starts an Azure Blob Storage.
    pub fn azurite() -> Option<Self> {
        let mut command = Command::new(installed("azurite")?);
        command.args(["--blobHost", "127.0.0.1", "--blobPort", "0"]);
        command.args([
            "--inMemoryPersistence",
            "--skipApiVersionCheck",
            "--disableTelemetry",
        ]);
        Some(Self::start(command, "successfully listens on "))
    }

    /// Starts a Google Cloud Storage with a bucket, that demands this token.
    pub fn google(bucket: &str, token: &str) -> Option<Self> {
        let mut command = Command::new(installed("gcs")?);
        command.args(["-bucket", bucket, "-token", token]);
        Some(Self::start(command, "listening on "))
    }

    /// Starts a program with workers, whose socket listens already.
    pub fn with_workers(command: &mut Command, address: String) -> Self {
        Self {
            child: command.spawn().unwrap(),
            address,
            has_workers: true,
        }
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
        Some(Self::start(command, "WebDav Server started on "))
    }

    /// Serves a directory of 2 MiB by WebDAV. Returns `None`, and prints why, if it cannot.
    pub fn webdav_on_small_disk(directory: &Path) -> Option<Self> {
        let mut command = unshared()?;
        command
            .arg("mount -t tmpfs -o size=2m small \"$1\" && shift && exec \"$@\"")
            .arg("sh")
            .arg(directory)
            .arg(installed("rclone")?)
            .args(["serve", "webdav", "--addr", "127.0.0.1:0", "--config", ""])
            .arg(directory);
        Some(Self::start(command, "WebDav Server started on "))
    }

    /// Serves the files of a directory by HTTP, without ranges.
    pub fn http_without_ranges(directory: &Path) -> Self {
        let mut command = Command::new("python3");
        command
            .args(["-u", "-m", "http.server", "--bind", "127.0.0.1"])
            .arg("--directory")
            .arg(directory)
            .arg("0");
        Self::start(command, "(")
    }

    /// Starts a program that prints its URL behind `before`.
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
                if let Some((_, url)) = line.split_once(before)
                    && let Some((_, rest)) = url.split_once("://")
                {
                    let end = rest.find(['/', ')', ' ']).unwrap_or(rest.len());
                    let _ = found.send(rest[..end].to_owned());
                }
            }
        });
        Self {
            child,
            address: address.recv().unwrap(),
            has_workers: false,
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

/// Returns a command that runs a script of the shell with mounts of its own. Returns `None`, and
/// prints why, if this machine does not allow that.
fn unshared() -> Option<Command> {
    let command = || {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "--", "sh", "-c"]);
        command
    };
    if !command()
        .arg("true")
        .status()
        .is_ok_and(|status| status.success())
    {
        eprintln!("not tested: no user namespaces here");
        return None;
    }
    Some(command())
}

/// Returns the program of a peer, and installs it first if needed.
pub fn installed(name: &str) -> Option<PathBuf> {
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
