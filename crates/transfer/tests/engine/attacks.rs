//! Hostile peers on both sides. Nothing outside the root or the destination is changed, and the
//! other side keeps running.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use longhaul_transfer::*;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use crate::harness::*;
use crate::wire;

/// Sends `bytes` to the server as key 1, and returns its answers until it closes.
async fn attack(bench: &Bench, bytes: &[u8]) -> (Result<(), Error>, Vec<u8>) {
    attack_as(bench, 1, bytes).await
}

/// Sends `bytes` as another key.
pub async fn attack_as(bench: &Bench, who: u8, bytes: &[u8]) -> (Result<(), Error>, Vec<u8>) {
    let (mut ours, theirs) = tokio::io::duplex(1 << 20);
    let server = bench.server.clone();
    let served = tokio::spawn(async move { server.serve(theirs, key(who)).await });
    // The server may close once it has received enough.
    let _ = ours.write_all(bytes).await;
    let mut answer = Vec::new();
    let _ = ours.read_to_end(&mut answer).await;
    drop(ours);
    (served.await.unwrap(), answer)
}

/// Returns the files, directories and links outside the directories of the copy. None may be added
/// or changed.
fn surroundings(bench: &Bench) -> Vec<(Vec<u8>, String)> {
    describe(&bench.tmp.path().join("outside"))
}

fn with_surroundings() -> Bench {
    let bench = Bench::new();
    let outside = bench.tmp.path().join("outside");
    std::fs::create_dir_all(outside.join("dir")).unwrap();
    std::fs::write(outside.join("secret"), "secret").unwrap();
    bench
}

#[tokio::test]
async fn client_cannot_use_links_that_leave_the_root() {
    let bench = with_surroundings();
    let outside = bench.tmp.path().join("outside");
    symlink(&outside, bench.root("out")).unwrap();
    symlink("../outside", bench.root("rel")).unwrap();
    symlink(outside.join("secret"), bench.root("file")).unwrap();
    let before = surroundings(&bench);
    std::fs::write(bench.local("evil"), "evil").unwrap();
    let overwrite = WriteOptions {
        overwrite: true,
        ..Default::default()
    };
    for to in [
        "/out",
        "/out/",
        "/out/evil",
        "/out/dir/evil",
        "/rel/secret",
        "/rel/",
    ] {
        let run = bench
            .push(bench.pipes(), &[bench.local("evil")], to, overwrite)
            .await;
        let reported = match &run.result {
            Err(error) => error.to_string(),
            Ok(_) => format!("{:?}", run.failures()),
        };
        // `/out` itself may be replaced, as it is a link in the root. Its target must not be
        // touched.
        assert!(
            to == "/out" || reported.contains("refused") || reported.contains("in the way"),
            "{to}: {reported}"
        );
        assert_eq!(surroundings(&bench), before, "{to}");
    }
    symlink(&outside, bench.root("again")).unwrap();
    for from in ["/again/secret", "/again/dir", "/rel/secret", "/rel"] {
        let run = bench.pull(bench.pipes(), &[from], "got", overwrite).await;
        let got = std::fs::symlink_metadata(bench.local("got"));
        assert!(
            got.is_err() || got.unwrap().is_symlink(),
            "{from}: {:?}",
            run.events
        );
        let _ = std::fs::remove_file(bench.local("got"));
    }
    // Links are sent as links, whatever their target.
    let run = bench.pull(bench.pipes(), &["file"], "got", overwrite).await;
    run.ok();
    assert_eq!(
        std::fs::read_link(bench.local("got")).unwrap(),
        outside.join("secret")
    );
}

