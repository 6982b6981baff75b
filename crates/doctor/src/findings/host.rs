//! Findings about the machine itself: processors, clock, limits, disk.

use longhaul_proto::{MAX_SIGNATURE_AGE, MAX_SIGNATURE_AHEAD};

use super::{FindingCost, FindingList, FindingSide, Fix, Severity, rate, seconds};

/// Descriptors that should be available: a copy holds one per open file, a depot several per
/// session.
const MIN_DESCRIPTORS: u64 = 4096;

pub(super) fn check(list: &mut FindingList<'_>) {
    ciphers(list);
    governor(list);
    clock(list);
    descriptors(list);
    disk(list);
}

fn ciphers(list: &mut FindingList<'_>) {
    let cpu = &list.facts.cpu;
    let cores = cpu.cores.known().copied().unwrap_or(1);
    if let Some(first) = cpu.ciphers.known().and_then(|ciphers| ciphers.first()) {
        let bps = first.bytes_per_second as f64 * 8.0;
        let what = format!("one core seals {} with {}", rate(bps), first.cipher);
        if bps < list.path.rate_bps {
            let streams = (list.path.rate_bps / bps.max(1.0)).ceil();
            let cost = FindingCost::bound(bps, list.path);
            let text = match streams <= cores as f64 {
                true => format!(
                    "{}; {streams:.0} streams (--streams {streams:.0}) use as many of the {cores} \
                     cores",
                    cost.text
                ),
                false => format!(
                    "{}; all {cores} cores together carry {}",
                    cost.text,
                    rate(bps * cores as f64)
                ),
            };
            list.add(
                "encryption-rate",
                Severity::Serious,
                what,
                FindingCost { text, ..cost },
                vec![],
            );
        }
    }
    if cpu.aes.known() == Some(&false) {
        let cost = FindingCost::words(
            "AES is computed in plain instructions, some ten times slower than with the \
             processor's own",
        );
        list.add(
            "no-aes",
            Severity::Advice,
            "the processor has no AES instructions".to_owned(),
            cost,
            vec![],
        );
    }
}

fn governor(list: &mut FindingList<'_>) {
    let Some(governor) = list.facts.cpu.governor.known() else {
        return;
    };
    if matches!(governor.as_str(), "powersave" | "conservative") {
        let cost = FindingCost::words(
            "cores run slower than they can while packets come in bursts; do not rely on rates \
             above",
        );
        let mends = vec![Fix::command(
            "for f in /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor; do echo performance > \
             $f; done",
        )];
        list.add(
            "governor",
            Severity::Advice,
            format!("frequency governor {governor}"),
            cost,
            mends,
        );
    }
}

fn clock(list: &mut FindingList<'_>) {
    let measured = list.path.measured.as_ref();
    let skew = measured
        .and_then(|measured| measured.skew)
        .filter(|_| list.side == FindingSide::Here);
    if let Some(skew) = skew {
        let apart = skew.seconds.abs();
        // Signatures made here appear old to a clock that is ahead, and in the future to one that
        // is behind (LH-SIGN-2).
        let window = if skew.seconds > 0.0 {
            MAX_SIGNATURE_AGE
        } else {
            MAX_SIGNATURE_AHEAD
        };
        // Half the window is reserved for the set-up time and for further drift of the clocks.
        if apart - skew.uncertainty_seconds > window.as_secs_f64() / 2.0 {
            let what = format!(
                "the far clock is {} {} this one",
                seconds(apart),
                if skew.seconds > 0.0 {
                    "ahead of"
                } else {
                    "behind"
                }
            );
            let cost = FindingCost::words(format!(
                "sessions are refused from {} on: a signed request must not be older or newer",
                seconds(window.as_secs_f64())
            ));
            let mends = vec![synchronise().noting("on the machine whose clock is wrong")];
            list.add("clock-skew", Severity::Serious, what, cost, mends);
        }
    }
    if list.facts.clock.synchronised.known() == Some(&false) {
        let cost = FindingCost::words(format!(
            "it drifts; sessions are refused once two clocks lie {} to {} s apart",
            MAX_SIGNATURE_AHEAD.as_secs(),
            MAX_SIGNATURE_AGE.as_secs()
        ));
        list.add(
            "clock-unsynchronised",
            Severity::Advice,
            "the clock is not synchronised".to_owned(),
            cost,
            vec![synchronise()],
        );
    }
}

fn synchronise() -> Fix {
    Fix::command("timedatectl set-ntp true")
        .noting("on systems without systemd: run chrony or ntpd")
}

fn descriptors(list: &mut FindingList<'_>) {
    let Some(&limit) = list.facts.descriptors.known() else {
        return;
    };
    if limit < MIN_DESCRIPTORS {
        let cost = FindingCost::words(format!(
            "copies of many files, and depots, need up to {MIN_DESCRIPTORS}: they wait or are refused \
             beyond {limit}"
        ));
        let mend = Fix {
            now: format!("ulimit -Hn {MIN_DESCRIPTORS}"),
            keep: Some(format!(
                "echo '* hard nofile {MIN_DESCRIPTORS}' >> /etc/security/limits.d/90-longhaul.conf"
            )),
            note: Some(
                "in the shell that starts longhaul; for a service of systemd, LimitNOFILE="
                    .to_owned(),
            ),
        };
        list.add(
            "descriptors",
            Severity::Advice,
            format!("a process may have {limit} files open"),
            cost,
            vec![mend],
        );
    }
}

fn disk(list: &mut FindingList<'_>) {
    let Some(disk) = &list.facts.disk else { return };
    let directory = disk.directory.as_str();
    let rates = [
        ("disk-write", "writes", &disk.write),
        ("disk-read", "reads", &disk.read),
    ];
    for (id, verb, found) in rates {
        let Some(&bytes_per_second) = found.known() else {
            continue;
        };
        let bps = bytes_per_second as f64 * 8.0;
        if bps < list.path.rate_bps {
            let cost = FindingCost {
                text: format!(
                    "a copy {} at most {} of {}",
                    if id == "disk-write" {
                        "stores"
                    } else {
                        "sends"
                    },
                    rate(bps),
                    rate(list.path.rate_bps)
                ),
                limit_bps: Some(bps),
            };
            list.add(
                id,
                Severity::Serious,
                format!("the disk of {directory} {verb} {}", rate(bps)),
                cost,
                vec![],
            );
        }
    }
}
