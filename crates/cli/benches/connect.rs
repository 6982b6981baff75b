//! What `longhaul run` adds to a connection that is direct: the time of `connect` to a listener on this machine, with the preload object and
//! without. Prints one line of JSON for each way: in microseconds the time of a `connect`, and what the way adds to the median of one
//! without the object (`added`).
//!
//!     cargo build --release -p longhaul-cli -p longhaul-preload-object && cargo bench -p longhaul-cli --bench connect
//!
//! The ways take turns, round by round, so that what else the machine does meets all of them. Once it stands, a direct connection is the
//! program's own and the kernel's alone, so nothing is added to what it carries.

use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

/// How often each way has its turn.
const ROUNDS: usize = 5;
/// Connections that are timed in each turn; before them a tenth as many that are not.
const CONNECTIONS: usize = 1000;
/// Says to this program, started again, where to connect to.
const CONNECT_TO: &str = "BENCH_CONNECT_TO";

/// How the program is run, and where it connects to.
struct Way {
    name: &'static str,
    /// The arguments of `longhaul`; none to run the program by itself.
    run: Vec<OsString>,
    /// Whether the object is loaded all the same, with nothing to do.
    is_loaded: bool,
    to: SocketAddr,
    /// Each connection's time, in microseconds.
    times: Vec<f64>,
}

fn main() -> Result<(), Box<dyn Error>> {
    if let Ok(to) = std::env::var(CONNECT_TO) {
        return time_connections(to.parse()?);
    }
    let far = TcpListener::bind(SocketAddr::new(own_address()?, 0))?;
    let near = TcpListener::bind("127.0.0.1:0")?;
    let (far_at, near_at) = (far.local_addr()?, near.local_addr()?);
    for listener in [far, near] {
        thread::spawn(move || listener.incoming().for_each(drop));
    }
    let home = tempfile::tempdir()?;
    let rules = home.path().join("rules.toml");
    std::fs::write(
        &rules,
        format!(
            "[[route]]\nto = [\"{}\"]\n[[route]]\nto = [\"*.example\"]\nofframp = \"gateway.example\"\n",
            far_at.ip()
        ),
    )?;
    let way = |name, run: &[&OsStr], to| Way {
        name,
        run: run.iter().map(|word| (*word).to_owned()).collect(),
        is_loaded: false,
        to,
        times: Vec::new(),
    };
    let word = OsStr::new;
    let mut ways = [
        way("not loaded", &[], far_at),
        Way {
            is_loaded: true,
            ..way("loaded, with nothing to do", &[], far_at)
        },
        way("loaded, no routes at all", &[word("run"), word("--")], far_at),
        way(
            "loaded, a rule says direct",
            &[word("run"), word("--routes"), rules.as_os_str(), word("--")],
            far_at,
        ),
        way(
            "loaded, no routes at all, right-sized",
            &[word("run"), word("--right-size"), word("--")],
            far_at,
        ),
        way("not loaded, on loopback", &[], near_at),
        way(
            "loaded, on loopback, where nothing is asked",
            &[word("run"), word("--")],
            near_at,
        ),
    ];
    for _ in 0..ROUNDS {
        for way in &mut ways {
            way.turn(home.path())?;
        }
    }
    let mut plain = 0.0;
    for way in &mut ways {
        way.times.sort_unstable_by(f64::total_cmp);
        let at = |part: usize| {
            way.times
                .get(way.times.len() * part / 100)
                .copied()
                .unwrap_or_default()
        };
        if way.run.is_empty() && !way.is_loaded {
            plain = at(50);
        }
        println!(
            "{{\"way\":\"{}\",\"median\":{:.1},\"p10\":{:.1},\"p90\":{:.1},\"added\":{:.1}}}",
            way.name,
            at(50),
            at(10),
            at(90),
            at(50) - plain
        );
    }
    Ok(())
}

impl Way {
    fn turn(&mut self, home: &Path) -> Result<(), Box<dyn Error>> {
        let own = std::env::current_exe()?;
        let longhaul = Path::new(env!("CARGO_BIN_EXE_longhaul"));
        let object = longhaul.with_file_name("liblonghaul_preload_object.so");
        let mut command = if self.run.is_empty() {
            Command::new(&own)
        } else {
            let mut command = Command::new(longhaul);
            command.args(&self.run).arg(&own).env("LONGHAUL_HOME", home);
            command
        };
        if self.is_loaded {
            // A word that it does not know: it does nothing.
            command.env("LD_PRELOAD", &object).env("DRS_MODE", "off");
        }
        let output = command
            .env(CONNECT_TO, self.to.to_string())
            .env("LONGHAUL_PRELOAD", object)
            .stderr(Stdio::inherit())
            .output()?;
        if !output.status.success() {
            return Err(format!("{}: {}", self.name, output.status).into());
        }
        for line in String::from_utf8(output.stdout)?.lines() {
            self.times.push(line.parse()?);
        }
        Ok(())
    }
}

/// An address of this machine that is not loopback, so that the on-ramp is asked for it.
fn own_address() -> Result<IpAddr, Box<dyn Error>> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    // Sends nothing.
    socket.connect("198.51.100.1:9")?;
    Ok(socket.local_addr()?.ip())
}

/// Prints how long each connection took, in microseconds.
fn time_connections(to: SocketAddr) -> Result<(), Box<dyn Error>> {
    let mut times = Vec::with_capacity(CONNECTIONS);
    for number in 0..CONNECTIONS + CONNECTIONS / 10 {
        let began = Instant::now();
        let stream = TcpStream::connect(to)?;
        let took = began.elapsed();
        drop(stream);
        if number >= CONNECTIONS / 10 {
            times.push(took);
        }
    }
    for took in times {
        println!("{:.3}", took.as_nanos() as f64 / 1e3);
    }
    Ok(())
}
