//! The path of the Land Speed Record: one untuned stream of `longhaul perf`, compared with iperf3,
//! both untuned and tuned by hand.

mod run;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use wanbed::Lab;

use crate::network::Network;
use crate::page::{Figure, Page, Table, cell, number, percent};
use crate::single::Basis;
use crate::stats::Spread;
use crate::tools::Tools;

/// The scenario's bottleneck, in bit/s of IP bytes.
const BOTTLENECK: f64 = 2.4e9;
/// Maximum goodput: 8948 bytes of payload in a segment of 9000.
const GOODPUT: f64 = BOTTLENECK * 8948.0 / 9000.0;
/// Window that an expert calculates for this path: the bandwidth-delay product and the segments
/// that the scenario's buffers hold.
const FITTED: &str = "54 MB";
/// Limit of the kernel's autotuning that suits any path.
const ROOMY: &str = "256 MB";

/// Returns the spread of a value over the runs of a sender.
pub type SenderSpread<'a> = dyn Fn(&SenderCell, fn(&Throughput) -> f64) -> Option<Spread> + 'a;

/// A sender on the record's path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SenderCell {
    sender: Sender,
}

impl SenderCell {
    /// `longhaul perf`, untuned.
    pub const LONGHAUL: Self = Self {
        sender: Sender::Longhaul,
    };

    /// Returns all senders, in the order of the table.
    pub fn all() -> Vec<Self> {
        Sender::ALL.map(|sender| Self { sender }).into()
    }

    /// Returns the record's path, with the buffers of this sender's hosts.
    ///
    /// # Errors
    /// The scenario cannot be read.
    pub fn network(&self, tools: &Tools) -> Result<Network> {
        let buffers = format!("\"{}\"", self.sender.buffers());
        Ok(Network::load(tools, "lsr.toml")?.set("nodes.*.buffers", buffers))
    }

    /// Sends for `seconds`.
    ///
    /// # Errors
    /// A program did not start, or failed.
    pub fn run(&self, tools: &Tools, lab: &Lab, seconds: u32) -> Result<Throughput> {
        run::once(tools, lab, self.sender, seconds)
    }

    /// Returns true if this sender is also measured under noise.
    pub fn under_noise(&self) -> bool {
        matches!(
            self.sender,
            Sender::Longhaul | Sender::Iperf3 | Sender::Iperf3Paced
        )
    }
}

/// Sender and its tuning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Sender {
    /// `longhaul perf`, untuned.
    Longhaul,
    /// The same, with the measured bytes in plaintext.
    LonghaulPlain,
    /// `iperf3`, untuned.
    Iperf3,
    /// `iperf3` on hosts whose buffers hold the path's bandwidth-delay product, as those of the
    /// record did.
    Iperf3Window,
    /// The same, paced by hand just below the bottleneck's rate.
    Iperf3Paced,
}

impl Sender {
    const ALL: [Self; 5] = [
        Self::Longhaul,
        Self::LonghaulPlain,
        Self::Iperf3,
        Self::Iperf3Window,
        Self::Iperf3Paced,
    ];

    fn title(self) -> &'static str {
        match self {
            Self::Longhaul => "longhaul perf, nothing tuned, TLS",
            Self::LonghaulPlain => "longhaul perf, nothing tuned, no encryption",
            Self::Iperf3 => "iperf3, nothing tuned",
            Self::Iperf3Window => "iperf3, buffers fitted by hand",
            Self::Iperf3Paced => "iperf3, buffers fitted and paced by hand",
        }
    }

    fn key(self) -> &'static str {
        match self {
            Self::Longhaul => "longhaul",
            Self::LonghaulPlain => "longhaul-plain",
            Self::Iperf3 => "iperf3",
            Self::Iperf3Window => "iperf3-window",
            Self::Iperf3Paced => "iperf3-paced",
        }
    }

    fn buffers(self) -> &'static str {
        match self {
            Self::Iperf3Window | Self::Iperf3Paced => FITTED,
            _ => ROOMY,
        }
    }
}

/// Result of a sender.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Throughput {
    seconds: f64,
    /// Receive rate over the whole time, slow start included, in bit/s.
    bits_per_second: f64,
    /// Send rate from the fifth second on, in bit/s: the sustained rate.
    sustained_bits_per_second: f64,
    retransmits: u64,
    /// Congestion control of the sender.
    congestion: String,
    /// Processor time of sender and receiver, in percent of one processor.
    sender_cpu: f64,
    receiver_cpu: f64,
}

