//! Flies one flow by [`Cruise`]: a thread that looks at the socket and sets its rate.
//!
//! A thread of its own, because a train of acknowledgements lasts milliseconds, and the tasks that move bytes take as long between two
//! looks of the runtime's timer.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Instant,
};

use drs::{TcpInfo, set_max_pacing_rate};

use crate::cruise::{Cruise, Look};

/// Ends with the value, within a look.
pub(crate) struct Pilot {
    over: Arc<AtomicBool>,
}

impl Pilot {
    /// Fits the sending rate of a stream's socket to its path from now on.
    ///
    /// # Errors
    /// There is no descriptor or no thread to be had.
    pub(crate) fn start(stream: u16, socket: impl AsFd) -> io::Result<Self> {
        let socket = socket.as_fd().try_clone_to_owned()?;
        let over = Arc::new(AtomicBool::new(false));
        let seen = over.clone();
        thread::Builder::new()
            .name(format!("pilot {stream}"))
            .spawn(move || fly(stream, &socket, &seen))?;
        Ok(Self { over })
    }
}

impl Drop for Pilot {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

fn fly(stream: u16, socket: &OwnedFd, over: &AtomicBool) {
    let start = Instant::now();
    let mut cruise = Cruise::default();
    let mut before = None;
    while !over.load(Ordering::Relaxed) {
        let Ok(info) = TcpInfo::read(socket) else { return };
        // Retransmissions of the set-up do not count.
        let before = *before.get_or_insert(info.retransmits);
        let Some(look) = look(start, &info, before) else {
            return;
        };
        if let Some(rate) = cruise.observe(&look) {
            tracing::debug!(stream, rate, ?look, "sending rate");
            if let Err(error) = set_max_pacing_rate(socket, Some(rate)) {
                tracing::warn!(%error, "the kernel does not pace; the path is left to TCP alone");
                return;
            }
        }
        thread::sleep(cruise.pause());
    }
}

/// What the decider needs, where the kernel says it.
fn look(start: Instant, info: &TcpInfo, before: u32) -> Option<Look> {
    Some(Look {
        at: start.elapsed(),
        acked: info.bytes_acked?,
        rtt: info.rtt,
        min_rtt: info.min_rtt?,
        mss: info.send_mss.into(),
        window: u64::from(info.congestion_window) * u64::from(info.send_mss),
        delivery: info.delivery_rate?,
        retransmits: u64::from(info.retransmits.saturating_sub(before)),
    })
}