#[tokio::test]
async fn client_cannot_write_through_its_own_link() {
    let bench = with_surroundings();
    let before = surroundings(&bench);
    let target = bench.tmp.path().join("outside");
    let target = target.to_str().unwrap().as_bytes();
    let bytes = [
        wire::push_hello(b"d", &[b"s"]),
        wire::directory(0, b""),
        wire::symlink(1, b"link", target),
        wire::honest_small(2, b"link/evil", b"evil"),
        wire::file(3, b"link/dir/evil", 3),
        wire::block(3, 0, 3, b"abc"),
        wire::file_end(3, *blake3::hash(b"abc").as_bytes()),
        wire::symlink(4, b"link/more", b"/"),
        wire::directory(5, b"link/dir"),
        wire::honest_small(6, b"link", b"over the link"),
        wire::end(7),
    ]
    .concat();
    let (result, _) = attack(&bench, &bytes).await;
    result.unwrap();
    assert_eq!(surroundings(&bench), before);
    assert!(!bench.tmp.path().join("outside/evil").exists());
    assert_no_temps(bench.tmp.path());
}

// LH-COPY-3.
#[tokio::test]
async fn names_with_parent_components_are_refused_first() {
    let bench = with_surroundings();
    let before = surroundings(&bench);
    let absolute = bench.tmp.path().join("outside/evil");
    let absolute = absolute.to_str().unwrap().as_bytes();
    for name in [
        &b"../outside/evil"[..],
        b"a/../../outside/evil",
        b"./x",
        b"a//b",
        b"nul\0",
        absolute,
        b"..",
    ] {
        for bytes in [
            [
                wire::push_hello(b"d", &[b"s"]),
                wire::honest_small(0, name, b"evil"),
            ]
            .concat(),
            [
                wire::push_hello(b"d", &[b"s"]),
                wire::symlink(0, name, b"/"),
            ]
            .concat(),
            [wire::push_hello(b"d", &[b"s"]), wire::directory(0, name)].concat(),
            [wire::push_hello(b"d", &[b"s"]), wire::file(0, name, 10)].concat(),
            wire::push_hello(name, &[b"s"]),
            wire::push_hello(b"d", &[name]),
        ] {
            let (result, answer) = attack(&bench, &bytes).await;
            assert!(
                matches!(result, Err(Error::Protocol(_))),
                "{name:?}: {result:?}"
            );
            assert!(!answer.is_empty(), "it gets the reason");
        }
    }
    assert_eq!(surroundings(&bench), before);
    // They are forgotten as soon as they have violated the protocol.
    assert_eq!(bench.server.copies(), 0);
}

// LH-COPY-5, LH-COPY-14, LH-COPY-30.
#[tokio::test]
async fn misplaced_frames_end_only_their_stream() {
    let bench = with_surroundings();
    let hello = || wire::push_hello(b"d", &[b"s"]);
    let good = *blake3::hash(b"abc").as_bytes();
    let attacks: Vec<Vec<u8>> = vec![
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        wire::honest_small(0, b"x", b"no hello"),
        [hello(), hello()].concat(),
        [hello(), wire::block(0, 0, 3, b"abc")].concat(),
        [hello(), wire::file_end(0, good)].concat(),
        [
            hello(),
            wire::file(0, b"x", 3),
            wire::block(0, 1, 3, b"abc"),
        ]
        .concat(),
        [hello(), wire::file(0, b"x", 3), wire::block(0, 0, 2, b"ab")].concat(),
        [
            hello(),
            wire::file(0, b"x", 3),
            wire::block(0, 1 << 18, 3, b"abc"),
        ]
        .concat(),
        [hello(), wire::file(0, b"x", 3), wire::file(0, b"y", 3)].concat(),
        [hello(), wire::file(0, b"x", 1 << 63)].concat(),
        [hello(), wire::small(0, 7, b"x", b"abc", good)].concat(),
        [hello(), wire::frame(13, &[0; 16])].concat(),
        [hello(), wire::frame(15, &[0; 32])].concat(),
        [hello(), wire::frame(99, &[])].concat(),
        [hello(), vec![0xff; 100]].concat(),
        [
            hello(),
            (0..5000)
                .flat_map(|id| wire::file(id, format!("f{id}").as_bytes(), 1 << 40))
                .collect(),
        ]
        .concat(),
    ];
    for (n, bytes) in attacks.iter().enumerate() {
        let (result, _) = attack(&bench, bytes).await;
        assert!(result.is_err(), "attack {n}");
        assert_eq!(bench.server.copies(), 0, "attack {n}");
        assert_no_temps(&bench.root(""));
    }
    std::fs::write(bench.local("f"), "fine").unwrap();
    bench
        .push(
            bench.pipes(),
            &[bench.local("f")],
            "/f",
            WriteOptions::default(),
        )
        .await
        .ok();
}

