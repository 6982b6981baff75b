//! Messages to systemd (sd_notify(3)): a service is ready, reloads, stops, is alive. Nothing is
//! sent unless systemd asks for it (`NOTIFY_SOCKET`, `WATCHDOG_USEC`).

use std::convert::Infallible;
use std::time::Duration;

use parking_lot::Mutex;
use sd_notify::NotifyState;

/// Reloads that run now. A process may have several services, which reload at the same signal.
static RELOADS: Mutex<usize> = Mutex::new(0);

/// A reload, which systemd waits for.
#[derive(Debug)]
pub(crate) struct ReloadNotice(());

impl ReloadNotice {
    /// Tells systemd that a reload begins.
    pub(crate) fn begin() -> Self {
        let mut reloads = RELOADS.lock();
        *reloads += 1;
        if *reloads == 1
            && let Ok(now) = NotifyState::monotonic_usec_now()
        {
            send(&[NotifyState::Reloading, now]);
        }
        Self(())
    }
}

impl Drop for ReloadNotice {
    fn drop(&mut self) {
        let mut reloads = RELOADS.lock();
        *reloads -= 1;
        if *reloads == 0 {
            notify_ready();
        }
    }
}

/// Tells systemd that the service is ready.
pub(crate) fn notify_ready() {
    send(&[NotifyState::Ready]);
}

/// Tells systemd that the service stops: what is under way finishes, and nothing new begins.
pub fn notify_stopping() {
    send(&[NotifyState::Stopping]);
}

/// Tells systemd that another process is the main one of this service from now on.
pub(crate) fn notify_main_process(process: u32) {
    send(&[NotifyState::MainPid(process)]);
}

/// Tells systemd regularly that the service is alive, if it wants to know. Stops doing so when the
/// runtime runs no new tasks.
pub async fn keep_alive() -> Infallible {
    let variable = |name| std::env::var(name).ok();
    let limit = watchdog_limit(
        variable("WATCHDOG_USEC"),
        variable("WATCHDOG_PID"),
        std::process::id(),
    );
    let Some(limit) = limit else {
        return std::future::pending().await;
    };
    // As sd_watchdog_enabled(3) recommends.
    let mut ticks = tokio::time::interval(limit / 2);
    loop {
        ticks.tick().await;
        if tokio::spawn(async {}).await.is_ok() {
            send(&[NotifyState::Watchdog]);
        }
    }
}

/// Returns the time without a message after which systemd ends the process, if it watches it.
fn watchdog_limit(micros: Option<String>, process: Option<String>, own: u32) -> Option<Duration> {
    // Without a process number it is for every process of the service.
    if process.is_some_and(|process| process.parse() != Ok(own)) {
        return None;
    }
    let micros = micros?.parse().ok().filter(|micros| *micros > 1)?;
    Some(Duration::from_micros(micros))
}

fn send(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, ?states, "systemd cannot be notified");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_watched_process_answers_the_watchdog() {
        let limit = |micros: &str, process: Option<&str>| {
            watchdog_limit(Some(micros.to_owned()), process.map(str::to_owned), 7)
        };
        assert_eq!(limit("3000000", Some("7")), Some(Duration::from_secs(3)));
        assert_eq!(limit("3000000", None), Some(Duration::from_secs(3)));
        for (micros, process) in [
            ("3000000", Some("8")),
            ("0", None),
            ("x", None),
            ("1", None),
        ] {
            assert_eq!(limit(micros, process), None, "{micros} {process:?}");
        }
        assert_eq!(watchdog_limit(None, None, 7), None);
    }
}
