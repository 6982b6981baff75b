//! Copies between two servers: one fetches from the other in a client's name.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use longhaul_proto::{DelegatedAction, Delegation, PublicKey};
use longhaul_transfer::fetch::message::{FetchAsk, FetchMessage, FetchReport};
use longhaul_transfer::fetch::{FETCH_VERSION, FetchOutcome, FetchView, fetch};
use longhaul_transfer::files::message::PathBytes;
use longhaul_transfer::remote_copy::{CopyAsk, CopyDirection, CopyEnd};
use longhaul_transfer::*;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::task::JoinHandle;

use crate::harness::*;

/// Time limit for what takes a moment.
const LIMIT: Duration = Duration::from_secs(60);
/// Keys of the server that fetches, and of the one that is read from.
const ME: u8 = 99;
const SOURCE: u8 = 98;

/// A server that is read from, and one that fetches.
struct TwoServers {
    source: Bench,
    target: Bench,
}

/// Connector under a delegation, which the other server has verified.
struct DelegatePipes {
    server: Arc<Server>,
    source: FetchSource,
}

impl Connector for DelegatePipes {
    type Stream = DuplexStream;

    fn routes(&self) -> Vec<RouteInfo> {
        vec![RouteInfo::direct()]
    }

    async fn connect(&self, _: usize) -> Result<DuplexStream, ConnectError> {
        let (ours, theirs) = tokio::io::duplex(256 * 1024);
        let delegation = self.source.delegation.borrow().clone();
        let server = self.server.clone();
        tokio::spawn(async move {
            let principal = delegation.principal;
            let serving = server.serve_delegate(theirs, principal, Some(&delegation));
            serving.await
        });
        Ok(ours)
    }
}

/// Returns what a copy of these paths without a filter says to the other server.
fn hello(paths: &[&str]) -> Hello {
    crate::clear::hello(CopyRequest::Pull {
        recursive: true,
        sources: paths.iter().map(|path| rel(path)).collect(),
    })
}

/// Returns a delegation of `who` for what `hello` reads. Nothing here verifies its signature.
fn delegation(who: PublicKey, hello: &Hello) -> Delegation {
    Delegation {
        id: [1; 16],
        action: DelegatedAction::Read,
        principal: who,
        delegate: key(ME),
        audience: Some(key(SOURCE)),
        from: hello.delegated_name(),
        to: "b.example".to_owned(),
        both_ways: false,
        max_rate: 1,
        start_unix_ms: 1,
        end_unix_ms: 2,
        signature: [0; 64],
    }
}

/// Returns what `who` asks for: a copy of `from` to `to`.
fn ask(who: u8, from: &str, to: &str) -> FetchAsk {
    FetchAsk {
        lowest: FETCH_VERSION,
        highest: FETCH_VERSION,
        delegation: delegation(key(who), &hello(&[from])).to_text().unwrap(),
        copy: CopyAsk {
            server: key(SOURCE),
            hosts: vec!["a.example".to_owned()],
            port: 7511,
            direction: CopyDirection::Pull,
            sources: vec![PathBytes(from.as_bytes().to_vec())],
            names: vec![PathBytes(from.as_bytes().to_vec())],
            labels: vec![],
            destination: PathBytes(to.as_bytes().to_vec()),
            into: false,
            recursive: true,
            overwrite: false,
            fsync: false,
            resume: true,
            checksum: false,
            hard_links: false,
            streams: None,
            patience_ms: Some(1000),
            congestion: None,
            no_encrypt: false,
            compression: Compression::None,
            delta: false,
            in_place: false,
            report_done: true,
            filter: FilterRules::default(),
            update: false,
            existing: false,
            ignore_existing: false,
            keep: Preservation::default(),
        },
    }
}

/// Lets a copy have one stream, so that nothing passes beside a stalled one.
fn over_one_stream(mut ask: FetchAsk) -> FetchAsk {
    ask.copy.streams = Some(1);
    ask
}

impl TwoServers {
    fn new() -> Self {
        let servers = Self {
            source: Bench::new(),
            target: Bench::new(),
        };
        std::fs::create_dir(servers.target.root("in")).unwrap();
        servers
    }

