//! Variants of pushing one file: `longhaul`, another build of it, and other programs with the
//! options in `crates/figures/src/peers`.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::child::{self, Used};
use crate::profile::{self, Parts};
use crate::{Copied, Options};

/// Name of the file.
const NAME: &str = "data";
/// Time within which a server must listen.
const READY_TIMEOUT: Duration = Duration::from_secs(10);

/// A variant.
#[derive(Clone)]
pub struct Variant {
    pub title: String,
    /// Protection on the network: encryption, and a check by a cryptographic hash.
    pub protects: &'static str,
    pub program: Program,
}

#[derive(Clone)]
pub enum Program {
    /// This build of `longhaul` or another, with additional options of `cp`.
    Longhaul {
        program: PathBuf,
        flags: &'static [&'static str],
    },
    GridFtp {
        streams: u32,
    },
    Rsync,
}

impl Variant {
    pub fn is_longhaul(&self) -> bool {
        matches!(self.program, Program::Longhaul { .. })
    }
}

/// Returns all variants that this machine supports.
pub fn all(options: &Options) -> Vec<Variant> {
    let own = PathBuf::from(env!("CARGO_BIN_EXE_longhaul"));
    let mut ways = Vec::new();
    let mut longhaul = |title: &str, program: &Path, flags, protects| {
        let program = Program::Longhaul {
            program: program.to_path_buf(),
            flags,
        };
        let title = title.to_owned();
        ways.push(Variant {
            title,
            protects,
            program,
        });
    };
    longhaul("longhaul cp", &own, &[], "encrypted, verified");
    if let Some((name, other)) = &options.against {
        longhaul(
            &format!("longhaul cp, {name}"),
            other,
            &[],
            "encrypted, verified",
        );
    }
    longhaul(
        "longhaul cp --no-encrypt",
        &own,
        &["--no-encrypt"],
        "verified",
    );
    longhaul(
        "longhaul cp --streams 4",
        &own,
        &["--streams", "4"],
        "encrypted, verified",
    );
    for (title, method) in [
        ("longhaul cp --compress none", &["--compress", "none"]),
        ("longhaul cp --compress zstd", &["--compress", "zstd"]),
    ] {
        longhaul(title, &own, method, "encrypted, verified");
    }
    if find("globus-url-copy").is_some() && find("globus-gridftp-server").is_some() {
        for streams in [1, 4] {
            ways.push(Variant {
                title: format!("globus-url-copy -fast -p {streams}"),
                protects: "neither",
                program: Program::GridFtp { streams },
            });
        }
    }
    if find("rsync").is_some() {
        ways.push(Variant {
            title: "rsync daemon, -rtW --inplace".into(),
            protects: "checked by MD5 or xxHash",
            program: Program::Rsync,
        });
    }
    ways
}

fn find(program: &str) -> Option<PathBuf> {
    let folders = ["/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"];
    folders
        .iter()
        .map(|folder| Path::new(folder).join(program))
        .find(|path| path.is_file())
}

/// The file, and the folders that all variants use.
pub struct Bench<'a> {
    folder: &'a Path,
    file: PathBuf,
}

impl<'a> Bench<'a> {
    /// Writes the file: random bytes, or hexadecimal digits, half of which compression saves.
    pub fn prepare(folder: &'a Path, mib: usize, digits: bool) -> Self {
        let file = folder.join(NAME);
        let mut noise = blake3::Hasher::new().update(b"engine").finalize_xof();
        let mut out = fs::File::create(&file).expect("the source");
        let mut part = vec![0; 1 << 20];
        for _ in 0..mib {
            noise.fill(&mut part);
            if digits {
                for byte in &mut part {
                    *byte = b"0123456789abcdef"[usize::from(*byte % 16)];
                }
            }
            std::io::Write::write_all(&mut out, &part).expect("the source");
        }
        for sub in ["served", "home", "state"] {
            fs::create_dir(folder.join(sub)).expect("a folder");
        }
        Self { folder, file }
    }

    /// Makes one copy.
    pub fn copy(&self, way: &Variant) -> Copied {
        let (server, to) = self.serve(way, &[]);
        let (seconds, sender) = child::run(self.client(way, &to, &[]));
        let receiver = child::end(&server);
        self.check();
        Copied {
            seconds,
            sender,
            receiver,
        }
    }

    /// Makes one copy with both ends sampled, and returns the sender's and the receiver's profile.
    pub fn profile(&self, way: &Variant) -> [Parts; 2] {
        let samples = ["sender", "receiver"].map(|end| self.folder.join(end));
        let (server, to) = self.serve(way, &profile::command(&samples[1]));
        let _: (f64, Used) = child::run(self.client(way, &to, &profile::command(&samples[0])));
        child::stop(&server);
        self.check();
        samples.map(|samples| profile::read(&samples))
    }

    /// Compares the result with the source, and removes it.
    fn check(&self) {
        let arrived = self.folder.join("served").join(NAME);
        let mut ends = [&self.file, &arrived].map(|path| fs::File::open(path).expect("a file"));
        let mut parts = [vec![0; 1 << 20], vec![0; 1 << 20]];
        loop {
            let [one, other] = [0, 1].map(|end| fill(&mut ends[end], &mut parts[end]));
            assert!(
                one == other && parts[0][..one] == parts[1][..other],
                "what arrived is not what was sent"
            );
            if one == 0 {
                break;
            }
        }
        fs::remove_file(arrived).expect("the copy");
    }

