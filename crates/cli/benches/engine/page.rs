//! Writes docs/results/engine.md.

use std::fmt::Write;
use std::process::Command;

use crate::profile::Parts;
use crate::rates::Rate;
use crate::{Copied, Measured, Options};

/// Returns the page's text.
pub fn write(
    options: &Options,
    measured: &[Measured],
    rates: &[Rate],
    profiles: &[(String, [Parts; 2])],
) -> String {
    let mut text = head(options);
    copies(&mut text, options, measured);
    pairs(&mut text, options, measured);
    if !profiles.is_empty() {
        kinds(&mut text, profiles);
    }
    parts(&mut text, rates);
    text
}

fn head(options: &Options) -> String {
    format!(
        "# What a copy costs\n\nWritten by `cargo bench -p longhaul-cli --bench engine -- --page \
         docs/results/engine.md`, on {}, from {}.\n\n\
         One file of {} MiB of random {} is pushed over loopback, from a memory file system to \
         a memory file system; nothing but the machine limits it. \
         Sender and receiver are processes of their own on the same processors. Processor time is \
         user and system time as wait4(2) gives it, of the whole \
         process from its start to its end. Ways take turns, {} copies each; a cell has the \
         median, and the least and the greatest. What arrived is \
         compared byte for byte.\n",
        place(),
        commit(),
        options.mib,
        if options.digits { "digits" } else { "bytes" },
        options.rounds
    )
}

/// Returns the last commit that changed the code, if git knows it and nothing has been changed
/// since.
fn commit() -> String {
    let git = |arguments: &[&str]| {
        let code = ["--", "crates", "Cargo.lock"];
        let output = Command::new("git")
            .args(arguments)
            .args(code)
            .output()
            .ok()?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success().then_some(text)
    };
    match (git(&["diff", "HEAD"]), git(&["log", "-1", "--format=%h"])) {
        (Some(changes), Some(commit)) if changes.is_empty() && !commit.is_empty() => commit,
        (Some(_), Some(commit)) => format!("{commit} with changes that are in no commit"),
        _ => "an unknown commit".to_owned(),
    }
}

fn place() -> String {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or("an unnamed processor", |(_, model)| model.trim());
    let kernel = rustix::system::uname();
    format!(
        "{} processors ({model}), Linux {}",
        std::thread::available_parallelism().map_or(1, usize::from),
        kernel.release().to_string_lossy()
    )
}

fn copies(text: &mut String, options: &Options, measured: &[Measured]) {
    let gib = options.mib as f64 / 1024.0;
    let bits = options.mib as f64 * 8.0 * f64::from(1 << 20);
    text.push_str(
        "\n| way | protection | Gbit/s | sender, CPU s/GiB | receiver, CPU s/GiB | context \
         switches a GiB, sender, receiver |\n|---|---|---|---|---|---|\n",
    );
    for Measured { way, copies } in measured {
        let of = |value: &dyn Fn(&Copied) -> f64| Spread::from_values(copies.iter().map(value));
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {:.0}, {:.0} |",
            way.title,
            way.protects,
            of(&|copy| bits / copy.seconds / 1e9).cell(2),
            of(&|copy| copy.sender.seconds() / gib).cell(2),
            of(&|copy| copy.receiver.seconds() / gib).cell(2),
            of(&|copy| copy.sender.switches as f64 / gib).median,
            of(&|copy| copy.receiver.switches as f64 / gib).median,
        );
    }
}

/// Compares this build with the other one, copy by copy in order.
fn pairs(text: &mut String, options: &Options, measured: &[Measured]) {
    let (Some((name, _)), [this, other, ..]) = (&options.against, measured) else {
        return;
    };
    let ratio = |value: fn(&Copied) -> f64| {
        let both = this.copies.iter().zip(&other.copies);
        Spread::from_values(both.map(|(one, other)| value(one) / value(other))).cell(2)
    };
    let _ = writeln!(
        text,
        "\n`longhaul cp` by `longhaul cp`, {name}, pair by pair: rate {}, CPU of the sender {}, of \
         the receiver {}.",
        ratio(|copy| 1.0 / copy.seconds),
        ratio(|copy| copy.sender.seconds()),
        ratio(|copy| copy.receiver.seconds())
    );
}

fn kinds(text: &mut String, profiles: &[(String, [Parts; 2])]) {
    text.push_str(
        "\n## What the time goes to\n\nShares of the samples of one copy of each way (`perf \
         record`, 997 a second, both ends sampled). A sample counts for the innermost function \
         that belongs to a kind; `socket` is the kernel's side of TCP with its copying, on \
         loopback at the sender also much of what receiving costs.\n\n",
    );
    let mut kinds: Vec<&str> = profiles
        .iter()
        .flat_map(|(_, ends)| ends)
        .flat_map(|end| end.keys().copied())
        .collect();
    kinds.sort_unstable();
    kinds.dedup();
    let _ = writeln!(
        text,
        "| way | end | {} |\n|---|---|{}",
        kinds.join(" | "),
        "---|".repeat(kinds.len())
    );
    for (title, ends) in profiles {
        for (end, parts) in ["sender", "receiver"].into_iter().zip(ends) {
            let cells: Vec<String> = kinds
                .iter()
                .map(|kind| format!("{:.0} %", 100.0 * parts.get(kind).copied().unwrap_or(0.0)))
                .collect();
            let _ = writeln!(text, "| {title} | {end} | {} |", cells.join(" | "));
        }
    }
}

fn parts(text: &mut String, rates: &[Rate]) {
    text.push_str(
        "\n## The parts by themselves\n\nEach on one thread of the same machine: what \
        cannot be saved as long as it is done at all.\n\n| part | GiB/s | CPU s/GiB |\n\
        |---|---|---|\n",
    );
    for Rate {
        title,
        gib_a_second,
    } in rates
    {
        let _ = writeln!(
            text,
            "| {title} | {gib_a_second:.2} | {:.3} |",
            1.0 / gib_a_second
        );
    }
}

struct Spread {
    least: f64,
    median: f64,
    most: f64,
}

impl Spread {
    fn from_values(values: impl Iterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = values.collect();
        sorted.sort_by(f64::total_cmp);
        let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
        let middle = sorted.len() / 2;
        let median = match sorted.len() % 2 {
            0 if middle > 0 => f64::midpoint(at(middle - 1), at(middle)),
            _ => at(middle),
        };
        Self {
            least: at(0),
            median,
            most: at(sorted.len().saturating_sub(1)),
        }
    }

    fn cell(&self, digits: usize) -> String {
        format!(
            "{:.digits$} ({:.digits$}..{:.digits$})",
            self.median, self.least, self.most
        )
    }
}
