//! The receiver's half of the model: what arrives is written once, and answered as often as it is
//! asked about.

use super::sender::nth;
use super::*;
use crate::manifest::ManifestRecord;

/// A file that is arriving in blocks.
#[derive(Default)]
pub(super) struct Arriving {
    offsets: HashSet<u64>,
    size: u64,
    end: Option<Hash>,
    asked: Vec<StreamId>,
    /// Streams that received what existed before.
    reported: HashSet<StreamId>,
}

fn line_of(lines: &mut BTreeMap<StreamId, Line>, stream: StreamId) -> &mut VecDeque<Answer> {
    &mut lines.get_mut(&stream).unwrap().answers
}

impl World {
    /// Delivers one frame to the receiver.
    pub(super) fn deliver(&mut self, stream: StreamId) {
        let line = self.lines.get_mut(&stream).unwrap();
        let Some(sent) = line.sent.pop_front() else {
            return;
        };
        let (mut asked, mut ended) = (vec![stream], None);
        match sent {
            Sent::Offer(entry, content) => {
                let id = entry.head.id;
                match self.written.contains_key(&id) || self.compare(&entry, content) {
                    true => ended = Some(id),
                    false => line_of(&mut self.lines, stream).push_back(Answer::Want(id)),
                }
            }
            Sent::Link(entry) => {
                let id = entry.head.id;
                match self.written.contains_key(&id) || self.link(&entry) {
                    true => ended = Some(id),
                    false => line_of(&mut self.lines, stream).push_back(Answer::Want(id)),
                }
            }
            Sent::Whole(entry, content) => {
                let ok = !self.refuses(entry.head.id);
                self.write(entry.head.id, ok.then_some(content));
                ended = Some(entry.head.id);
            }
            Sent::Failed(entry) => {
                self.write(entry.head.id, None);
                ended = Some(entry.head.id);
            }
            Sent::Block { id, offset, size } => {
                line.answers.push_back(Answer::Ack(id, offset));
                if !self.written.contains_key(&id) {
                    self.describe(stream, id, size);
                    let file = self.arriving.entry(id).or_default();
                    file.offsets.insert(offset);
                    if self.refuses(id) {
                        self.write(id, None);
                        ended = Some(id);
                    } else {
                        asked.clear();
                        ended = self.complete(id);
                    }
                }
            }
            Sent::FileEnd { id, hash, size } => {
                if self.written.contains_key(&id) {
                    ended = Some(id);
                } else {
                    self.describe(stream, id, size);
                    let file = self.arriving.entry(id).or_default();
                    file.end = Some(hash);
                    file.asked.push(stream);
                    asked.clear();
                    ended = self.complete(id);
                }
            }
            Sent::End(entries) => self.end = Some(entries),
        }
        if let Some(id) = ended {
            asked.extend(self.arriving.remove(&id).map_or(vec![], |file| file.asked));
            for stream in asked {
                if let Some(line) = self.lines.get_mut(&stream) {
                    line.answers
                        .push_back(Answer::Result(id, self.written[&id]));
                }
            }
        }
        self.report_done();
    }

    /// Describes a file of `size` bytes on a stream, which receives the parts that exist.
    fn describe(&mut self, stream: StreamId, id: u64, size: u64) {
        let Plan::File { kept, .. } = self.plans[id as usize] else {
            return;
        };
        let is_new = !self.arriving.contains_key(&id);
        let file = self.arriving.entry(id).or_default();
        file.size = size;
        let in_blocks = size > BLOCK;
        if is_new && in_blocks {
            let there = (0..8).filter(|n| kept >> n & 1 == 1).map(|n| n * BLOCK);
            file.offsets.extend(there.filter(|offset| *offset < size));
        }
        if file.reported.insert(stream) && kept > 0 && in_blocks {
            let mut offsets: Vec<u64> = file.offsets.iter().copied().collect();
            offsets.sort_unstable();
            let parts = offsets.into_iter().map(|offset| Subtree {
                offset,
                level: BLOCK_LOG2,
                chaining_value: [7; 32],
            });
            let have = Answer::Have(id, parts.collect());
            self.lines.get_mut(&stream).unwrap().answers.push_back(have);
        }
    }

