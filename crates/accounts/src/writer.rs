//! When records are written, synced and retried. Pure, in virtual time: the store does the I/O.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

/// Time from a write to its sync. With the time of the sync itself, a power failure loses at most
/// one second.
const SYNC_DELAY: Duration = Duration::from_millis(500);
/// Pause after a failure, such as a full disk.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Maximum bytes of one write.
const MAX_WRITE_BYTES: usize = 1 << 20;
/// Maximum bytes of the lines that wait while the store fails.
pub(crate) const MAX_WAITING_BYTES: usize = 32 << 20;

/// Store of lines.
pub(crate) trait RecordStore {
    /// Appends whole lines. After an error, none of them is stored.
    fn append(&mut self, lines: &[u8]) -> io::Result<()>;

    /// Makes everything appended durable.
    fn sync(&mut self) -> io::Result<()>;
}

/// Lines that wait for their store, and the times of the next actions.
pub(crate) struct RecordWriter<S> {
    store: S,
    waiting: VecDeque<Vec<u8>>,
    waiting_bytes: usize,
    /// Time at which the store is synced, if something is not durable yet.
    sync_at: Option<Instant>,
    /// Time of the next attempt, after a failure.
    retry_at: Option<Instant>,
}

impl<S: RecordStore> RecordWriter<S> {
    pub(crate) const fn new(store: S) -> Self {
        Self {
            store,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            sync_at: None,
            retry_at: None,
        }
    }

    /// Adds a line. Returns false if too many wait: the line is lost.
    #[must_use]
    pub(crate) fn add(&mut self, line: Vec<u8>) -> bool {
        let bytes = self.waiting_bytes.saturating_add(line.len());
        if bytes > MAX_WAITING_BYTES {
            return false;
        }
        self.waiting_bytes = bytes;
        self.waiting.push_back(line);
        true
    }

    /// Returns the number of lines that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) const fn store_mut(&mut self) -> &mut S {
        &mut self.store
    }

    /// Returns the time of the next action, if one is due without further lines.
    pub(crate) fn next_action(&self) -> Option<Instant> {
        match self.retry_at {
            Some(retry_at) => Some(retry_at),
            None => self.sync_at,
        }
    }

    /// Writes and syncs what is due at `now`.
    ///
    /// # Errors
    /// The store failed. What waits is kept, and tried again after a pause.
    pub(crate) fn act(&mut self, now: Instant) -> io::Result<()> {
        if self.retry_at.is_some_and(|retry_at| now < retry_at) {
            return Ok(());
        }
        self.retry_at = None;
        let is_sync_due = |at: &Instant| now >= *at;
        let done = self.write(now).and_then(|()| {
            if self.sync_at.as_ref().is_some_and(is_sync_due) {
                self.store.sync()?;
                self.sync_at = None;
            }
            Ok(())
        });
        if done.is_err() {
            self.retry_at = Some(now + RETRY_PAUSE);
        }
        done
    }

    /// Writes and syncs everything, without regard to time.
    ///
    /// # Errors
    /// The store failed.
    pub(crate) fn flush(&mut self, now: Instant) -> io::Result<()> {
        let done = self.write(now).and_then(|()| match self.sync_at.take() {
            Some(_) => self.store.sync(),
            None => Ok(()),
        });
        self.retry_at = done.is_err().then(|| now + RETRY_PAUSE);
        done
    }

    fn write(&mut self, now: Instant) -> io::Result<()> {
        while !self.waiting.is_empty() {
            let mut lines = Vec::new();
            let mut count = 0;
            for line in &self.waiting {
                if count > 0 && lines.len() + line.len() > MAX_WRITE_BYTES {
                    break;
                }
                lines.extend_from_slice(line);
                count += 1;
            }
            self.store.append(&lines)?;
            self.waiting.drain(..count);
            self.waiting_bytes = self.waiting_bytes.saturating_sub(lines.len());
            self.sync_at.get_or_insert(now + SYNC_DELAY);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Store whose disk is full while `full` is set.
    #[derive(Default)]
    struct TestStore {
        stored: Vec<u8>,
        durable: usize,
        full: bool,
    }

    impl RecordStore for TestStore {
        fn append(&mut self, lines: &[u8]) -> io::Result<()> {
            if self.full {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.stored.extend_from_slice(lines);
            Ok(())
        }

        fn sync(&mut self) -> io::Result<()> {
            self.durable = self.stored.len();
            Ok(())
        }
    }

    /// Time that the longest sync may take, so that one second is not exceeded.
    const ALLOWED: Duration = Duration::from_secs(1);

    #[test]
    fn every_record_is_durable_within_a_second() {
        let mut writer = RecordWriter::new(TestStore::default());
        let begin = Instant::now();
        let mut added: Vec<(Instant, usize)> = Vec::new();
        let mut total = 0;
        for step in 0..5000_u32 {
            let now = begin + step * Duration::from_millis(1);
            if step % 7 == 0 {
                let line = format!("{step}\n").into_bytes();
                total += line.len();
                added.push((now, total));
                assert!(writer.add(line));
                writer.act(now).unwrap();
            } else if writer.next_action().is_some_and(|at| at <= now) {
                writer.act(now).unwrap();
            }
            let durable = writer.store.durable;
            let late = added
                .iter()
                .filter(|(at, end)| *end > durable && now >= *at + ALLOWED);
            assert_eq!(late.count(), 0, "at step {step}");
        }
    }

    #[test]
    fn a_full_disk_delays_records_and_loses_none() {
        let mut writer = RecordWriter::new(TestStore::default());
        let begin = Instant::now();
        writer.store.full = true;
        let mut errors = 0;
        for second in 0..10_u32 {
            assert!(writer.add(format!("{second}\n").into_bytes()));
            errors += u32::from(writer.act(begin + second * RETRY_PAUSE).is_err());
        }
        assert_eq!((errors, writer.waiting()), (10, 10));
        writer.store.full = false;
        let wake = writer.next_action().unwrap();
        writer.act(wake).unwrap();
        assert_eq!(writer.store.stored, b"0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n");
        let wake = writer.next_action().unwrap();
        writer.act(wake).unwrap();
        assert_eq!(writer.store.durable, writer.store.stored.len());
        assert_eq!((writer.waiting(), writer.next_action()), (0, None));
    }

    #[test]
    fn attempts_on_a_full_disk_pause() {
        let mut writer = RecordWriter::new(TestStore::default());
        let begin = Instant::now();
        writer.store.full = true;
        let mut errors = 0;
        for millis in 0..3000 {
            assert!(writer.add(b"x\n".to_vec()));
            errors += u32::from(writer.act(begin + Duration::from_millis(millis)).is_err());
        }
        assert_eq!(errors, 3);
    }

    #[test]
    fn waiting_records_are_bounded() {
        let mut writer = RecordWriter::new(TestStore::default());
        writer.store.full = true;
        let line = vec![b'x'; 1 << 20];
        let kept = (0..100).filter(|_| writer.add(line.clone())).count();
        assert_eq!(kept * line.len(), MAX_WAITING_BYTES);
        writer.store.full = false;
        writer.flush(Instant::now()).unwrap();
        assert_eq!(writer.store.durable, MAX_WAITING_BYTES);
        assert!(writer.add(line));
    }
}
