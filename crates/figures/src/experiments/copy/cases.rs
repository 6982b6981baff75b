//! Cases: the data, the path, and the time limit of a copy.

use std::time::Duration;

use quantities::path::{CongestionControl, Hop};
use quantities::{ByteCount, Probability, Rate};

use crate::experiment::Cost;

use super::bottleneck::payload_share;
use super::data::Data;
use super::ways::CopyContender;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Time limit of a copy in the default cases. It is stopped then, and counts as slower than that.
const TIME_LIMIT: Duration = Duration::from_secs(60);
/// Time limit for many small files that are requested one after the other, for which most programs
/// would take many minutes.
const SMALL_FILES_TIME_LIMIT: Duration = Duration::from_secs(30);
/// Time limit in the large cases.
const LARGE_TIME_LIMIT: Duration = Duration::from_secs(240);
/// Time limit over the path whose rate changes, which carries a tenth of the others.
const CHANGING_TIME_LIMIT: Duration = Duration::from_secs(180);

/// Time for setting up a lab, starting a server, and comparing the result, in seconds.
const SET_UP_SECONDS: f64 = 4.0;
/// Round trips per file for a program that waits for each file.
const ROUND_TRIPS_OF_A_FILE: f64 = 3.0;
/// Streams of a program that chooses their number itself, if one does not fill the path. Used only
/// to estimate its duration.
const STREAMS_LEFT_TO_CHOICE: u32 = 8;
/// Maximum rate of copies that run in parallel, because a window, losses or waiting hold them back.
/// Faster ones run alone.
pub const LIGHT_BPS: f64 = 250e6;
/// Maximum expected total rate of parallel copies: less than that of a single one.
pub const SIDE_BY_SIDE_BPS: f64 = 800e6;
/// Processor load of a copy that encrypts, as a multiple of one at the same rate that does not.
const ENCRYPTING_LOAD: f64 = 2.0;
/// Maximum number of parallel copies, in networks of their own.
pub const MAX_SIDE_BY_SIDE: u32 = 10;
/// Maximum total bytes of parallel copies: sources and copies are in memory, together with the
/// programs.
const SIDE_BY_SIDE_BYTES: u64 = 12 * GIB;
/// Maximum ratio of the bytes of a stopped copy to the bytes expected by then.
const MAX_UNEXPECTED: f64 = 2.0;
/// Approximate rate at which two processors encrypt or copy, if nothing else is the limit.
const PROCESSORS_BPS: f64 = 2e9;

/// The narrowest link of a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bottleneck {
    /// It has the rate of the case's [`Hop`].
    Steady,
    /// Its rate follows the trace in this file of the scenarios' folder.
    Changing(&'static str),
    /// Links are unlimited, so the hosts are the limit.
    Hosts,
}

/// One case.
#[derive(Clone, Debug)]
pub struct Case {
    /// Name in commands and records; none is the end of another.
    pub name: String,
    /// The title on the page.
    pub title: String,
    /// Data that is copied.
    pub data: Data,
    /// The scenario file.
    pub scenario: &'static str,
    /// Changes to the scenario: path and value.
    pub set: Vec<(String, String)>,
    /// The node that serves the files.
    pub server: &'static str,
    /// The node on which the copy is started.
    pub client: &'static str,
    /// The path of one connection, for estimates; its rate is the payload rate of the bottleneck.
    pub hop: Hop,
    /// Bottleneck of which the share is computed.
    pub bottleneck: Bottleneck,
    /// Time after which a copy is stopped.
    pub time_limit: Duration,
}

impl Case {
    /// Returns a case over the path of `scenarios/copy.toml`, with another round trip.
    fn over_a_gigabit(name: &str, title: &str, rtt_ms: u64, data: Data) -> Self {
        let rate = Rate::nearest(1e9 * payload_share(1500));
        Self {
            name: name.into(),
            title: title.into(),
            data,
            scenario: "copy.toml",
            set: vec![(
                "links.path.delay".into(),
                format!("\"{} ms\"", rtt_ms as f64 / 2.0),
            )],
            server: "server",
            client: "client",
            hop: Hop::new(Duration::from_millis(rtt_ms), rate),
            bottleneck: Bottleneck::Steady,
            time_limit: TIME_LIMIT,
        }
    }

