//! The service `files`: sessions between a client and a server, and peers that violate its rules.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use longhaul_transfer::files::message::{FilesFailureKind, FilesRequest, FilesResponse, PathBytes};
use longhaul_transfer::files::{FilesClient, FilesError};
use longhaul_transfer::*;
use tokio::io::{
    AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, DuplexStream,
};

use crate::harness::*;

/// Opens sessions of a key with the server.
struct Sessions {
    server: Arc<Server>,
    who: u8,
    opened: AtomicUsize,
}

impl Connector for Sessions {
    type Stream = DuplexStream;

    fn routes(&self) -> Vec<RouteInfo> {
        vec![RouteInfo::direct()]
    }

    async fn connect(&self, _: usize) -> Result<DuplexStream, ConnectError> {
        self.opened.fetch_add(1, Ordering::Relaxed);
        Ok(open(&self.server, self.who))
    }
}

fn open(server: &Arc<Server>, who: u8) -> DuplexStream {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let server = server.clone();
    tokio::spawn(async move { server.serve_files(theirs, key(who)).await });
    ours
}

fn sessions(bench: &Bench, who: u8) -> Sessions {
    Sessions {
        server: bench.server.clone(),
        who,
        opened: AtomicUsize::new(0),
    }
}

fn client(bench: &Bench, who: u8) -> (FilesClient<Sessions>, Arc<Sessions>) {
    let sessions = Arc::new(sessions(bench, who));
    (FilesClient::new(sessions.clone()), sessions)
}

fn look(path: &str) -> FilesRequest {
    FilesRequest::Look {
        path: PathBytes(path.into()),
        list: true,
        after: None,
        limit: None,
    }
}

/// Sends `lines`. Returns the first `count` response lines, and whether the server then closes.
async fn say(stream: DuplexStream, lines: &str, count: usize) -> (Vec<serde_json::Value>, bool) {
    let (reader, mut writer) = tokio::io::split(stream);
    writer.write_all(lines.as_bytes()).await.unwrap();
    let mut answers = BufReader::new(reader).lines();
    let mut received = Vec::new();
    while received.len() < count {
        match answers.next_line().await {
            Ok(Some(line)) => received.push(serde_json::from_str(&line).unwrap()),
            _ => return (received, true),
        }
    }
    let more = tokio::time::timeout(Duration::from_secs(1), answers.next_line()).await;
    (received, matches!(more, Ok(Ok(None) | Err(_))))
}

/// A path to the server with half of [`ROUND_TRIP`] in each direction, and unlimited rate.
struct DistantServer(Sessions);

const ROUND_TRIP: Duration = Duration::from_millis(100);

impl Connector for DistantServer {
    type Stream = DuplexStream;

    fn routes(&self) -> Vec<RouteInfo> {
        self.0.routes()
    }

    async fn connect(&self, route: usize) -> Result<DuplexStream, ConnectError> {
        let (there_reader, there_writer) = tokio::io::split(self.0.connect(route).await?);
        let (ours, near) = tokio::io::duplex(8 << 20);
        let (near_reader, near_writer) = tokio::io::split(near);
        tokio::spawn(delayed(near_reader, there_writer));
        tokio::spawn(delayed(there_reader, near_writer));
        Ok(ours)
    }
}

/// Forwards bytes, each of which arrives half a round trip after it was sent.
async fn delayed(
    mut from: impl AsyncRead + Unpin + Send + 'static,
    mut to: impl AsyncWrite + Unpin + Send + 'static,
) {
    let (sender, mut wire) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some((arrives, bytes)) = wire.recv().await {
            tokio::time::sleep_until(arrives).await;
            let bytes: Vec<u8> = bytes;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
        let _ = to.shutdown().await;
    });
    let mut chunk = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut chunk).await {
        let arrives = tokio::time::Instant::now() + ROUND_TRIP / 2;
        let _ = sender.send((arrives, chunk[..read].to_vec()));
    }
}

