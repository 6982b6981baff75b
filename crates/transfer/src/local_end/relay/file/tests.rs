use super::*;

/// A file of zeros.
struct Zeros {
    size: u64,
    reads: AtomicU64,
}

impl RelayFile for Zeros {
    fn size(&self) -> u64 {
        self.size
    }

    fn meta(&self) -> Meta {
        Meta::default()
    }

    fn identity(&self) -> Option<SourceIdentity> {
        None
    }

    async fn read(&self, range: Range<u64>) -> Result<Bytes, Failure> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        Ok(vec![0; (range.end - range.start) as usize].into())
    }

    async fn check(&self, hash: Option<Hash>) -> Result<(), Failure> {
        match hash {
            None => Ok(()),
            Some(_) => Err(Failure::new(FailureKind::Changed)),
        }
    }
}

fn relayed(ranges: u64) -> RelayedFile<Zeros> {
    let shared = SharedFile::new(Zeros {
        size: ranges << RANGE_LOG2,
        reads: AtomicU64::new(0),
    });
    let ahead = Arc::new(Semaphore::new(MAX_RANGES_AHEAD));
    RelayedFile::new(shared, Handle::current(), ahead)
}

#[tokio::test]
async fn ranges_whose_rest_nobody_takes_are_dropped() {
    let ranges = MAX_KEPT as u64 + 8;
    let file = relayed(ranges);
    let reading = tokio::task::spawn_blocking(move || {
        let mut part = [0; 10];
        for range in 0..ranges {
            let read = file.read_at(&mut part, range << RANGE_LOG2);
            assert_eq!(read.unwrap(), part.len());
            let kept = file.shared.ranges.lock().open.len();
            assert!(kept <= MAX_KEPT, "{kept}");
        }
        let reads = || file.shared.file.reads.load(Ordering::Relaxed);
        assert_eq!(reads(), ranges);
        assert!(file.ahead.available_permits() >= MAX_RANGES_AHEAD - MAX_KEPT);
        // They can be read again.
        assert_eq!(file.read_at(&mut part, 100).unwrap(), part.len());
        assert_eq!(reads(), ranges + 1);
    });
    reading.await.unwrap();
}

#[tokio::test]
async fn hash_of_the_receiver_is_checked() {
    let file = relayed(1);
    let checking = tokio::task::spawn_blocking(move || {
        // An earlier copy read what this one does not.
        assert!(file.is_unchanged().unwrap());
        assert!(!file.is_unchanged_with([1; 32]).unwrap());
    });
    checking.await.unwrap();
}
