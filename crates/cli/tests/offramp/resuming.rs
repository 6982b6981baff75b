//! Unmodified programs whose depot is killed in the middle: on-ramp, depot, off-ramp and service
//! are processes on loopback.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::bed::until;
use crate::common::{Service, key_of, new_key, noise};
use crate::postgres::Postgres;

/// Guards against a program that hangs when its depot dies. Sessions resume within some seconds,
/// which `longhaul-figures` measures; a busy machine takes longer.
const MAX_OUTAGE: Duration = Duration::from_secs(60);
/// Rate of the depots.
const RATE: &str = "400 Mbit/s";
/// Rate of the depots before a program that takes everything at once, so that one can be killed
/// meanwhile.
const SLOW_RATE: &str = "40 Mbit/s";

/// The processes between program and service.
struct Chain {
    directory: tempfile::TempDir,
    near: Option<Service>,
    onramp: Service,
    entry: SocketAddr,
    metrics: SocketAddr,
    _far: Service,
    _offramp: Service,
}

impl Chain {
    /// Starts the processes for a service at this port. The rule names the first depot, and the
    /// second one as an alternative if `has_second`.
    fn start(service: u16, has_second: bool, onramp_options: &[&str]) -> Self {
        Self::start_with_rate(service, has_second, onramp_options, RATE)
    }

    /// Starts them like [`Self::start`], with depots that relay at most at `rate`.
    fn start_with_rate(
        service: u16,
        has_second: bool,
        onramp_options: &[&str],
        rate: &str,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let home = |name: &str| directory.path().join(name);
        let client = new_key(&home("client"));
        let policy = home("policy.toml");
        let rules = format!(
            "[[allow]]\nname = \"through\"\nprincipals = [\"{client}\"]\nto = [\"127.0.0.1\"]\n\
             ports = [\"any\"]\nnext_hops = [\"direct\"]\nmax_rate = \"{rate}\"\n\
             [[allow]]\nname = \"off\"\nprincipals = [\"{client}\"]\nservers = [\"127.0.0.1\"]\n\
             ports = [\"any\"]\n"
        );
        fs::write(&policy, rules).unwrap();
        let server = |name: &str, command: &str| {
            new_key(&home(name));
            let mut command = logged(&directory, name, command);
            command
                .args(["--listen", "127.0.0.1:0", "--policy"])
                .arg(&policy);
            listening(command)
        };
        let (near, first) = server("near", "depot");
        let (far, second) = server("far", "depot");
        let (offramp, exit) = server("gateway", "offramp");
        let alternatives = match has_second {
            true => format!("alternatives = [\"{second}\"]\n"),
            false => String::new(),
        };
        let routes = format!(
            "[[route]]\nto = [\"127.0.0.1\"]\nvia = \"{first}\"\n{alternatives}\
             offramp = \"{}@{exit}\"\nalways = true\nfall_back = false\n",
            key_of(&home("gateway"))
        );
        fs::write(home("routes.toml"), routes).unwrap();
        let mut command = logged(&directory, "client", "onramp");
        command
            .args(["--json", "--metrics", "127.0.0.1:0", "--forward"])
            .arg(format!("127.0.0.1:0=127.0.0.1:{service}"))
            .arg("--routes")
            .arg(home("routes.toml"))
            .args(onramp_options);
        let (onramp, line) = first_line(command);
        let ready: Value = serde_json::from_str(&line).unwrap();
        Self {
            entry: ready["forwards"][0].as_str().unwrap().parse().unwrap(),
            metrics: ready["metrics"].as_str().unwrap().parse().unwrap(),
            directory,
            near: Some(near),
            onramp,
            _far: far,
            _offramp: offramp,
        }
    }

    /// Kills the first depot.
    fn kill_depot(&mut self) {
        drop(self.near.take());
    }

