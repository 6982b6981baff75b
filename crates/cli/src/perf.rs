//! `longhaul perf`: measures a path from memory to memory, serves such measurements, and plans the
//! needs of a path.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use longhaul_perf::{MeasurementLimits, plan::Mtu};
use longhaul_proto::{CircuitGrant, Transport};
use longhaul_session::{PublicKey, Route};
use quantities::{ByteCount, Probability, Rate, Time, path::CongestionControl};

use crate::exit::Exit;
use crate::quantity::{loss_rate, positive_bytes, positive_rate, positive_time};

mod lines;
mod measure;
mod plan;
mod serve;

pub use serve::answer;

/// Measure a path from memory to memory, over any route; or plan what a long path needs.
///
/// The other end runs `longhaul perf --serve`, or `longhaul serve --perf`. Sessions are those that
/// copies use: authenticated and encrypted end to end, through the same depots. Options are named
/// as in iperf3 where they mean the same, and so are the fields of --json. While it runs, each line
/// says what limits the flow.
#[derive(Args)]
#[command(
    override_usage = "longhaul perf [OPTIONS] <SERVER>\n       longhaul perf --serve --allow KEY \
        [OPTIONS]\n       \
                      longhaul perf --plan --rate RATE --rtt TIME [OPTIONS]"
)]
pub struct Perf {
    /// The server to measure to: host[:port] [default port: 7511].
    #[arg(required_unless_present_any = ["serve", "plan"], conflicts_with_all = ["serve", "plan"])]
    server: Option<String>,
    /// Write one JSON object to standard output, in the field names of `iperf3 --json`.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    measure: PerfMeasureOptions,
    #[command(flatten)]
    serve: PerfServeOptions,
    #[command(flatten)]
    plan: PerfPlanOptions,
    /// The key to authenticate with [default: the default key, made when first needed].
    #[arg(long, value_name = "FILE", help_heading = "Both ends")]
    identity: Option<PathBuf>,
    /// TCP congestion control of this host's connections [default: the system's].
    #[arg(long, value_name = "NAME", help_heading = "Both ends")]
    congestion: Option<String>,
}

#[derive(Args)]
struct PerfMeasureOptions {
    /// Depots to pass, in order, or `direct`.
    #[arg(long, value_name = "HOP[,HOP...]|direct", default_value = "direct")]
    route: Route,
    /// Transport of the last hop, to the server [default: tcp]. The route's hops name theirs, as in
    /// `quic:depot.example`.
    #[arg(long, value_name = "tcp|quic")]
    transport: Option<Transport>,
    /// A controller's grant for a circuit over the route's depots, as
    /// `longhaul reservations ID grants` shows it.
    #[arg(long, value_name = "GRANT", requires = "route")]
    grant: Option<CircuitGrant>,
    /// Time to send for.
    #[arg(
        short,
        long,
        value_name = "TIME",
        default_value = "10s",
        value_parser = positive_time,
        conflicts_with = "bytes"
    )]
    time: Time,
    /// Send this many bytes in each direction instead (1 K is 1024).
    #[arg(
        short = 'n',
        long,
        value_name = "SIZE",
        conflicts_with = "omit",
        value_parser = positive_bytes,
    )]
    bytes: Option<ByteCount>,
    /// Streams in each direction.
    #[arg(
        short = 'P',
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u16)
            .range(1..=i64::from(longhaul_perf::wire::MAX_STREAMS)),
    )]
    parallel: u16,
    /// Measure from the server to this host.
    #[arg(short = 'R', long)]
    reverse: bool,
    /// Measure both directions at once, on streams of their own.
    #[arg(long, visible_alias = "bidir", conflicts_with = "reverse")]
    both: bool,
    /// Leave this much of the beginning out of the result; it is added to the time.
    #[arg(short = 'O', long, value_name = "TIME", value_parser = positive_time)]
    omit: Option<Time>,
    /// Interval between reports.
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = positive_time)]
    interval: Time,
    /// Send the measured bytes unencrypted. Both ends still prove their keys, and compare their
    /// counts, under TLS; but an attacker on the path could change measured bytes unseen.
    #[arg(long)]
    no_encryption: bool,
    /// Only measure: leave every socket as the system made it, instead of fitting the sending rate
    /// to the path.
    #[arg(long)]
    observe: bool,
    /// The terrestrial distance, in km, to judge the result by the rules of the Internet2 Land
    /// Speed Record.
    #[arg(long, value_name = "KM", requires = "hops")]
    distance: Option<f64>,
    /// Router hops in each direction, for the same rules.
    #[arg(long, value_name = "N", requires = "distance")]
    hops: Option<u32>,
    /// The server's key, as it prints it; nothing else is trusted then.
    #[arg(long, value_name = "KEY")]
    host_key: Option<PublicKey>,
    /// Trust a server that is not known yet, and remember its key.
    #[arg(long, conflicts_with = "host_key")]
    accept_new: bool,
}