    /// Returns true if an offered file exists, and records that outcome.
    fn compare(&mut self, entry: &SourceEntry, offered: Option<(u64, Hash)>) -> bool {
        let id = entry.head.id;
        let count = self.comparisons.entry(id).or_default();
        *count += 1;
        let Plan::File {
            there: Some(there),
            found,
            ..
        } = &self.plans[id as usize]
        else {
            return false;
        };
        let (size, content) = nth(there, *count - 1);
        let (is_there, record) = match (&offered, self.compare) {
            (Some((of_size, hash)), Compare::Content) => {
                let record = ManifestRecord::File {
                    size,
                    hash,
                    mtime: entry.meta.mtime,
                    parts: &[],
                };
                ((size, [content; 32]) == (*of_size, *hash), record)
            }
            (None, Compare::SizeAndTime) => {
                let mtime = entry.meta.mtime;
                (
                    size == *found && content == 0,
                    ManifestRecord::Unchanged { size, mtime },
                )
            }
            _ => panic!("offered in another way than was said"),
        };
        assert!(
            self.has_some || self.compare == Compare::SizeAndTime,
            "offered to who has nothing"
        );
        if is_there {
            let first = self.manifest.record(id, 0, &entry.head.path, record);
            assert!(first);
            self.written.insert(id, Outcome::Unchanged);
        }
        is_there
    }

    /// Returns true if a file can be linked to one in place, and records that outcome.
    fn link(&mut self, entry: &SourceEntry) -> bool {
        let id = entry.head.id;
        assert!(self.understands_links, "nobody said that it does");
        let Plan::File {
            can_link, inode, ..
        } = &self.plans[id as usize]
        else {
            panic!("links what is no file")
        };
        let first = entry.first.as_ref().expect("another name of something");
        let of: u64 = first.path.to_string()[1..].parse().unwrap();
        assert!(matches!(
            self.written[&of],
            Outcome::Written | Outcome::Unchanged
        ));
        let Plan::File { inode: other, .. } = &self.plans[of as usize] else {
            panic!("another name of what is no file")
        };
        assert!(inode.is_some() && inode == other, "names of two files");
        let count = self.links_asked.entry(id).or_default();
        *count += 1;
        let can = nth(can_link, *count - 1);
        if can {
            let record = ManifestRecord::HardLink {
                size: entry.size(),
                source: first.source,
                path: &first.path,
            };
            assert!(self.manifest.record(id, 0, &entry.head.path, record));
            self.written.insert(id, Outcome::Linked);
        }
        can
    }

    fn refuses(&self, id: u64) -> bool {
        matches!(&self.plans[id as usize], Plan::File { refused: true, .. })
    }

    /// Writes a file that came in blocks, once all of it has arrived.
    fn complete(&mut self, id: u64) -> Option<u64> {
        let file = &self.arriving[&id];
        let hash = file.end?;
        if (file.offsets.len() as u64) < file.size.div_ceil(BLOCK) {
            return None;
        }
        let size = file.size;
        self.write(id, Some(Some((size, hash))));
        Some(id)
    }

    fn write(&mut self, id: u64, content: Option<Option<(u64, Hash)>>) {
        let path = RelPath::from_bytes(format!("e{id}").as_bytes()).unwrap();
        let record = match (&self.plans[id as usize], &content) {
            (Plan::Directory, Some(_)) => ManifestRecord::Directory,
            (Plan::Link, Some(_)) => ManifestRecord::Symlink { target: b"t" },
            (_, Some(Some((size, hash)))) => ManifestRecord::File {
                size: *size,
                hash,
                mtime: (0, 0),
                parts: &[],
            },
            _ => ManifestRecord::Failed,
        };
        if self.manifest.record(id, 0, &path, record) {
            let outcome = match content {
                Some(_) => Outcome::Written,
                None => Outcome::Failed,
            };
            self.written.insert(id, outcome);
        }
    }

    pub(super) fn report_done(&mut self) {
        if self.end != Some(self.manifest.len()) {
            return;
        }
        for line in self.lines.values_mut().filter(|line| !line.reported_done) {
            line.reported_done = true;
            line.answers.push_back(Answer::Done(self.manifest.hash()));
        }
    }
}