    /// Returns the log of a process.
    fn log(&self, name: &str) -> String {
        fs::read_to_string(self.path(&format!("{name}.log"))).unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns the value of a metric of the on-ramp.
    fn metric(&self, name: &str) -> f64 {
        let mut stream = std::net::TcpStream::connect(self.metrics).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        let value = page.lines().find_map(|line| line.strip_prefix(name));
        value
            .unwrap_or_else(|| panic!("{name} in {page}"))
            .trim()
            .parse()
            .unwrap()
    }

    fn psql(&self) -> Command {
        let mut command = Command::new("psql");
        command
            .args([
                "-X",
                "-q",
                "-A",
                "-t",
                "-U",
                "agent",
                "-h",
                "127.0.0.1",
                "-p",
            ])
            .arg(self.entry.port().to_string())
            .args(["-d", "postgres"])
            .env("PGCONNECT_TIMEOUT", "120");
        command
    }
}

fn logged(directory: &tempfile::TempDir, name: &str, command: &str) -> Command {
    let home = directory.path().join(name);
    let log = File::create(directory.path().join(format!("{name}.log"))).unwrap();
    let mut process = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    process
        .arg(command)
        .env("LONGHAUL_HOME", &home)
        .env("LONGHAUL_STATE", home.join("state"))
        .stdin(Stdio::null())
        .stderr(log);
    process
}

/// Starts a server, and returns its first line.
fn first_line(mut command: Command) -> (Service, String) {
    let mut service = Service(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    let mut out = BufReader::new(service.0.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    // Its further lines must not fail.
    std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
    (service, line)
}

fn listening(command: Command) -> (Service, SocketAddr) {
    let (service, line) = first_line(command);
    let address = line.trim().strip_prefix("listening on ");
    let address = address.unwrap_or_else(|| panic!("{line}"));
    (service, address.parse().unwrap())
}

/// Serves the repositories in a directory by git's own protocol. Returns the port. Its thread ends
/// with the test's process.
fn serve_git(directory: &Path) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let base = format!("--base-path={}", directory.display());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut command = Command::new("git");
            command
                .args([
                    "daemon",
                    "--inetd",
                    "--log-destination=none",
                    "--export-all",
                ])
                .arg(&base)
                .stdin(OwnedFd::from(stream.try_clone().unwrap()))
                .stdout(OwnedFd::from(stream));
            let mut daemon = command.spawn().unwrap();
            // Closes its copies of the stream.
            drop(command);
            std::thread::spawn(move || daemon.wait());
        }
    });
    port
}

/// A `psql` that gets its statements one by one.
struct Dialogue {
    child: Service,
    statements: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Dialogue {
    fn start(chain: &Chain) -> Self {
        let mut command = chain.psql();
        let mut child: Child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(chain.path("psql.log")).unwrap())
            .spawn()
            .unwrap();
        Self {
            statements: child.stdin.take().unwrap(),
            answers: BufReader::new(child.stdout.take().unwrap()),
            child: Service(child),
        }
    }

    fn say(&mut self, statement: &str) {
        writeln!(self.statements, "{statement}").unwrap();
        self.statements.flush().unwrap();
    }

