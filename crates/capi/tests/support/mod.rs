//! Support for the tests: the installed library, a network to run programs in, and an on-ramp.

#![allow(dead_code)] // each test takes what it needs

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use std::time::{Duration, Instant};

use wanbed::{Lab, Overrides, Scenario};

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// An installation, shared by the tests of a process.
pub struct Installed {
    folder: tempfile::TempDir,
}

static INSTALLED: LazyLock<Installed> = LazyLock::new(Installed::make);

impl Installed {
    pub fn get() -> &'static Self {
        &INSTALLED
    }

    fn make() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
        let mut make = Command::new("make");
        make.args(["--no-print-directory", "-f"])
            .arg(Path::new(HERE).join("Makefile"))
            .args(["install", "PROFILE=dev", "PREFIX=/usr"])
            .arg(format!("DESTDIR={}", folder.path().display()))
            .arg(format!("OUT={}", folder.path().join("build").display()))
            .env("CARGO", env!("CARGO"))
            .env("CARGO_TARGET_DIR", target);
        clean(&mut make);
        run(&mut make);
        Self { folder }
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn path(&self, below: &str) -> PathBuf {
        self.folder.path().join("usr").join(below)
    }

    /// Returns the compiler flags that pkg-config prints.
    pub fn flags(&self, arguments: &[&str]) -> Vec<String> {
        let text = run(Command::new("pkg-config")
            .args(arguments)
            .arg("longhaul")
            .env("PKG_CONFIG_SYSROOT_DIR", self.folder.path())
            .env("PKG_CONFIG_ALLOW_SYSTEM_CFLAGS", "1")
            .env("PKG_CONFIG_ALLOW_SYSTEM_LIBS", "1")
            .env("PKG_CONFIG_LIBDIR", self.path("lib/pkgconfig")));
        text.split_ascii_whitespace().map(str::to_owned).collect()
    }

    /// Compiles a program.
    pub fn compile(
        &self,
        name: &str,
        options: &[&str],
        sources: &[PathBuf],
        flags: &[String],
    ) -> PathBuf {
        // Each test has a file of its own, because a running program cannot be overwritten.
        let program = tempfile::tempdir_in(self.folder.path())
            .unwrap()
            .keep()
            .join(name);
        run(Command::new("cc")
            .args(options)
            .arg("-o")
            .arg(&program)
            .args(sources)
            .args(flags));
        program
    }
}

/// Runs a command that must succeed. Returns its output.
pub fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Two machines of a lab. The near one knows an address that never answers, and one without a
/// route.
pub struct World {
    lab: Lab,
    folder: tempfile::TempDir,
}

impl World {
    pub const NEAR: &str = "sender";
    pub const FAR: &str = "receiver";

    /// Builds the lab. If that is impossible here, returns `None` and prints the reason.
    pub fn new() -> Option<Self> {
        if let Err(why) = Lab::possible() {
            eprintln!("left out: no lab here: {why}");
            return None;
        }
        let scenario =
            Scenario::read(Path::new(HERE).join("../../scenarios/drs-low-ceiling.toml")).unwrap();
        let world = Self {
            lab: Lab::up(&scenario, &Overrides::default()).unwrap(),
            folder: tempfile::tempdir().unwrap(),
        };
        let loopback = "ip link set lo up; echo 0 >/proc/sys/net/ipv6/conf/lo/disable_ipv6";
        for machine in [Self::NEAR, Self::FAR] {
            run(world
                .lab
                .command(machine, "sh")
                .unwrap()
                .args(["-ec", loopback]));
        }
        let network = "ip link add silent0 type veth peer name silent1; ip link set silent0 up; \
            ip link set silent1 up; ip addr add 192.0.2.1/24 dev silent0; \
            ip neigh add 192.0.2.77 lladdr 02:00:00:00:00:01 dev silent0; ip route add \
            unreachable 198.51.100.0/24";
        run(world
            .lab
            .command(Self::NEAR, "sh")
            .unwrap()
            .args(["-ec", network]));
        Some(world)
    }

