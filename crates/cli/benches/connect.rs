//! Measures the cost of `longhaul run` for direct connections: the time of `connect` to a listener
//! on this machine, with the preload object and without, and the throughput of one connection.
//!
//! Prints one line of JSON for each variant. It has the time of a `connect` in microseconds, and
//! the difference to the median without the object for the same destinations (`added`), with its
//! minimum and maximum over the rounds (`added_by_round`). One line follows for each variant that
//! transfers data. It has the throughput in Gbit/s (`gbit_s`), and the ratio to the throughput
//! without the object in the same round (`of_plain`, and its minimum and maximum,
//! `of_plain_by_round`).
//!
//!     cargo build --release -p longhaul-cli -p longhaul-preload-object
//!     cargo bench -p longhaul-cli --bench connect
//!
//! The answer for a destination is cached for some seconds. To make the process ask the on-ramp for
//! each connection, some variants use so many ports that the answer has expired when a port is used
//! again.
//!
//! The variants alternate round by round, so that other load on the machine affects all of them.
//! Once established, a direct connection only involves the program and the kernel, so its
//! throughput should be unchanged.

use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

/// Rounds, in each of which every variant runs once.
const ROUNDS: usize = 5;
/// Timed connections per round; a tenth as many untimed ones precede them.
const CONNECTIONS: usize = 1000;
/// Ports of variants that ask for every connection: far more than the answers that a process
/// caches.
const PORTS: usize = 512;
/// Tells this program, started again, the comma-separated addresses to connect to.
const CONNECT_TO: &str = "BENCH_CONNECT_TO";
/// Tells this program, started again, the address to send [`CARRIED`] bytes to.
const CARRY_TO: &str = "BENCH_CARRY_TO";
/// Bytes that one connection carries per round, and bytes per write and read.
const CARRIED: u64 = 4 << 30;
const CARRIED_AT_ONCE: usize = 128 << 10;

/// A variant: how the program is run, and its destinations. Each round uses other ports, as the
/// kernel is slow to find a local port towards one that was just used thousands of times.
struct Variant {
    name: &'static str,
    /// Arguments of `longhaul`; empty to run the program by itself.
    run: Vec<OsString>,
    /// If true, the object is loaded even without `longhaul run`, and does nothing.
    is_loaded: bool,
    host: IpAddr,
    ports: usize,
    /// Times of the connections in microseconds, by round.
    times: Vec<Vec<f64>>,
    /// Throughput of a connection in Gbit/s, by round.
    rates: Vec<f64>,
}

fn main() -> Result<(), Box<dyn Error>> {
    if let Ok(to) = std::env::var(CONNECT_TO) {
        return time_connections(&to);
    }
    if let Ok(to) = std::env::var(CARRY_TO) {
        return time_carrying(&to);
    }
    let (far, near) = (own_address()?, IpAddr::V4(Ipv4Addr::LOCALHOST));
    let home = tempfile::tempdir()?;
    let rules = home.path().join("rules.toml");
    std::fs::write(
        &rules,
        format!(
            "[[route]]\nto = [\"{far}\"]\n[[route]]\nto = [\"*.example\"]\n\
             offramp = \"gateway.example\"\n",
        ),
    )?;
    let way = |name, run: &[&OsStr], host, ports| Variant {
        name,
        run: run.iter().map(|word| (*word).to_owned()).collect(),
        is_loaded: false,
        host,
        ports,
        times: Vec::new(),
        rates: Vec::new(),
    };
    let word = OsStr::new;
    let mut ways = [
        way("not loaded", &[], far, 1),
        Variant {
            is_loaded: true,
            ..way("loaded, with nothing to do", &[], far, 1)
        },
        way(
            "loaded, no routes at all",
            &[word("run"), word("--")],
            far,
            1,
        ),
        way(
            "loaded, a rule says direct",
            &[word("run"), word("--routes"), rules.as_os_str(), word("--")],
            far,
            1,
        ),
        way(
            "loaded, no routes at all, right-sized",
            &[word("run"), word("--right-size"), word("--")],
            far,
            1,
        ),
        way("not loaded, many ports", &[], far, PORTS),
        way(
            "loaded, no routes at all, each is asked for",
            &[word("run"), word("--")],
            far,
            PORTS,
        ),
        way(
            "loaded, a rule says direct, each is asked for",
            &[word("run"), word("--routes"), rules.as_os_str(), word("--")],
            far,
            PORTS,
        ),
        way("not loaded, on loopback", &[], near, 1),
        way(
            "loaded, on loopback, where nothing is asked",
            &[word("run"), word("--")],
            near,
            1,
        ),
    ];
    for _ in 0..ROUNDS {
        for way in &mut ways {
            way.turn(home.path())?;
        }
        // The number of ports does not matter to a single connection.
        for way in ways
            .iter_mut()
            .filter(|way| way.ports == 1 && way.host == far)
        {
            way.carry(home.path())?;
        }
    }
    let mut plain = Vec::new();
    for way in &ways {
        let medians: Vec<f64> = way
            .times
            .iter()
            .map(|round| percentile(round, 50))
            .collect();
        let times = way.times.concat();
        if way.run.is_empty() && !way.is_loaded {
            plain.clone_from(&way.times);
        }
        let added = medians
            .iter()
            .zip(&plain)
            .map(|(median, plain)| median - percentile(plain, 50));
        let (least, most) = least_and_most(added);
        println!(
            "{{\"way\":\"{}\",\"median\":{:.1},\"p10\":{:.1},\"p90\":{:.1},\
             \"added\":{:.1},\"added_by_round\":[{least:.1},{most:.1}]}}",
            way.name,
            percentile(&times, 50),
            percentile(&times, 10),
            percentile(&times, 90),
            percentile(&times, 50) - percentile(&plain.concat(), 50)
        );
    }
    let carries: Vec<&Variant> = ways.iter().filter(|way| !way.rates.is_empty()).collect();
    for way in &carries {
        let by_round = way.rates.iter().zip(&carries[0].rates);
        let ratios: Vec<f64> = by_round.map(|(rate, plain)| rate / plain).collect();
        let (least, most) = least_and_most(ratios.iter().copied());
        println!(
            "{{\"way\":\"{}\",\"gbit_s\":{:.1},\"of_plain\":{:.3},\
             \"of_plain_by_round\":[{least:.3},{most:.3}]}}",
            way.name,
            percentile(&way.rates, 50),
            percentile(&ratios, 50),
        );
    }
    Ok(())
}