/// Returns the section on the senders.
pub fn page(spread: &SenderSpread<'_>, seconds: u32) -> Page {
    let mut table = Table::new([
        "sender",
        "runs",
        "whole, Mbit/s median (min..max)",
        "share",
        "sustained, Mbit/s median (min..max)",
        "share",
        "retransmissions",
        "processors: sender, receiver",
    ]);
    for sender in Sender::ALL {
        let of = |value: fn(&Throughput) -> f64| spread(&SenderCell { sender }, value);
        let Some(count) = of(|_| 0.0).map(|spread| spread.count) else {
            continue;
        };
        let rate = |spread: Option<Spread>| cell(spread.map(|spread| spread.times(1e-6)), 0);
        let share = |spread: Option<Spread>| {
            Basis::Runs(count)
                .mark(number(spread.map(|spread| 100.0 * spread.median / GOODPUT), 1) + " %")
        };
        let median = |spread: Option<Spread>| number(spread.map(|spread| spread.median), 0);
        let (whole, sustained) = (
            of(|seen| seen.bits_per_second),
            of(|seen| seen.sustained_bits_per_second),
        );
        table.row([
            sender.title().to_owned(),
            count.to_string(),
            rate(whole),
            share(whole),
            rate(sustained),
            share(sustained),
            cell(of(|seen| seen.retransmits as f64), 0),
            format!(
                "{} %, {} %",
                median(of(|seen| seen.sender_cpu)),
                median(of(|seen| seen.receiver_cpu))
            ),
        ]);
    }
    Page::new(&head(seconds)).table(&table)
}

/// Returns the figures of the senders.
pub fn figures(spread: &SenderSpread<'_>) -> Vec<Figure> {
    let share = |sender: Sender| {
        spread(&SenderCell { sender }, |seen| {
            100.0 * seen.sustained_bits_per_second / GOODPUT
        })
    };
    let mut figures = vec![];
    for sender in Sender::ALL {
        let Some(share) = share(sender) else { continue };
        let lost = spread(&SenderCell { sender }, |seen| seen.retransmits as f64);
        figures.push(Figure::new(
            sender.key(),
            format!("{}: sustained share of the bottleneck", sender.title()),
            format!(
                "{}, {} retransmissions",
                percent(Some(share)),
                number(lost.map(|lost| lost.median), 0)
            ),
            Basis::Runs(share.count),
        ));
        figures.push(Figure::quoted(
            format!("{}-share", sender.key()),
            format!("{:.1} %", share.median),
            Basis::Runs(share.count),
        ));
    }
    figures
}

fn head(seconds: u32) -> String {
    format!(
        "One TCP stream for {seconds} s, Geneva - Chicago - Sunnyvale as in `scenarios/lsr.toml`: \
         2.4 Gbit/s at the bottleneck, a round trip of 180 ms, MTU 9000, Reno, a \
         queue of 4 MB at the bottleneck, no loss but that of a full queue.\n\n\
         \"Nothing tuned\" are hosts whose kernel may give a connection up to 256 MB, which fits \
         no path in \
         particular. \"Fitted by hand\" are 54 MB, the bandwidth-delay product, as the record's \
         hosts had it; \"paced\" adds `--fq-rate`, just below the bottleneck's rate. The share is \
         of the payload that the bottleneck carries, {:.0} Mbit/s; TLS takes 0.13 % of it. \
         *Whole* counts from the first byte on: a sender that doubles its window each \
         round trip from ten segments on has lost 1.5 s by the time that it is as wide as the \
         path, so {:.1} % is the most that {seconds} s can show. *Sustained* counts from the \
         fifth second on.",
        GOODPUT / 1e6,
        100.0 * (1.0 - 1.5 / f64::from(seconds))
    )
}

impl Throughput {
    /// Returns the result in a few words.
    pub fn words(&self) -> String {
        format!(
            "{:.1} Mbit/s, sustained {:.1}, {} retransmissions",
            self.bits_per_second / 1e6,
            self.sustained_bits_per_second / 1e6,
            self.retransmits
        )
    }
}
