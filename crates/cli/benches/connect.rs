//! What `longhaul run` adds to a connection that is direct: the time of `connect` to a listener on this machine, with the preload object and
//! without. Prints one line of JSON for each way, in microseconds.
//!
//!     cargo build --release -p longhaul-cli -p longhaul-preload-object && cargo bench -p longhaul-cli --bench connect
//!
//! Once it stands, a direct connection is the program's own and the kernel's alone, so nothing is added to what it carries.

use std::error::Error;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

/// Connections that are timed for each way; before them a tenth as many that are not.
const CONNECTIONS: usize = 5000;
/// Says to this program, started again, where to connect to.
const CONNECT_TO: &str = "BENCH_CONNECT_TO";

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
    let own = std::env::current_exe()?;
    let longhaul = Path::new(env!("CARGO_BIN_EXE_longhaul"));
    let home = tempfile::tempdir()?;
    let ways: [(&str, &[&str], SocketAddr); 5] = [
        ("not loaded", &[], far_at),
        ("loaded, the on-ramp says direct", &["run", "--"], far_at),
        (
            "the same, and right-sized",
            &["run", "--right-size", "--"],
            far_at,
        ),
        ("not loaded, on loopback", &[], near_at),
        (
            "loaded, on loopback, where nothing is asked",
            &["run", "--"],
            near_at,
        ),
    ];
    for (way, run, to) in ways {
        let mut command = match run {
            [] => Command::new(&own),
            run => {
                let mut command = Command::new(longhaul);
                command.args(run).arg(&own).env("LONGHAUL_HOME", home.path());
                command
            }
        };
        let output = command
            .env(CONNECT_TO, to.to_string())
            .env(
                "LONGHAUL_PRELOAD",
                longhaul.with_file_name("liblonghaul_preload_object.so"),
            )
            .stderr(Stdio::inherit())
            .output()?;
        let times = String::from_utf8(output.stdout)?;
        println!("{{\"way\":\"{way}\",{}}}", times.trim());
    }
    Ok(())
}

/// An address of this machine that is not loopback, so that the on-ramp is asked for it.
fn own_address() -> Result<IpAddr, Box<dyn Error>> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    // Sends nothing.
    socket.connect("198.51.100.1:9")?;
    Ok(socket.local_addr()?.ip())
}

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
    times.sort_unstable();
    let at = |part: usize| {
        times
            .get(CONNECTIONS * part / 100)
            .copied()
            .unwrap_or_default()
            .as_nanos() as f64
            / 1e3
    };
    println!(
        "\"median\":{:.1},\"p10\":{:.1},\"p90\":{:.1}",
        at(50),
        at(10),
        at(90)
    );
    Ok(())
}
