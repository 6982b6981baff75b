//! Reading from a simulated source.

use parking_lot::Mutex;

use super::*;
use crate::compression::Compression;
use crate::frame_io::{FrameReader, IncomingFrame};
use crate::limits::BUFFER_BYTES;
use crate::path::RelPath;
use crate::send::packing::StreamPlanner;
use crate::send::schedule::FoundEntry;
use crate::send::walk::WalkSink;
use crate::wire::{EntryHead, Extent};

/// One file. `changed` is called once it has been read.
#[derive(Clone)]
struct Memory {
    data: Vec<u8>,
    size: u64,
    changed: bool,
    extents: Option<Vec<Extent>>,
}

impl Source for Memory {
    fn walk(&self, _: &dyn WalkSink) -> bool {
        true
    }

    fn open(&self, _: &EntryHead) -> Result<Box<dyn SourceFile>, Failure> {
        Ok(Box::new(self.clone()))
    }
}

impl SourceFile for Memory {
    fn size(&self) -> u64 {
        self.size
    }

    fn meta(&self) -> Meta {
        Meta::default()
    }

    fn extents(&self, _: u64, len: u32) -> Result<Vec<Extent>, Failure> {
        let whole = || vec![Extent { offset: 0, len }];
        Ok(self.extents.clone().unwrap_or_else(whole))
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Failure> {
        let data = self.data.get(offset as usize..).unwrap_or_default();
        let len = data.len().min(buffer.len());
        buffer[..len].copy_from_slice(&data[..len]);
        Ok(len)
    }

    fn is_unchanged(&self) -> Result<bool, Failure> {
        Ok(!self.changed)
    }
}

/// Records the reports on one file.
#[derive(Default)]
struct Received {
    open: Mutex<Option<Arc<OpenSourceFile>>>,
    tree: Mutex<Option<crate::tree_hash::TreeHash>>,
    said: Mutex<Vec<String>>,
}

impl Received {
    fn say(&self, what: impl Into<String>) {
        self.said.lock().push(what.into());
    }
}

impl ReadReports for Received {
    fn is_over(&self) -> bool {
        false
    }

    fn open_file(&self, _: u64) -> Option<Arc<OpenSourceFile>> {
        self.open.lock().clone()
    }

    fn signature(&self, _: u64) -> Option<Arc<crate::delta::Signature>> {
        None
    }

