//! SIGHUP reloads the policy's file, and the current use of its rules stays counted.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use longhaul_depot::Policy;
use longhaul_proto::{PublicKey, StatusCode};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::bed::*;

/// A signal reaches the whole process, so each test that sends one holds this lock.
static HANGUP: Mutex<()> = Mutex::const_new(());

/// A depot whose policy is in a file.
struct Reloading {
    depot: Running,
    page: SocketAddr,
    file: PathBuf,
    _directory: TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl Reloading {
    async fn new(policy: &str) -> Self {
        let alone = HANGUP.lock().await;
        let directory = tempfile::tempdir().expect("directory");
        let file = directory.path().join("policy.toml");
        std::fs::write(&file, policy).expect("write policy");
        let depot = depot_with(Policy::load(&file).expect("load"), with_page);
        let page = depot.metrics.expect("page");
        Self {
            depot,
            page,
            file,
            _directory: directory,
            _alone: alone,
        }
    }

    /// Writes `policy` to the file and waits until it is `loaded` or `refused`.
    async fn reload(&self, policy: &str, outcome: &str) {
        let name = format!("longhaul_depot_policy_reloads_total{{outcome=\"{outcome}\"}}");
        let before = metric(self.page, &name).await.unwrap_or(0.0);
        std::fs::write(&self.file, policy).expect("write policy");
        let me = rustix::process::getpid();
        rustix::process::kill_process(me, rustix::process::Signal::HUP).expect("kill");
        until(self.page, &name, before + 1.0).await;
    }
}

fn rule(key: PublicKey, more: &str) -> String {
    format!(
        "[[allow]]\nprincipals = [\"{key}\"]\nto = [\"127.0.0.0/8\"]\nports = [\"any\"]\n{more}\n"
    )
}

#[tokio::test]
async fn a_hangup_reloads_the_policy_and_mistakes_change_nothing() {
    let (old, new) = (new_key(), new_key());
    let bed = Reloading::new(&rule(old.public(), "")).await;
    let at = bed.depot.address;
    soon(established(&old, &[at])).await;
    soon(bed.reload(&rule(new.public(), "port = 7"), "refused")).await;
    soon(established(&old, &[at])).await;
    soon(bed.reload(&rule(new.public(), ""), "loaded")).await;
    soon(established(&new, &[at])).await;
    let (_listener, address) = acceptor().await;
    let mut stream = initiate(at, &open_via(&old, &[at], address), b"").await;
    assert_eq!(
        soon(read_status(&mut stream)).await.code,
        StatusCode::Unauthorised
    );
}

/// `max_sessions` bounds sessions, not sessions since the last reload.
#[tokio::test]
async fn current_sessions_stay_counted_after_a_reload() {
    let key = new_key();
    let bed = Reloading::new(&rule(key.public(), "max_sessions = 2")).await;
    let at = bed.depot.address;
    let _first = soon(established(&key, &[at])).await;
    let _second = soon(established(&key, &[at])).await;
    let (listener, address) = acceptor().await;
    let third = async || {
        let mut stream = initiate(at, &open_via(&key, &[at], address), b"").await;
        read_status(&mut stream).await.code
    };
    for bound in [2, 2, 1] {
        let policy = rule(key.public(), &format!("max_sessions = {bound}"));
        soon(bed.reload(&policy, "loaded")).await;
        assert_eq!(
            soon(third()).await,
            StatusCode::Overloaded,
            "at most {bound}"
        );
    }
    assert_never_dialled(&listener).await;
    soon(bed.reload(&rule(key.public(), "max_sessions = 3"), "loaded")).await;
    soon(established(&key, &[at])).await;
}

/// A reload does not refill a rule's burst, or many reloads would multiply its `max_rate`.
#[tokio::test(start_paused = true)]
async fn a_reload_does_not_refill_a_rate() {
    const BURST: usize = 64 * 1024;
    const BYTES_PER_SECOND: f64 = 10_000.0;
    let key = new_key();
    let policy = rule(key.public(), "max_rate = \"80 kbit/s\"");
    let bed = Reloading::new(&policy).await;
    let _still = stand_still();
    let mut bytes = vec![7; BURST];
    let (mut initiator, mut accepted) = established(&key, &[bed.depot.address]).await;
    initiator.write_all(&bytes).await.expect("write");
    accepted.read_exact(&mut bytes).await.expect("the burst");
    bed.reload(&policy, "loaded").await;
    let (mut initiator, accepted) = established(&key, &[bed.depot.address]).await;
    initiator.write_all(&bytes).await.expect("write");
    let began = Instant::now();
    let mut left = BURST;
    while left > 0 {
        match accepted.try_read(&mut bytes) {
            Ok(0) => panic!("the session was cut with {left} bytes to come"),
            Ok(n) => left -= n,
            Err(_) => tokio::time::advance(Duration::from_millis(10)).await,
        }
    }
    let least = BURST as f64 / BYTES_PER_SECOND - 0.1;
    let took = began.elapsed().as_secs_f64();
    assert!(
        took >= least,
        "{BURST} bytes took {took} s, not {least} s or more"
    );
}
