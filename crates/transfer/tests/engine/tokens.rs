//! Tokens that give rights to keys without grants, and what happens when they end.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use longhaul_transfer::files::message::{FilesRequest, FilesResponse, PathBytes};
use longhaul_transfer::files::{FilesClient, FilesError};
use longhaul_transfer::*;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::watch;

use crate::harness::*;
use crate::wire;

/// A key without grants.
const STRANGER: u8 = 9;
/// Type of REFUSE, and its code for the token.
const REFUSE: u8 = 3;
const OF_THE_TOKEN: u8 = 3;

/// An authority that knows some tokens.
struct TestAuthority {
    known: Mutex<HashMap<&'static str, TokenRights>>,
    changes: watch::Sender<u64>,
    asked: AtomicUsize,
    rechecked: AtomicUsize,
}

impl TestAuthority {
    fn judge(&self, token: &BearerToken) -> Result<TokenRights, TokenRefusal> {
        match (self.known.lock().get(token.secret()), token.secret()) {
            (Some(rights), _) => Ok(rights.clone()),
            (None, "unavailable") => Err(TokenRefusal::Unavailable("the issuer is down".into())),
            (None, _) => Err(TokenRefusal::Invalid("nobody knows it".into())),
        }
    }

    fn revoke(&self, token: &str) {
        self.known.lock().remove(token);
        self.changes.send_modify(|number| *number += 1);
    }
}

