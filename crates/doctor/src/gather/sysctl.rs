//! `/proc/sys/net`, as this network namespace sees it.

use std::fs::File;
use std::io::Read;

use crate::fact::CommandName;
use crate::facts::TcpSettings;

/// Maximum bytes of a setting, which is one line.
const MAX_SETTING_BYTES: u64 = 4096;

pub(super) fn tcp() -> TcpSettings {
    let ipv4 = |name: &str| read(&format!("net/ipv4/tcp_{name}"));
    let flag = |name: &str| {
        ipv4(name)
            .and_then(|text| number(&text))
            .map(|n| n != 0)
            .into()
    };
    let three = |name: &str| ipv4(name).and_then(|text| numbers(&text)).into();
    let names = |name: &str| ipv4(name).and_then(|text| names(&text)).into();
    let core = |name: &str| {
        read(&format!("net/core/{name}"))
            .and_then(|text| number(&text))
            .into()
    };
    TcpSettings {
        rmem: three("rmem"),
        wmem: three("wmem"),
        rmem_max: core("rmem_max"),
        wmem_max: core("wmem_max"),
        mem: three("mem"),
        page_size: rustix::param::page_size() as u64,
        moderate_rcvbuf: flag("moderate_rcvbuf"),
        window_scaling: flag("window_scaling"),
        timestamps: flag("timestamps"),
        sack: flag("sack"),
        no_metrics_save: flag("no_metrics_save"),
        no_ssthresh_metrics_save: flag("no_ssthresh_metrics_save"),
        slow_start_after_idle: flag("slow_start_after_idle"),
        mtu_probing: ipv4("mtu_probing").and_then(|text| number(&text)).into(),
        congestion: ipv4("congestion_control")
            .and_then(|text| name(&text))
            .into(),
        available: names("available_congestion_control"),
        allowed: names("allowed_congestion_control"),
    }
}

fn read(path: &str) -> Result<String, String> {
    read_file(&format!("/proc/sys/{path}"))
}

/// Returns the text of a small file of the kernel's.
pub(super) fn read_file(path: &str) -> Result<String, String> {
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(MAX_SETTING_BYTES).read_to_string(&mut text))
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => format!("{path} is not visible here"),
            _ => format!("{path}: {error}"),
        })?;
    Ok(text)
}

pub(super) fn number(text: &str) -> Result<u64, String> {
    text.trim()
        .parse()
        .map_err(|_| format!("not a number: {text:?}"))
}

fn numbers<const N: usize>(text: &str) -> Result<[u64; N], String> {
    let all: Result<Vec<u64>, _> = text.split_ascii_whitespace().map(str::parse).collect();
    all.ok()
        .and_then(|all| all.try_into().ok())
        .ok_or_else(|| format!("not {N} numbers: {text:?}"))
}

pub(super) fn name(text: &str) -> Result<CommandName, String> {
    CommandName::new(text.trim()).map_err(|error| format!("{error}: {text:?}"))
}

fn names(text: &str) -> Result<Vec<CommandName>, String> {
    text.split_ascii_whitespace().map(name).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fact::Fact;

    #[test]
    fn settings_are_read_as_the_kernel_writes_them() {
        assert_eq!(
            numbers::<3>("4096\t131072\t6291456\n"),
            Ok([4096, 131_072, 6_291_456])
        );
        assert!(
            numbers::<3>("1 2\n").is_err()
                && numbers::<3>("1 2 3 4").is_err()
                && numbers::<3>("1 2 -3").is_err()
        );
        assert_eq!(number("1\n"), Ok(1));
        assert!(number("").is_err() && number("99999999999999999999").is_err());
        let list = names("reno bbr cubic\n").unwrap();
        assert_eq!(
            list.iter().map(CommandName::as_str).collect::<Vec<_>>(),
            ["reno", "bbr", "cubic"]
        );
        assert!(names("reno $(x)").is_err());
    }

    #[test]
    fn this_machine_has_settings() {
        let tcp = tcp();
        let [least, first, most] = *tcp.rmem.known().unwrap();
        assert!(least <= first && least <= most && tcp.page_size >= 4096);
        assert!(matches!(tcp.mem, Fact::Known(_) | Fact::Unknown(_)));
        assert!(
            read_file("/proc/sys/net/ipv4/no_such_thing")
                .unwrap_err()
                .contains("no_such_thing")
        );
    }

    proptest! {
        #[test]
        fn garbage_never_panics(text in ".{0,200}") {
            let _ = (number(&text), numbers::<3>(&text), name(&text), names(&text));
        }
    }
}
