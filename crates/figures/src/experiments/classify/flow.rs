//! One end of a flow, run inside a lab's node: it sends or receives, and records a trace of its
//! socket.

use anyhow::{Context, Result, bail};
use drs::{SAMPLE_PERIOD, Sample, Sampler, TraceWriter};
use rustix::io::Errno;
use socket2::{Domain, SockRef, Socket, Type};
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Time for which the sender waits until the receiver listens, as both start together.
const LISTENS_WITHIN: Duration = Duration::from_secs(10);

/// One end of a flow.
#[derive(clap::Args)]
pub struct Flow {
    /// Send to this address; without it, receive.
    #[arg(long)]
    to: Option<Ipv4Addr>,
    /// Port to listen on or to connect to.
    #[arg(long)]
    port: u16,
    /// Duration of the flow.
    #[arg(long)]
    seconds: f64,
    /// File for its trace.
    #[arg(long)]
    trace: PathBuf,
    /// Congestion control.
    #[arg(long)]
    congestion: Option<String>,
    /// Explicit socket buffer, in bytes.
    #[arg(long)]
    buffer: Option<usize>,
    /// Pacing rate, in bytes a second.
    #[arg(long)]
    pace: Option<u64>,
    /// Rate of the program's reads or writes, in bytes per second; without it, as fast as the
    /// socket allows.
    #[arg(long)]
    rate: Option<f64>,
    /// Bytes of each read or write.
    #[arg(long, default_value_t = 65536)]
    chunk: usize,
}

impl Flow {
    /// Runs this end until its time is over.
    pub fn run(&self) -> Result<()> {
        let stream = match self.to {
            Some(address) => self.connect(address)?,
            None => self.accept()?,
        };
        let start = Instant::now();
        let end = Duration::from_secs_f64(self.seconds);
        let samples = thread::scope(|scope| {
            let sampling = scope.spawn(|| watch(&stream, start, end));
            self.move_bytes(&stream, start);
            sampling
                .join()
                .unwrap_or_else(|_| bail!("the sampling thread ended early"))
        })?;
        keep(&self.trace, &samples)
    }

    fn connect(&self, address: Ipv4Addr) -> Result<TcpStream> {
        let to = SocketAddrV4::new(address, self.port);
        let deadline = Instant::now() + LISTENS_WITHIN;
        loop {
            let socket =
                Socket::new(Domain::IPV4, Type::STREAM, None).context("cannot make a socket")?;
            if let Some(bytes) = self.buffer {
                socket
                    .set_send_buffer_size(bytes)
                    .context("cannot set the send buffer")?;
            }
            if let Some(name) = &self.congestion {
                socket
                    .set_tcp_congestion(name.as_bytes())
                    .with_context(|| format!("cannot use congestion control {name}"))?;
            }
            if let Some(rate) = self.pace {
                drs::set_max_pacing_rate(&socket, Some(rate))
                    .context("cannot set the pacing rate")?;
            }
            match socket.connect(&SocketAddr::from(to).into()) {
                Ok(()) => return Ok(socket.into()),
                Err(error)
                    if error.raw_os_error() == Some(Errno::CONNREFUSED.raw_os_error())
                        && Instant::now() < deadline =>
                {
                    thread::sleep(Duration::from_millis(20));
                }
                Err(error) => return Err(error).with_context(|| format!("cannot connect to {to}")),
            }
        }
    }

    fn accept(&self) -> Result<TcpStream> {
        let socket =
            Socket::new(Domain::IPV4, Type::STREAM, None).context("cannot make a socket")?;
        if let Some(bytes) = self.buffer {
            // Set before listening, because the handshake fixes the window scale.
            socket
                .set_recv_buffer_size(bytes)
                .context("cannot set the receive buffer")?;
        }
        let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, self.port));
        socket
            .bind(&address.into())
            .and_then(|()| socket.listen(1))
            .with_context(|| format!("cannot listen on port {}", self.port))?;
        Ok(socket.accept().context("no connection came")?.0.into())
    }

    /// Moves bytes until the socket is shut down.
    fn move_bytes(&self, mut stream: &TcpStream, start: Instant) {
        let mut chunk = vec![0x5a; self.chunk.clamp(1, 1 << 20)];
        let mut due = start;
        loop {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let result = match self.to {
                Some(_) => stream.write(&chunk),
                None => stream.read(&mut chunk),
            };
            match result {
                Ok(0) | Err(_) => return,
                // Time lost by a full socket is not made up: the program is never faster than its
                // rate.
                Ok(bytes) => {
                    if let Some(rate) = self.rate {
                        due = due.max(Instant::now())
                            + Duration::from_secs_f64(bytes as f64 / rate.max(1.0));
                    }
                }
            }
        }
    }
}

/// Samples the socket until `end`, then shuts it down, which wakes blocked reads and writes.
fn watch(stream: &TcpStream, start: Instant, end: Duration) -> Result<Vec<Sample>> {
    let sampler = Sampler::new();
    let mut samples =
        Vec::with_capacity((end.as_secs_f64() / SAMPLE_PERIOD.as_secs_f64()) as usize + 1);
    let outcome = loop {
        let at = start.elapsed();
        if at >= end {
            break Ok(());
        }
        match sampler.sample(stream, at) {
            Ok(sample) => samples.push(sample),
            Err(error) => break Err(error),
        }
        let next = SAMPLE_PERIOD * samples.len() as u32;
        thread::sleep(next.saturating_sub(start.elapsed()));
    };
    // Closes at once, because queued data does not matter.
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
    let _ = stream.shutdown(Shutdown::Both);
    outcome.context("cannot sample the flow")?;
    Ok(samples)
}

/// Writes a trace.
pub fn keep(path: &Path, samples: &[Sample]) -> Result<()> {
    let write = || -> std::io::Result<()> {
        let mut out = BufWriter::new(File::create(path)?);
        let mut trace = TraceWriter::new(&mut out);
        samples.iter().try_for_each(|sample| trace.write(sample))?;
        out.flush()
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}
