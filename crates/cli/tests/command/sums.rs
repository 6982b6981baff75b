//! `longhaul sum`: checksums here and at a server, in the formats of other programs.

use std::process::{Command, Output, Stdio};

use crate::stage::*;

fn sum(stage: &Stage, server: &Service, arguments: &[&str]) -> Output {
    let mut command = stage.longhaul("me");
    command.current_dir(stage.path("here"));
    command.args(["sum", "--host-key", &server.key]);
    for argument in arguments {
        let argument = match argument.strip_prefix('@') {
            Some(path) => format!("lh://{}/{path}", server.address),
            None => (*argument).to_owned(),
        };
        command.arg(argument);
    }
    command.output().unwrap()
}

fn text(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", errors(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Runs a program of the system in the local directory. `None` if there is no such program.
fn other(stage: &Stage, program: &str, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    let output = command
        .args(arguments)
        .current_dir(stage.path("here"))
        .stderr(Stdio::null())
        .output()
        .ok()?;
    Some(String::from_utf8(output.stdout).unwrap())
}

/// Creates the same tree here and at the server.
fn tree(stage: &Stage) -> Vec<(&'static str, Vec<u8>)> {
    let files = vec![
        ("a b", b"abc".to_vec()),
        ("empty", Vec::new()),
        ("large", stage.noise("large", (20 << 20) + 17)),
        ("sub/c", stage.noise("c", 300_000)),
    ];
    for (name, content) in &files {
        for side in ["here", "root"] {
            let path = stage.path(&format!("{side}/{name}"));
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
    }
    files
}

#[test]
fn sums_are_those_of_other_programs() {
    let stage = Stage::new();
    let server = stage.serve(&[]);
    let names: Vec<&str> = tree(&stage).iter().map(|(name, _)| *name).collect();
    for (algorithm, program) in [("sha256", "sha256sum"), ("md5", "md5sum")] {
        let ours = |more: &[&str]| {
            let arguments = [&["-a", algorithm], more, &names[..]].concat();
            text(&sum(&stage, &server, &arguments))
        };
        assert_eq!(Some(ours(&[])), other(&stage, program, &names), "{program}");
        let tagged = [&["--tag"], &names[..]].concat();
        assert_eq!(Some(ours(&["--tag"])), other(&stage, program, &tagged));
        // They read what is written here.
        for lines in [ours(&[]), ours(&["--tag"])] {
            std::fs::write(stage.path("here/list"), lines).unwrap();
            let checked = other(&stage, program, &["-c", "--strict", "list"]).unwrap();
            assert_eq!(checked.matches(": OK").count(), names.len(), "{checked}");
        }
    }
    let adler = text(&sum(&stage, &server, &["-a", "adler32", "a b"]));
    assert_eq!(adler, "024d0127 a b\n");
    let xrootd = text(&sum(&stage, &server, &["-a", "adler32", "--xrdfs", "a b"]));
    assert_eq!(xrootd, "adler32 024d0127\n");
}

#[test]
fn a_server_computes_what_is_computed_here() {
    let stage = Stage::new();
    let server = stage.serve(&[]);
    let files = tree(&stage);
    let there = format!("lh://{}/", server.address);
    for algorithm in ["blake3", "sha256", "md5", "adler32", "crc32c"] {
        let here = text(&sum(&stage, &server, &["-r", "-a", algorithm, "."]));
        let at_server = text(&sum(&stage, &server, &["-r", "-a", algorithm, "@"]));
        assert_eq!(here.lines().count(), files.len());
        assert_eq!(
            here.replace("./", ""),
            at_server.replace(&there, ""),
            "{algorithm}"
        );
        // A list of one side checks the other.
        std::fs::write(stage.path(&format!("{algorithm}.list")), &here).unwrap();
        let list = format!("../{algorithm}.list");
        let checked = text(&sum(&stage, &server, &["--check", &list, "@"]));
        assert_eq!(checked.matches(": OK\n").count(), files.len(), "{checked}");
        std::fs::write(stage.path(&format!("{algorithm}.list")), &at_server).unwrap();
        let checked = text(&sum(&stage, &server, &["-q", "--check", &list, "@"]));
        assert_eq!(checked, "");
    }
    let large = &files[2].1;
    let blake3 = text(&sum(&stage, &server, &["@large"]));
    assert!(
        blake3.starts_with(blake3::hash(large).to_hex().as_str()),
        "{blake3}"
    );
}

#[test]
fn a_check_names_what_differs_and_what_is_missing() {
    let stage = Stage::new();
    let server = stage.serve(&[]);
    tree(&stage);
    let lines = text(&sum(
        &stage,
        &server,
        &["-a", "sha256", "a b", "empty", "large"],
    ));
    let list = stage.path("SHA256SUMS");
    std::fs::write(&list, format!("{lines}not a checksum\n")).unwrap();
    let mut large = std::fs::read(stage.path("root/large")).unwrap();
    large[11_000_000] ^= 4;
    std::fs::write(stage.path("root/large"), large).unwrap();
    std::fs::remove_file(stage.path("root/empty")).unwrap();
    let checked = sum(&stage, &server, &["--check", "../SHA256SUMS", "@"]);
    assert_eq!(checked.status.code(), Some(1));
    assert_eq!(
        String::from_utf8_lossy(&checked.stdout),
        "a b: OK\nempty: FAILED open or read\nlarge: FAILED\n"
    );
    let reported = errors(&checked);
    for words in [
        "empty: no such file",
        "1 of 3 files differ, 1 of 3 files could not be read, 1 lines are no checksums",
    ] {
        assert!(reported.contains(words), "{reported}");
    }
    // Without a checksum there is nothing to confirm.
    std::fs::write(&list, "nothing\n").unwrap();
    let empty = sum(&stage, &server, &["--check", "../SHA256SUMS"]);
    assert_eq!(empty.status.code(), Some(2), "{}", errors(&empty));
}

#[test]
fn standard_input_and_odd_names_are_summed() {
    let stage = Stage::new();
    let server = stage.serve(&[]);
    let file = stage.path("here/a\nb\\");
    std::fs::write(&file, "abc").unwrap();
    let line = text(&sum(&stage, &server, &["-a", "md5", "a\nb\\"]));
    assert_eq!(line, "\\900150983cd24fb0d6963f7d28e17f72  a\\nb\\\\\n");
    std::fs::write(stage.path("list"), &line).unwrap();
    let checked = text(&sum(&stage, &server, &["-c", "../list"]));
    assert!(checked.ends_with(": OK\n"), "{checked}");
    let mut command = stage.longhaul("me");
    command.args(["sum", "-a", "md5", "-", "--json"]);
    command.stdin(std::fs::File::open(&file).unwrap());
    let json: serde_json::Value = serde_json::from_str(&text(&command.output().unwrap())).unwrap();
    assert_eq!(
        (&json["value"], &json["bytes"], &json["path"]),
        (
            &"900150983cd24fb0d6963f7d28e17f72".into(),
            &3.into(),
            &"-".into()
        )
    );
    // Other failures do not stop the rest.
    let mixed = sum(&stage, &server, &["-a", "md5", "none", "a\nb\\", "."]);
    assert_eq!(mixed.status.code(), Some(1));
    assert!(mixed.stdout.starts_with(line.as_bytes()));
    let reported = errors(&mixed);
    assert!(
        reported.contains("none: no such file") && reported.contains(".: is a directory; give -r"),
        "{reported}"
    );
}

#[test]
fn copies_agree_with_a_catalogue_or_are_refused() {
    let stage = Stage::new();
    let server = stage.serve(&[]);
    let bag = stage.path("here/bag");
    std::fs::create_dir_all(bag.join("data")).unwrap();
    std::fs::write(bag.join("data/a\nb"), "abc").unwrap();
    std::fs::write(bag.join("data/c"), "abc").unwrap();
    let sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let manifest = format!("{sha256}  data/a%0Ab\n{sha256} data/c\n");
    std::fs::write(bag.join("manifest-sha256.txt"), manifest).unwrap();
    let to = |name: &str| format!("lh://{}/{name}", server.address);
    let list = "here/bag/manifest-sha256.txt";
    let copy = |arguments: &[&str]| stage.cp(&server, arguments);
    let good = copy(&["-r", "--checksum-with", list, "here/bag", &to("good")]);
    assert_eq!(good.status.code(), Some(0), "{}", errors(&good));
    assert!(stage.path("root/good/data/c").exists());
    // A source that differs is not copied.
    std::fs::write(bag.join("data/c"), "abd").unwrap();
    let bad = copy(&["-r", "--checksum-with", list, "here/bag", &to("bad")]);
    assert_eq!(bad.status.code(), Some(1), "{}", errors(&bad));
    assert!(!stage.path("root/bad").exists());
    let reported = errors(&bad);
    assert!(
        reported.contains("data/c: differs from the list")
            && reported.contains("nothing was copied"),
        "{reported}"
    );
    // One file with its value, fetched.
    let value = |value: &str| format!("md5={value}");
    let right = value("900150983CD24FB0D6963F7D28E17F72");
    let wrong = value("900150983cd24fb0d6963f7d28e17f73");
    let from = to("good/data/c");
    let fetched = copy(&["--checksum-with", &right, &from, "here/c"]);
    assert_eq!(fetched.status.code(), Some(0), "{}", errors(&fetched));
    let fetched = copy(&["--checksum-with", &wrong, &from, "here/d"]);
    assert_eq!(fetched.status.code(), Some(1), "{}", errors(&fetched));
    assert!(
        errors(&fetched).contains("instead of 900150983cd24fb0d6963f7d28e17f72"),
        "{}",
        errors(&fetched)
    );
    // A directory that the copy creates.
    let from = to("good");
    let fetched = copy(&["-r", "--checksum-with", list, &from, "here/new"]);
    assert_eq!(fetched.status.code(), Some(0), "{}", errors(&fetched));
}