    fn take_report(&self, _: StreamId, entry: &Arc<SourceEntry>, report: ReadReport) -> FollowUp {
        let file = entry.clone();
        FollowUp::Work(match report {
            ReadReport::Opened(open, _) => {
                self.say(format!("opened {}", open.size()));
                let tree = crate::tree_hash::TreeHash::new(open.size(), open.block_log2);
                *self.tree.lock() = Some(tree);
                *self.open.lock() = Some(Arc::new(open));
                StreamWork::Block { file, offset: 0 }
            }
            ReadReport::Block { offset, hash } => {
                self.say(format!("block {offset}"));
                let mut tree = self.tree.lock();
                let tree = tree.as_mut().unwrap();
                tree.insert(offset, hash);
                match tree.root() {
                    Some(hash) => StreamWork::Complete { file, hash },
                    None => return FollowUp::Nothing,
                }
            }
            ReadReport::File { size, hash } => {
                self.say(format!("read {size} {hash:?}"));
                StreamWork::FileEnd { file, hash }
            }
            ReadReport::Whole { size, hash, .. } => {
                self.say(format!("whole {size} {hash:?}"));
                return FollowUp::Nothing;
            }
            ReadReport::Grew => {
                self.say("grew");
                return FollowUp::Instead(None);
            }
            ReadReport::Hashed(Some(content)) => {
                self.say(format!("offers {}", content.0));
                let content = Some(content);
                StreamWork::Offer { file, content }
            }
            ReadReport::Hashed(None) => {
                self.say("not offered");
                return FollowUp::Nothing;
            }
            ReadReport::Failed(failure) => {
                self.say(format!("failed {:?}", failure.kind));
                StreamWork::Failed(file, failure)
            }
        })
    }
}

fn file(size: usize) -> Memory {
    Memory {
        data: (0..size).map(|n| (n % 251) as u8).collect(),
        size: size as u64,
        changed: false,
        extents: None,
    }
}

fn entry(size: u64) -> Arc<SourceEntry> {
    let head = EntryHead {
        id: 5,
        source: 0,
        path: RelPath::from_bytes(b"f").unwrap(),
    };
    Arc::new(SourceEntry {
        head,
        meta: Meta::default(),
        found: FoundEntry::File { size },
        first: None,
    })
}

fn open(file: Arc<SourceEntry>) -> StreamWork {
    StreamWork::Open {
        file,
        offered: false,
    }
}

/// Reads `source` for `work`, batch by batch. Returns the frames and the reports.
fn read(source: &Memory, work: Vec<Vec<StreamWork>>) -> (Vec<u8>, Vec<String>) {
    let received = Received::default();
    let (mut announced, mut framed) = (AnnouncedFiles::default(), Vec::new());
    for work in work {
        // Old content of the buffer must not show.
        let mut out = FrameBuffer::new(vec![0xEE; BUFFER_BYTES]);
        let mut reader = Reader {
            source,
            reports: &received,
            stream: 0,
            resume: false,
            packing: None,
            packs: false,
            clear: false,
            announced: &mut announced,
            out: &mut out,
            saved: 0,
        };
        reader.fill(work, None);
        framed.extend_from_slice(out.filled());
        assert_eq!(out.into_bytes().len(), BUFFER_BYTES, "it never grows");
    }
    (framed, received.said.into_inner())
}

fn hash_of(data: &[u8]) -> Hash {
    *blake3::hash(data).as_bytes()
}

#[test]
fn file_in_blocks_is_announced_once_and_ends_with_its_hash() {
    let source = file(175_000);
    let entry = entry(175_000);
    let block = |offset| {
        vec![StreamWork::Block {
            file: entry.clone(),
            offset,
        }]
    };
    let work = vec![vec![open(entry.clone())], block(1 << 17), block(1 << 16)];
    let (framed, said) = read(&source, work);
    let hash = hash_of(&source.data);
    let mut expected = Vec::new();
    Frame::File {
        head: entry.head.clone(),
        meta: Meta::default(),
        size: 175_000,
        block_log2: 16,
        identity: None,
    }
    .encode(&mut expected);
    for (offset, end) in [(0, 1 << 16), (1 << 17, 175_000), (1 << 16, 1 << 17)] {
        let len = (end - offset) as u32;
        let extents = vec![Extent { offset: 0, len }];
        Frame::Block(Block {
            id: 5,
            offset: offset as u64,
            len,
            extents,
        })
        .encode(&mut expected);
        expected.extend_from_slice(&source.data[offset..end]);
    }
    Frame::FileEnd { id: 5, hash }.encode(&mut expected);
    assert!(framed == expected);
    let read = format!("read 175000 {hash:?}");
    assert_eq!(
        said,
        [
            "opened 175000",
            "block 0",
            "block 131072",
            "block 65536",
            &read
        ]
    );
}

#[test]
fn holes_are_hashed_and_not_sent() {
    let mut source = file(100_000);
    source.data[1000..80_000].fill(0);
    source.extents = Some(vec![Extent {
        offset: 0,
        len: 1000,
    }]);
    source.size = 65_536;
    source.data.truncate(65_536);
    let (framed, said) = read(&source, vec![vec![open(entry(100_000))]]);
    assert!(framed.len() < 1200);
    assert_eq!(said[2], format!("read 65536 {:?}", hash_of(&source.data)));
}

#[test]
fn empty_file_in_blocks_ends_at_once() {
    let (_, said) = read(&file(0), vec![vec![open(entry(400_000))]]);
    assert_eq!(said, ["opened 0", &format!("read 0 {:?}", hash_of(b""))]);
}

#[test]
fn shortened_or_changed_file_fails_without_sending_data() {
    let shorter = Memory {
        size: 700_000,
        ..file(10_000)
    };
    let changed = Memory {
        changed: true,
        ..file(200_000)
    };
    for (source, work) in [
        (&shorter, open(entry(700_000))),
        (&changed, StreamWork::Entry(entry(200_000))),
        (
            &Memory {
                size: 99_999,
                ..file(100_000)
            },
            StreamWork::Entry(entry(100_000)),
        ),
    ] {
        let (framed, said) = read(source, vec![vec![work]]);
        let mut expected = Vec::new();
        let (head, failure) = (entry(0).head.clone(), Failure::new(FailureKind::Changed));
        Frame::Failed { head, failure }.encode(&mut expected);
        assert_eq!(framed, expected);
        assert_eq!(said.last().unwrap(), "failed Changed");
    }
}

#[test]
fn files_that_grew_do_not_make_the_buffer_grow() {
    // There were nine files of 1,000 bytes when they were found.
    let source = file(200_000);
    let (framed, said) = read(&source, vec![vec![StreamWork::Entry(entry(1000)); 9]]);
    let whole = format!("whole 200000 {:?}", hash_of(&source.data));
    assert_eq!(
        said[..5],
        [
            whole.clone(),
            whole.clone(),
            whole.clone(),
            whole.clone(),
            whole
        ]
    );
    assert!(said[5..].iter().all(|said| said == "grew"));
    assert!(framed.len() > 1_000_000 && framed.len() <= BUFFER_BYTES);
    let (framed, said) = read(&file(300_000), vec![vec![StreamWork::Entry(entry(1000))]]);
    assert!(framed.is_empty());
    assert_eq!(said, ["grew"]);
}

#[test]
fn offer_has_the_content_read_or_the_metadata_found() {
    let source = file(300_000);
    let offered = |frames: &[u8]| {
        let body = bytes::Bytes::copy_from_slice(&frames[5..]);
        match crate::wire::decode(crate::wire::FrameType::Offer, body) {
            Ok(Frame::Offer(offer)) => (offer.size, offer.hash),
            other => panic!("{other:?}"),
        }
    };
    let hash = *blake3::hash(&source.data).as_bytes();
    let (framed, said) = read(&source, vec![vec![StreamWork::ReadOffer(entry(5))]]);
    assert_eq!(said, ["offers 300000"]);
    assert_eq!(offered(&framed), (300_000, Some(hash)));
    let found = StreamWork::Offer {
        file: entry(5),
        content: None,
    };
    let (framed, said) = read(&source, vec![vec![found]]);
    assert_eq!(
        (offered(&framed), said.len()),
        ((5, None), 0),
        "nothing is read"
    );
    let changed = Memory {
        changed: true,
        ..source.clone()
    };
    let longer = Memory {
        size: 299_999,
        ..source
    };
    for source in [changed, longer] {
        let (framed, said) = read(&source, vec![vec![StreamWork::ReadOffer(entry(5))]]);
        assert_eq!((framed.len(), said), (0, vec!["not offered".to_owned()]));
    }
}

/// Returns what is sent for `work` on a stream with this method, whose other end understands PACK
/// if `packs`.
fn read_packed(
    source: &dyn Source,
    work: Vec<StreamWork>,
    method: Compression,
    packs: bool,
) -> Vec<u8> {
    let planner = Arc::new(Mutex::new(StreamPlanner::new(method)));
    let mut packing = StreamPacking::new(method, planner);
    let mut out = FrameBuffer::new(Vec::new());
    let mut reader = Reader {
        source,
        reports: &Received::default(),
        stream: 0,
        resume: false,
        packing: packing.as_mut(),
        packs,
        clear: false,
        announced: &mut AnnouncedFiles::default(),
        out: &mut out,
        saved: 0,
    };
    reader.fill(work, None);
    let sent = out.filled().to_vec();
    assert_eq!(out.into_bytes().len(), BUFFER_BYTES, "it never grows");
    sent
}

/// Returns the frames that a receiver reads.
async fn frames_in(bytes: &[u8]) -> Vec<Frame> {
    let (mut reader, mut frames) = (FrameReader::new(bytes), Vec::new());
    while let Some(IncomingFrame::Frame(frame)) = reader.next().await.unwrap() {
        frames.push(frame);
    }
    frames
}

/// LH-COPY-75.
#[tokio::test]
async fn small_files_travel_in_packs_where_that_is_understood() {
    let zstd = Compression::Zstd(3);
    // A few in one pack, so many that there are several, and one in three parts.
    for (size, count, most) in [(4000, 5, 2000), (4000, 90, 30_000), (262_144, 2, 40_000)] {
        let source = file(size);
        let work = || -> Vec<StreamWork> {
            let entries = (0..count).map(|_| StreamWork::Entry(entry(size as u64)));
            let end = StreamWork::End {
                entries: 9,
                bytes: 9,
            };
            entries.chain([end]).collect()
        };
        let plain = read_packed(&source, work(), zstd, false);
        assert_eq!(
            plain,
            read_packed(&source, work(), Compression::Auto, true),
            "nothing is known yet"
        );
        let packed = read_packed(&source, work(), zstd, true);
        assert!(packed.len() < most, "{} of {}", packed.len(), plain.len());
        let frames = frames_in(&packed).await;
        assert_eq!(frames.len(), count + 1);
        assert!(frames == frames_in(&plain).await);
    }
}

#[tokio::test]
async fn frames_that_do_not_shrink_are_not_packed() {
    let mut noise = file(100_000);
    blake3::Hasher::new().finalize_xof().fill(&mut noise.data);
    let work = || vec![StreamWork::Entry(entry(100_000))];
    let plain = read_packed(&noise, work(), Compression::Zstd(3), false);
    assert!(plain == read_packed(&noise, work(), Compression::Zstd(3), true));
}

#[tokio::test]
async fn blocks_are_not_packed() {
    let source = file(300_000);
    let sent = read_packed(
        &source,
        vec![open(entry(300_000))],
        Compression::Zstd(3),
        true,
    );
    let mut reader = FrameReader::new(&sent[..]);
    let first = reader.next().await.unwrap();
    assert!(matches!(
        first,
        Some(IncomingFrame::Frame(Frame::File { .. }))
    ));
    let second = reader.next().await.unwrap();
    assert!(matches!(second, Some(IncomingFrame::Block(..))));
}
