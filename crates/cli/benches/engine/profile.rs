//! Profile of a process: samples of its stacks by `perf`, each counted for one kind of function.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

/// Share of all samples, by kind.
pub type Parts = BTreeMap<&'static str, f64>;

/// Kinds, and parts of the names of their functions. The innermost function that belongs to a kind
/// decides.
const KINDS: [(&str, &[&str]); 9] = [
    ("hash", &["blake3"]),
    (
        "encrypt",
        &["aes_gcm", "aesni", "gcm_", "ghash", "vaes", "aead"],
    ),
    ("page fault", &["asm_exc_page_fault", "clear_page"]),
    ("read", &["shmem_file_read", "vfs_read", "ksys_pread"]),
    (
        "write",
        &[
            "shmem_file_write",
            "generic_perform_write",
            "vfs_write",
            "ksys_pwrite",
        ],
    ),
    (
        "wake-up",
        &["futex", "epoll", "schedule", "try_to_wake_up", "eventfd"],
    ),
    (
        "socket",
        &[
            "tcp_",
            "sock_",
            "inet_",
            "__sys_send",
            "__sys_recv",
            "net_rx",
            "softirq",
        ],
    ),
    ("copy in memory", &["memcpy", "memmove", "memset"]),
    (
        "allocate",
        &[
            "_int_malloc",
            "_int_free",
            "malloc_consolidate",
            "unlink_chunk",
            "__libc_malloc",
            "__libc_free",
        ],
    ),
];

/// Returns true if `perf` exists and may sample.
pub fn is_there() -> bool {
    let tried = Command::new("perf")
        .args([
            "record",
            "-q",
            "-e",
            "cpu-clock",
            "-o",
            "/dev/null",
            "--",
            "true",
        ])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    tried.is_ok_and(|status| status.success())
}

/// Returns the command prefix that samples a program.
pub fn command(samples: &Path) -> Vec<String> {
    let samples = samples.display().to_string();
    [
        "perf",
        "record",
        "-q",
        "-g",
        "-F",
        "997",
        "-e",
        "cpu-clock",
        "-o",
        &samples,
        "--",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// Returns the shares of `samples`.
pub fn read(samples: &Path) -> Parts {
    let script = Command::new("perf")
        .args(["script", "-F", "ip,sym", "-i"])
        .arg(samples)
        .stderr(Stdio::null())
        .output()
        .expect("perf script");
    let text = String::from_utf8_lossy(&script.stdout);
    let stacks: Vec<&str> = text
        .split("\n\n")
        .filter(|stack| !stack.trim().is_empty())
        .collect();
    let mut parts = Parts::new();
    for stack in &stacks {
        *parts.entry(kind(stack)).or_default() += 1.0 / stacks.len() as f64;
    }
    std::fs::remove_file(samples).expect("samples");
    parts
}

/// Returns the kind of a stack, which begins with the innermost function.
fn kind(stack: &str) -> &'static str {
    let of = |function: &str| {
        KINDS
            .iter()
            .find(|(_, words)| words.iter().any(|word| function.contains(word)))
    };
    stack.lines().find_map(of).map_or("other", |(kind, _)| kind)
}