// LH-COPY-22.
#[tokio::test]
async fn content_with_another_hash_is_not_kept() {
    let bench = with_surroundings();
    let bytes = [
        wire::push_hello(b"d", &[b"s"]),
        wire::small(0, 0, b"small", b"abc", [7; 32]),
        wire::file(1, b"blocks", 3),
        wire::block(1, 0, 3, b"abc"),
        wire::file_end(1, [7; 32]),
        wire::honest_small(2, b"good", b"abc"),
        wire::end(3),
    ]
    .concat();
    let (result, answer) = attack(&bench, &bytes).await;
    result.unwrap();
    assert!(!bench.root("d/small").exists() && !bench.root("d/blocks").exists());
    assert_eq!(std::fs::read(bench.root("d/good")).unwrap(), b"abc");
    // RESULT of entries 0 and 1: failure code 11, verification.
    for id in [0u64, 1] {
        let result = [&[14u8][..], &id.to_le_bytes(), &[11]].concat();
        assert!(
            answer.windows(result.len()).any(|w| w == result),
            "entry {id}"
        );
    }
    assert_no_temps(&bench.root(""));
}

// LH-COPY-10, LH-COPY-11.
#[tokio::test]
async fn grants_hold_for_paths_and_tokens_for_principals() {
    let bench = with_surroundings();
    std::fs::create_dir(bench.root("in")).unwrap();
    std::fs::write(bench.local("f"), "x").unwrap();
    let as_second = || Pipes {
        principal: key(2),
        ..bench.pipes()
    };
    let options = WriteOptions::default;
    bench
        .push(as_second(), &[bench.local("f")], "/in/f", options())
        .await
        .ok();
    for to in ["/f", "/in2", "/"] {
        let run = bench
            .push(as_second(), &[bench.local("f")], to, options())
            .await;
        assert!(
            matches!(run.result, Err(Error::Unauthorised(_))),
            "{to}: {:?}",
            run.result
        );
    }
    let run = bench.pull(as_second(), &["in/f"], "g", options()).await;
    assert!(
        matches!(run.result, Err(Error::Unauthorised(ref text)) if text.contains("read")),
        "{:?}",
        run.result
    );
    // A stream of key 1 with token 9 is open. Key 2 uses the same token, for a directory that it
    // may write to.
    let (mut ours, theirs) = tokio::io::duplex(1 << 16);
    let server = bench.server.clone();
    let served = tokio::spawn(async move { server.serve(theirs, key(1)).await });
    ours.write_all(&wire::token_hello(9, b"in/d", &[b"s"]))
        .await
        .unwrap();
    let mut accept = [0; 9];
    ours.read_exact(&mut accept).await.unwrap();
    assert_eq!(accept[4], 2, "ACCEPT");
    let (mut other, theirs) = tokio::io::duplex(1 << 16);
    let server = bench.server.clone();
    let refused = tokio::spawn(async move { server.serve(theirs, key(2)).await });
    other
        .write_all(&wire::token_hello(9, b"in/d", &[b"s"]))
        .await
        .unwrap();
    let mut answer = [0; 6];
    other.read_exact(&mut answer).await.unwrap();
    assert_eq!((answer[4], answer[5]), (3, 1), "REFUSE, unauthorised");
    drop((ours, other));
    let _ = (served.await, refused.await);
}

/// A connector to a hostile server, which reads HELLO, sends its bytes, and keeps listening.
pub struct Hostile(Arc<Vec<u8>>, Mutex<Vec<tokio::task::JoinHandle<()>>>);

impl Connector for Hostile {
    type Stream = DuplexStream;

    fn routes(&self) -> Vec<RouteInfo> {
        vec![RouteInfo::direct()]
    }