    /// Extends the time limit for a large case.
    fn large(self) -> Self {
        Self {
            time_limit: LARGE_TIME_LIMIT,
            ..self
        }
    }

    /// Returns the cost of a copy, including its setup.
    pub fn cost(&self, way: &CopyContender) -> Cost {
        let expected = self.expected(way);
        let load = if way.encrypts { ENCRYPTING_LOAD } else { 1.0 };
        let side_by_side = [
            load * expected.bits_per_second / SIDE_BY_SIDE_BPS,
            self.max_in_place(expected) / SIDE_BY_SIDE_BYTES as f64,
            1.0 / f64::from(MAX_SIDE_BY_SIDE),
        ];
        Cost {
            share: match expected.bits_per_second < LIGHT_BPS {
                true => side_by_side.into_iter().fold(0.0, f64::max).min(1.0),
                false => 1.0,
            },
            seconds: SET_UP_SECONDS + expected.seconds.min(self.time_limit.as_secs_f64()),
        }
    }

    /// Returns the maximum number of bytes in place before the copy is complete or stopped.
    fn max_in_place(&self, expected: Expected) -> f64 {
        let (_, bytes) = self.data.extent();
        let until_stopped = expected.bits_per_second / 8.0 * self.time_limit.as_secs_f64();
        (bytes as f64).min(MAX_UNEXPECTED * until_stopped)
    }

    /// Returns the expected speed of a copy: the rate of one connection by its path's window and
    /// losses, times their number.
    fn expected(&self, way: &CopyContender) -> Expected {
        let (files, bytes) = self.data.extent();
        let alone = Hop {
            window: [self.hop.window, way.window.map(ByteCount::nearest)]
                .into_iter()
                .flatten()
                .min_by_key(|window| window.0),
            ..self.hop
        };
        let streams = match (way.streams, way.is_own()) {
            (Some(number), _) => number,
            (None, true) => STREAMS_LEFT_TO_CHOICE,
            (None, false) => 1,
        };
        let streams = f64::from(streams);
        let shared = Hop {
            rate: Rate::nearest(self.hop.rate.bits_per_second() / streams),
            ..alone
        };
        let moving = shared
            .transfer_time(ByteCount::nearest(bytes as f64 / streams))
            .as_secs_f64();
        let waiting = match way.waits_for_files && self.data.is_tree() {
            true => {
                files as f64 * ROUND_TRIPS_OF_A_FILE * self.hop.rtt.as_secs_f64() / streams.max(4.0)
            }
            false => 0.0,
        };
        let seconds = moving + waiting;
        Expected {
            bits_per_second: match way.is_own() {
                // Its use of the path cannot be known beforehand.
                true => self.hop.rate.bits_per_second(),
                false => 8.0 * bytes as f64 / seconds,
            },
            seconds,
        }
    }
}

/// Expected result of a copy.
#[derive(Clone, Copy, Debug)]
struct Expected {
    /// Rate, or its maximum if unknown.
    bits_per_second: f64,
    /// Duration, unless it is stopped.
    seconds: f64,
}

/// Returns all cases, in the order of the page.
pub fn all() -> Vec<Case> {
    let mut all = clean();
    all.extend(lossy());
    all.push(small_windows());
    all.extend([drs(), lsr(1), lsr(4).large(), lsr_tenth()]);
    all.push(unlimited());
    all.extend(shapes());
    all
}

/// Returns the cases over a clean gigabit.
fn clean() -> Vec<Case> {
    let case = |rtt_ms: u64, gib: u64| {
        Case::over_a_gigabit(
            &format!("clean-{rtt_ms}ms-{gib}gib"),
            &format!("One file of {gib} GiB, 1 Gbit/s, {rtt_ms} ms, no loss, CUBIC"),
            rtt_ms,
            Data::File(gib * GIB),
        )
    };
    let round_trips = [20, 100, 200];
    let small = round_trips.map(|rtt_ms| case(rtt_ms, 1));
    let large = round_trips.map(|rtt_ms| case(rtt_ms, 4).large());
    small.into_iter().chain(large).collect()
}