    /// Returns the line that a statement answers with; empty if `psql` has ended.
    fn ask(&mut self, statement: &str) -> String {
        self.say(statement);
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

/// Fails a depot in the middle of a large result, and asserts that the rest arrives in time.
fn fail_in_the_middle_of_a_result(fail: impl Fn(&mut Chain)) {
    const ROWS: usize = 15_000;
    let (_server, port) = Postgres::start_with_port();
    let mut chain = Chain::start(port, true, &[]);
    let statement = format!(
        "COPY (SELECT repeat(md5(i::text), 100) FROM generate_series(1, {ROWS}) i) TO STDOUT"
    );
    let mut psql = Service(
        chain
            .psql()
            .args(["-c", &statement])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut out = psql.0.stdout.take().unwrap();
    let (mut result, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
    let (mut longest, mut last) = (Duration::ZERO, Instant::now());
    let mut has_failed = false;
    loop {
        let read = out.read(&mut buffer).unwrap();
        longest = longest.max(last.elapsed());
        last = Instant::now();
        if read == 0 {
            break;
        }
        result.extend_from_slice(&buffer[..read]);
        if result.len() > 5_000_000 && !has_failed {
            fail(&mut chain);
            has_failed = true;
        }
    }
    let status = psql.0.wait().unwrap();
    assert!(status.success(), "{}", chain.log("client"));
    let text = String::from_utf8(result).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), ROWS);
    // md5('1'); every other line repeats a hash as well.
    assert_eq!(lines[0], "c4ca4238a0b923820dcc509a6f75849b".repeat(100));
    let is_row = |line: &&str| **line == line[..32].repeat(100);
    assert!(lines.iter().all(is_row));
    println!("standstill: {longest:?}");
    assert!(longest < MAX_OUTAGE, "{longest:?}");
    let log = chain.log("client");
    assert!(log.contains("session resumed"), "{log}");
    assert!(chain.metric("longhaul_onramp_sessions_resumed_total") >= 1.0);
    assert_eq!(
        chain.metric("longhaul_onramp_sessions_not_resumed_total"),
        0.0
    );
}

#[test]
fn psql_continues_when_its_depot_is_killed() {
    fail_in_the_middle_of_a_result(Chain::kill_depot);
}

/// As after a power failure: nothing is reset, and nothing arrives any more.
#[test]
fn psql_continues_when_its_depot_falls_silent() {
    fail_in_the_middle_of_a_result(|chain| chain.near.as_ref().unwrap().signal("STOP"));
}

#[test]
fn an_idle_psql_keeps_its_server_session() {
    let (_server, port) = Postgres::start_with_port();
    let mut chain = Chain::start(port, true, &[]);
    let mut psql = Dialogue::start(&chain);
    let process = psql.ask("SELECT pg_backend_pid();");
    assert!(process.parse::<u32>().is_ok(), "{process}");
    psql.say("CREATE TEMPORARY TABLE kept AS SELECT 42 AS value; BEGIN;");
    chain.kill_depot();
    let asked = Instant::now();
    assert_eq!(psql.ask("SELECT value FROM kept;"), "42");
    println!("answer after {:?}", asked.elapsed());
    assert!(asked.elapsed() < MAX_OUTAGE);
    // The same server process: it was not connected to again.
    assert_eq!(psql.ask("SELECT pg_backend_pid();"), process);
    psql.say("COMMIT; \\q");
    assert!(psql.child.0.wait().unwrap().success());
    // A new connection takes the other route from the beginning.
    assert_eq!(Dialogue::start(&chain).ask("SELECT 1;"), "1");
}

#[test]
fn git_clone_continues() {
    let directory = tempfile::tempdir().unwrap();
    let origin = directory.path().join("origin");
    let git = |at: &Path, arguments: &[&str]| {
        let done = Command::new("git")
            .arg("-C")
            .arg(at)
            .args(["-c", "user.name=t", "-c", "user.email=t@example.org"])
            .args(arguments)
            .output()
            .unwrap();
        let complaint = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success(), "{arguments:?}: {complaint}");
        String::from_utf8(done.stdout).unwrap()
    };
    fs::create_dir(&origin).unwrap();
    git(&origin, &["init", "-q"]);
    fs::write(origin.join("data"), noise(60_000_000, 7)).unwrap();
    git(&origin, &["add", "data"]);
    git(&origin, &["commit", "-q", "-m", "data"]);
    let port = serve_git(directory.path());
    let mut chain = Chain::start_with_rate(port, true, &[], SLOW_RATE);
    let copy = directory.path().join("copy");
    let mut clone = Service(
        Command::new("git")
            .args(["clone", "-q"])
            .arg(format!("git://{}/origin", chain.entry))
            .arg(&copy)
            .spawn()
            .unwrap(),
    );
    // The pack grows while it arrives.
    let arrived = || -> u64 {
        let packs = fs::read_dir(copy.join(".git/objects/pack"));
        let packs = packs.into_iter().flatten().flatten();
        packs
            .filter_map(|pack| Some(pack.metadata().ok()?.len()))
            .sum()
    };
    while arrived() < 5_000_000 {
        assert!(clone.0.try_wait().unwrap().is_none(), "it ended too early");
        std::thread::yield_now();
    }
    chain.kill_depot();
    assert!(clone.0.wait().unwrap().success(), "{}", chain.log("client"));
    git(&copy, &["fsck", "--full"]);
    let same = fs::read(copy.join("data")).unwrap() == fs::read(origin.join("data")).unwrap();
    assert!(same);
    assert_eq!(chain.metric("longhaul_onramp_sessions_resumed_total"), 1.0);
}

#[test]
fn without_another_route_psql_fails_in_the_stated_time() {
    let (_server, port) = Postgres::start_with_port();
    let mut chain = Chain::start(port, false, &["--resume-within", "2"]);
    let mut psql = Dialogue::start(&chain);
    assert_eq!(psql.ask("SELECT 1;"), "1");
    let killed = Instant::now();
    chain.kill_depot();
    assert_eq!(psql.ask("SELECT 2;"), "", "psql has lost its server");
    let took = killed.elapsed();
    let stated = Duration::from_secs(2);
    assert!(took >= stated && took < stated + MAX_OUTAGE, "{took:?}");
    let complaint = fs::read_to_string(chain.path("psql.log")).unwrap();
    assert!(
        complaint.contains("server closed the connection unexpectedly"),
        "{complaint}"
    );
    // The program may learn it before the on-ramp has recorded it.
    let typed = "no route resumed the session within 2 s; last attempt: ";
    until("the log has the reason", || {
        let log = chain.log("client");
        if log.contains("session not resumed") && log.contains(typed) {
            Ok(())
        } else {
            Err(Value::String(log))
        }
    });
    until("the session is counted", || {
        let counted = chain.metric("longhaul_onramp_sessions_not_resumed_total");
        if counted == 1.0 {
            Ok(())
        } else {
            Err(Value::from(counted))
        }
    });
}

#[test]
fn no_resume_ends_sessions_with_their_connection() {
    let (_server, port) = Postgres::start_with_port();
    let mut chain = Chain::start(port, true, &["--no-resume"]);
    let mut psql = Dialogue::start(&chain);
    assert_eq!(psql.ask("SELECT 1;"), "1");
    chain.kill_depot();
    assert_eq!(psql.ask("SELECT 2;"), "");
    assert_eq!(chain.metric("longhaul_onramp_sessions_resumed_total"), 0.0);
    assert!(chain.onramp.0.try_wait().unwrap().is_none());
}