    /// Returns the directory of the on-ramps' key and rules.
    pub fn home(&self) -> PathBuf {
        let home = self.folder.path().join("home");
        std::fs::create_dir_all(&home).unwrap();
        // Routes for all destinations, even on loopback without any gain, except one address at
        // which no acceptor listens.
        let routes = "[[route]]\nto = [\"127.0.0.2\"]\n[[route]]\nto = [\"0.0.0.0/0\", \"::/0\"]\n\
            acceptor = true\nalways = true\n";
        std::fs::write(home.join("routes.toml"), routes).unwrap();
        home
    }

    pub fn address(&self, machine: &str) -> String {
        self.lab.address(machine).unwrap().to_string()
    }

    /// Returns a command on one of the machines.
    pub fn command(&self, machine: &str, program: &Path) -> Command {
        let mut command = self.lab.command(machine, "sh").unwrap();
        command
            // Few descriptors, for the case that uses all of them.
            .args(["-c", "ulimit -n 1024; exec \"$0\" \"$@\""])
            .arg(program)
            .env("SUITE_SILENT", "192.0.2.77")
            .env("SUITE_UNREACHABLE", "198.51.100.7");
        command
    }
}

/// The `longhaul` program, which cargo does not build for the tests of another package. It is built
/// with the tests of its own package, as all tests of the workspace do. Built alone, its
/// dependencies would have fewer features and be compiled once more.
static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args([
            "test",
            "--no-run",
            "--quiet",
            "--locked",
            "--workspace",
            "--test",
            "command",
        ])
        .current_dir(Path::new(HERE).join("../.."))
        .arg("--target-dir")
        .arg(target);
    clean(&mut cargo);
    run(&mut cargo);
    target.join("debug/longhaul")
});

/// Returns the path of the program, for tests that start it in another way.
pub fn program() -> &'static Path {
    &PROGRAM
}

/// Removes the variables that cargo sets for this test, which would disturb another build.
fn clean(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("CARGO_PKG_") || name == "MAKEFLAGS" {
            command.env_remove(name);
        }
    }
}

/// An on-ramp that ends with the test. All of one world share a key, so that they accept each
/// other's sessions.
pub struct Onramp {
    child: Child,
    /// Its socket.
    pub path: PathBuf,
    used: Arc<AtomicUsize>,
}

impl Onramp {
    pub fn start(world: &World, machine: &str) -> Self {
        let home = world.home();
        let path = world.folder.path().join(format!("onramp-{machine}/socket"));
        let mut child = world
            .lab
            .command(machine, &*PROGRAM)
            .unwrap()
            .args(["onramp", "--json", "--socket"])
            .arg(&path)
            .env("LONGHAUL_HOME", &home)
            .env("LONGHAUL_STATE", world.folder.path().join("state"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = BufReader::new(child.stdout.take().unwrap()).lines();
        let log = BufReader::new(child.stderr.take().unwrap()).lines();
        let used = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&used);
        std::thread::spawn(move || {
            for line in log.map_while(Result::ok) {
                // The log has a line for each connection that uses a route, and for each listener.
                if line.contains("way=route") || line.contains("accepts sessions") {
                    counted.fetch_add(1, Ordering::Relaxed);
                }
                eprintln!("{line}");
            }
        });
        let line = ready.next().unwrap().unwrap();
        assert!(line.contains("ready"), "{line}");
        Self { child, path, used }
    }

    /// Waits until the log says that the on-ramp was used.
    pub fn is_used(&self) {
        let deadline = Instant::now() + Duration::from_secs(120);
        while self.used.load(Ordering::Relaxed) == 0 {
            assert!(Instant::now() < deadline, "the on-ramp was not used");
            std::thread::yield_now();
        }
    }
}

impl Drop for Onramp {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
