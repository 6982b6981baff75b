//! Servers and depots as processes, ended with the test.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common;
pub use crate::common::signal;

/// Time within which a copy ends whose route is gone for good. Far less than the five minutes for
/// which a copy waits in an outage, and far more than it takes on a busy machine.
pub const MAX_END: Duration = Duration::from_secs(120);
/// Time limit of every wait: far more than anything takes on a busy machine.
pub const MAX_WAIT: Duration = Duration::from_secs(180);
/// Time for which a copy waits for a server that does not come back.
const SHORT_PATIENCE: &str = "6 s";
/// Time for which a copy waits for a server that comes back, however busy the machine is.
const LONG_PATIENCE: &str = "60 s";
/// Number of addresses that [`own_address`] has returned.
static OWN_ADDRESSES: AtomicU32 = AtomicU32::new(0);

/// Environment of one test: directories, keys, and the processes it starts.
pub struct Stage {
    pub tmp: tempfile::TempDir,
}

/// A running server or depot.
pub struct Service {
    child: Child,
    pub address: String,
    pub key: String,
    // Kept open so that the service's writes do not fail.
    _out: BufReader<ChildStdout>,
}

impl Service {
    /// Kills it with SIGKILL.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends it with a signal.
    pub fn end(&mut self, name: &str) {
        signal(&self.child, name);
        self.child.wait().unwrap();
    }

    /// Returns its process number.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Returns its exit code, if it has ended.
    pub fn ended(&mut self) -> Option<Option<i32>> {
        self.child.try_wait().unwrap().map(|status| status.code())
    }

    /// Sends SIGHUP.
    pub fn hang_up(&self) {
        signal(&self.child, "HUP");
    }

