//! What this host allows a connection, from `/proc/sys/net`.

use std::{fs, path::Path};

/// Limits of the host, or of its network namespace where the kernel keeps them by namespace. Buffers in bytes as the kernel accounts
/// them, so explicit limits are already doubled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Host {
    /// Where autotuning of the receive buffer ends: the third value of `tcp_rmem` (by namespace).
    pub receive_autotune: u32,
    /// The largest receive buffer that a program may set: twice `rmem_max` (the whole host's).
    pub receive_explicit: u32,
    /// Where autotuning of the send buffer ends: the third value of `tcp_wmem` (by namespace).
    pub send_autotune: u32,
    /// The largest send buffer that a program may set: twice `wmem_max` (the whole host's).
    pub send_explicit: u32,
    /// Whether the kernel autotunes receive buffers at all (`tcp_moderate_rcvbuf`).
    pub autotunes: bool,
    /// Whether windows over 64 KB are offered at all (`tcp_window_scaling`).
    pub scales_windows: bool,
    /// Whether an ordinary program may choose BBR (`tcp_allowed_congestion_control`).
    pub may_use_bbr: bool,
}

/// What Linux has when nobody tuned it: used for what cannot be read.
impl Default for Host {
    fn default() -> Self {
        Self {
            receive_autotune: 6 << 20,
            receive_explicit: 2 * 212_992,
            send_autotune: 4 << 20,
            send_explicit: 2 * 212_992,
            autotunes: true,
            scales_windows: true,
            may_use_bbr: false,
        }
    }
}

impl Host {
    /// Reads them, in the network namespace of the calling thread. What cannot be read is as on an untuned Linux: at worst an
    /// action asks for less than it could get.
    #[must_use]
    pub fn read() -> Self {
        Self::from_files(|name| fs::read_to_string(Path::new("/proc/sys/net").join(name)).ok())
    }

    fn from_files(read: impl Fn(&str) -> Option<String>) -> Self {
        let otherwise = Self::default();
        let third = |name| read(name).and_then(|text| text.split_ascii_whitespace().nth(2)?.parse().ok());
        let number = |name| read(name).and_then(|text| text.trim().parse::<u32>().ok());
        let twice = |name| number(name).map(|most| most.saturating_mul(2));
        Self {
            receive_autotune: third("ipv4/tcp_rmem").unwrap_or(otherwise.receive_autotune),
            receive_explicit: twice("core/rmem_max").unwrap_or(otherwise.receive_explicit),
            send_autotune: third("ipv4/tcp_wmem").unwrap_or(otherwise.send_autotune),
            send_explicit: twice("core/wmem_max").unwrap_or(otherwise.send_explicit),
            autotunes: number("ipv4/tcp_moderate_rcvbuf").is_none_or(|on| on != 0),
            scales_windows: number("ipv4/tcp_window_scaling").is_none_or(|on| on != 0),
            may_use_bbr: read("ipv4/tcp_allowed_congestion_control")
                .is_some_and(|names| names.split_ascii_whitespace().any(|name| name == "bbr")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_and_explicit_ones_doubled() {
        let host = Host::from_files(|name| {
            Some(
                match name {
                    "ipv4/tcp_rmem" => "4096\t131072\t6291456\n",
                    "ipv4/tcp_wmem" => "4096 16384 4194304",
                    "core/rmem_max" => "4194304\n",
                    "core/wmem_max" => "4294967295",
                    "ipv4/tcp_moderate_rcvbuf" => "1",
                    "ipv4/tcp_window_scaling" => "0\n",
                    "ipv4/tcp_allowed_congestion_control" => "reno bbr\n",
                    _ => return None,
                }
                .to_owned(),
            )
        });
        let expected = Host {
            receive_autotune: 6_291_456,
            receive_explicit: 8_388_608,
            send_autotune: 4_194_304,
            send_explicit: u32::MAX,
            autotunes: true,
            scales_windows: false,
            may_use_bbr: true,
        };
        assert_eq!(host, expected);
    }

    #[test]
    fn what_cannot_be_read_is_as_untuned() {
        assert_eq!(Host::from_files(|_| None), Host::default());
        assert_eq!(
            Host::from_files(|_| Some("nonsense".into())).receive_autotune,
            6 << 20
        );
    }

    #[test]
    fn this_host_has_limits() {
        assert!(Host::read().receive_autotune > 0);
    }
}