/// Returns the cases with random losses, with three congestion controls.
fn lossy() -> Vec<Case> {
    let mut cases = Vec::new();
    for (data, size) in [
        (Data::File(256 * MIB), "256 MiB"),
        (Data::File(2 * GIB), "2 GiB"),
    ] {
        for (loss, percent) in [(1e-4, "0.01"), (1e-3, "0.1")] {
            for rtt_ms in [30, 60] {
                for (control, model) in [
                    ("reno", Some(CongestionControl::Reno)),
                    ("cubic", Some(CongestionControl::Cubic)),
                    ("bbr", None),
                ] {
                    let case = Case::over_a_gigabit(
                        &format!("loss-{percent}-{rtt_ms}ms-{control}-{}", word(size)),
                        &format!(
                            "One file of {size}, 1 Gbit/s, {rtt_ms} ms, {percent} % loss, {}",
                            control.to_uppercase()
                        ),
                        rtt_ms,
                        data,
                    );
                    cases.push(under_loss(case, loss, percent, control, model));
                }
            }
        }
    }
    let large = |case: Case| {
        if case.data == Data::File(2 * GIB) {
            case.large()
        } else {
            case
        }
    };
    cases.into_iter().map(large).collect()
}

fn under_loss(
    mut case: Case,
    loss: f64,
    percent: &str,
    control: &str,
    model: Option<CongestionControl>,
) -> Case {
    case.set
        .push(("links.path.loss".into(), format!("\"{percent}%\"")));
    case.set
        .push(("nodes.*.congestion".into(), format!("\"{control}\"")));
    // BBR does not take losses of this size as congestion.
    if let Some(model) = model {
        case.hop.loss = Probability::nearest(loss);
        case.hop.control = model;
    }
    case
}

/// Returns the case of untuned hosts.
fn small_windows() -> Case {
    let data = Data::File(16 * MIB);
    let title = "One file of 16 MiB between 64 KB hosts, 1 Gbit/s, 100 ms, no loss";
    let mut case = Case::over_a_gigabit("windows-64kb-100ms-16mib", title, 100, data);
    case.set
        .push(("nodes.*.buffers".into(), "\"64 KB\"".into()));
    case.hop.window = Some(ByteCount::nearest(65536.0));
    case
}

/// Returns the case of Dynamic Right-Sizing's path, which changes every 20 s.
fn drs() -> Case {
    Case {
        name: "drs-trace-128mib".into(),
        title:
            "One file of 128 MiB over the DRS trace: 0.026 to 28.5 Mbit/s, mean 17.2, and 119 to \
             475 ms; Reno"
                .into(),
        data: Data::File(128 * MIB),
        scenario: "drs-trace.toml",
        set: vec![],
        server: "sender",
        client: "receiver",
        hop: Hop::new(
            Duration::from_millis(157),
            Rate::nearest(17.2e6 * payload_share(1500)),
        ),
        bottleneck: Bottleneck::Changing("drs-trace.csv"),
        time_limit: CHANGING_TIME_LIMIT,
    }
}

/// Returns the case of the Land Speed Record's path.
fn lsr(gib: u64) -> Case {
    Case {
        name: format!("lsr-{gib}gib"),
        title: format!(
            "One file of {gib} GiB over the LSR path: 2.4 Gbit/s, 180 ms, MTU 9000, Reno, 54 MB \
             hosts"
        ),
        data: Data::File(gib * GIB),
        scenario: "lsr.toml",
        set: vec![],
        server: "geneva",
        client: "sunnyvale",
        hop: Hop {
            control: CongestionControl::Reno,
            ..Hop::new(
                Duration::from_millis(180),
                Rate::nearest(2.4e9 * payload_share(9000)),
            )
        },
        bottleneck: Bottleneck::Steady,
        time_limit: TIME_LIMIT,
    }
}

