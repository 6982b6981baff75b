//! Cost of watching a flow: the processor time of sampling and classifying both ends of a fast
//! loopback flow at the default period, and the time of one sample. Prints one line of JSON.
//!
//! ```text
//! cargo bench -p drs --bench sampling
//! ```

use std::{
    hint::black_box,
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use drs::{Estimator, SAMPLE_PERIOD, Sampler, Side, set_max_pacing_rate};
use rustix::time::{ClockId, clock_gettime};

/// Rate of the watched flow in bytes per second: 5 Gbit/s.
const RATE: u64 = 5_000_000_000 / 8;
const WATCHED_FOR: Duration = Duration::from_secs(5);
/// Number of consecutive samples that are timed.
const ROW: u32 = 100_000;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let sender = TcpStream::connect(listener.local_addr()?)?;
    let (receiver, _) = listener.accept()?;
    set_max_pacing_rate(&sender, Some(RATE))?;
    thread::scope(|scope| {
        scope.spawn(|| {
            let chunk = vec![0; 1 << 20];
            while (&sender).write(&chunk).is_ok() {}
        });
        scope.spawn(|| {
            let mut chunk = vec![0; 1 << 20];
            while matches!((&receiver).read(&mut chunk), Ok(bytes) if bytes > 0) {}
        });
        let outcome = measure(&sender, &receiver);
        // Wakes both threads, whatever the result.
        let _ = sender.shutdown(Shutdown::Both);
        let _ = receiver.shutdown(Shutdown::Both);
        outcome
    })
}

fn measure(sender: &TcpStream, receiver: &TcpStream) -> Outcome<()> {
    let watched = watch(sender, receiver)?;
    let sample_ns = row(sender)?;
    println!(
        "{{\"rate_gbps\":{:.2},\"samples_per_second\":{:.1},\
         \"cpu_percent\":{:.4},\"sample_ns\":{sample_ns:.0},\
         \"sample_classify_and_wake_ns\":{:.0},\"verdicts\":{}}}",
        watched.bits / 1e9,
        f64::from(watched.samples) / WATCHED_FOR.as_secs_f64(),
        100.0 * watched.cpu.as_secs_f64() / WATCHED_FOR.as_secs_f64(),
        watched.cpu.as_nanos() as f64 / f64::from(watched.samples.max(1)),
        watched.verdicts,
    );
    Ok(())
}

struct Watched {
    samples: u32,
    verdicts: u32,
    /// Processor time of this thread, including wake-ups.
    cpu: Duration,
    bits: f64,
}

/// Watches both ends at the default period.
fn watch(sender: &TcpStream, receiver: &TcpStream) -> Outcome<Watched> {
    let sampler = Sampler::new();
    let mut ends = [
        (sender, Estimator::new(Side::Sending)),
        (receiver, Estimator::new(Side::Receiving)),
    ];
    let (mut samples, mut verdicts) = (0, 0);
    let (start, cpu) = (Instant::now(), thread_time());
    let received = || -> Outcome<u64> {
        let sample = sampler.sample(receiver, Duration::ZERO)?;
        Ok(sample.info.bytes_received.unwrap_or(0))
    };
    let before = received()?;
    while start.elapsed() < WATCHED_FOR {
        for (socket, estimator) in &mut ends {
            let sample = sampler.sample(*socket, start.elapsed())?;
            verdicts += u32::from(black_box(estimator.observe(&sample)).is_some());
            samples += 1;
        }
        thread::sleep(SAMPLE_PERIOD);
    }
    let cpu = thread_time().saturating_sub(cpu);
    let bits = 8.0 * received()?.saturating_sub(before) as f64 / start.elapsed().as_secs_f64();
    Ok(Watched {
        samples,
        verdicts,
        cpu,
        bits,
    })
}

/// Returns the mean processor time of one sample, in nanoseconds.
fn row(socket: &TcpStream) -> Outcome<f64> {
    let sampler = Sampler::new();
    let before = thread_time();
    for _ in 0..ROW {
        black_box(sampler.sample(socket, Duration::ZERO)?);
    }
    Ok(thread_time().saturating_sub(before).as_nanos() as f64 / f64::from(ROW))
}

fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}
