//! Limits of this host for a connection, from `/proc/sys/net`.

use std::ffi::CStr;

use rustix::fs::{Mode, OFlags};

/// Limits of the host, or of its network namespace for those that the kernel keeps by namespace.
/// Buffers are in bytes as the kernel accounts them, so explicit limits are already doubled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Host {
    /// Maximum of receive-buffer autotuning: the third value of `tcp_rmem` (by namespace).
    pub receive_autotune: u32,
    /// Largest receive buffer that a program may set: twice `rmem_max` (of the whole host).
    pub receive_explicit: u32,
    /// Maximum of send-buffer autotuning: the third value of `tcp_wmem` (by namespace).
    pub send_autotune: u32,
    /// Largest send buffer that a program may set: twice `wmem_max` (of the whole host).
    pub send_explicit: u32,
    /// If true, the kernel autotunes receive buffers (`tcp_moderate_rcvbuf`).
    pub autotunes: bool,
    /// If true, windows over 64 KB are offered (`tcp_window_scaling`).
    pub scales_windows: bool,
    /// If true, an unprivileged program may choose BBR (`tcp_allowed_congestion_control`).
    pub may_use_bbr: bool,
}

/// Limits of an untuned Linux, used for values that cannot be read.
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
    /// Reads the limits in the network namespace of the calling thread. A limit that cannot be read
    /// is assumed to be that of an untuned Linux: at worst an action asks for less than it could
    /// get. It allocates nothing and calls no function of the C library. So it may be used in a
    /// signal handler, and is not a cancellation point.
    #[must_use]
    pub fn read() -> Self {
        Self::from_files(file)
    }

    fn from_files(read: impl Fn(&CStr) -> Option<Text>) -> Self {
        let otherwise = Self::default();
        let third = |name| read(name)?.words().nth(2)?.parse().ok();
        let number = |name| read(name)?.words().next()?.parse::<u32>().ok();
        let twice = |name| number(name).map(|most| most.saturating_mul(2));
        Self {
            receive_autotune: third(c"/proc/sys/net/ipv4/tcp_rmem")
                .unwrap_or(otherwise.receive_autotune),
            receive_explicit: twice(c"/proc/sys/net/core/rmem_max")
                .unwrap_or(otherwise.receive_explicit),
            send_autotune: third(c"/proc/sys/net/ipv4/tcp_wmem").unwrap_or(otherwise.send_autotune),
            send_explicit: twice(c"/proc/sys/net/core/wmem_max").unwrap_or(otherwise.send_explicit),
            autotunes: number(c"/proc/sys/net/ipv4/tcp_moderate_rcvbuf").is_none_or(|on| on != 0),
            scales_windows: number(c"/proc/sys/net/ipv4/tcp_window_scaling")
                .is_none_or(|on| on != 0),
            may_use_bbr: read(c"/proc/sys/net/ipv4/tcp_allowed_congestion_control")
                .is_some_and(|names| names.words().any(|name| name == "bbr")),
        }
    }
}

/// Content of a short file; longer content is cut.
struct Text {
    room: [u8; 256],
    used: usize,
}

impl Text {
    fn words(&self) -> impl Iterator<Item = &str> {
        let text = self.room.get(..self.used).unwrap_or_default();
        std::str::from_utf8(text)
            .unwrap_or_default()
            .split_ascii_whitespace()
    }
}

fn file(path: &CStr) -> Option<Text> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut room = [0; 256];
    let used = rustix::io::read(&file, &mut room).ok()?;
    Some(Text { room, used })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(words: &str) -> Text {
        let mut room = [0; 256];
        room[..words.len()].copy_from_slice(words.as_bytes());
        Text {
            room,
            used: words.len(),
        }
    }

    #[test]
    fn limits_are_read_and_explicit_ones_doubled() {
        let host = Host::from_files(|name| {
            let name = name
                .to_str()
                .unwrap()
                .strip_prefix("/proc/sys/net/")
                .unwrap();
            Some(text(match name {
                "ipv4/tcp_rmem" => "4096\t131072\t6291456\n",
                "ipv4/tcp_wmem" => "4096 16384 4194304",
                "core/rmem_max" => "4194304\n",
                "core/wmem_max" => "4294967295",
                "ipv4/tcp_moderate_rcvbuf" => "1",
                "ipv4/tcp_window_scaling" => "0\n",
                "ipv4/tcp_allowed_congestion_control" => "reno bbr\n",
                _ => return None,
            }))
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
    fn unreadable_limits_are_those_of_untuned_linux() {
        assert_eq!(Host::from_files(|_| None), Host::default());
        assert_eq!(
            Host::from_files(|_| Some(text("nonsense"))).receive_autotune,
            6 << 20
        );
    }

    #[test]
    fn this_host_has_limits() {
        assert!(Host::read().receive_autotune > 0);
    }
}