/// Returns all names of a directory in pages of `limit`, and the number of round trips, including
/// opening the session.
async fn listed(bench: &Bench, limit: u32) -> (Vec<PathBytes>, f64) {
    let mut client = FilesClient::new(Arc::new(DistantServer(sessions(bench, 1))));
    let (begun, mut names, mut after) = (tokio::time::Instant::now(), Vec::new(), None);
    loop {
        let ask = FilesRequest::Look {
            path: PathBytes::default(),
            list: true,
            after,
            limit: Some(limit),
        };
        let FilesResponse::Entries { entries, next } = client.request(&ask).await.unwrap() else {
            panic!("no entries")
        };
        names.extend(entries.into_iter().map(|entry| entry.name));
        after = next;
        if after.is_none() {
            let round_trips = begun.elapsed().as_secs_f64() / ROUND_TRIP.as_secs_f64();
            return (names, round_trips);
        }
    }
}

#[tokio::test]
async fn lh_files_13_beginning_of_a_small_file_is_read() {
    let bench = Bench::new();
    std::fs::write(bench.root("small"), "content").unwrap();
    std::fs::write(bench.root("large"), vec![7; 70_000]).unwrap();
    std::os::unix::fs::symlink("small", bench.root("link")).unwrap();
    let (mut client, _) = client(&bench, 1);
    let mut read = async |path: &str| {
        let path = PathBytes(path.as_bytes().to_vec());
        client.request(&FilesRequest::Read { path }).await.unwrap()
    };
    let content = |bytes: &[u8], is_cut| FilesResponse::Content {
        content: PathBytes(bytes.to_vec()),
        is_cut,
    };
    assert_eq!(read("small").await, content(b"content", false));
    assert_eq!(read("large").await, content(&[7; 65_536], true));
    for other in ["link", "absent", ""] {
        let answer = read(other).await;
        assert!(
            matches!(answer, FilesResponse::Failed(_)),
            "{other}: {answer:?}"
        );
    }
}

/// The number of pages is that of a directory with a hundred thousand entries, in virtual time.
#[tokio::test(start_paused = true)]
async fn lh_files_12_twenty_pages_take_five_round_trips() {
    let bench = Bench::new();
    let expected: Vec<PathBytes> = (0..1000)
        .map(|n| {
            let name = format!("{n:04}");
            std::fs::write(bench.root(&name), "").unwrap();
            PathBytes(name.into_bytes())
        })
        .collect();
    let (names, round_trips) = listed(&bench, 50).await;
    assert!(names == expected);
    assert!(
        (1.0..5.1).contains(&round_trips),
        "{round_trips} round trips"
    );
    let (names, round_trips) = listed(&bench, 1000).await;
    assert!(names == expected);
    assert!(
        (0.9..1.1).contains(&round_trips),
        "{round_trips} round trips"
    );
}

#[tokio::test(start_paused = true)]
async fn lh_files_12_next_page_ends_with_the_listing_or_the_grant() {
    let bench = Bench::new();
    for name in ["a", "b", "c"] {
        std::fs::write(bench.root(name), name).unwrap();
    }
    let more = "{\"files\":\"more\",\"limit\":1}\n";
    let look = "{\"files\":\"look\",\"path\":\"\",\"list\":true,\"after\":null,\"limit\":1}\n";
    // No page has been requested that another could follow.
    let lines = format!("{HELLO}{more}{look}{more}{more}{more}");
    let (received, _) = say(open(&bench.server, 4), &lines, 6).await;
    let names: Vec<_> = received[1..]
        .iter()
        .map(|line| line["entries"][0]["name"].as_str())
        .collect();
    assert_eq!(
        names,
        [None, Some("YQ=="), Some("Yg=="), Some("Yw=="), None]
    );
    assert_eq!(
        (&received[2]["next"], received[4]["next"].as_str()),
        (&"YQ==".into(), None)
    );
    // LH-FILES-8: each page is a request.
    let (reader, mut writer) = tokio::io::split(open(&bench.server, 4));
    let mut answers = BufReader::new(reader).lines();
    writer
        .write_all(format!("{HELLO}{look}").as_bytes())
        .await
        .unwrap();
    for expected in ["ready", "entries"] {
        assert!(
            answers
                .next_line()
                .await
                .unwrap()
                .unwrap()
                .contains(expected)
        );
    }
    bench.server.replace_grants(Grants::default());
    writer.write_all(more.repeat(2).as_bytes()).await.unwrap();
    let refused = answers.next_line().await.unwrap().unwrap();
    assert!(refused.contains("not_granted"), "{refused}");
    let ended = answers.next_line().await.unwrap().unwrap();
    assert_eq!(
        ended,
        "{\"files\":\"entries\",\"entries\":[],\"next\":null}"
    );
}

