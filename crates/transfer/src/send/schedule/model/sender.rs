//! The sender's half of the model: work is read as planned, and the results are reported and sent.

use super::*;

impl World {
    /// Reads and frames one item of work.
    pub(super) fn read(&mut self, stream: StreamId) {
        let Some(work) = self.readers.get_mut(&stream).and_then(VecDeque::pop_front) else {
            return;
        };
        let Work::Entry(entry) = &work else {
            return self.read_blocks(stream, work);
        };
        let id = entry.head.id;
        let Plan::File {
            sizes, contents, ..
        } = self.plans[id as usize].clone()
        else {
            return self.send(stream, Sent::Whole(entry.clone(), None));
        };
        let (n, fails) = self.reading(id);
        let size = nth(&sizes, n);
        let content = (size, [nth(&contents, n); 32]);
        let said = if fails {
            let failure = Failure::new(FailureKind::Io);
            self.schedule.failed(stream, id, &failure, self.now);
            Say::Failure(failure)
        } else if size > BLOCK {
            self.schedule.grew(stream, id, self.now)
        } else {
            self.schedule
                .whole_read(stream, id, size, content.1, self.now)
        };
        match said {
            Say::File => self.send(stream, Sent::Whole(entry.clone(), Some(content))),
            Say::Failure(_) => self.send(stream, Sent::Failed(entry.clone())),
            Say::Nothing => {}
        }
    }

    /// Returns the number of this reading of an entry, and whether it fails.
    fn reading(&mut self, id: u64) -> (usize, bool) {
        let count = self.readings.entry(id).or_default();
        *count += 1;
        let n = *count - 1;
        match &self.plans[id as usize] {
            Plan::File { failing, .. } => (n, failing.get(n).copied().unwrap_or(false)),
            _ => (n, false),
        }
    }

    fn read_blocks(&mut self, stream: StreamId, work: Work) {
        match work {
            Work::Offer { file, content } => self.send(stream, Sent::Offer(file, content)),
            Work::Link(file) => self.send(stream, Sent::Link(file)),
            Work::ReadOffer(entry) => self.read_offer(stream, entry),
            Work::Open {
                file: entry,
                offered,
            } => {
                let id = entry.head.id;
                if offered {
                    self.send(stream, Sent::Offer(entry.clone(), None));
                }
                let (n, fails) = self.reading(id);
                let Plan::File {
                    sizes, contents, ..
                } = &self.plans[id as usize]
                else {
                    panic!("opened what is no file")
                };
                let (size, content) = (nth(sizes, n), nth(contents, n));
                if fails {
                    return self.fail(stream, entry);
                }
                if self.schedule.opened(id, size, BLOCK_LOG2, true) {
                    self.open.insert(id, (size, content));
                }
                self.read_block(stream, entry, 0);
            }
            Work::Block { file, offset } => self.read_block(stream, file, offset),
            Work::Complete { file, hash } => self.conclude(stream, file, hash),
            Work::FileEnd { file, hash } => {
                let id = file.head.id;
                if let Some(&(size, _)) = self.open.get(&id) {
                    self.send(stream, Sent::FileEnd { id, hash, size });
                }
            }
            Work::Failed(entry, _) => self.send(stream, Sent::Failed(entry)),
            Work::End { entries, .. } => self.send(stream, Sent::End(entries)),
            Work::Entry(_) => unreachable!(),
        }
    }

    fn read_offer(&mut self, stream: StreamId, entry: Arc<Entry>) {
        let id = entry.head.id;
        let (n, fails) = self.reading(id);
        let Plan::File {
            sizes, contents, ..
        } = &self.plans[id as usize]
        else {
            panic!("offers what is no file")
        };
        let (size, content) = (nth(sizes, n), nth(contents, n));
        if fails {
            return self.fail(stream, entry);
        }
        // The file has changed by the end.
        if nth(contents, n + 1) != content {
            return self.schedule.wanted(id, self.now);
        }
        if let Some(content) = self.schedule.offer_read(id, size, [content; 32]) {
            self.send(stream, Sent::Offer(entry, Some(content)));
        }
    }

    fn read_block(&mut self, stream: StreamId, entry: Arc<Entry>, offset: u64) {
        let id = entry.head.id;
        let Some((size, content)) = self.open.get(&id).copied() else {
            return;
        };
        let root = if size == 0 {
            Some([content; 32])
        } else {
            if self.reading(id).1 {
                return self.fail(stream, entry);
            }
            let hash = block_hash(offset, BLOCK.min(size - offset), size);
            self.send(stream, Sent::Block { id, offset, size });
            self.schedule.block_read(id, offset, hash)
        };
        if let Some(root) = root {
            self.conclude(stream, entry, root);
        }
    }

    /// Concludes a file that has been read or is at the receiver.
    fn conclude(&mut self, stream: StreamId, entry: Arc<Entry>, hash: Hash) {
        let id = entry.head.id;
        let Some((size, content)) = self.open.get(&id).copied() else {
            return;
        };
        let Plan::File { contents, .. } = &self.plans[id as usize] else {
            return;
        };
        if nth(contents, self.readings[&id]) != content {
            return self.fail(stream, entry);
        }
        if self.schedule.file_read(stream, id, size, hash, self.now) {
            self.send(stream, Sent::FileEnd { id, hash, size });
        }
    }

    fn fail(&mut self, stream: StreamId, entry: Arc<Entry>) {
        let failure = Failure::new(FailureKind::Changed);
        self.schedule
            .failed(stream, entry.head.id, &failure, self.now);
        self.send(stream, Sent::Failed(entry));
    }
}

pub(super) fn nth<T: Copy>(list: &[T], n: usize) -> T {
    list[n.min(list.len() - 1)]
}

fn block_hash(offset: u64, len: u64, size: u64) -> BlockHash {
    let mut hasher = BlockHasher::new(offset, len, size);
    hasher.update(b"x");
    hasher.finish()
}
