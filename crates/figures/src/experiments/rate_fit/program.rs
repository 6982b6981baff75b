//! The two programs: one sends over several connections whose rates may be fitted, the other reads.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use drs::{RateFitter, TcpInfo};
use serde::{Deserialize, Serialize};

/// Port of the receiver, which is alone in its node of a lab.
pub const PORT: u16 = 7530;
/// Maximum number of bytes per write.
const CHUNK: usize = 256 << 10;

/// The sending program.
#[derive(clap::Args)]
pub struct Send {
    /// The receiver.
    #[arg(long)]
    to: SocketAddr,
    /// Connections, made one after another.
    #[arg(long)]
    flows: u32,
    /// Fit the rates of the flows.
    #[arg(long)]
    fitted: bool,
    /// Duration of sending, in seconds.
    #[arg(long)]
    seconds: u32,
    /// Seconds at the end that are counted.
    #[arg(long)]
    counted: u32,
    /// Bytes per second of the first flow's program at first (0: as much as the socket takes).
    #[arg(long, default_value_t = 0)]
    slow_bytes: u32,
    /// Seconds for which the first flow's program is slow.
    #[arg(long, default_value_t = 0)]
    slow_seconds: u32,
}

/// Result of one flow.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Flow {
    /// Acknowledged rate in the counted time, in Mbit/s.
    pub mbps: f64,
    /// Total of retransmitted segments.
    pub retransmits: u32,
    /// Progress of the fitting at the end.
    pub state: String,
}

/// Reads whatever comes, until it is ended.
///
/// # Errors
/// The port is taken.
pub fn receive() -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).context("cannot listen")?;
    println!("listening");
    for stream in listener.incoming() {
        let mut stream = stream.context("cannot accept")?;
        thread::spawn(move || {
            let mut room = vec![0; CHUNK];
            while stream.read(&mut room).is_ok_and(|read| read > 0) {}
        });
    }
    Ok(())
}

/// Sends, and prints a [`Flow`] for each connection as JSON.
///
/// # Errors
/// A connection cannot be made, watched or fitted.
pub fn send(what: &Send) -> Result<()> {
    let fitter = RateFitter::global();
    let began = Instant::now();
    let end = began + Duration::from_secs(what.seconds.into());
    let mut flows = vec![];
    for number in 0..what.flows {
        let stream = TcpStream::connect(what.to)
            .with_context(|| format!("cannot connect to {}", what.to))?;
        let guard = match what.fitted {
            true => Some(fitter.add(&stream, None).context("cannot fit a flow")?),
            false => None,
        };
        let mut writer = stream.try_clone()?;
        let slow_until = began + Duration::from_secs(what.slow_seconds.into());
        let rate = (number == 0 && what.slow_bytes > 0).then_some(what.slow_bytes);
        thread::spawn(move || {
            let block = vec![0; CHUNK];
            let mut sent = 0_u64;
            while Instant::now() < end && writer.write_all(&block).is_ok() {
                sent += block.len() as u64;
                if let Some(rate) = rate.filter(|_| Instant::now() < slow_until) {
                    let due = began + Duration::from_secs_f64(sent as f64 / f64::from(rate));
                    thread::sleep(
                        due.min(slow_until)
                            .saturating_duration_since(Instant::now()),
                    );
                }
            }
        });
        flows.push((stream, guard));
    }
    let acknowledged = |(stream, _): &(TcpStream, _)| -> Result<(u64, u32)> {
        let info = TcpInfo::read(stream).context("cannot look at a flow")?;
        Ok((info.bytes_acked.unwrap_or(0), info.retransmits))
    };
    let counting = end - Duration::from_secs(what.counted.into());
    thread::sleep(counting.saturating_duration_since(Instant::now()));
    let before: Vec<(u64, u32)> = flows.iter().map(acknowledged).collect::<Result<_>>()?;
    thread::sleep(end.saturating_duration_since(Instant::now()));
    let seen: Result<Vec<Flow>> = flows
        .iter()
        .zip(before)
        .map(|(flow, (before, _))| {
            let (now, retransmits) = acknowledged(flow)?;
            let state = match &flow.1 {
                Some(guard) => format!(
                    "{:?}",
                    guard.state().map_err(|error| anyhow::anyhow!("{error}"))?
                ),
                None => "left to TCP".to_owned(),
            };
            Ok(Flow {
                mbps: (now - before) as f64 * 8.0 / f64::from(what.counted) / 1e6,
                retransmits,
                state,
            })
        })
        .collect();
    println!("{}", serde_json::to_string(&seen?)?);
    Ok(())
}