    async fn connect(&self, _: usize) -> Result<DuplexStream, ConnectError> {
        let (ours, mut theirs) = tokio::io::duplex(1 << 20);
        let bytes = self.0.clone();
        self.1.lock().push(tokio::spawn(async move {
            let mut received = [0; 1024];
            let _ = theirs.read(&mut received).await;
            let _ = theirs.write_all(&bytes).await;
            while theirs.read(&mut received).await.is_ok_and(|n| n > 0) {}
        }));
        Ok(ours)
    }
}

async fn pull_from_hostile(_: &Bench, to: &Path, bytes: Vec<u8>) -> Result<CopyOutcome, Error> {
    pull_hostile(to, true, bytes, Arc::new(())).await
}

/// Pulls `s` from a server that sends `bytes`.
pub async fn pull_hostile(
    to: &Path,
    recursive: bool,
    bytes: Vec<u8>,
    observer: Arc<dyn Observer>,
) -> Result<CopyOutcome, Error> {
    let request = CopyRequest::Pull {
        recursive,
        sources: vec![rel("s")],
    };
    let hello = Hello {
        token: CopyToken::random().unwrap(),
        request,
        resume: false,
        clear: false,
        offer: None,
        hard_links: false,
        single: false,
        portion: Portion::Whole,
        placement: None,
        reports_not_kept: false,
        filter: FilterRules::default(),
        existing: ExistingPolicy::default(),
        receipt: false,
        compression: Compression::None,
        packs: false,
        delta: false,
        in_place: false,
        late_sizes: false,
        keep: Preservation::default(),
        bearer: None,
    };
    let options = WriteOptions {
        overwrite: true,
        ..Default::default()
    };
    let destination =
        CopyDestination::local(to, vec![b"s".to_vec()], options, hello.token).unwrap();
    let connector = Arc::new(Hostile(Arc::new(bytes), Mutex::default()));
    let client = Client {
        connector,
        hello,
        compare: Compare::default(),
        streams: Some(1),
        memory: None,
        patience: DEFAULT_PATIENCE,
        progress: Arc::default(),
        observer,
        receipt: None,
        tokens: None,
    };
    client.pull(destination, vec!["s".into()]).await
}

#[tokio::test(start_paused = true)]
async fn hostile_server_writes_only_to_the_destination() {
    let bench = with_surroundings();
    let before = surroundings(&bench);
    let outside = bench.tmp.path().join("outside");
    let target = outside.to_str().unwrap().as_bytes();
    // A link that the server creates, an existing one, and the root of the destination.
    std::fs::create_dir(bench.local("d")).unwrap();
    symlink(&outside, bench.local("d/there")).unwrap();
    let bytes = [
        wire::entries_beneath_link(0, target),
        wire::honest_small(4, b"good", b"good"),
        wire::directory(5, b""),
        wire::end(6),
    ]
    .concat();
    pull_from_hostile(&bench, &bench.local("d"), bytes)
        .await
        .unwrap();
    assert_eq!(surroundings(&bench), before);
    assert_eq!(std::fs::read(bench.local("d/s/good")).unwrap(), b"good");
    for name in [
        &b"../evil"[..],
        b"../../outside/evil",
        b"/tmp/evil",
        b"there/../../evil",
    ] {
        let error = pull_from_hostile(
            &bench,
            &bench.local("d"),
            wire::honest_small(0, name, b"evil"),
        )
        .await
        .unwrap_err();
        assert!(matches!(error, Error::Protocol(_)), "{error}");
    }
    assert_eq!(surroundings(&bench), before);
    assert!(!bench.local("evil").exists());
    assert_no_temps(bench.tmp.path());
}

#[tokio::test(start_paused = true)]
async fn false_content_or_invalid_frames_are_detected() {
    let bench = with_surroundings();
    let bytes = [wire::small(0, 0, b"", b"abc", [1; 32]), wire::end(1)].concat();
    pull_from_hostile(&bench, &bench.local("x"), bytes)
        .await
        .unwrap();
    assert!(!bench.local("x").exists());
    for nonsense in [
        b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
        vec![0xff; 64],
        wire::push_hello(b"d", &[b"s"]),
    ] {
        let error = pull_from_hostile(&bench, &bench.local("x"), nonsense)
            .await
            .unwrap_err();
        assert!(matches!(error, Error::Protocol(_)), "{error}");
    }
}