/// Returns the value below which `part` hundredths of the times are.
fn percentile(times: &[f64], part: usize) -> f64 {
    let mut times = times.to_vec();
    times.sort_unstable_by(f64::total_cmp);
    times
        .get(times.len() * part / 100)
        .copied()
        .unwrap_or_default()
}

fn least_and_most(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold(
        (f64::INFINITY, f64::NEG_INFINITY),
        |(least, most), value| (least.min(value), most.max(value)),
    )
}

impl Variant {
    fn turn(&mut self, home: &Path) -> Result<(), Box<dyn Error>> {
        let listeners = (0..self.ports).map(|_| TcpListener::bind((self.host, 0)));
        let listeners = listeners.collect::<std::io::Result<Vec<_>>>()?;
        let addresses = listeners
            .iter()
            .map(|listener| Ok(listener.local_addr()?.to_string()));
        let addresses = addresses.collect::<std::io::Result<Vec<_>>>()?.join(",");
        let accepting = thread::spawn(move || {
            // With many listeners, each has room for its few connections.
            if let [one] = listeners.as_slice() {
                one.incoming()
                    .take(CONNECTIONS + CONNECTIONS / 10)
                    .for_each(drop);
            }
            listeners
        });
        let lines = self.output(home, CONNECT_TO, &addresses)?;
        drop(accepting.join());
        let times = lines
            .lines()
            .map(str::parse)
            .collect::<Result<Vec<f64>, _>>()?;
        self.times.push(times);
        Ok(())
    }

    /// Measures one connection that carries [`CARRIED`] bytes.
    fn carry(&mut self, home: &Path) -> Result<(), Box<dyn Error>> {
        let listener = TcpListener::bind((self.host, 0))?;
        let address = listener.local_addr()?.to_string();
        let receiving = thread::spawn(move || {
            let (mut stream, _) = listener.accept()?;
            let (mut buffer, mut received) = (vec![0; CARRIED_AT_ONCE], 0);
            while received < CARRIED {
                match stream.read(&mut buffer)? {
                    0 => break,
                    count => received += count as u64,
                }
            }
            // Confirms that everything has arrived.
            stream.write_all(&[1]).map(|()| received)
        });
        let seconds: f64 = self.output(home, CARRY_TO, &address)?.trim().parse()?;
        let received = receiving.join().map_err(|_| "the receiving end failed")??;
        if received != CARRIED {
            return Err(format!("{}: {received} bytes arrived of {CARRIED}", self.name).into());
        }
        self.rates.push(CARRIED as f64 * 8.0 / seconds / 1e9);
        Ok(())
    }

    /// Runs this program again in this variant, with a variable, and returns its output.
    fn output(&self, home: &Path, variable: &str, value: &str) -> Result<String, Box<dyn Error>> {
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
            // An unknown mode: the object does nothing.
            command.env("LD_PRELOAD", &object).env("DRS_MODE", "off");
        }
        let output = command
            .env(variable, value)
            .env("LONGHAUL_PRELOAD", object)
            .stderr(Stdio::inherit())
            .output()?;
        if !output.status.success() {
            return Err(format!("{}: {}", self.name, output.status).into());
        }
        Ok(String::from_utf8(output.stdout)?)
    }
}

/// Returns a non-loopback address of this machine, for which the on-ramp is asked.
fn own_address() -> Result<IpAddr, Box<dyn Error>> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    // Sends nothing.
    socket.connect("198.51.100.1:9")?;
    Ok(socket.local_addr()?.ip())
}

/// Prints the time of each connection, in microseconds.
fn time_connections(to: &str) -> Result<(), Box<dyn Error>> {
    let to = to
        .split(',')
        .map(str::parse)
        .collect::<Result<Vec<SocketAddr>, _>>()?;
    let mut times = Vec::with_capacity(CONNECTIONS);
    for (number, to) in to
        .iter()
        .cycle()
        .take(CONNECTIONS + CONNECTIONS / 10)
        .enumerate()
    {
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

/// Prints the seconds that a connection took to carry [`CARRIED`] bytes, until the other end
/// confirmed that everything had arrived.
fn time_carrying(to: &str) -> Result<(), Box<dyn Error>> {
    let mut stream = TcpStream::connect(to)?;
    let data = vec![0x5a; CARRIED_AT_ONCE];
    let began = Instant::now();
    for _ in 0..CARRIED / data.len() as u64 {
        stream.write_all(&data)?;
    }
    stream.read_exact(&mut [0])?;
    println!("{:.6}", began.elapsed().as_secs_f64());
    Ok(())
}