    /// Starts the session of `who` with the server that fetches. `connector` connects that server
    /// with the other one.
    fn session<C: Connector>(
        &self,
        who: u8,
        connector: impl FnOnce(FetchSource) -> Result<C, Error> + Send + 'static,
    ) -> (DuplexStream, JoinHandle<Result<(), Error>>) {
        let (ours, theirs) = tokio::io::duplex(256 * 1024);
        let server = self.target.server.clone();
        let serving = tokio::spawn(async move {
            let serving = server.serve_fetch(theirs, key(who), key(ME), connector);
            serving.await
        });
        (ours, serving)
    }

    /// Returns the function that connects the servers as they are.
    fn connector(&self) -> impl FnOnce(FetchSource) -> Result<DelegatePipes, Error> + use<> {
        let server = self.source.server.clone();
        move |source| Ok(DelegatePipes { server, source })
    }

    /// Has `who` ask.
    async fn run(&self, who: u8, ask: &FetchAsk) -> (Result<FetchOutcome, Error>, Arc<Events>) {
        let (stream, serving) = self.session(who, self.connector());
        let (ended, events, _) = run_over(stream, ask).await;
        let _ = serving.await.unwrap();
        (ended, events)
    }
}

async fn run_over(
    stream: DuplexStream,
    ask: &FetchAsk,
) -> (
    Result<FetchOutcome, Error>,
    Arc<Events>,
    Arc<TransferProgress>,
) {
    let events = Arc::new(Events::default());
    let progress = Arc::new(TransferProgress::default());
    let observer: Arc<dyn Observer> = events.clone();
    let view = FetchView {
        server: "b.example",
        progress: &progress,
        observer: &observer,
    };
    let renew = || Ok(ask.delegation.clone());
    let ended = fetch(stream, ask, renew, view).await;
    (ended, events, progress)
}

/// Sends lines, and returns the last report.
async fn end_of(stream: DuplexStream, lines: &[String]) -> CopyEnd {
    let (reader, mut writer) = tokio::io::split(stream);
    for line in lines {
        writer.write_all(line.as_bytes()).await.unwrap();
        writer.write_all(b"\n").await.unwrap();
    }
    let mut reports = BufReader::new(reader).lines();
    while let Some(line) = reports.next_line().await.unwrap() {
        if let FetchReport::Ended(end) = serde_json::from_str(&line).unwrap() {
            return end;
        }
    }
    panic!("no end is reported")
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap()
}

/// LH-FETCH-2, LH-FETCH-5.
#[tokio::test]
async fn a_server_fetches_a_tree_for_a_client() {
    let servers = TwoServers::new();
    std::fs::create_dir(servers.source.root("tree")).unwrap();
    std::fs::write(servers.source.root("tree/small"), noise(1000, 1)).unwrap();
    std::fs::write(servers.source.root("tree/large"), noise(3_000_000, 2)).unwrap();
    let (stream, serving) = servers.session(1, servers.connector());
    let (ended, events, progress) = run_over(stream, &ask(1, "tree", "in")).await;
    assert_eq!(ended.unwrap().left_out, 0);
    serving.await.unwrap().unwrap();
    assert_eq!(
        describe(&servers.target.root("in/tree")),
        describe(&servers.source.root("tree"))
    );
    assert_eq!(progress.files_done.load(Relaxed), 2);
    assert_eq!(progress.bytes_done.load(Relaxed), 3_001_000);
    assert!(events.failures().is_empty());
    // Both servers count it.
    servers.source.server.idle().await;
    assert_eq!(servers.source.server.counts().ended["completed"], 1);
    let there = servers.target.server.counts();
    assert_eq!((there.running, there.ended["completed"]), (0, 1));
    assert_eq!(there.received, 3_001_000);
    let is_free = || {
        let counts = servers.target.server.counts();
        counts.resources.iter().all(|resource| resource.in_use == 0)
    };
    let freed = async {
        while !is_free() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LIMIT, freed).await.unwrap();
    // A second copy finds everything in place.
    let (again, _) = servers.run(1, &ask(1, "tree", "in")).await;
    again.unwrap();
    assert_eq!(servers.target.server.counts().received, 3_001_000);
}

