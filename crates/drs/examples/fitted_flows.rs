//! Sends over one or several connections whose rates are fitted to their path, from a program that may be slow at first.
//!
//!     fitted_flows receive ADDRESS:PORT
//!     fitted_flows send ADDRESS:PORT FLOWS SECONDS [SLOW_BYTES_PER_SECOND SLOW_SECONDS]
//!
//! The sender prints one line a second for each flow: time, flow, what was acknowledged in Mbit/s, and how far the fitting has come. Only the first flow is slow.

use std::{
    error::Error,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use drs::{RateFitter, TcpInfo};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["receive", address] => receive(address),
        ["send", address, flows, seconds] => send(address, flows.parse()?, seconds.parse()?, None),
        ["send", address, flows, seconds, rate, slow] => {
            let slow = (rate.parse()?, Duration::from_secs(slow.parse()?));
            send(address, flows.parse()?, seconds.parse()?, Some(slow))
        }
        _ => Err("say: receive ADDRESS:PORT, or send ADDRESS:PORT FLOWS SECONDS [RATE SECONDS]".into()),
    }
}

fn receive(address: &str) -> Result<(), Box<dyn Error>> {
    for stream in TcpListener::bind(address)?.incoming() {
        let mut stream = stream?;
        thread::spawn(move || {
            let mut room = vec![0; 1 << 20];
            while stream.read(&mut room).is_ok_and(|read| read > 0) {}
        });
    }
    Ok(())
}

fn send(
    address: &str,
    flows: usize,
    seconds: u64,
    slow: Option<(usize, Duration)>,
) -> Result<(), Box<dyn Error>> {
    let fitter = RateFitter::of_process();
    let began = Instant::now();
    let end = began + Duration::from_secs(seconds);
    let mut watched = vec![];
    for number in 0..flows {
        let stream = TcpStream::connect(address)?;
        let guard = fitter.add(&stream, None)?;
        let mut writer = stream.try_clone()?;
        let slow = slow.filter(|_| number == 0);
        thread::spawn(move || {
            let block = vec![0; 1 << 18];
            let mut sent = 0;
            while Instant::now() < end && writer.write_all(&block).is_ok() {
                sent += block.len();
                if let Some((rate, _)) = slow.filter(|(_, time)| began.elapsed() < *time) {
                    let due = Duration::from_secs_f64(sent as f64 / rate as f64);
                    thread::sleep(due.saturating_sub(began.elapsed()));
                }
            }
        });
        watched.push((stream, guard, 0));
    }
    for second in 1..=seconds {
        thread::sleep((began + Duration::from_secs(second)).saturating_duration_since(Instant::now()));
        for (number, (stream, guard, before)) in watched.iter_mut().enumerate() {
            let info = TcpInfo::read(&*stream)?;
            let acked = info.bytes_acked.unwrap_or(0);
            let mbits = (acked - *before) as f64 * 8e-6;
            *before = acked;
            println!(
                "{second} {number} {mbits:.0} {:?} sent again {}",
                guard.state()?,
                info.retransmits
            );
        }
    }
    Ok(())
}
