//! Sockets that whoever started this program has opened: systemd (`LISTEN_FDS`), or this program
//! before it started itself anew.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use anyhow::{Context, Result};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{AddressFamily, getsockname};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

/// Numbers of sockets, with commas between them, that this program gave itself.
const OWN: &str = "LONGHAUL_LISTEN_FDS";
/// The first number of systemd's (sd_listen_fds(3)).
const SYSTEMD_FIRST: RawFd = 3;
/// Most of systemd's that are looked at.
const MAX_SOCKETS: i32 = 16;

/// Sockets that listen.
#[derive(Debug, Default)]
pub struct Inherited {
    /// The one for this machine.
    pub unix: Option<OwnedFd>,
    /// The one for others.
    pub internet: Option<OwnedFd>,
}

impl Inherited {
    /// Those of this process, which are its own from then on.
    pub fn take() -> Result<Self> {
        let mut this = Self::default();
        for number in numbers() {
            let own =
                pidfd_open(getpid(), PidfdFlags::empty()).context("cannot take over sockets")?;
            let taken = pidfd_getfd(&own, number, PidfdGetfdFlags::empty());
            let socket = taken.with_context(|| {
                format!("descriptor {number} is not open: it was to be a socket")
            })?;
            let name = getsockname(&socket)
                .with_context(|| format!("descriptor {number} is no socket"))?;
            match name.address_family() {
                AddressFamily::UNIX => this.unix = Some(socket),
                _ => this.internet = Some(socket),
            }
        }
        Ok(this)
    }

    /// What tells this program, started anew in this process, of them. They stay open then.
    pub fn hand_on(&self) -> Result<Option<(&'static str, String)>> {
        let mut numbers = Vec::new();
        for socket in [&self.unix, &self.internet].into_iter().flatten() {
            fcntl_setfd(socket, FdFlags::empty()).context("cannot keep a socket open")?;
            numbers.push(socket.as_raw_fd().to_string());
        }
        Ok((!numbers.is_empty()).then(|| (OWN, numbers.join(","))))
    }
}

fn numbers() -> Vec<RawFd> {
    if let Ok(own) = std::env::var(OWN) {
        return own
            .split(',')
            .filter_map(|number| number.parse().ok())
            .collect();
    }
    let number = |name| std::env::var(name).ok()?.parse::<i32>().ok();
    match (number("LISTEN_PID"), number("LISTEN_FDS")) {
        (Some(pid), Some(count)) if pid == getpid().as_raw_nonzero().get() => {
            (SYSTEMD_FIRST..SYSTEMD_FIRST + count.clamp(0, MAX_SOCKETS)).collect()
        }
        _ => Vec::new(),
    }
}
