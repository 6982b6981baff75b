//! Faults during a copy: something dies, changes or fills up. The rest arrives completely, or the
//! copy ends with an error that gives the reason.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use longhaul_transfer::store::confine::Dir;
use longhaul_transfer::*;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::harness::*;
use crate::wire;

/// Creates a small tree of everything that can be cut in the middle: 1.2 MB in 8 blocks and 40
/// small entries.
fn small_tree(at: &Path) {
    std::fs::create_dir_all(at.join("d/e")).unwrap();
    std::fs::write(at.join("d/blocks"), noise(700_000, 1)).unwrap();
    std::fs::write(at.join("more"), noise(500_000, 2)).unwrap();
    for n in 0..30 {
        std::fs::write(at.join(format!("d/e/{n}")), noise(n * 40, n as u64)).unwrap();
    }
    std::os::unix::fs::symlink("more", at.join("link")).unwrap();
}

/// Returns byte counts at which to cut: each of the first frames, then with growing distance
/// through to the end.
fn cuts() -> Vec<u64> {
    let mut list: Vec<u64> = (1..40).step_by(3).collect();
    let mut at = 40u64;
    while at < 1_200_000 {
        list.push(at);
        at += at / 6 + 11;
    }
    list
}

// LH-COPY-27.
#[tokio::test(start_paused = true)]
async fn push_cut_anywhere_is_finished_by_the_next_stream() {
    let bench = Bench::new();
    small_tree(&bench.local("s"));
    let whole = describe(&bench.local("s"));
    for (n, cut) in cuts().into_iter().enumerate() {
        let pipes = bench.pipes();
        // The second stream is cut as well, a little later.
        *pipes.cuts.lock() = vec![cut, cut / 2 + 1000];
        let run = bench
            .push(
                pipes,
                &[bench.local("s")],
                &format!("/{n}"),
                WriteOptions::default(),
            )
            .await;
        run.ok();
        assert!(run.streams_lost() >= 1, "cut at {cut}");
        assert_eq!(describe(&bench.root(&n.to_string())), whole, "cut at {cut}");
        assert_no_temps(&bench.root(&n.to_string()));
        std::fs::remove_dir_all(bench.root(&n.to_string())).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn pull_cut_anywhere_is_finished_by_the_next_stream() {
    let bench = Bench::new();
    small_tree(&bench.root("s"));
    let whole = describe(&bench.root("s"));
    for (n, cut) in cuts().into_iter().enumerate() {
        let pipes = bench.pipes();
        *pipes.cuts.lock() = vec![cut, cut / 2 + 1000];
        let run = bench
            .pull(pipes, &["s"], &n.to_string(), WriteOptions::default())
            .await;
        run.ok();
        assert!(run.streams_lost() >= 1, "cut at {cut}");
        assert_eq!(
            describe(&bench.local(&n.to_string())),
            whole,
            "cut at {cut}"
        );
        assert_no_temps(&bench.local(&n.to_string()));
        std::fs::remove_dir_all(bench.local(&n.to_string())).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn streams_that_die_one_by_one_lose_nothing() {
    let bench = Bench::new();
    std::fs::write(bench.local("f"), noise(6_000_000, 7)).unwrap();
    for seed in 0..12u64 {
        let pipes = bench.pipes();
        *pipes.cuts.lock() = (0..9)
            .map(|n| 50_000 + (seed * 7919 + n * 104_729) % 1_500_000)
            .collect();
        let to = format!("/f{seed}");
        let run = bench
            .push_with(
                pipes,
                &[bench.local("f")],
                &to,
                WriteOptions::default(),
                Some(3),
            )
            .await;
        run.ok();
        assert_eq!(run.progress.bytes_done.load(Ordering::Relaxed), 6_000_000);
        assert_eq!(
            std::fs::read(bench.root(&to[1..])).unwrap(),
            noise(6_000_000, 7)
        );
    }
}

// LH-COPY-28.
#[tokio::test(start_paused = true)]
async fn silent_path_does_not_delay_the_end() {
    let bench = Bench::new();
    std::fs::write(bench.local("f"), noise(8_000_000, 7)).unwrap();
    let mut pipes = bench.pipes();
    pipes.stalls = true;
    *pipes.cuts.lock() = vec![900_000];
    let started = tokio::time::Instant::now();
    let run = bench
        .push_with(
            pipes,
            &[bench.local("f")],
            "/f",
            WriteOptions::default(),
            Some(2),
        )
        .await;
    run.ok();
    assert!(
        started.elapsed() < Duration::from_secs(20),
        "not before the silence was noticed: {:?}",
        started.elapsed()
    );
    assert_eq!(std::fs::read(bench.root("f")).unwrap(), noise(8_000_000, 7));
}

#[tokio::test(start_paused = true)]
async fn copy_without_streams_ends_and_names_the_failure() {
    for push in [true, false] {
        let bench = Bench::new();
        std::fs::write(bench.local("f"), noise(3_000_000, 7)).unwrap();
        std::fs::write(bench.root("g"), noise(3_000_000, 7)).unwrap();
        let pipes = bench.pipes();
        let mut cuts = vec![0; 1000];
        cuts[0] = 1_000_000;
        *pipes.cuts.lock() = cuts;
        let started = tokio::time::Instant::now();
        let run = match push {
            true => {
                bench
                    .push(pipes, &[bench.local("f")], "/f", WriteOptions::default())
                    .await
            }
            false => {
                bench
                    .pull(pipes, &["g"], "g", WriteOptions::default())
                    .await
            }
        };
        let error = run.result.unwrap_err();
        assert!(matches!(error, Error::StreamsLost(_)), "{error:?}");
        assert!(
            error.to_string().contains("depot d:1 does not answer"),
            "{error}"
        );
        let patience = DEFAULT_PATIENCE..DEFAULT_PATIENCE + Duration::from_secs(10);
        assert!(
            patience.contains(&started.elapsed()),
            "{:?}",
            started.elapsed()
        );
        // No partial file stays: neither here at once, nor on the server when no client has come
        // back.
        tokio::time::sleep(ServerLimits::default().stream_grace * 2).await;
        assert_eq!(bench.server.copies(), 0);
        assert_no_temps(bench.tmp.path());
        assert!(!bench.root("f").exists() && !bench.local("g").exists());
    }
}

#[tokio::test(start_paused = true)]
async fn unusable_route_is_reported_or_replaced() {
    let bench = Bench::new();
    std::fs::write(bench.local("f"), "x").unwrap();
    let pipes = bench.pipes();
    *pipes.cuts.lock() = vec![0; 10];
    let run = bench
        .push(pipes, &[bench.local("f")], "/f", WriteOptions::default())
        .await;
    assert!(
        matches!(run.result, Err(Error::Connect(ref text)) if text.contains("depot d:1")),
        "{:?}",
        run.result
    );
    let mut pipes = bench.pipes();
    pipes.routes = ["a", "b"].map(RouteInfo::without_depots).into();
    *pipes.cuts.lock() = vec![0];
    bench
        .push(pipes, &[bench.local("f")], "/f", WriteOptions::default())
        .await
        .ok();
}

// LH-COPY-16. In virtual time, as a copy that takes long to begin opens further streams.
#[tokio::test(start_paused = true)]
async fn file_changed_during_reading_is_not_kept() {
    for change in ["append", "rewrite", "truncate"] {
        let bench = Bench::new();
        std::fs::create_dir(bench.local("s")).unwrap();
        let file = bench.local("s/log");
        std::fs::write(&file, noise(12_000_000, 1)).unwrap();
        set_mtime(&file, 1_000_000_000, 0);
        std::fs::write(bench.local("s/other"), "whole").unwrap();
        let pipes = bench.pipes();
        let hook = {
            let file = file.clone();
            move || match change {
                "append" => {
                    use std::io::Write;
                    std::fs::OpenOptions::new()
                        .append(true)
                        .open(file)
                        .unwrap()
                        .write_all(b"more")
                        .unwrap();
                }
                "rewrite" => std::fs::write(file, noise(12_000_000, 2)).unwrap(),
                _ => std::fs::OpenOptions::new()
                    .write(true)
                    .open(file)
                    .unwrap()
                    .set_len(11_000_000)
                    .unwrap(),
            }
        };
        // Long before its end can have been read: at most a few blocks of 256 KiB are in flight.
        *pipes.hook.lock() = Some((1_000_000, Box::new(hook)));
        let run = bench
            .push(pipes, &[bench.local("s/.")], "/", WriteOptions::default())
            .await;
        assert!(run.result.is_ok(), "{:?}", run.result);
        assert_eq!(
            run.failures(),
            [("log".to_owned(), FailureKind::Changed)],
            "{change}"
        );
        assert!(!bench.root("log").exists());
        assert_eq!(std::fs::read(bench.root("other")).unwrap(), b"whole");
        assert_no_temps(&bench.root(""));
    }
}

/// In virtual time, as a copy that takes long to begin opens further streams, and these would carry
/// the other files meanwhile.
#[tokio::test(start_paused = true)]
async fn vanished_files_are_reported_and_the_rest_arrives() {
    let bench = Bench::new();
    std::fs::create_dir(bench.root("s")).unwrap();
    std::fs::write(bench.root("s/a"), noise(12_000_000, 1)).unwrap();
    for name in ["b", "c", "d"] {
        std::fs::write(bench.root("s").join(name), noise(1_000_000, 3)).unwrap();
    }
    let pipes = bench.pipes();
    let gone = [bench.root("s/b"), bench.root("s/d")];
    *pipes.hook.lock() = Some((
        1_000_000,
        Box::new(move || gone.iter().for_each(|f| std::fs::remove_file(f).unwrap())),
    ));
    let run = bench
        .pull(pipes, &["s"], "s", WriteOptions::default())
        .await;
    assert!(run.result.is_ok());
    let vanished = |name: &str| (name.to_owned(), FailureKind::Vanished);
    // The walk of four names had ended long before a million bytes had passed.
    assert_eq!(run.failures(), [vanished("b"), vanished("d")]);
    assert_eq!(
        std::fs::read(bench.local("s/c")).unwrap(),
        noise(1_000_000, 3)
    );
    assert!(!bench.local("s/b").exists());
}

/// Asks over consecutive streams. Returns the received bytes once each entry from `first` on has
/// been answered, in any order.
async fn ask_wrongly(bench: &Bench, first: u64, count: u64) -> Vec<u8> {
    let (mut ours, theirs) = tokio::io::duplex(1 << 20);
    let server = bench.server.clone();
    tokio::spawn(async move { server.serve(theirs, key(1)).await });
    let entry = |id: u64| wire::small(id, 0, format!("f{id}").as_bytes(), b"x", [7; 32]);
    let mut bytes = wire::token_hello(77, b"d", &[b""]);
    bytes.extend((first..first + count).flat_map(entry));
    ours.write_all(&bytes).await.unwrap();
    let mut received = Vec::new();
    for id in first..first + count {
        while wire::result_of(&received, id).is_none() {
            assert!(
                ours.read_buf(&mut received).await.unwrap() > 0,
                "entry {id}"
            );
        }
    }
    // Cut in the middle of a frame, so that the copy waits for a stream to return.
    ours.write_all(&[1, 0]).await.unwrap();
    received
}

#[tokio::test]
async fn lh_copy_19_many_failures_are_each_reported_again() {
    let bench = Bench::new();
    std::fs::create_dir(bench.root("d")).unwrap();
    let verification = Some(FailureKind::Verification as u8);
    ask_wrongly(&bench, 0, 1500).await;
    // The stream has died, and possibly every answer with it.
    let again = ask_wrongly(&bench, 1000, 500).await;
    for id in 1000..1500 {
        assert_eq!(wire::result_of(&again, id), verification, "entry {id}");
    }
}

/// Returns a private tmpfs of one MiB, or `None` without permission to mount.
fn tiny_disk() -> Option<Dir> {
    use rustix::mount::*;
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).ok()?;
    fsconfig_set_string(&context, "size", "1048576").ok()?;
    fsconfig_create(&context).ok()?;
    let mount = fsmount(
        &context,
        FsMountFlags::FSMOUNT_CLOEXEC,
        MountAttrFlags::empty(),
    )
    .ok()?;
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&mount));
    Some(Dir::open(Path::new(&path)).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_disk_is_reported_per_file_and_the_rest_arrives() {
    let Some(disk) = tiny_disk() else {
        // An ordinary user may mount in a user namespace, in which the test runs itself.
        assert!(
            std::env::var_os("LONGHAUL_TEST_IN_NAMESPACE").is_none(),
            "no mount even in a namespace"
        );
        let status = std::process::Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount"])
            .arg(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "faults::full_disk_is_reported_per_file_and_the_rest_arrives",
            ])
            .env("LONGHAUL_TEST_IN_NAMESPACE", "1")
            .status();
        assert!(status.unwrap().success());
        return;
    };
    let bench = Bench::new();
    std::fs::create_dir(bench.local("s")).unwrap();
    std::fs::write(bench.local("s/fits"), noise(100_000, 1)).unwrap();
    std::fs::write(bench.local("s/huge"), noise(5_000_000, 2)).unwrap();
    std::fs::write(bench.local("s/small"), "also fits").unwrap();
    let mut grants = Grants::default();
    grants.add(Access::Write, &key(1).to_string()).unwrap();
    grants.add(Access::Read, &key(1).to_string()).unwrap();
    let server = Server::new(disk, grants, ServerLimits::default());
    let mut pipes = bench.pipes();
    pipes.server = server.clone();
    let run = bench
        .push(pipes, &[bench.local("s")], "/s", WriteOptions::default())
        .await;
    assert!(run.result.is_ok(), "{:?}", run.result);
    // While the huge file fills the disk, there may be no space for the others either. Each is
    // reported or in place.
    let failures = run.failures();
    assert!(
        failures
            .iter()
            .all(|(_, kind)| *kind == FailureKind::DiskFull),
        "{failures:?}"
    );
    assert!(
        failures.iter().any(|(name, _)| name == "huge"),
        "{failures:?}"
    );
    let arrived = [("fits", 100_000), ("small", 9)]
        .iter()
        .filter(|(name, _)| !failures.iter().any(|(failed, _)| failed == name))
        .map(|(_, bytes)| bytes)
        .sum::<u64>();
    assert_eq!(run.progress.bytes_done.load(Ordering::Relaxed), arrived);
    // The space of the failed file is free again.
    let mut pipes = bench.pipes();
    pipes.server = server.clone();
    std::fs::write(bench.local("half"), noise(800_000, 3)).unwrap();
    bench
        .push(
            pipes,
            &[bench.local("half")],
            "/half",
            WriteOptions::default(),
        )
        .await
        .ok();
    let mut pipes = bench.pipes();
    pipes.server = server;
    bench
        .pull(pipes, &["/"], "back", WriteOptions::default())
        .await
        .ok();
    assert_eq!(
        std::fs::read(bench.local("back/half")).unwrap(),
        noise(800_000, 3)
    );
    assert_no_temps(&bench.local("back"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn surplus_streams_are_refused_and_the_copy_continues() {
    let bench = Bench::with(ServerLimits {
        streams_per_copy: 2,
        ..ServerLimits::default()
    });
    std::fs::write(bench.local("f"), noise(5_000_000, 7)).unwrap();
    let run = bench
        .push_with(
            bench.pipes(),
            &[bench.local("f")],
            "/f",
            WriteOptions::default(),
            Some(5),
        )
        .await;
    run.ok();
    let bench = Bench::with(ServerLimits {
        copies: 0,
        ..ServerLimits::default()
    });
    std::fs::write(bench.local("f"), "x").unwrap();
    let run = bench
        .push(
            bench.pipes(),
            &[bench.local("f")],
            "/f",
            WriteOptions::default(),
        )
        .await;
    assert!(
        matches!(run.result, Err(Error::Limit(_))),
        "{:?}",
        run.result
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_accepted_last_first_do_not_end_the_copy() {
    let bench = Bench::with(ServerLimits {
        streams_per_copy: 2,
        ..ServerLimits::default()
    });
    std::fs::write(bench.local("f"), noise(5_000_000, 7)).unwrap();
    let mut pipes = bench.pipes();
    pipes.counts_from_answer = true;
    let server = LateServer {
        pipes,
        first: 5,
        waiting: Mutex::default(),
    };
    let run = bench
        .push_with(
            server,
            &[bench.local("f")],
            "/f",
            WriteOptions::default(),
            Some(5),
        )
        .await;
    run.ok();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn local_copy_works_the_same() {
    let bench = Bench::new();
    crate::trees::make_tree(&bench.local("s"));
    let (sources, names) = Sources::local(&[bench.local("s")], true).unwrap();
    let destination = CopyDestination::local(
        &bench.local("t"),
        names,
        WriteOptions::default(),
        CopyToken::random().unwrap(),
    )
    .unwrap();
    let progress = Arc::new(TransferProgress::default());
    copy_local(
        sources,
        vec!["s".into()],
        destination,
        Compare::default(),
        false,
        progress.clone(),
        Arc::new(()),
    )
    .await
    .unwrap();
    assert_eq!(describe(&bench.local("s")), describe(&bench.local("t")));
    assert_eq!(progress.failures.load(Ordering::Relaxed), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_know_which_end_failed() {
    for way in [Direction::Push, Direction::Pull] {
        let bench = Bench::new();
        let (from, to) = way.endpoints(&bench);
        std::fs::create_dir(&from).unwrap();
        std::fs::write(from.join("a"), "in the way of nothing").unwrap();
        std::fs::write(from.join("b"), "a directory is in its way").unwrap();
        std::os::unix::net::UnixListener::bind(from.join("c")).unwrap();
        std::fs::create_dir_all(to.join("b")).unwrap();
        let run = way
            .copy(&bench, bench.pipes(), WriteOptions::default())
            .await;
        assert!(run.result.is_ok(), "{:?}", run.result);
        let end = |event: &TransferEvent| match event {
            TransferEvent::Failed { failure, .. } => Some((failure.kind, failure.at_destination)),
            _ => None,
        };
        let mut ends: Vec<_> = run.events.iter().filter_map(end).collect();
        ends.sort_by_key(|(kind, _)| *kind as u8);
        let expected = [
            (FailureKind::NotRegular, false),
            (FailureKind::WrongKind, true),
        ];
        assert_eq!(ends, expected, "{way:?}");
    }
}
