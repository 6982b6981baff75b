//! Measures the cost of a copy that only the machine limits: processor seconds per GiB at the
//! sender and at the receiver, and the rate, over loopback from memory file system to memory file
//! system. Other programs are measured in the same alternation.
//!
//! Every copy is a push of one file of random bytes (with `--digits`, of hexadecimal digits, which
//! can be compressed) to a server that was started for it. Both ends
//! are processes of their own, and the kernel reports their resources (wait4(2): user and system
//! time, including their own children). Variants take turns, so that drift of the machine affects
//! all of them. The result is compared byte for byte. `--against` alternates with another build of
//! `longhaul`.
//!
//! ```sh
//! cargo bench -p longhaul-cli --bench engine -- [--rounds 5] [--mib 1024] [--digits] \
//!     [--against NAME=PROGRAM] [--only WORD] [--no-profile] [--page FILE]
//! ```
//!
//! Needs `globus-url-copy`, `globus-gridftp-server` and `rsync` for the others (`make bench-deps`),
//! which are left out if they are missing, and `perf` for profiles; without `perf`, the page only
//! has the rates of the parts. Prints a line for each copy; `--page` writes docs/results/engine.md.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a benchmark that cannot run says so and stops"
)]

mod child;
mod page;
mod profile;
mod rates;
mod ways;

use std::fs;
use std::path::{Path, PathBuf};

use child::Used;
use ways::{Bench, Variant};

/// Options of the command line.
pub struct Options {
    /// Copies per variant.
    pub rounds: usize,
    /// Size of the file, in MiB: it is in memory twice.
    pub mib: usize,
    /// If true, the file has hexadecimal digits, which can be compressed.
    pub digits: bool,
    /// Another build of `longhaul` to alternate with this one, and its name on the page.
    pub against: Option<(String, PathBuf)>,
    /// Only variants whose titles contain this word.
    pub only: Option<String>,
    /// If true, one copy of each of Longhaul's variants is sampled with `perf`.
    pub profile: bool,
    /// File to write the page to.
    pub page: Option<PathBuf>,
}

/// Maximum memory of source and copy together, in MiB.
const MAX_MIB: usize = 2048;

impl Options {
    fn read(arguments: &[String]) -> Self {
        let value = |name: &str| {
            let at = arguments.iter().position(|argument| argument == name)?;
            arguments.get(at + 1).cloned()
        };
        let number = |name: &str, default: usize| {
            value(name).map_or(default, |text| text.parse().expect(name))
        };
        let options = Self {
            rounds: number("--rounds", 5),
            mib: number("--mib", MAX_MIB / 2),
            digits: arguments.iter().any(|argument| argument == "--digits"),
            against: value("--against").map(|text| {
                let (name, program) = text.split_once('=').expect("--against NAME=PROGRAM");
                (name.to_owned(), PathBuf::from(program))
            }),
            only: value("--only"),
            profile: !arguments.iter().any(|argument| argument == "--no-profile"),
            page: value("--page").map(PathBuf::from),
        };
        assert!(2 * options.mib <= MAX_MIB, "--mib: at most {}", MAX_MIB / 2);
        options
    }
}

/// A variant and its copies.
pub struct Measured {
    /// The variant.
    pub way: Variant,
    /// Copies in order.
    pub copies: Vec<Copied>,
}

/// One copy.
#[derive(Clone, Copy)]
pub struct Copied {
    /// Seconds from the client's start to its end.
    pub seconds: f64,
    /// Resources that the client used.
    pub sender: Used,
    /// Resources that the server used.
    pub receiver: Used,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let options = Options::read(&arguments);
    // `cargo bench` runs in the package's folder, but the page's path is relative to the workspace.
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::env::set_current_dir(&workspace).expect("the workspace's folder");
    let folder = tempfile::Builder::new()
        .prefix("longhaul-engine-")
        .tempdir_in("/dev/shm")
        .expect("a folder in /dev/shm, which is memory");
    let bench = Bench::prepare(folder.path(), options.mib, options.digits);
    let wanted = |way: &Variant| {
        let only = options.only.as_ref();
        only.is_none_or(|word| way.title.contains(word.as_str()))
    };
    let mut measured: Vec<Measured> = ways::all(&options)
        .into_iter()
        .filter(wanted)
        .map(|way| Measured {
            way,
            copies: vec![],
        })
        .collect();
    for round in 0..options.rounds {
        for one in &mut measured {
            let copied = bench.copy(&one.way);
            println!(
                "{round} {:<44} {}",
                one.way.title,
                line(&copied, options.mib)
            );
            one.copies.push(copied);
        }
    }
    let rates = rates::measure(folder.path());
    for rate in &rates {
        println!(
            "{:<44} {:.2} GiB/s, {:.3} s/GiB",
            rate.title,
            rate.gib_a_second,
            1.0 / rate.gib_a_second
        );
    }
    let profiles: Vec<_> = match options.profile && profile::is_there() {
        true => measured
            .iter()
            .filter(|one| one.way.is_longhaul())
            .map(|one| (one.way.title.clone(), bench.profile(&one.way)))
            .collect(),
        false => vec![],
    };
    for (title, [sender, receiver]) in &profiles {
        println!("{title}: sender {sender:?}, receiver {receiver:?}");
    }
    let text = page::write(&options, &measured, &rates, &profiles);
    match &options.page {
        Some(page) => fs::write(page, text).expect("the page"),
        None => println!("{text}"),
    }
}

fn line(copied: &Copied, mib: usize) -> String {
    let gib = mib as f64 / 1024.0;
    format!(
        "{:.2} Gbit/s, s/GiB: sender {:.3}, receiver {:.3}; switches {} and {}",
        mib as f64 * 8.0 * f64::from(1 << 20) / copied.seconds / 1e9,
        copied.sender.seconds() / gib,
        copied.receiver.seconds() / gib,
        copied.sender.switches,
        copied.receiver.switches
    )
}
