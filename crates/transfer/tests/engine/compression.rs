//! Copies whose data travels compressed.

use std::sync::atomic::Ordering;

use longhaul_transfer::*;

use crate::clear::{copy_tree, tree_and_copy};
use crate::harness::*;

/// Size of the large file, in bytes.
const LARGE_BYTES: usize = 5_000_000;

/// Copies a tree with a large file of this content, one with holes, and a small one. Returns the
/// bytes that compression saved.
async fn saved(content: &[u8], pull: bool, method: Compression) -> u64 {
    let bench = Bench::new();
    let (from, _) = tree_and_copy(&bench, pull);
    std::fs::create_dir(&from).unwrap();
    std::fs::write(from.join("large"), content).unwrap();
    let holes = std::fs::File::create(from.join("holes")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&holes, &noise(10_000, 1), 2 << 20).unwrap();
    holes.set_len(4_000_001).unwrap();
    std::fs::write(from.join("small"), noise(3000, 2)).unwrap();
    let progress = copy_tree(&bench, pull, 2, |hello| Hello {
        compression: method,
        clear: false,
        ..hello
    });
    progress.await.bytes_saved.load(Ordering::SeqCst)
}

fn text() -> Vec<u8> {
    let words = b"a line of words that repeats itself, as text does\n";
    words.iter().copied().cycle().take(LARGE_BYTES).collect()
}

/// LH-COPY-60, LH-COPY-61: from its first block on if the server sends, and from ACCEPT on if the
/// client does.
#[tokio::test(start_paused = true)]
async fn text_is_sent_in_fewer_bytes_and_arrives_whole() {
    let text = text();
    for level in [1, 3, 19] {
        let method = Compression::Zstd(level);
        let pulled = saved(&text, true, method).await;
        assert!(pulled > LARGE_BYTES as u64 * 9 / 10, "{pulled}");
        let pushed = saved(&text, false, method).await;
        assert!(pushed > 0);
    }
}

#[tokio::test(start_paused = true)]
async fn noise_is_sent_as_it_is() {
    let noise = noise(LARGE_BYTES, 7);
    for pull in [true, false] {
        // The file with holes has noise and the zeros around it.
        assert!(saved(&noise, pull, Compression::Zstd(3)).await < 100_000);
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_compressed_unless_requested() {
    for pull in [true, false] {
        assert_eq!(saved(&text(), pull, Compression::None).await, 0);
    }
}

/// Copies a tree of small files. Returns the bytes that compression saved, and those of the files.
async fn saved_of_small_files(pull: bool, method: Compression) -> (u64, u64) {
    let bench = Bench::new();
    let (from, _) = tree_and_copy(&bench, pull);
    let text = text();
    for number in 0..400 {
        let directory = from.join(format!("{}", number / 40));
        std::fs::create_dir_all(&directory).unwrap();
        let content = &text[..1000 + 37 * (number % 50)];
        std::fs::write(directory.join(format!("{number}")), content).unwrap();
    }
    std::fs::write(from.join("almost-large"), &text[..262_144]).unwrap();
    std::fs::write(from.join("noise"), noise(50_000, 3)).unwrap();
    let progress = copy_tree(&bench, pull, 2, |hello| Hello {
        compression: method,
        clear: false,
        ..hello
    });
    let progress = progress.await;
    let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::SeqCst);
    (count(&progress.bytes_saved), count(&progress.bytes_done))
}

/// LH-COPY-75.
#[tokio::test(start_paused = true)]
async fn small_files_are_sent_in_fewer_bytes_and_arrive_whole() {
    for pull in [true, false] {
        let (saved, all) = saved_of_small_files(pull, Compression::Zstd(3)).await;
        // A client sends plainly until it has received ACCEPT.
        let least = if pull { all * 6 / 10 } else { 1 };
        assert!((least..all).contains(&saved), "{saved} of {all}");
        let (saved, _) = saved_of_small_files(pull, Compression::None).await;
        assert_eq!(saved, 0);
    }
}
