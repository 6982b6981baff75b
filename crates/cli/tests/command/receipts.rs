//! `longhaul cp --receipt` and `longhaul verify`, with a server.

use std::process::Output;

use crate::stage::*;

/// Size of the large file: a whole block of 64 MiB, and a part of one.
const LARGE: usize = (1 << 26) + 5000;

fn verify(stage: &Stage, server: &Service, end: &[&str]) -> Output {
    let mut command = stage.longhaul("me");
    command.args(["verify", "--host-key", &server.key, "receipt"]);
    command.args(end);
    command.output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn flip(path: &std::path::Path, at: u64) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
}

fn tree(stage: &Stage, at: &str) {
    std::fs::create_dir_all(stage.path(&format!("{at}/sub"))).unwrap();
    let large = std::fs::File::create(stage.path(&format!("{at}/large"))).unwrap();
    large.set_len(LARGE as u64).unwrap();
    std::fs::write(stage.path(&format!("{at}/sub/a")), "abc").unwrap();
    std::fs::hard_link(
        stage.path(&format!("{at}/sub/a")),
        stage.path(&format!("{at}/sub/b")),
    )
    .unwrap();
    std::os::unix::fs::symlink("a", stage.path(&format!("{at}/sub/l"))).unwrap();
}

#[test]
fn a_receipt_names_the_block_with_a_flipped_bit() {
    let stage = Stage::new();
    let server = stage.serve(&[]);
    tree(&stage, "here/runs");
    let to = format!("lh://{}/", server.address);
    let copied = stage.cp(&server, &["-rH", "--receipt", "receipt", "here/runs", &to]);
    assert_eq!(copied.status.code(), Some(0), "{}", errors(&copied));
    let there = format!("lh://{}/runs", server.address);
    for end in [&[][..], &[&there[..]], &["root/runs"], &["here/runs"]] {
        let verified = verify(&stage, &server, end);
        let line = text(&verified);
        assert_eq!(
            verified.status.code(),
            Some(0),
            "{line}{}",
            errors(&verified)
        );
        for words in [
            "3 files",
            "all as they were copied",
            &server.key,
            &stage.key("me"),
        ] {
            assert!(line.contains(words), "{words}: {line}");
        }
    }
    flip(&stage.path("root/runs/large"), (1 << 26) + 17);
    flip(&stage.path("root/runs/sub/a"), 1);
    let verified = verify(&stage, &server, &[&there]);
    assert_eq!(verified.status.code(), Some(1), "{}", errors(&verified));
    let lines = text(&verified);
    for words in [
        &*format!("{there}/large: differs in block 1 of 4.883 KiB (bytes 67108864 to 67113863)\n"),
        &*format!("{there}/sub/a: differs\n"),
        &*format!("{there}/sub/b: differs\n"),
        "3 faults",
    ] {
        assert!(lines.contains(words), "{words}: {lines}");
    }
    // The side that was not changed is still right.
    assert_eq!(verify(&stage, &server, &[]).status.code(), Some(0));
    std::fs::remove_file(stage.path("here/runs/sub/b")).unwrap();
    let verified = verify(&stage, &server, &[]);
    assert_eq!(verified.status.code(), Some(1));
    assert!(
        errors(&verified).contains("sub/b: no such file"),
        "{}",
        errors(&verified)
    );
}

#[test]
fn a_fetched_tree_has_a_receipt_and_a_changed_one_is_refused() {
    let stage = Stage::new();
    let server = stage.serve(&[]);
    tree(&stage, "root/runs");
    let from = format!("lh://{}/runs", server.address);
    let copied = stage.cp(&server, &["-r", "--receipt", "receipt", &from, "here/"]);
    assert_eq!(copied.status.code(), Some(0), "{}", errors(&copied));
    for end in [&[][..], &[&from[..]]] {
        let verified = verify(&stage, &server, end);
        assert_eq!(verified.status.code(), Some(0), "{}", errors(&verified));
    }
    // A receipt replaces nothing, and everything was there already.
    let again = stage.cp(&server, &["-r", "--receipt", "receipt", &from, "here/"]);
    assert_eq!(again.status.code(), Some(2), "{}", errors(&again));
    let again = stage.cp(&server, &["-r", "--receipt", "second", &from, "here/"]);
    assert_eq!(again.status.code(), Some(0), "{}", errors(&again));
    std::fs::rename(stage.path("second"), stage.path("receipt")).unwrap();
    assert_eq!(verify(&stage, &server, &[]).status.code(), Some(0));
    let receipt = std::fs::read_to_string(stage.path("receipt")).unwrap();
    let changed = receipt.replace("\"size\":3", "\"size\":4");
    std::fs::write(stage.path("receipt"), changed).unwrap();
    let refused = verify(&stage, &server, &[]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        errors(&refused).contains("signature does not belong"),
        "{}",
        errors(&refused)
    );
    let local = stage.cp(&server, &["--receipt", "r", "receipt", "here/copy"]);
    assert_eq!(local.status.code(), Some(2), "{}", errors(&local));
}