    /// Starts a server of the folder `served`, and returns its address for the client. `before` is
    /// the command prefix that runs it.
    fn serve(&self, way: &Variant, before: &[String]) -> (Child, String) {
        let served = self.folder.join("served");
        match &way.program {
            Program::Longhaul { program, flags } => {
                let key = Command::new(program)
                    .args(["keys", "show"])
                    .envs(self.homes())
                    .output()
                    .expect("keys show");
                let key = String::from_utf8_lossy(&key.stdout).trim().to_owned();
                let mut command = begin(program, before);
                command.envs(self.homes()).args([
                    "serve",
                    "--json",
                    "--listen",
                    "127.0.0.1:0",
                    "--root",
                ]);
                command.arg(&served).args(["--write", &key]);
                if flags.contains(&"--no-encrypt") {
                    command.arg("--allow-no-encrypt");
                }
                let mut server = command
                    .stdout(Stdio::piped())
                    .stderr(Stdio::null())
                    .spawn()
                    .expect("serve");
                let mut line = String::new();
                let mut out = BufReader::new(server.stdout.take().expect("its output"));
                out.read_line(&mut line).expect("its first line");
                let said: serde_json::Value = serde_json::from_str(&line).expect("its first line");
                let address = said["address"].as_str().expect("an address").to_owned();
                (server, address)
            }
            Program::GridFtp { .. } => {
                let port = free_port();
                let mut command = begin(&find("globus-gridftp-server").expect("found"), before);
                command
                    .args([
                        "-p",
                        &port.to_string(),
                        "-aa",
                        "-no-detach",
                        "-disable-usage-stats",
                    ])
                    // It refuses to run as root by default.
                    .args([
                        "-allow-root",
                        "-anonymous-user",
                        "root",
                        "-anonymous-group",
                        "root",
                    ]);
                (listening(command, port), format!("127.0.0.1:{port}"))
            }
            Program::Rsync => {
                let port = free_port();
                let settings = self.folder.join("rsyncd.conf");
                let text = format!(
                    "use chroot = no\nreverse lookup = no\nuid = {0}\ngid = {1}\n[served]\n\
                     path = {2}\nread only = no\n",
                    rustix::process::getuid().as_raw(),
                    rustix::process::getgid().as_raw(),
                    served.display()
                );
                fs::write(&settings, text).expect("rsyncd.conf");
                let mut command = begin(&find("rsync").expect("found"), before);
                command
                    .args([
                        "--daemon",
                        "--no-detach",
                        "--address=127.0.0.1",
                        "--log-file=/dev/null",
                    ])
                    .arg(format!("--port={port}"))
                    .arg(format!("--config={}", settings.display()));
                (listening(command, port), format!("127.0.0.1:{port}"))
            }
        }
    }

    fn client(&self, way: &Variant, to: &str, before: &[String]) -> Command {
        let served = self.folder.join("served");
        match &way.program {
            Program::Longhaul { program, flags } => {
                let mut command = begin(program, before);
                command
                    .envs(self.homes())
                    .args(["cp", "--quiet", "--accept-new"])
                    .args(*flags);
                command.arg(&self.file).arg(format!("lh://{to}/"));
                command
            }
            Program::GridFtp { streams } => {
                let mut command = begin(&find("globus-url-copy").expect("found"), before);
                command
                    .env("GLOBUS_HOSTNAME", "127.0.0.1")
                    .env("HOME", self.folder.join("home"))
                    .args(["-fast", "-p", &streams.to_string()])
                    .arg(format!("file://{}", self.file.display()))
                    .arg(format!("ftp://{to}{}/{NAME}", served.display()));
                command
            }
            Program::Rsync => {
                let mut command = begin(&find("rsync").expect("found"), before);
                command
                    .args(["-rtW", "--inplace"])
                    .arg(&self.file)
                    .arg(format!("rsync://{to}/served/"));
                command
            }
        }
    }

    fn homes(&self) -> [(&'static str, PathBuf); 2] {
        [
            ("LONGHAUL_HOME", self.folder.join("home")),
            ("LONGHAUL_STATE", self.folder.join("state")),
        ]
    }
}

/// Returns the command for `program`, with the prefix `before` if that is not empty.
fn begin(program: &Path, before: &[String]) -> Command {
    match before.split_first() {
        None => Command::new(program),
        Some((first, rest)) => {
            let mut command = Command::new(first);
            command.args(rest).arg(program);
            command
        }
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its number").port()
}

/// Starts a server, and waits until it listens.
fn listening(mut command: Command, port: u16) -> Child {
    let quiet = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let server = quiet.spawn().expect("a server");
    let until = Instant::now() + READY_TIMEOUT;
    while TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))).is_err() {
        assert!(Instant::now() < until, "{command:?} does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    server
}

fn fill(from: &mut impl Read, to: &mut [u8]) -> usize {
    let mut filled = 0;
    while filled < to.len() {
        match from.read(&mut to[filled..]).expect("a file") {
            0 => break,
            n => filled += n,
        }
    }
    filled
}
