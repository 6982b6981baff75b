//! The relays under test, each in a separate process.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use longhaul_depot::{Depot, DepotConfig, Listen, Policy};
use longhaul_proto::SigningKey;

/// HAProxy's splicing options: whenever possible, or as its heuristics decide.
pub const ALWAYS: &str = "option splice-request\n  option splice-response";
pub const AUTO: &str = "option splice-auto";

/// A running relay, killed when dropped.
pub struct Relay {
    pub name: String,
    pub address: SocketAddr,
    /// Address of the depot's metrics page.
    pub page: Option<SocketAddr>,
    child: Child,
    _directory: Option<tempfile::TempDir>,
}

impl Relay {
    /// Starts this program again, as a depot.
    pub fn depot(key: &SigningKey, threads: usize, pipe: usize) -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut child = Command::new(program)
            .args([
                "depot",
                &key.public().to_string(),
                &threads.to_string(),
                &pipe.to_string(),
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start the depot");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("stdout"))
            .read_line(&mut line)
            .expect("the depot's addresses");
        let mut addresses = line
            .split_whitespace()
            .map(|text| text.parse().expect("address"));
        let address = addresses.next().expect("address");
        Self {
            name: "depot".to_owned(),
            address,
            page: addresses.next(),
            child,
            _directory: None,
        }
    }

    /// Starts HAProxy in front of `to`; `None` if it is not installed.
    pub fn haproxy(
        name: &str,
        to: SocketAddr,
        threads: usize,
        pipe: usize,
        splice: &str,
    ) -> Option<Self> {
        let program = haproxy_program()?;
        let directory = tempfile::tempdir().expect("directory");
        // HAProxy does not report its port, so it is given one that was free a moment ago.
        let address = std::net::TcpListener::bind("127.0.0.1:0")
            .and_then(|free| free.local_addr())
            .expect("a free port");
        let file = directory.path().join("haproxy.cfg");
        let config = format!(
            "global\n  nbthread {threads}\n  maxconn 2000\n  tune.pipesize {pipe}\n\
             defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 1h\n  timeout server 1h\n\
             listen relay\n  bind {address}\n  {splice}\n  server sink {to}\n"
        );
        std::fs::write(&file, config).expect("write haproxy.cfg");
        let child = Command::new(program)
            .args([Path::new("-db"), Path::new("-q"), Path::new("-f"), &file])
            .spawn()
            .expect("start haproxy");
        let relay = Self {
            name: name.to_owned(),
            address,
            page: None,
            child,
            _directory: Some(directory),
        };
        relay.wait_until_it_listens();
        Some(relay)
    }

    /// Waits for the listening socket to appear in /proc, as connecting would open a flow.
    fn wait_until_it_listens(&self) {
        let start = Instant::now();
        let port = format!(":{:04X} 00000000:0000 0A", self.address.port());
        while !std::fs::read_to_string("/proc/net/tcp")
            .expect("/proc/net/tcp")
            .contains(&port)
        {
            assert!(
                start.elapsed() < Duration::from_secs(10),
                "haproxy does not listen"
            );
            std::thread::yield_now();
        }
    }

    /// Returns the user and system time of the process so far, in seconds.
    pub fn cpu_seconds(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))
            .expect("the relay runs");
        // proc_pid_stat(5): utime and stime are fields 14 and 15; the name before them may contain
        // spaces.
        let after_name = stat.rsplit_once(')').expect("stat").1;
        let ticks: f64 = after_name
            .split_whitespace()
            .skip(11)
            .take(2)
            .map(|field| field.parse::<f64>().expect("ticks"))
            .sum();
        ticks / rustix::param::clock_ticks_per_second() as f64
    }

    /// Returns the resident memory, in bytes.
    pub fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))
            .expect("the relay runs");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .expect("VmRSS");
        line.trim()
            .trim_end_matches(" kB")
            .parse::<u64>()
            .expect("kB")
            * 1024
    }

    /// Returns a value of the depot's metrics page.
    pub fn metric(&self, name: &str) -> f64 {
        let mut stream =
            TcpStream::connect(self.page.expect("a depot has a page")).expect("connect");
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\n\r\n")
            .expect("ask");
        let lines = BufReader::new(stream).lines();
        lines
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
            .expect("the metric is on the page")
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn haproxy_program() -> Option<&'static str> {
    ["haproxy", "/usr/sbin/haproxy"]
        .into_iter()
        .find(|program| {
            Command::new(program)
                .arg("-v")
                .stdout(Stdio::null())
                .status()
                .is_ok()
        })
}

/// Returns the first line of `haproxy -v`.
pub fn haproxy_version() -> Option<String> {
    let output = Command::new(haproxy_program()?).arg("-v").output().ok()?;
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .next()
        .map(str::to_owned)
}

/// Raises the descriptor limit for thousands of sessions, here and in the depot, which inherits it.
pub fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    )
    .expect("descriptor limit");
}

/// Runs as the depot's process: prints its addresses, and runs until its parent exits.
pub fn depot_process(arguments: &[String]) {
    let [key, threads, pipe] = arguments else {
        panic!("depot KEY THREADS PIPE")
    };
    let rule =
        format!("[[allow]]\nprincipals = [\"{key}\"]\nto = [\"127.0.0.0/8\"]\nports = [\"any\"]\n");
    let policy = Policy::parse(&rule, Path::new("bench.toml")).expect("policy");
    let mut config = DepotConfig::new(SigningKey::generate().expect("key"), policy);
    let any: SocketAddr = "127.0.0.1:0".parse().expect("address");
    config.listen = vec![Listen::at(any)];
    config.metrics = Some(any);
    config.limits.pipe = pipe.parse().expect("pipe size");
    config.limits.sessions = 100_000;
    config.workers = threads.parse().expect("threads");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("runtime");
    runtime.block_on(async {
        let depot = Depot::bind(config).expect("bind");
        println!(
            "{} {}",
            depot.local_addresses()[0],
            depot.metrics_address().expect("page")
        );
        depot.run(std::future::pending()).await;
    });
}
