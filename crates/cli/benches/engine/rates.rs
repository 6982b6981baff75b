//! Cost of a copy's parts by themselves, on one thread of this machine: a lower bound for a copy.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, Algorithm, LessSafeKey, Nonce, UnboundKey};

/// Bytes processed by each part.
const TOTAL: usize = 512 << 20;
/// Bytes per call: a block of a copy.
const BLOCK: usize = 1 << 20;
/// Size of a TLS record (RFC 8446, section 5.1).
const RECORD: usize = 16 * 1024;

/// Rate of one part.
pub struct Rate {
    pub title: &'static str,
    pub gib_a_second: f64,
}

pub fn measure(folder: &Path) -> Vec<Rate> {
    let block = vec![7; BLOCK];
    let mut into = vec![0; BLOCK];
    let path = folder.join("rates");
    let file = File::options()
        .create(true)
        .truncate(true)
        .read(true)
        .write(true)
        .open(&path)
        .expect("a file");
    let rate = |title, gib_a_second| Rate {
        title,
        gib_a_second,
    };
    let rates = vec![
        rate(
            "write to the file system, new file",
            timed(|at| file.write_all_at(&block, at as u64).expect("write")),
        ),
        rate(
            "write to the file system, again",
            timed(|at| file.write_all_at(&block, at as u64).expect("write")),
        ),
        rate(
            "read from it",
            timed(|at| file.read_exact_at(&mut into, at as u64).expect("read")),
        ),
        rate(
            "BLAKE3, 1 MiB at a time",
            timed(|_| {
                std::hint::black_box(blake3::hash(&block));
            }),
        ),
        rate("AES-256-GCM, 16 KiB at a time", sealed(&AES_256_GCM)),
        rate("AES-128-GCM, 16 KiB at a time", sealed(&AES_128_GCM)),
        rate(
            "copy in memory, 1 MiB",
            timed(|_| std::hint::black_box(&mut into).copy_from_slice(&block)),
        ),
        rate("loopback TCP, both ends together", sent(&block)),
    ];
    std::fs::remove_file(path).expect("a file");
    rates
}

/// Returns the GiB per second of `part`, which gets the offset of each block.
fn timed(mut part: impl FnMut(usize)) -> f64 {
    let begun = Instant::now();
    (0..TOTAL).step_by(BLOCK).for_each(&mut part);
    gib(begun)
}

fn gib(begun: Instant) -> f64 {
    TOTAL as f64 / f64::from(1 << 30) / begun.elapsed().as_secs_f64()
}

fn sealed(algorithm: &'static Algorithm) -> f64 {
    let key =
        LessSafeKey::new(UnboundKey::new(algorithm, &vec![1; algorithm.key_len()]).expect("a key"));
    let mut record = vec![0; RECORD];
    timed(|_| {
        for _ in 0..BLOCK / RECORD {
            let nonce = Nonce::assume_unique_for_key([0; 12]);
            let tag = key.seal_in_place_separate_tag(nonce, Aad::from([0; 5]), &mut record);
            let _tag = std::hint::black_box(tag.expect("sealed"));
        }
    })
}

/// Returns the GiB per second of processor time for one thread that sends and one that receives, on
/// one processor or on two.
fn sent(block: &[u8]) -> f64 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let to = listener.local_addr().expect("its number");
    let cpu = || rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let begun = cpu();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = TcpStream::connect(to).expect("connect");
            (0..TOTAL)
                .step_by(BLOCK)
                .for_each(|_| stream.write_all(block).expect("send"));
        });
        let (mut stream, _) = listener.accept().expect("accept");
        let mut into = vec![0; BLOCK];
        while stream.read(&mut into).expect("receive") > 0 {}
    });
    let ended = cpu();
    let seconds =
        (ended.tv_sec - begun.tv_sec) as f64 + (ended.tv_nsec - begun.tv_nsec) as f64 / 1e9;
    TOTAL as f64 / f64::from(1 << 30) / seconds
}
