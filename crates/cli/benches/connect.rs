//! What `longhaul run` adds to a connection that is direct: the time of `connect` to a listener on
//! this machine, with the preload object and without, and what one connection carries. Prints one
//! line of JSON for each way: in microseconds the time of a `connect`, what the way adds to the
//! median of one to the same destinations without the object (`added`), and the least and greatest
//! of that over the rounds (`added_by_round`). Then one for each way that carries: in Gbit/s what
//! it carried (`gbit_s`), and the ratio of that to what was carried without the object in the same
//! round (`of_plain`, and the least and greatest, `of_plain_by_round`).
//!
//!     cargo build --release -p longhaul-cli -p longhaul-preload-object && cargo bench -p longhaul-cli --bench connect
//!
//! A destination that was answered for is remembered for some seconds. So that the on-ramp is asked
//! for each connection, some ways go to so many ports that no answer is there any more when its
//! port has its turn again.
//!
//! The ways take turns, round by round, so that what else the machine does meets all of them. Once
//! it stands, a direct connection is the program's own and the kernel's alone, so nothing should be
//! added to what it carries.

use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

/// How often each way has its turn.
const ROUNDS: usize = 5;
/// Connections that are timed in each turn; before them a tenth as many that are not.
const CONNECTIONS: usize = 1000;
/// Ports of those ways whose connections are all asked for: far more than the answers that a
/// process remembers.
const PORTS: usize = 512;
/// Says to this program, started again, where to connect to: addresses, with commas between.
const CONNECT_TO: &str = "BENCH_CONNECT_TO";
/// Says to it where to send [`CARRIED`] bytes.
const CARRY_TO: &str = "BENCH_CARRY_TO";
/// What one connection carries in each turn, in bytes; and by how much a write and a read.
const CARRIED: u64 = 4 << 30;
const CARRIED_AT_ONCE: usize = 128 << 10;

/// How the program is run, and where it connects to: in each turn to other ports, for the kernel
/// looks long for a port of its own towards one that was connected to thousands of times just now.
struct Way {
    name: &'static str,
    /// The arguments of `longhaul`; none to run the program by itself.
    run: Vec<OsString>,
    /// Whether the object is loaded all the same, with nothing to do.
    is_loaded: bool,
    host: IpAddr,
    ports: usize,
    /// Each connection's time, in microseconds, by round.
    times: Vec<Vec<f64>>,
    /// What a connection carried, in Gbit/s, by round.
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
            "[[route]]\nto = [\"{far}\"]\n[[route]]\nto = [\"*.example\"]\nofframp = \"gateway.example\"\n",
        ),
    )?;
    let way = |name, run: &[&OsStr], host, ports| Way {
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
        Way {
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
        // How many ports there are is nothing to one connection.
        for way in ways
            .iter_mut()
            .filter(|way| way.ports == 1 && way.host == far)
        {
            way.carry(home.path())?;
        }
    }
    let mut plain = Vec::new();
    for way in &ways {
        let medians: Vec<f64> = way.times.iter().map(|round| at(round, 50)).collect();
        let times = way.times.concat();
        if way.run.is_empty() && !way.is_loaded {
            plain.clone_from(&way.times);
        }
        let added = medians
            .iter()
            .zip(&plain)
            .map(|(median, plain)| median - at(plain, 50));
        let (least, most) = least_and_most(added);
        println!(
            "{{\"way\":\"{}\",\"median\":{:.1},\"p10\":{:.1},\"p90\":{:.1},\"added\":{:.1},\"added_by_round\":[{least:.1},{most:.1}]}}",
            way.name,
            at(&times, 50),
            at(&times, 10),
            at(&times, 90),
            at(&times, 50) - at(&plain.concat(), 50)
        );
    }
    let carries: Vec<&Way> = ways.iter().filter(|way| !way.rates.is_empty()).collect();
    for way in &carries {
        let by_round = way.rates.iter().zip(&carries[0].rates);
        let ratios: Vec<f64> = by_round.map(|(rate, plain)| rate / plain).collect();
        let (least, most) = least_and_most(ratios.iter().copied());
        println!(
            "{{\"way\":\"{}\",\"gbit_s\":{:.1},\"of_plain\":{:.3},\"of_plain_by_round\":[{least:.3},{most:.3}]}}",
            way.name,
            at(&way.rates, 50),
            at(&ratios, 50),
        );
    }
    Ok(())
}

/// The value below which so many hundredths of them are.
fn at(times: &[f64], part: usize) -> f64 {
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

impl Way {
    fn turn(&mut self, home: &Path) -> Result<(), Box<dyn Error>> {
        let listeners = (0..self.ports).map(|_| TcpListener::bind((self.host, 0)));
        let listeners = listeners.collect::<std::io::Result<Vec<_>>>()?;
        let addresses = listeners
            .iter()
            .map(|listener| Ok(listener.local_addr()?.to_string()));
        let addresses = addresses.collect::<std::io::Result<Vec<_>>>()?.join(",");
        let accepting = thread::spawn(move || {
            // Each of many has room for its few connections.
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

    /// One connection carries [`CARRIED`] bytes.
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
            // Says that all has arrived.
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

    /// What this program prints when it is run again, as the way says, with a variable.
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
            // A word that it does not know: it does nothing.
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

/// An address of this machine that is not loopback, so that the on-ramp is asked for it.
fn own_address() -> Result<IpAddr, Box<dyn Error>> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    // Sends nothing.
    socket.connect("198.51.100.1:9")?;
    Ok(socket.local_addr()?.ip())
}

/// Prints how long each connection took, in microseconds.
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

/// Prints how many seconds a connection took to carry [`CARRIED`] bytes, until the other end said
/// that all had arrived.
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