/// LH-FETCH-1.
#[tokio::test]
async fn lines_that_are_not_understood_are_refused() {
    let servers = TwoServers::new();
    let good = ask(1, "f", "in/f");
    let odd = |change: fn(&mut FetchAsk)| {
        let mut odd = good.clone();
        change(&mut odd);
        json(&odd)
    };
    for (line, word) in [
        ("{}".to_owned(), "first line"),
        ("x".repeat(2 << 20), "longer than"),
        (odd(|ask| (ask.lowest, ask.highest) = (2, 9)), "version 1"),
        (
            odd(|ask| ask.copy.direction = CopyDirection::Push),
            "source",
        ),
        (odd(|ask| ask.copy.names[0].0 = b"../x".to_vec()), "names"),
        (odd(|ask| ask.copy.names.clear()), "names"),
        (
            odd(|ask| ask.copy.sources[0].0 = b"/etc".to_vec()),
            "source",
        ),
        (
            odd(|ask| ask.copy.destination.0 = b"a/../b".to_vec()),
            "destination",
        ),
        (odd(|ask| ask.copy.hosts = vec!["a b".to_owned()]), "server"),
        (odd(|ask| ask.copy.hosts.clear()), "server"),
        (odd(|ask| ask.copy.port = 0), "port"),
        (
            odd(|ask| ask.delegation = "lhd1:aa".to_owned()),
            "delegation",
        ),
    ] {
        let (stream, serving) = servers.session(1, servers.connector());
        let error = end_of(stream, &[line]).await.into_result("b").unwrap_err();
        assert!(matches!(error, Error::Protocol(_)), "{word}: {error}");
        let error = serving.await.unwrap().unwrap_err().to_string();
        assert!(error.contains(word), "{word}: {error}");
    }
    assert_eq!(servers.target.server.counts().running, 0);
}

/// LH-FETCH-2: the principal must have the right to write here, and the delegation must be its own,
/// for this server and this request.
#[tokio::test]
async fn only_the_clients_own_rights_and_delegation_count() {
    let servers = TwoServers::new();
    std::fs::write(servers.source.root("f"), b"secret").unwrap();
    let delegated = |change: fn(&mut Delegation)| {
        let mut given = delegation(key(1), &hello(&["f"]));
        change(&mut given);
        FetchAsk {
            delegation: given.to_text().unwrap(),
            ..ask(1, "f", "in/f")
        }
    };
    for (who, ask) in [
        // It may read here, and not write.
        (4, ask(4, "f", "in/f")),
        // It may write elsewhere.
        (2, ask(2, "f", "out")),
        (1, delegated(|given| given.principal = key(2))),
        (1, delegated(|given| given.delegate = key(3))),
        (1, delegated(|given| given.audience = Some(key(3)))),
        (1, delegated(|given| given.audience = None)),
        (
            1,
            delegated(|given| given.from = hello(&["g"]).delegated_name()),
        ),
    ] {
        let (ended, _) = servers.run(who, &ask).await;
        let error = ended.unwrap_err();
        assert!(matches!(error, Error::Unauthorised(_)), "{error}");
    }
    assert!(files(&servers.target.root("in")).is_empty());
    assert_eq!(
        servers.source.server.counts().ended.len(),
        0,
        "nothing was asked for there"
    );
    // The source's server decides about reading: key 2 may not.
    let (ended, _) = servers.run(2, &ask(2, "f", "in/f")).await;
    let error = ended.unwrap_err();
    assert!(matches!(error, Error::Unauthorised(_)), "{error}");
}

/// LH-FETCH-3.
#[tokio::test]
async fn a_server_refuses_servers_that_its_policy_does_not_permit() {
    let servers = TwoServers::new();
    let refuse = |source: FetchSource| -> Result<DelegatePipes, Error> {
        Err(Error::Refused(format!("not from {}", source.server)))
    };
    let (stream, _) = servers.session(1, refuse);
    let (ended, ..) = run_over(stream, &ask(1, "f", "in/f")).await;
    let error = ended.unwrap_err().to_string();
    assert_eq!(
        error,
        "the server refuses: b.example: not from a.example:7511"
    );
    assert_eq!(servers.target.server.counts().ended.len(), 0);
}