/// The client requests more than it reads. The server reads no request before it has sent the
/// previous answer, and does not wait forever.
#[tokio::test(start_paused = true)]
async fn lh_files_4_client_that_reads_nothing_is_dropped() {
    let bench = Bench::new();
    for n in 0..400 {
        std::fs::write(bench.root(&format!("{n:0200}")), "").unwrap();
    }
    let (reader, mut writer) = tokio::io::split(open(&bench.server, 1));
    let look = "{\"files\":\"look\",\"path\":\"\",\"list\":true,\"after\":null}\n";
    tokio::spawn(async move {
        let asked = format!("{HELLO}{}", look.repeat(2000));
        let _ = writer.write_all(asked.as_bytes()).await;
        std::future::pending::<()>().await;
    });
    tokio::time::sleep(Duration::from_secs(90)).await;
    let mut answers = BufReader::new(reader).lines();
    let mut received = 0;
    while let Ok(Some(_)) = answers.next_line().await {
        received += 1;
    }
    assert!(received < 10, "{received} answers");
}

const HELLO: &str = "{\"lowest\":1,\"highest\":1}\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_answers_requests_in_order() {
    let bench = Bench::new();
    std::fs::create_dir(bench.root("in")).unwrap();
    std::fs::write(bench.root("in/f"), "f").unwrap();
    let (mut client, sessions) = client(&bench, 1);
    let make = FilesRequest::MakeDirectory {
        path: PathBytes(b"in/d".to_vec()),
        parents: false,
    };
    assert_eq!(client.request(&make).await.unwrap(), FilesResponse::Changed);
    let FilesResponse::Entries { entries, next } = client.request(&look("in")).await.unwrap()
    else {
        panic!("no entries")
    };
    let names: Vec<_> = entries.iter().map(|entry| &entry.name.0[..]).collect();
    assert_eq!((names, next), (vec![&b"d"[..], b"f"], None));
    client.end().await;
    assert_eq!(sessions.opened.load(Ordering::Relaxed), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lh_files_8_new_grants_apply_to_the_next_request() {
    let bench = Bench::new();
    let (mut client, _) = client(&bench, 4);
    assert!(matches!(
        client.request(&look("")).await.unwrap(),
        FilesResponse::Entries { .. }
    ));
    bench.server.replace_grants(Grants::default());
    let FilesResponse::Failed(failure) = client.request(&look("")).await.unwrap() else {
        panic!("still granted")
    };
    assert_eq!(failure.kind, FilesFailureKind::NotGranted);
    assert!(
        failure.to_string().contains(&key(4).to_string()),
        "{failure}"
    );
}

#[tokio::test(start_paused = true)]
async fn lh_files_2_unsupported_version_is_refused() {
    let bench = Bench::new();
    let (received, closed) = say(open(&bench.server, 1), "{\"lowest\":2,\"highest\":9}\n", 1).await;
    assert_eq!((&received[0]["files"], closed), (&"refused".into(), true));
    let (received, closed) = say(open(&bench.server, 1), "GET / HTTP/1.1\n", 1).await;
    assert_eq!((&received[0]["files"], closed), (&"refused".into(), true));
    let lines = format!(
        "{HELLO}{{\"files\":\"look\",\"path\":\"\",\"list\":true,\"after\":null,\"later\":[1]}}\n"
    );
    let (received, _) = say(open(&bench.server, 1), &lines, 2).await;
    assert_eq!(
        (&received[0]["version"], &received[1]["files"]),
        (&1.into(), &"entries".into())
    );
}

#[tokio::test(start_paused = true)]
async fn lh_files_1_unknown_request_keeps_the_session_usable() {
    let bench = Bench::new();
    let lines = format!(
        "{HELLO}{{\"files\":\"chmod\"}}\n[[[\n\
         {{\"files\":\"look\",\"path\":\"\",\"list\":true,\"after\":null}}\n"
    );
    let (received, _) = say(open(&bench.server, 1), &lines, 4).await;
    let kinds: Vec<_> = received.iter().map(|line| line["kind"].as_str()).collect();
    assert_eq!(
        kinds,
        [None, Some("not_understood"), Some("not_understood"), None]
    );
}

#[tokio::test(start_paused = true)]
async fn lh_files_3_too_long_a_line_ends_the_session() {
    let bench = Bench::new();
    let line = format!("{HELLO}{{\"files\":\"{}\"}}\n", "x".repeat(40_000));
    let (received, closed) = say(open(&bench.server, 1), &line, 2).await;
    assert_eq!((&received[1]["files"], closed), (&"refused".into(), true));
}

#[tokio::test(start_paused = true)]
async fn lh_files_4_sessions_are_shared_and_idle_ones_are_closed() {
    let bench = Bench::with(ServerLimits {
        streams: 4,
        ..ServerLimits::default()
    });
    let mut held = Vec::new();
    for _ in 0..4 {
        let stream = open(&bench.server, 1);
        let (reader, mut writer) = tokio::io::split(stream);
        writer.write_all(HELLO.as_bytes()).await.unwrap();
        let mut answers = BufReader::new(reader).lines();
        let line = answers.next_line().await.unwrap().unwrap();
        held.push((line.contains("\"ready\""), answers, writer));
    }
    // One key gets half of the limit, and another still gets its own share.
    assert_eq!(held.iter().filter(|(ready, ..)| *ready).count(), 2);
    let (received, _) = say(open(&bench.server, 4), HELLO, 1).await;
    assert_eq!(received[0]["files"], "ready");
    // Without a request, the session closes.
    let (_, answers, _writer) = &mut held[0];
    let last = tokio::time::timeout(Duration::from_secs(700), answers.next_line()).await;
    assert!(last.unwrap().unwrap().unwrap().contains("refused"));
}

/// A server that answers with these lines, each after a delay.
struct ScriptedServer(Vec<(u64, &'static str)>);

impl Connector for ScriptedServer {
    type Stream = DuplexStream;

    fn routes(&self) -> Vec<RouteInfo> {
        vec![RouteInfo::direct()]
    }

    async fn connect(&self, _: usize) -> Result<DuplexStream, ConnectError> {
        let (ours, mut theirs) = tokio::io::duplex(64 * 1024);
        let lines = self.0.clone();
        tokio::spawn(async move {
            for (seconds, line) in lines {
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                let _ = theirs.write_all(line.as_bytes()).await;
            }
            std::future::pending::<()>().await;
        });
        Ok(ours)
    }
}

async fn scripted(lines: &[(u64, &'static str)]) -> Result<FilesResponse, FilesError> {
    FilesClient::new(Arc::new(ScriptedServer(lines.to_vec())))
        .request(&look(""))
        .await
}

const READY: &str = "{\"files\":\"ready\",\"version\":1}\n";

#[tokio::test(start_paused = true)]
async fn lh_files_5_working_server_is_awaited_and_silent_is_not() {
    let working = "{\"files\":\"working\"}\n";
    let long = [
        (0, READY),
        (20, working),
        (20, working),
        (20, "{\"files\":\"changed\"}\n"),
    ];
    assert_eq!(scripted(&long).await.unwrap(), FilesResponse::Changed);
    assert!(matches!(
        scripted(&[(0, READY)]).await,
        Err(FilesError::Silent)
    ));
}

#[tokio::test(start_paused = true)]
async fn lh_files_2_server_that_breaks_the_rules_is_dropped() {
    for lines in [
        &[(0, "{\"files\":\"changed\"}\n")][..],
        &[(0, "{\"files\":\"ready\",\"version\":2}\n")],
        &[(0, READY), (0, READY)],
        &[(0, READY), (0, "\u{1b}[2J\n")],
    ] {
        let error = scripted(lines).await.unwrap_err();
        assert!(matches!(error, FilesError::Protocol(_)), "{error}");
        assert!(!error.to_string().contains('\u{1b}'), "{error}");
    }
    let refused = "{\"files\":\"refused\",\"unauthorised\":true,\"reason\":\"no\\u001b\"}\n";
    let error = scripted(&[(0, refused)]).await.unwrap_err();
    assert!(
        matches!(&error, FilesError::Unauthorised(why) if !why.contains('\u{1b}')),
        "{error}"
    );
}

#[tokio::test]
async fn lh_files_14_checksums_are_computed_at_the_server() {
    use longhaul_transfer::files::MAX_SUMMED_FILES;
    use longhaul_transfer::files::message::SumOutcome;
    let bench = Bench::new();
    let large = noise((9 << 20) + 5, 1);
    std::fs::write(bench.root("large"), &large).unwrap();
    std::fs::write(bench.root("small"), "abc").unwrap();
    std::os::unix::fs::symlink("small", bench.root("link")).unwrap();
    let (mut client, _) = client(&bench, 1);
    let mut sums = async |names: &[&str], algorithm: &str| {
        let ask = FilesRequest::Sum {
            paths: names.iter().map(|name| PathBytes((*name).into())).collect(),
            algorithm: algorithm.parse().unwrap(),
            coarse: false,
        };
        match client.request(&ask).await.unwrap() {
            FilesResponse::Sums { sums } => sums,
            other => panic!("{other:?}"),
        }
    };
    let names = ["large", "absent", "link", "", "small"];
    let found = sums(&names, "blake3").await;
    let sum = |value: &[u8], size| SumOutcome::Sum {
        value: PathBytes(value.to_vec()),
        size,
        coarse: None,
    };
    let expected = blake3::hash(&large);
    assert_eq!(found[0], sum(expected.as_bytes(), large.len() as u64));
    for (outcome, kind) in found[1..4].iter().zip([
        FilesFailureKind::NotFound,
        FilesFailureKind::RefusedPath,
        FilesFailureKind::IsDirectory,
    ]) {
        assert!(
            matches!(outcome, SumOutcome::Failed(failure) if failure.kind == kind),
            "{outcome:?}"
        );
    }
    assert_eq!(found.len(), names.len());
    let adler = 0x024d_0127_u32.to_be_bytes();
    assert_eq!(sums(&["small"], "adler32").await, [sum(&adler, 3)]);
    // The server answers about the first of too many.
    let many = vec!["small"; MAX_SUMMED_FILES + 7];
    assert_eq!(sums(&many, "crc32c").await.len(), MAX_SUMMED_FILES);
    assert_eq!(sums(&[], "crc32c").await, []);
}

/// Another algorithm of a later release, as an earlier server sees this request.
#[tokio::test]
async fn lh_files_14_unknown_algorithms_are_not_understood() {
    let bench = Bench::new();
    let hello = r#"{"lowest":1,"highest":1}"#;
    let ask = r#"{"files":"sum","paths":["YQ=="],"algorithm":"of_a_later_release"}"#;
    let lines = format!("{hello}\n{ask}\n");
    let (answers, _) = say(open(&bench.server, 1), &lines, 2).await;
    assert_eq!(answers[1]["kind"], "not_understood");
}

#[tokio::test]
async fn lh_files_14_checksums_need_the_right_to_read() {
    use longhaul_transfer::files::message::SumOutcome;
    let bench = Bench::new();
    std::fs::write(bench.root("secret"), "abc").unwrap();
    let (mut client, _) = client(&bench, 2);
    let ask = FilesRequest::Sum {
        paths: vec![PathBytes(b"secret".to_vec())],
        algorithm: "md5".parse().unwrap(),
        coarse: false,
    };
    let answer = client.request(&ask).await.unwrap();
    let FilesResponse::Sums { sums } = answer else {
        panic!("{answer:?}")
    };
    assert!(
        matches!(&sums[..], [SumOutcome::Failed(failure)]
            if failure.kind == FilesFailureKind::NotGranted),
        "{sums:?}"
    );
}

#[tokio::test]
async fn lh_files_16_ranges_of_a_file_are_read() {
    use longhaul_transfer::files::message::MAX_RANGE_BYTES;
    let bench = Bench::new();
    let content = noise(MAX_RANGE_BYTES + 100, 1);
    std::fs::write(bench.root("large"), &content).unwrap();
    let (mut client, _) = client(&bench, 1);
    let mut read = async |offset: u64| {
        let path = PathBytes(b"large".to_vec());
        let ask = FilesRequest::ReadRange { path, offset };
        client.request(&ask).await.unwrap()
    };
    for (offset, end, is_cut) in [
        (0, MAX_RANGE_BYTES, true),
        (50, MAX_RANGE_BYTES + 50, true),
        (MAX_RANGE_BYTES, content.len(), false),
        (content.len(), content.len(), false),
    ] {
        let expected = FilesResponse::Content {
            content: PathBytes(content[offset..end].to_vec()),
            is_cut,
        };
        assert!(read(offset as u64).await == expected, "{offset}");
    }
    let behind = read(u64::MAX).await;
    assert!(
        matches!(
            &behind,
            FilesResponse::Failed(_) | FilesResponse::Content { is_cut: false, .. }
        ),
        "{behind:?}"
    );
}
