//! Sockets opened before this program started: by systemd (`LISTEN_FDS`), or by this program before
//! it restarted itself.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use anyhow::{Context, Result};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{AddressFamily, getsockname};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

/// Environment variable with the comma-separated descriptors that this program hands to itself.
const OWN_DESCRIPTORS_VARIABLE: &str = "LONGHAUL_LISTEN_FDS";
/// First descriptor that systemd passes (sd_listen_fds(3)).
const FIRST_SYSTEMD_DESCRIPTOR: RawFd = 3;
/// Maximum number of systemd's sockets that are examined.
const MAX_SOCKETS: i32 = 16;

/// Listening sockets.
#[derive(Debug, Default)]
pub struct InheritedSockets {
    /// The socket for this machine.
    pub unix: Option<OwnedFd>,
    /// The socket for other machines.
    pub internet: Option<OwnedFd>,
}

impl InheritedSockets {
    /// Takes over the sockets passed to this process, which owns them from then on.
    pub fn take() -> Result<Self> {
        let mut this = Self::default();
        for number in inherited_descriptors() {
            let own =
                pidfd_open(getpid(), PidfdFlags::empty()).context("cannot take over sockets")?;
            let taken = pidfd_getfd(&own, number, PidfdGetfdFlags::empty());
            let socket = taken.with_context(|| {
                format!("descriptor {number} is not open: a socket is expected")
            })?;
            let name = getsockname(&socket)
                .with_context(|| format!("descriptor {number} is not a socket"))?;
            match name.address_family() {
                AddressFamily::UNIX => this.unix = Some(socket),
                _ => this.internet = Some(socket),
            }
        }
        Ok(this)
    }

    /// Returns the environment variable that passes the sockets to this program when it restarts in
    /// the same process. The sockets stay open across the restart.
    pub fn pass_on(&self) -> Result<Option<(&'static str, String)>> {
        let mut numbers = Vec::new();
        for socket in [&self.unix, &self.internet].into_iter().flatten() {
            fcntl_setfd(socket, FdFlags::empty()).context("cannot keep a socket open")?;
            numbers.push(socket.as_raw_fd().to_string());
        }
        Ok((!numbers.is_empty()).then(|| (OWN_DESCRIPTORS_VARIABLE, numbers.join(","))))
    }
}

fn inherited_descriptors() -> Vec<RawFd> {
    if let Ok(own) = std::env::var(OWN_DESCRIPTORS_VARIABLE) {
        return own
            .split(',')
            .filter_map(|number| number.parse().ok())
            .collect();
    }
    let number = |name| std::env::var(name).ok()?.parse::<i32>().ok();
    match (number("LISTEN_PID"), number("LISTEN_FDS")) {
        (Some(pid), Some(count)) if pid == getpid().as_raw_nonzero().get() => {
            (FIRST_SYSTEMD_DESCRIPTOR..FIRST_SYSTEMD_DESCRIPTOR + count.clamp(0, MAX_SOCKETS))
                .collect()
        }
        _ => Vec::new(),
    }
}