/// LH-DELEGATION-6: a server that got a delegation cannot use it for another request.
#[tokio::test]
async fn a_delegation_permits_one_request() {
    let servers = TwoServers::new();
    for name in ["f", "g"] {
        std::fs::write(servers.source.root(name), b"secret").unwrap();
    }
    let (source, permitted) = (
        servers.source.server.clone(),
        delegation(key(1), &hello(&["f"])),
    );
    let read = async |paths: &[&str], recursive: bool| {
        let request = CopyRequest::Pull {
            recursive,
            sources: paths.iter().map(|path| rel(path)).collect(),
        };
        let (_, delegation) = tokio::sync::watch::channel(permitted.clone());
        let connector = DelegatePipes {
            server: source.clone(),
            source: FetchSource {
                server: "a.example:7511".parse().unwrap(),
                key: key(SOURCE),
                delegation,
            },
        };
        let (client, events, progress) = client(connector, request, None, true, Compare::default());
        let names = paths.iter().map(|path| path.as_bytes().to_vec()).collect();
        let token = client.hello.token;
        let to = servers.target.local("");
        let options = WriteOptions::default();
        let destination = CopyDestination::local(&to, names, options, token).unwrap();
        let ended = client.pull(destination, vec![String::new()]).await;
        finish(ended, events, progress).await.result
    };
    for (paths, recursive) in [
        (&["g"][..], true),
        (&["f", "g"], true),
        (&[""], true),
        (&["f"], false),
    ] {
        let error = read(paths, recursive).await.unwrap_err();
        assert!(
            matches!(error, Error::Unauthorised(_)),
            "{paths:?}: {error}"
        );
    }
    read(&["f"], true).await.unwrap();
}

/// LH-DELEGATION-6: what a filter leaves out is not delegated.
#[test]
fn a_delegation_includes_the_filter() {
    let whole = hello(&["f"]);
    let filtered = Hello {
        filter: FilterRules {
            max_bytes: Some(10),
            ..FilterRules::default()
        },
        ..whole.clone()
    };
    assert_ne!(whole.delegated_name(), filtered.delegated_name());
    let resumed = Hello {
        resume: !whole.resume,
        offer: Some(Compare::Content),
        ..whole.clone()
    };
    assert_eq!(whole.delegated_name(), resumed.delegated_name());
}

/// LH-FETCH-4: the copy ends with its client, keeps what it has, and resumes.
#[tokio::test]
async fn a_copy_ends_with_its_client_and_resumes() {
    let servers = TwoServers::new();
    let data = noise(30_000_000, 3);
    std::fs::write(servers.source.root("f"), &data).unwrap();
    // Nothing passes any more after half of the file.
    let pipes = Pipes {
        cuts: parking_lot::Mutex::new(vec![15_000_000]),
        stalls: true,
        ..servers.source.pipes()
    };
    let (stream, serving) = servers.session(1, move |_| Ok(pipes));
    let (reader, mut writer) = tokio::io::split(stream);
    let line = json(&over_one_stream(ask(1, "f", "in/f")));
    writer.write_all(line.as_bytes()).await.unwrap();
    writer.write_all(b"\n").await.unwrap();
    let mut reports = BufReader::new(reader).lines();
    loop {
        let line = reports.next_line().await.unwrap().unwrap();
        let report: FetchReport = serde_json::from_str(&line).unwrap();
        if matches!(report, FetchReport::Progress(counts) if counts.bytes_done > 5_000_000) {
            break;
        }
    }
    drop((reports, writer));
    let error = serving.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Stream(_)), "{error}");
    servers.target.server.idle().await;
    assert_eq!(servers.target.server.counts().ended["abandoned"], 1);
    let (ended, events) = servers.run(1, &ask(1, "f", "in/f")).await;
    ended.unwrap();
    assert_eq!(std::fs::read(servers.target.root("in/f")).unwrap(), data);
    assert!(events.failures().is_empty());
    assert!(
        events.resumed() > 0,
        "it continued with what was on the disk"
    );
    assert_no_temps(&servers.target.root("in"));
}