    /// Ends it with SIGTERM, and returns its exit code.
    pub fn terminate(mut self) -> Option<i32> {
        signal(&self.child, "TERM");
        self.child.wait().unwrap().code()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Stage {
    pub fn new() -> Self {
        let tmp = tempfile::tempdir().unwrap();
        for dir in ["root", "here"] {
            std::fs::create_dir(tmp.path().join(dir)).unwrap();
        }
        Self { tmp }
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.tmp.path().join(path)
    }

    /// Returns the command with the keys of `who`.
    pub fn longhaul(&self, who: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
        command
            .env("LONGHAUL_HOME", self.path(who))
            .env("RUST_LOG", "error")
            .current_dir(self.tmp.path());
        command.stdin(Stdio::null());
        command
    }

    /// Returns the key of `who`, made if needed.
    pub fn key(&self, who: &str) -> String {
        let show = || self.longhaul(who).args(["keys", "show"]).output().unwrap();
        let mut output = show();
        if !output.status.success() {
            assert!(
                self.longhaul(who)
                    .args(["keys", "new"])
                    .output()
                    .unwrap()
                    .status
                    .success()
            );
            output = show();
        }
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Starts a server or depot, and waits until it reports its address in the field `addresses`.
    pub fn service(&self, mut command: Command, addresses: &str) -> Service {
        let mut child = command
            .arg("--json")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let reported: Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        let address = reported[addresses]
            .as_str()
            .or(reported[addresses][0].as_str())
            .unwrap()
            .to_owned();
        let key = reported["key"].as_str().unwrap().to_owned();
        Service {
            child,
            address,
            key,
            _out: out,
        }
    }

    /// Starts a server of `root` that lets the key of `me` read and write.
    pub fn serve(&self, more: &[&str]) -> Service {
        self.serve_as(self.longhaul("server"), "127.0.0.1:0", more)
    }

    /// Starts such a server, with its log in a file.
    pub fn serve_logging_to(&self, log: &Path, more: &[&str]) -> Service {
        let mut command = self.longhaul("server");
        command
            .env("RUST_LOG", "info")
            .stderr(std::fs::File::create(log).unwrap());
        self.serve_as(command, "127.0.0.1:0", more)
    }

    /// Starts such a server at the address of an earlier one.
    pub fn serve_at(&self, address: &str) -> Service {
        self.serve_as(self.longhaul("server"), address, &[])
    }

    /// Starts such a server at an address of its own, which it can have again after a restart, and
    /// at which nobody else listens meanwhile.
    pub fn serve_at_own_address(&self) -> Service {
        self.serve_as(self.longhaul("server"), &own_address(), &[])
    }

    fn serve_as(&self, mut command: Command, listen: &str, more: &[&str]) -> Service {
        let key = self.key("me");
        command
            .args([
                "serve", "--root", "root", "--listen", listen, "--read", &key, "--write", &key,
            ])
            .args(more);
        self.service(command, "address")
    }

    /// Starts a measurement server that admits the key of `me`.
    pub fn perf(&self, more: &[&str]) -> Service {
        let key = self.key("me");
        let mut command = self.longhaul("server");
        command
            .args([
                "perf",
                "--serve",
                "--listen",
                "127.0.0.1:0",
                "--allow",
                &key,
            ])
            .args(more);
        self.service(command, "address")
    }

    /// Starts a depot that carries sessions of `me` to loopback, at most at this rate.
    pub fn depot(&self, name: &str, max_rate: Option<&str>) -> Service {
        let command = self.depot_command(name, max_rate);
        self.service(command, "addresses")
    }

    /// Starts such a depot at an address of its own, at which nobody else listens once it is gone.
    pub fn depot_at_own_address(&self, name: &str, max_rate: Option<&str>) -> Service {
        let command = self.depot_command_at(name, &own_address(), max_rate);
        self.service(command, "addresses")
    }

    /// Starts a depot that carries sessions of `me` to loopback, with these options as well.
    pub fn depot_with(&self, name: &str, more: &[&str]) -> Service {
        let mut command = self.depot_command(name, None);
        command.args(more);
        self.service(command, "addresses")
    }

    /// Starts such a depot, with its log in a file.
    pub fn depot_logging_to(&self, name: &str, log: &Path, more: &[&str]) -> Service {
        let mut command = self.depot_command(name, None);
        command.args(more);
        command
            .env("RUST_LOG", "info")
            .stderr(std::fs::File::create(log).unwrap());
        self.service(command, "addresses")
    }

    /// Starts a depot that adds `next_hop` before loose hops, with its log in the file `NAME.log`.
    pub fn adding_depot(&self, name: &str, next_hop: &str) -> Service {
        let table = self.path(&format!("{name}-forwarding.toml"));
        let entry = format!("[[forward]]\nto = [\"*\"]\nnext_hops = [\"{next_hop}\"]\n");
        std::fs::write(&table, entry).unwrap();
        let log = std::fs::File::create(self.path(&format!("{name}.log"))).unwrap();
        let mut command = self.depot_command(name, None);
        command.arg("--forwarding").arg(table);
        command.env("RUST_LOG", "info").stderr(log);
        self.service(command, "addresses")
    }

    /// Returns the command of a depot that carries sessions of `me` to loopback.
    pub fn depot_command(&self, name: &str, max_rate: Option<&str>) -> Command {
        self.depot_command_at(name, "127.0.0.1:0", max_rate)
    }

    fn depot_command_at(&self, name: &str, listen: &str, max_rate: Option<&str>) -> Command {
        let file = self.write_depot_policy(name, max_rate);
        let mut command = self.longhaul(name);
        command
            .args(["depot", "--listen", listen, "--policy"])
            .arg(file);
        command
    }

    /// Lets a depot carry at most this rate from now on, also in sessions that are open. A copy
    /// that a test interrupts begins slowly, and so cannot complete before; then it may be fast.
    pub fn set_depot_rate(&self, name: &str, depot: &Service, max_rate: Option<&str>) {
        self.write_depot_policy(name, max_rate);
        depot.hang_up();
    }

    fn write_depot_policy(&self, name: &str, max_rate: Option<&str>) -> PathBuf {
        let rate = max_rate.map_or(String::new(), |rate| format!("max_rate = \"{rate}\"\n"));
        let policy = format!(
            "[[allow]]\nprincipals = [\"{}\"]\nto = [\"127.0.0.0/8\"]\nports = [\"any\"]\n\
             next_hops = [\"direct\", \"127.0.0.0/8:*\"]\n{rate}",
            self.key("me")
        );
        let file = self.path(&format!("{name}.toml"));
        std::fs::write(&file, policy).unwrap();
        file
    }

    /// Makes a file of random bytes.
    pub fn noise(&self, name: &str, len: usize) -> Vec<u8> {
        let data = common::noise(len, len as u64);
        std::fs::write(self.path(name), &data).unwrap();
        data
    }

    /// Runs `longhaul cp` as `me`.
    pub fn cp(&self, server: &Service, arguments: &[&str]) -> Output {
        self.longhaul("me")
            .args(["cp", "--host-key", &server.key])
            .args(arguments)
            .output()
            .unwrap()
    }

    /// Starts `longhaul cp --json` as `me`. It does not wait longer for a missing server than a
    /// test should.
    pub fn start_cp(&self, server: &Service, arguments: &[&str]) -> Running {
        self.start_cp_as("me", server, arguments)
    }

    /// Starts one that waits for a server that is started again.
    pub fn start_patient_cp(&self, server: &Service, arguments: &[&str]) -> Running {
        self.start_cp_with("me", LONG_PATIENCE, server, arguments)
    }

    /// Starts one as `who`.
    pub fn start_cp_as(&self, who: &str, server: &Service, arguments: &[&str]) -> Running {
        self.start_cp_with(who, SHORT_PATIENCE, server, arguments)
    }

    fn start_cp_with(
        &self,
        who: &str,
        patience: &str,
        server: &Service,
        arguments: &[&str],
    ) -> Running {
        let mut command = self.longhaul(who);
        command
            .args([
                "cp",
                "--json",
                "--patience",
                patience,
                "--host-key",
                &server.key,
            ])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Running::new(command)
    }
}

/// Returns an address of loopback that no other service of the tests has, with a port that the
/// system chooses. At 127.0.0.1, another test's service could get the port of a service that has
/// ended.
fn own_address() -> String {
    let number = OWN_ADDRESSES.fetch_add(1, Ordering::Relaxed);
    // Each program of tests has its own range.
    let [_, _, high, low] = std::process::id().to_be_bytes();
    format!("127.{}.{low}.{}:0", 64 + high % 128, 1 + number % 254)
}

/// Repeats until `pleases` returns true.
#[track_caller]
pub fn until(what: &str, mut pleases: impl FnMut() -> bool) {
    let given_up = Instant::now() + MAX_WAIT;
    while !pleases() {
        assert!(Instant::now() < given_up, "never: {what}");
        std::thread::yield_now();
    }
}

/// Makes the keys of an sshd and of its user, `host-key` and `user-key`.
pub fn make_ssh_keys(stage: &Stage) {
    for key in ["host-key", "user-key"] {
        let mut command = Command::new("ssh-keygen");
        let made = command
            .args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(stage.path(key))
            .status();
        assert!(made.unwrap().success());
    }
}

/// A running copy, and its output.
pub struct Running {
    pub child: Child,
    lines: BufReader<ChildStdout>,
    pub events: Vec<Value>,
}

impl Running {
    /// Starts a copy, whose output is piped.
    pub fn new(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self {
            child,
            lines,
            events: Vec::new(),
        }
    }

    /// Reads events until one pleases.
    pub fn until(&mut self, pleases: impl Fn(&Value) -> bool) {
        loop {
            let mut line = String::new();
            assert!(
                self.lines.read_line(&mut line).unwrap() > 0,
                "over without it: {:?}",
                self.events
            );
            let event: Value =
                serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
            self.events.push(event.clone());
            if pleases(&event) {
                return;
            }
        }
    }

    /// Waits until data flows while there is more to come.
    pub fn until_mid_copy(&mut self) {
        self.until(|e| {
            e["event"] == "progress"
                && e["bytes"].as_u64() > Some(0)
                && e["bytes"].as_u64() < e["bytes_found"].as_u64()
        });
    }

    /// Returns the report, the exit code and standard error.
    pub fn report(mut self) -> (Value, Option<i32>, String) {
        self.until(|e| e["event"] == "report");
        let code = self.child.wait().unwrap().code();
        let mut errors = String::new();
        self.child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut errors)
            .unwrap();
        (self.events.pop().unwrap(), code, errors)
    }
}

/// Returns standard error.
pub fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns true if there is no temporary file beneath `dir`.
pub fn no_temps(dir: &Path) -> bool {
    std::fs::read_dir(dir).unwrap().all(|entry| {
        let entry = entry.unwrap();
        !entry
            .file_name()
            .to_string_lossy()
            .starts_with(".longhaul-")
            && (!entry.path().is_dir() || no_temps(&entry.path()))
    })
}