/// Returns the record's path at a tenth of the rate, which two processors can carry with any
/// program. Queue and windows are as long in time.
fn lsr_tenth() -> Case {
    let set = |path: &str, value: &str| (path.to_owned(), format!("\"{value}\""));
    let whole = lsr(4);
    Case {
        name: "lsr-tenth-4gib".into(),
        title:
            "One file of 4 GiB over the LSR path at a tenth: 240 Mbit/s, 180 ms, MTU 9000, Reno, \
             5.4 MB hosts"
                .into(),
        set: vec![
            set("links.stm16.rate", "240 Mbit/s"),
            set("links.stm16.queue", "400 KB"),
            set("nodes.*.buffers", "5.4 MB"),
        ],
        hop: Hop {
            rate: Rate::nearest(whole.hop.rate.bits_per_second() / 10.0),
            ..whole.hop
        },
        ..whole.large()
    }
}

/// Returns a case in which only this machine is the limit.
fn unlimited() -> Case {
    Case {
        name: "unlimited-2gib".into(),
        title: "One file of 2 GiB, no link with a limit: one machine's processors for both hosts \
            and the link between"
            .into(),
        scenario: "copy-unlimited.toml",
        set: vec![],
        hop: Hop::new(Duration::from_micros(100), Rate::nearest(PROCESSORS_BPS)),
        bottleneck: Bottleneck::Hosts,
        ..Case::over_a_gigabit("", "", 0, Data::File(2 * GIB))
    }
}

/// Returns the cases of trees over a clean gigabit of 100 ms.
fn shapes() -> Vec<Case> {
    let small = |count: u64| {
        Case::over_a_gigabit(
            &format!("files-{count}-100ms"),
            &format!("{count} files of 4 KiB, 1 Gbit/s, 100 ms, no loss, CUBIC"),
            100,
            Data::SmallFiles(count),
        )
    };
    vec![
        Case {
            time_limit: SMALL_FILES_TIME_LIMIT,
            ..small(20_000)
        },
        small(2_000).large(),
        Case::over_a_gigabit(
            "source-tree-100ms",
            &format!(
                "A tree of {} files with the sizes of source files, {:.0} MB, 1 Gbit/s, 100 ms, \
                 no loss, CUBIC",
                Data::SourceTree.extent().0,
                Data::SourceTree.extent().1 as f64 / 1e6
            ),
            100,
            Data::SourceTree,
        ),
        Case::over_a_gigabit(
            "mix-100ms",
            "A mix: a file of 256 MiB, 16 of 8 MiB, 1,000 of 16 KiB; 1 Gbit/s, 100 ms, no loss, \
             CUBIC",
            100,
            Data::Mix,
        ),
    ]
}

/// Returns a size as a word for a name.
fn word(size: &str) -> String {
    size.replace(' ', "").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::super::ways::WAYS;
    use super::*;

    #[test]
    fn no_name_of_a_case_is_part_of_anothers() {
        let all = all();
        for (nth, case) in all.iter().enumerate() {
            for other in all.iter().skip(nth + 1) {
                assert!(
                    !case.name.contains(&other.name),
                    "{} {}",
                    case.name,
                    other.name
                );
                assert!(
                    !other.name.contains(&case.name),
                    "{} {}",
                    case.name,
                    other.name
                );
            }
        }
    }

    #[test]
    fn copies_that_go_side_by_side_have_room_in_memory() {
        for case in all() {
            for way in &WAYS {
                let share = case.cost(way).share;
                let copies = if share < 1.0 {
                    (1.0 / share).floor() as u64
                } else {
                    1
                };
                let bytes = case.max_in_place(case.expected(way)) as u64;
                assert!(
                    copies * bytes <= SIDE_BY_SIDE_BYTES,
                    "{}@{}",
                    way.name,
                    case.name
                );
            }
        }
    }

    #[test]
    fn loss_and_windows_cost_one_stream_more_than_sixteen() {
        let case = |name: &str| all().into_iter().find(|case| case.name == name).unwrap();
        let way = |name: &str| *WAYS.iter().find(|way| way.name == name).unwrap();
        for name in ["loss-0.1-60ms-reno-256mib", "windows-64kb-100ms-16mib"] {
            let seconds = |name_of_way| case(name).cost(&way(name_of_way)).seconds;
            assert!(seconds("gridftp-1") > 2.0 * seconds("gridftp-16"), "{name}");
        }
    }
}