impl TokenAuthority for TestAuthority {
    fn verify<'a>(
        &'a self,
        token: &'a BearerToken,
    ) -> TokenFuture<'a, Result<TokenRights, TokenRefusal>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move { self.judge(token) })
    }

    fn recheck(&self, token: &BearerToken) -> Result<TokenRights, TokenRefusal> {
        self.rechecked.fetch_add(1, Ordering::Relaxed);
        self.judge(token)
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

/// A client's token, which can be replaced.
struct TestSource(Mutex<&'static str>);

impl TokenSource for TestSource {
    fn token(&self) -> TokenFuture<'_, Option<BearerToken>> {
        let text = *self.0.lock();
        Box::pin(async move { BearerToken::new(text).ok() })
    }
}

fn source(token: &'static str) -> Arc<TestSource> {
    Arc::new(TestSource(Mutex::new(token)))
}

fn rights(valid_for: Duration, rights: &[(Access, &str)]) -> TokenRights {
    let rights = rights.iter().map(|(access, path)| (*access, rel(path)));
    TokenRights {
        subject: "alice".into(),
        issuer: "https://issuer.example".into(),
        groups: Vec::new(),
        expires: SystemTime::now() + valid_for,
        rights: rights.collect(),
    }
}

/// Returns a bench whose server knows the tokens `writer`, `reader` and `second`.
fn bench() -> (Bench, Arc<TestAuthority>) {
    let hour = Duration::from_secs(3600);
    let known = [
        ("writer", rights(hour, &[(Access::Write, "in")])),
        ("second", rights(hour, &[(Access::Write, "in")])),
        ("reader", rights(hour, &[(Access::Read, "")])),
        (
            "short",
            rights(Duration::from_millis(300), &[(Access::Read, "")]),
        ),
    ];
    let authority = Arc::new(TestAuthority {
        known: Mutex::new(HashMap::from(known)),
        changes: watch::Sender::new(0),
        asked: AtomicUsize::new(0),
        rechecked: AtomicUsize::new(0),
    });
    let bench = Bench::new();
    std::fs::create_dir(bench.root("in")).unwrap();
    bench.server.accept_tokens(authority.clone());
    (bench, authority)
}

/// Pushes one file to `to` as key `who`, with the tokens of `source`.
async fn push(bench: &Bench, pipes: Pipes, to: &str, source: Option<Arc<TestSource>>) -> Run {
    let file = bench.local("f");
    let (found, names) = Sources::local(&[file], true).unwrap();
    let request = CopyRequest::Push {
        destination: rel(to),
        into: false,
        overwrite: true,
        fsync: false,
        names,
    };
    let (mut client, events, progress) = client(pipes, request, Some(1), true, bench.compare);
    client.tokens = source.map(|source| source as Arc<dyn TokenSource>);
    let result = client.push(found, vec!["f".into()]).await;
    finish(result, events, progress).await
}

#[tokio::test]
async fn lh_copy_71_token_gives_its_rights_to_a_key_without_grants() {
    let (bench, authority) = bench();
    std::fs::write(bench.local("f"), b"data").unwrap();
    let with = async |who, to, token| {
        push(&bench, bench.pipes_of(who), to, Some(source(token)))
            .await
            .result
    };
    with(STRANGER, "in/f", "writer").await.unwrap();
    assert_eq!(std::fs::read(bench.root("in/f")).unwrap(), b"data");
    for (to, token) in [("f", "writer"), ("in/f", "reader"), ("in/f", "forged")] {
        let refused = with(STRANGER, to, token).await;
        assert!(
            matches!(refused, Err(Error::Token(_))),
            "{token}: {refused:?}"
        );
    }
    let later = with(STRANGER, "in/f", "unavailable").await;
    assert!(matches!(later, Err(Error::Limit(_))), "{later:?}");
    // A key with a grant needs no token, and nobody looks at one.
    let before = authority.asked.load(Ordering::Relaxed);
    with(1, "f", "forged").await.unwrap();
    assert_eq!(authority.asked.load(Ordering::Relaxed), before);
    // A token extends the rights of a key.
    with(3, "in/f", "writer").await.unwrap();
}

#[tokio::test]
async fn lh_copy_71_client_says_that_its_token_was_not_used() {
    let bench = Bench::new();
    std::fs::write(bench.local("f"), b"data").unwrap();
    let run = push(
        &bench,
        bench.pipes_of(STRANGER),
        "f",
        Some(source("writer")),
    )
    .await;
    let Err(Error::Unauthorised(message)) = run.result else {
        panic!("{:?}", run.result);
    };
    assert!(message.contains("did not use your token"), "{message}");
    let run = push(&bench, bench.pipes_of(STRANGER), "f", None).await;
    let Err(Error::Unauthorised(message)) = run.result else {
        panic!("{:?}", run.result);
    };
    assert!(!message.contains("token"), "{message}");
}

/// Opens a stream with a pull of the root that brings this token.
async fn open(bench: &Bench, token: &str) -> DuplexStream {
    let mut hello = wire::pull_hello(b"");
    hello.extend_from_slice(&[22, 0]);
    hello.extend_from_slice(&u16::try_from(token.len()).unwrap().to_le_bytes());
    hello.extend_from_slice(token.as_bytes());
    let len = u32::try_from(hello.len() - 4).unwrap();
    hello[..4].copy_from_slice(&len.to_le_bytes());
    let (mut ours, theirs) = tokio::io::duplex(1 << 20);
    let server = bench.server.clone();
    tokio::spawn(async move { server.serve(theirs, key(STRANGER)).await });
    ours.write_all(&hello).await.unwrap();
    ours
}

/// Reads to the end of a stream. Asserts that it ends with a refusal of the token in these words.
async fn is_refused(mut stream: DuplexStream, words: &str) {
    let mut received = Vec::new();
    stream.read_to_end(&mut received).await.unwrap();
    let text = String::from_utf8_lossy(&received).into_owned();
    assert!(text.contains(words), "{text}");
    // The length of the words precedes them, and before that are type and subject.
    let at = received
        .windows(2)
        .rposition(|pair| pair == [REFUSE, OF_THE_TOKEN]);
    assert!(at.is_some(), "{received:?}");
}

#[tokio::test]
async fn lh_copy_72_copy_ends_when_its_token_expires() {
    let (bench, _) = bench();
    is_refused(
        open(&bench, "short").await,
        "alice@https://issuer.example has expired",
    )
    .await;
    assert_eq!(bench.server.copies(), 0);
}

#[tokio::test]
async fn lh_copy_72_copy_ends_when_its_token_is_not_accepted_any_more() {
    let (bench, authority) = bench();
    let mut stream = open(&bench, "reader").await;
    // The beginning of ACCEPT.
    stream.read_u8().await.unwrap();
    authority.revoke("writer");
    assert_eq!(bench.server.copies(), 1, "another token was revoked");
    authority.revoke("reader");
    is_refused(stream, "is not accepted any more").await;
}

#[tokio::test]
async fn lh_copy_72_copy_that_a_grant_permits_outlives_its_token() {
    let (bench, authority) = bench();
    let mut stream = open(&bench, "reader").await;
    stream.read_u8().await.unwrap();
    let mut grants = Grants::default();
    let stranger = key(STRANGER).to_string();
    grants.add(Access::Read, &stranger).unwrap();
    bench.server.replace_grants(grants);
    let before = authority.rechecked.load(Ordering::Relaxed);
    authority.revoke("reader");
    while authority.rechecked.load(Ordering::Relaxed) == before {
        tokio::task::yield_now().await;
    }
    assert_eq!(bench.server.copies(), 1);
    // It depends on the grant alone from now on.
    bench.server.replace_grants(Grants::default());
    let mut received = Vec::new();
    stream.read_to_end(&mut received).await.unwrap();
    let text = String::from_utf8_lossy(&received).into_owned();
    assert!(text.contains("has withdrawn the grant"), "{text}");
}

/// The pipe holds far less than the file and all tasks share one thread, so the server notices the
/// revocation before the copy can be complete.
#[tokio::test(flavor = "current_thread")]
async fn lh_copy_72_copy_goes_on_with_a_newer_token() {
    let (bench, authority) = bench();
    std::fs::write(bench.local("f"), vec![7; 16 << 20]).unwrap();
    let tokens = source("writer");
    let pipes = bench.pipes_of(STRANGER);
    let renew = {
        let (authority, tokens) = (authority.clone(), tokens.clone());
        move || {
            *tokens.0.lock() = "second";
            authority.revoke("writer");
        }
    };
    *pipes.hook.lock() = Some((1 << 20, Box::new(renew)));
    let run = push(&bench, pipes, "in/f", Some(tokens)).await;
    run.ok();
    let replaced = |event: &TransferEvent| matches!(event, TransferEvent::CopyReplaced { .. });
    assert!(run.events.iter().any(replaced), "{:?}", run.events);
    assert_eq!(
        std::fs::metadata(bench.root("in/f")).unwrap().len(),
        16 << 20
    );
}

/// Opens sessions of a key with the service `files`.
struct Sessions(Arc<Server>);

impl Connector for Sessions {
    type Stream = DuplexStream;

    fn routes(&self) -> Vec<RouteInfo> {
        vec![RouteInfo::direct()]
    }

    async fn connect(&self, _: usize) -> Result<DuplexStream, ConnectError> {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let server = self.0.clone();
        tokio::spawn(async move { server.serve_files(theirs, key(STRANGER)).await });
        Ok(ours)
    }
}

#[tokio::test]
async fn lh_files_17_session_has_the_rights_of_its_token() {
    let (bench, authority) = bench();
    let look = FilesRequest::Look {
        path: PathBytes::default(),
        list: true,
        after: None,
        limit: None,
    };
    let client = |token: Option<&'static str>| {
        let tokens = token.map(|token| source(token) as Arc<dyn TokenSource>);
        FilesClient::new(Arc::new(Sessions(bench.server.clone()))).with_tokens(tokens)
    };
    let mut reader = client(Some("reader"));
    let listed = reader.request(&look).await.unwrap();
    assert!(
        matches!(listed, FilesResponse::Entries { .. }),
        "{listed:?}"
    );
    let make = FilesRequest::MakeDirectory {
        path: PathBytes(b"in/new".to_vec()),
        parents: false,
    };
    let denied = reader.request(&make).await.unwrap();
    assert!(matches!(denied, FilesResponse::Failed(_)), "{denied:?}");
    let made = client(Some("writer")).request(&make).await.unwrap();
    assert_eq!(made, FilesResponse::Changed);
    for (token, words) in [
        (Some("forged"), "nobody knows it"),
        (None, "does not know key"),
    ] {
        let refused = client(token).request(&look).await;
        let Err(FilesError::Unauthorised(reason)) = refused else {
            panic!("{refused:?}");
        };
        assert!(reason.contains(words), "{reason}");
    }
    // The session ends with its token, also between two requests.
    authority.revoke("reader");
    let ended = reader.request(&make).await;
    assert!(
        matches!(
            ended,
            Err(FilesError::Unauthorised(_) | FilesError::Broken(_))
        ),
        "{ended:?}"
    );
}
