//! PostgreSQL server of a test, in a temporary directory. It is reachable over a socket in it, and
//! on request at a port of 127.0.0.1.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Maximum time until the server answers.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// User that the server runs as if the tests run as root, which PostgreSQL refuses: `nobody`.
const NOBODY: u32 = 65534;

/// Running server, which stops when this is dropped.
pub struct Postgres {
    dir: TempDir,
    /// TCP port, if it listens at one.
    port: Option<u16>,
    programs: PathBuf,
    server: Option<Child>,
}

impl Postgres {
    /// Creates a cluster and starts its server.
    #[allow(dead_code, reason = "each program of tests uses some of it")]
    pub fn start() -> Self {
        Self::start_at(None)
    }

    /// Creates a cluster and starts its server at a free port of 127.0.0.1.
    #[allow(dead_code, reason = "each program of tests uses some of it")]
    pub fn start_with_port() -> (Self, u16) {
        let port = free_port();
        (Self::start_at(Some(port)), port)
    }

    fn start_at(port: Option<u16>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        if rustix::process::getuid().is_root() {
            std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
            chown(dir.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let mut this = Self {
            dir,
            port,
            programs: programs(),
            server: None,
        };
        let made = this
            .command("initdb")
            .args([
                "--auth=trust",
                "--username=agent",
                "--no-sync",
                "--encoding=UTF8",
                "--locale=C",
                "-D",
            ])
            .arg(this.cluster())
            .output()
            .unwrap();
        assert!(
            made.status.success(),
            "{}",
            String::from_utf8_lossy(&made.stderr)
        );
        this.begin();
        this
    }

    /// Creates a database.
    #[allow(dead_code, reason = "each program of tests uses some of it")]
    pub fn create_database(&self, name: &str) {
        let made = self
            .command("createdb")
            .args(["-U", "agent", "-h"])
            .arg(self.dir.path())
            .arg(name)
            .status();
        assert!(made.unwrap().success());
    }

    /// Returns the URL of a database.
    #[allow(dead_code, reason = "each program of tests uses some of it")]
    pub fn url_of(&self, name: &str) -> String {
        format!(
            "postgres:///{name}?user=agent&host={}",
            self.dir.path().display()
        )
    }

    /// Stops the server immediately, as a crash would, and starts it again.
    #[allow(dead_code, reason = "each program of tests uses some of it")]
    pub fn crash_and_restart(&mut self) {
        self.kill();
        // The next server removes the file if no process has its number. By now, an unrelated
        // process might have it.
        let _ = std::fs::remove_file(self.cluster().join("postmaster.pid"));
        self.begin();
    }

    fn cluster(&self) -> PathBuf {
        self.dir.path().join("cluster")
    }

    fn command(&self, name: &str) -> Command {
        let program = self.programs.join(name);
        let mut command = match rustix::process::getuid().is_root() {
            false => Command::new(program),
            true => {
                let mut command = Command::new("setpriv");
                command
                    .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
                    .arg(program);
                command
            }
        };
        command.current_dir(self.dir.path()).stdin(Stdio::null());
        if let Some(port) = self.port {
            command.env("PGPORT", port.to_string());
        }
        command
    }

    fn begin(&mut self) {
        let until = Instant::now() + START_TIMEOUT;
        self.server = Some(self.started());
        while !self.answers() {
            assert!(
                Instant::now() < until,
                "{}",
                std::fs::read_to_string(self.dir.path().join("log")).unwrap()
            );
            // The server refuses to start while a process of the previous one is still ending.
            let ended = self
                .server
                .as_mut()
                .is_some_and(|server| server.try_wait().unwrap().is_some());
            if ended {
                self.server = Some(self.started());
            }
            std::thread::yield_now();
        }
    }

    fn started(&self) -> Child {
        let log = std::fs::File::create(self.dir.path().join("log")).unwrap();
        self.command("postgres")
            .arg("-D")
            .arg(self.cluster())
            .arg("-k")
            .arg(self.dir.path())
            .args([
                "-c",
                match self.port {
                    Some(_) => "listen_addresses=127.0.0.1",
                    None => "listen_addresses=",
                },
                "-c",
                "max_connections=64",
                "-c",
                "shared_buffers=16MB",
                // In the cluster, so that it is removed with it, however the server ends.
                "-c",
                "dynamic_shared_memory_type=mmap",
            ])
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap()
    }

    fn answers(&self) -> bool {
        let ready = self
            .command("pg_isready")
            .arg("-h")
            .arg(self.dir.path())
            .stdout(Stdio::null())
            .status();
        ready.unwrap().success()
    }

    fn kill(&mut self) {
        if let Some(mut server) = self.server.take() {
            // The server's children notice its end and exit, which frees the socket and the shared
            // memory.
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns a free port of 127.0.0.1. The kernel gives no connection a port this low
/// (`ip_local_port_range` in ip(7)), so it stays free until the server listens, also again.
fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Programs that run at the same time have neighbouring numbers.
    let first = std::process::id().wrapping_mul(16);
    loop {
        let number = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = 10_000 + (number % 20_000) as u16;
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Returns the directory of the server's programs. Debian has one for each release.
fn programs() -> PathBuf {
    let in_path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&in_path).collect();
    if let Ok(releases) = std::fs::read_dir("/usr/lib/postgresql") {
        places.extend(releases.flatten().map(|release| release.path().join("bin")));
    }
    let found = places.into_iter().find(|place| {
        ["initdb", "postgres", "pg_isready", "createdb"]
            .iter()
            .all(|program| Path::new(place).join(program).exists())
    });
    found.unwrap_or_else(|| panic!("PostgreSQL's programs are missing: make deps installs them"))
}