/// LH-FETCH-2: a copy always has one stream. If its client's share has none left, it ends at once.
#[tokio::test]
async fn a_share_without_a_stream_is_no_outage() {
    // A key gets half of them.
    for (streams, fits) in [(4, true), (2, false)] {
        let servers = TwoServers {
            target: Bench::with(ServerLimits {
                streams,
                ..ServerLimits::default()
            }),
            source: Bench::new(),
        };
        std::fs::write(servers.source.root("f"), noise(3_000_000, 6)).unwrap();
        let mut ask = ask(1, "f", "f");
        ask.copy.patience_ms = Some(3_600_000);
        let (ended, _) = servers.run(1, &ask).await;
        match ended {
            Ok(_) => assert!(fits),
            Err(error) => assert!(!fits && error.to_string().contains("streams"), "{error}"),
        }
    }
}

/// LH-FETCH-1: later lines are short.
#[tokio::test]
async fn a_long_renewal_ends_the_copy() {
    let servers = TwoServers::new();
    std::fs::write(servers.source.root("f"), noise(3_000_000, 7)).unwrap();
    let pipes = Pipes {
        cuts: parking_lot::Mutex::new(vec![1_000_000]),
        stalls: true,
        ..servers.source.pipes()
    };
    let (stream, serving) = servers.session(1, move |_| Ok(pipes));
    let first = json(&over_one_stream(ask(1, "f", "in/f")));
    let end = end_of(stream, &[first, "x".repeat(5000)]).await;
    assert!(end.manifest.is_none());
    let error = serving.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("longer than"), "{error}");
}

/// LH-FETCH-4: a renewal is a delegation for the same copy; anything else ends it.
#[tokio::test]
async fn renewals_are_for_the_same_copy() {
    let servers = TwoServers::new();
    std::fs::write(servers.source.root("f"), noise(3_000_000, 4)).unwrap();
    let renewal = |hello: &Hello| {
        let delegation = delegation(key(1), hello).to_text().unwrap();
        json(&FetchMessage::Renew { delegation })
    };
    let stalled = || Pipes {
        cuts: parking_lot::Mutex::new(vec![1_000_000]),
        stalls: true,
        ..servers.source.pipes()
    };
    for (line, expected) in [
        (renewal(&hello(&["g"])), "another copy"),
        ("{\"fetch\":\"later\"}".to_owned(), "not understood"),
    ] {
        let pipes = stalled();
        let (stream, serving) = servers.session(1, move |_| Ok(pipes));
        let first = json(&over_one_stream(ask(1, "f", "in/f")));
        let lines = [first, renewal(&hello(&["f"])), line];
        let end = end_of(stream, &lines).await;
        assert!(end.manifest.is_none());
        let error = serving.await.unwrap().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

/// LH-FETCH-5.
#[tokio::test(start_paused = true)]
async fn a_client_gives_up_on_a_silent_server() {
    let (stream, _kept) = tokio::io::duplex(1 << 20);
    let begin = tokio::time::Instant::now();
    let (ended, ..) = run_over(stream, &ask(1, "f", "in/f")).await;
    assert!(matches!(ended, Err(Error::StreamsLost(_))));
    assert!(begin.elapsed() >= Duration::from_secs(30));
}

#[tokio::test]
async fn grants_that_are_withdrawn_end_the_copy() {
    let servers = TwoServers::new();
    std::fs::write(servers.source.root("f"), noise(3_000_000, 5)).unwrap();
    let pipes = Pipes {
        cuts: parking_lot::Mutex::new(vec![1_000_000]),
        stalls: true,
        ..servers.source.pipes()
    };
    let (stream, serving) = servers.session(1, move |_| Ok(pipes));
    let ask = over_one_stream(ask(1, "f", "in/f"));
    let copying = tokio::spawn(async move { run_over(stream, &ask).await.0 });
    while servers.target.server.copies() == 0 {
        tokio::task::yield_now().await;
    }
    servers.target.server.replace_grants(Grants::default());
    let error = copying.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Unauthorised(_)), "{error}");
    serving.await.unwrap().unwrap_err();
    assert_eq!(servers.target.server.counts().ended["revoked"], 1);
}
