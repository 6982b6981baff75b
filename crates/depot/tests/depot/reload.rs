//! SIGHUP reloads the policy's file, and the current use of its rules stays counted.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use longhaul_depot::{ForwardingTable, Policy};
use longhaul_proto::{PublicKey, StatusCode};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::bed::*;

/// A signal reaches the whole process, so each test that sends one holds this lock.
static HANGUP: Mutex<()> = Mutex::const_new(());

/// A depot whose policy and forwarding table are in files.
struct Reloading {
    depot: RunningDepot,
    page: SocketAddr,
    file: PathBuf,
    table: PathBuf,
    _directory: TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl Reloading {
    async fn new(policy: &str) -> Self {
        let alone = HANGUP.lock().await;
        let directory = tempfile::tempdir().expect("directory");
        let file = directory.path().join("policy.toml");
        std::fs::write(&file, policy).expect("write policy");
        let table = directory.path().join("forwarding.toml");
        std::fs::write(&table, "").expect("write table");
        let depot = depot_with(Policy::load(&file).expect("load"), |config| {
            config.forwarding = ForwardingTable::load(&table).expect("load");
            with_page(config);
        });
        let page = depot.metrics.expect("page");
        Self {
            depot,
            page,
            file,
            table,
            _directory: directory,
            _alone: alone,
        }
    }

    /// Writes `policy` to the file and waits until it is `loaded` or `refused`.
    async fn reload(&self, policy: &str, outcome: &str) {
        std::fs::write(&self.file, policy).expect("write policy");
        self.hang_up("policy", outcome).await;
    }

    /// Writes `table` to the file and waits until it is `loaded` or `refused`.
    async fn reload_table(&self, table: &str, outcome: &str) {
        std::fs::write(&self.table, table).expect("write table");
        self.hang_up("forwarding", outcome).await;
    }

    async fn hang_up(&self, what: &str, outcome: &str) {
        let name = format!("longhaul_depot_{what}_reloads_total{{outcome=\"{outcome}\"}}");
        let before = metric(self.page, &name).await.unwrap_or(0.0);
        let me = rustix::process::getpid();
        rustix::process::kill_process(me, rustix::process::Signal::HUP).expect("kill");
        wait_for_metric(self.page, &name, before + 1.0).await;
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
    with_timeout(established(&old, &[at])).await;
    with_timeout(bed.reload(&rule(new.public(), "port = 7"), "refused")).await;
    with_timeout(established(&old, &[at])).await;
    with_timeout(bed.reload(&rule(new.public(), ""), "loaded")).await;
    with_timeout(established(&new, &[at])).await;
    let (_listener, address) = acceptor().await;
    let mut stream = initiate(at, &open_via(&old, &[at], address), b"").await;
    assert_eq!(
        with_timeout(read_status(&mut stream)).await.code,
        StatusCode::Unauthorised
    );
}

#[tokio::test]
async fn a_hangup_reloads_the_forwarding_table() {
    let key = new_key();
    let policy = rule(key.public(), "next_hops = [\"direct\", \"127.0.0.0/8:*\"]");
    let bed = Reloading::new(&policy).await;
    let (added, last) = (depot(&key), depot(&key));
    let (listener, address) = acceptor().await;
    let passed = async || {
        let mut open = open_via(&key, &[bed.depot.address, last.address], address);
        let route = format!("{},~{}", bed.depot.address, last.address);
        open.route = route.parse().expect("route");
        open.sign(&key, now_ms()).expect("sign");
        let _initiator = initiate(bed.depot.address, &open, b"").await;
        accept_session(&listener).await.1.passed
    };
    let table = format!(
        "[[forward]]\nto = [\"127.0.0.0/8\"]\nnext_hops = [\"{}\"]\n",
        added.address
    );
    let me = bed.depot.key;
    assert_eq!(with_timeout(passed()).await, [me, last.key]);
    with_timeout(bed.reload_table(&table, "loaded")).await;
    assert_eq!(with_timeout(passed()).await, [me, added.key, last.key]);
    with_timeout(bed.reload_table("[[forward]]\n", "refused")).await;
    assert_eq!(with_timeout(passed()).await, [me, added.key, last.key]);
    with_timeout(bed.reload_table("", "loaded")).await;
    assert_eq!(with_timeout(passed()).await, [me, last.key]);
}

/// `max_sessions` bounds sessions, not sessions since the last reload.
#[tokio::test]
async fn current_sessions_stay_counted_after_a_reload() {
    let key = new_key();
    let bed = Reloading::new(&rule(key.public(), "max_sessions = 2")).await;
    let at = bed.depot.address;
    let _first = with_timeout(established(&key, &[at])).await;
    let _second = with_timeout(established(&key, &[at])).await;
    let (listener, address) = acceptor().await;
    let third = async || {
        let mut stream = initiate(at, &open_via(&key, &[at], address), b"").await;
        read_status(&mut stream).await.code
    };
    for bound in [2, 2, 1] {
        let policy = rule(key.public(), &format!("max_sessions = {bound}"));
        with_timeout(bed.reload(&policy, "loaded")).await;
        assert_eq!(
            with_timeout(third()).await,
            StatusCode::Overloaded,
            "at most {bound}"
        );
    }
    assert_never_dialled(&listener).await;
    with_timeout(bed.reload(&rule(key.public(), "max_sessions = 3"), "loaded")).await;
    with_timeout(established(&key, &[at])).await;
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