#[derive(Args)]
#[command(next_help_heading = "Serving")]
struct PerfServeOptions {
    /// Serve measurements to the allowed keys; no file is touched.
    #[arg(long = "serve", conflicts_with = "plan")]
    serve: bool,
    /// Let this key measure. Repeatable.
    #[arg(long, value_name = "KEY", requires = "serve")]
    allow: Vec<PublicKey>,
    /// Address to listen at [default: every address, port 7511]. Port 0 takes a free one, which is
    /// printed.
    #[arg(long, value_name = "ADDRESS", requires = "serve")]
    listen: Option<std::net::SocketAddr>,
    /// Maximum streams in each direction of one measurement.
    #[arg(
        long,
        value_name = "N",
        requires = "serve",
        default_value_t = MeasurementLimits::default().streams
    )]
    max_streams: u16,
    /// Maximum time of a measurement.
    #[arg(
        long,
        value_name = "TIME",
        requires = "serve",
        default_value = "1h",
        value_parser = positive_time,
    )]
    max_time: Time,
    /// Maximum simultaneous measurements.
    #[arg(
        long,
        value_name = "N",
        requires = "serve",
        default_value_t = MeasurementLimits::default().concurrent
    )]
    max_tests: usize,
    /// Measurements that one key may begin per minute.
    #[arg(
        long,
        value_name = "N",
        requires = "serve",
        default_value_t = MeasurementLimits::default().per_minute,
    )]
    max_per_minute: u32,
    /// Accept TCP only, and not QUIC, which uses the UDP port of the same number.
    #[arg(long)]
    no_quic: bool,
}

#[derive(Args)]
#[command(next_help_heading = "Planning")]
struct PerfPlanOptions {
    /// Calculate window, recovery, loss, streams and depots for a path, without sending anything.
    #[arg(long = "plan", requires = "rate", requires = "rtt")]
    plan: bool,
    /// The rate to reach: 2.5Gbit/s, 155M.
    #[arg(long, value_name = "RATE", requires = "plan", value_parser = positive_rate)]
    rate: Option<Rate>,
    /// The round-trip time: 180ms.
    #[arg(long, value_name = "TIME", requires = "plan", value_parser = positive_time)]
    rtt: Option<Time>,
    /// The path MTU, in bytes.
    #[arg(
        long,
        value_name = "BYTES",
        requires = "plan",
        default_value = "1500",
        value_parser = mtu,
    )]
    mtu: Mtu,
    /// The hosts' congestion control: reno or cubic.
    #[arg(long, value_name = "NAME", requires = "plan", default_value = "reno")]
    hosts: CongestionControl,
    /// The hosts' largest window: 64K, 4M.
    #[arg(long, value_name = "SIZE", requires = "plan", value_parser = positive_bytes)]
    window: Option<ByteCount>,
    /// The probability that a segment is lost: 8e-4, 0.001%.
    #[arg(long, value_name = "RATE", requires = "plan", value_parser = loss_rate)]
    loss: Option<Probability>,
}

fn mtu(text: &str) -> Result<Mtu, String> {
    let bytes: u32 = text
        .parse()
        .map_err(|_| format!("{text:?} is not a number of bytes"))?;
    Mtu::new(bytes).map_err(|error| error.to_string())
}

impl Perf {
    /// Runs the command.
    pub fn run(self) -> Result<Exit> {
        match (&self.server, self.plan.plan) {
            (_, true) => self.plan.print(self.json),
            (Some(server), _) => measure::run(&self, server),
            (None, _) => serve::run(&self),
        }
    }
}
