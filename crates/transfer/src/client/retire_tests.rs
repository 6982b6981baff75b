//! Streams that are retired during a copy, in both directions. They end in an orderly manner, and
//! nothing that they carried is lost or travels twice.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use longhaul_filter::FilterRules;
use longhaul_proto::PublicKey;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::account::Account;
use crate::existing::ExistingPolicy;
use crate::frame_io::FrameReader;
use crate::grants::{Access, Grants};
use crate::limits::ServerLimits;
use crate::part::Portion;
use crate::path::RelPath;
use crate::preservation::Preservation;
use crate::progress::TransferProgress;
use crate::receive::{AfterDone, Receiver, RequestedEntries, StreamEnd, receive_stream};
use crate::send::{DataSetting, Sources, WorkQueue, send_stream};
use crate::server::Server;
use crate::store::confine::Dir;
use crate::store::{CopyDestination, WriteOptions};
use crate::wire::{CopyRequest, CopyToken, Frame, Hello};

const BYTES: usize = 24 << 20;

/// A server of one directory, a file, and a key with all permissions.
struct Bench {
    tmp: tempfile::TempDir,
    server: Arc<Server>,
    key: PublicKey,
    content: Vec<u8>,
}

impl Bench {
    fn new() -> Self {
        let tmp = tempfile::tempdir().unwrap();
        std::fs::create_dir(tmp.path().join("root")).unwrap();
        let key = PublicKey::from_bytes([1; 32]);
        let mut grants = Grants::default();
        for access in [Access::Read, Access::Write] {
            grants.add(access, &key.to_string()).unwrap();
        }
        let root = Dir::open(&tmp.path().join("root")).unwrap();
        let content = (0..BYTES / 8)
            .flat_map(|n| (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
        Self {
            server: Server::new(root, grants, ServerLimits::default()),
            content: content.collect(),
            tmp,
            key,
        }
    }

    /// Opens a pipe to the server, and returns it with the greeting HELLO. The pipe is so small
    /// that most of a stream's work is still ahead of it.
    fn open(&self, request: &CopyRequest, token: CopyToken) -> (tokio::io::DuplexStream, Vec<u8>) {
        let (ours, theirs) = tokio::io::duplex(4096);
        let (server, key) = (self.server.clone(), self.key);
        tokio::spawn(async move { server.serve(theirs, key).await });
        let mut greeting = Vec::new();
        let hello = Hello {
            token,
            request: request.clone(),
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
            compression: crate::compression::Compression::None,
            packs: false,
            delta: false,
            in_place: false,
            late_sizes: false,
            keep: Preservation::default(),
            bearer: None,
        };
        Frame::Hello(hello).encode(&mut greeting);
        (ours, greeting)
    }

    /// Opens a stream of the copy that moves nothing.
    async fn idle(&self, request: &CopyRequest, token: CopyToken) -> tokio::io::DuplexStream {
        let (mut stream, greeting) = self.open(request, token);
        stream.write_all(&greeting).await.unwrap();
        // This is the start of ACCEPT: the server counts the stream from now on.
        stream.read_u8().await.unwrap();
        stream
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retired_push_stream_ends_and_others_continue() {
    let bench = Bench::new();
    let file = bench.tmp.path().join("f");
    std::fs::write(&file, &bench.content).unwrap();
    let (sources, names) = Sources::local(&[file], true).unwrap();
    let request = CopyRequest::Push {
        destination: RelPath::from_bytes(b"f").unwrap(),
        into: false,
        overwrite: false,
        fsync: false,
        names,
    };
    let token = CopyToken([7; 16]);
    let progress = Arc::new(TransferProgress::default());
    let labels = Sources::labels(vec!["f".into()]);
    let queue = WorkQueue::new(
        sources,
        false,
        Account::unshared(),
        progress.clone(),
        Arc::new(()),
        labels,
    )
    .unwrap();
    let walk = queue.clone();
    tokio::task::spawn_blocking(move || walk.walk());
    let run = |retired: bool| {
        let (stream, greeting) = bench.open(&request, token);
        let counters = progress.add_stream(&crate::RouteInfo::direct(), None, false);
        let queue = queue.clone();
        async move {
            let (reader, mut writer) = tokio::io::split(stream);
            let mut reader = FrameReader::new(reader);
            let id = counters.number;
            let clear = DataSetting::disabled();
            let sending = send_stream(
                &queue,
                id,
                &counters,
                &mut reader,
                &mut writer,
                greeting,
                &clear,
            );
            let retiring = async {
                while retired && counters.bytes.load(Ordering::Relaxed) == 0 {
                    tokio::task::yield_now().await;
                }
                if retired {
                    queue.retire(id);
                }
            };
            let (ended, ()) = tokio::join!(sending, retiring);
            (ended.unwrap(), counters.bytes.load(Ordering::Relaxed))
        }
    };
    // The streams run one after the other, as otherwise the copy might end before this one is
    // retired. A third, idle stream keeps the copy at the server. Its work is finally retransmitted
    // on the other stream.
    let idle = bench.idle(&request, token).await;
    let (retired, second) = run(true).await;
    let (stays, first) = run(false).await;
    drop(idle);
    assert_eq!((stays, retired), (StreamEnd::Finished, StreamEnd::Closed));
    assert!(second > 0);
    assert_eq!(first + second, BYTES as u64, "nothing travelled twice");
    assert!(std::fs::read(bench.tmp.path().join("root/f")).unwrap() == bench.content);
}

// LH-COPY-32.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retired_pull_stream_ends_and_others_continue() {
    let bench = Bench::new();
    std::fs::write(bench.tmp.path().join("root/f"), &bench.content).unwrap();
    let request = CopyRequest::Pull {
        recursive: false,
        sources: vec![RelPath::from_bytes(b"f").unwrap()],
    };
    let token = CopyToken([7; 16]);
    let progress = Arc::new(TransferProgress::default());
    let target = bench.tmp.path().join("out");
    let destination =
        CopyDestination::local(&target, vec![b"f".to_vec()], WriteOptions::default(), token)
            .unwrap();
    let receiver = Receiver::new(
        destination,
        RequestedEntries::Files,
        Account::unshared(),
        progress.clone(),
        Arc::new(()),
        Sources::labels(vec!["f".into()]),
    )
    .unwrap();
    let run = |retired: bool| {
        let (stream, greeting) = bench.open(&request, token);
        let counters = progress.add_stream(&crate::RouteInfo::direct(), None, false);
        let receiver = receiver.clone();
        async move {
            let (reader, mut writer) = tokio::io::split(stream);
            let mut reader = FrameReader::new(reader);
            let receiving = receive_stream(
                &receiver,
                &counters,
                &mut reader,
                &mut writer,
                &greeting,
                AfterDone::Leave,
            );
            let retiring = async {
                while retired && counters.bytes.load(Ordering::Relaxed) == 0 {
                    tokio::task::yield_now().await;
                }
                if retired {
                    counters.retire();
                }
            };
            let (ended, ()) = tokio::join!(receiving, retiring);
            (ended.unwrap(), counters.bytes.load(Ordering::Relaxed))
        }
    };
    // The streams run one after the other, as otherwise the copy might end before this one is
    // retired. A third, idle stream keeps the copy at the server. Its work is finally retransmitted
    // on the other stream.
    let idle = bench.idle(&request, token).await;
    let (retired, second) = run(true).await;
    let (stays, first) = run(false).await;
    drop(idle);
    assert_eq!((stays, retired), (StreamEnd::Finished, StreamEnd::Closed));
    assert!(second > 0);
    assert_eq!(first + second, BYTES as u64, "nothing travelled twice");
    assert!(std::fs::read(&target).unwrap() == bench.content);
}
