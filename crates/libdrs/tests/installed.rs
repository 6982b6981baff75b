//! Tests of the library as C programs get it: installed into a folder, found with pkg-config,
//! linked statically and dynamically, and run.

#![allow(clippy::unwrap_used, clippy::panic)] // a test that can't go on has failed

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;

use wanbed::{Lab, Overrides, Scenario};

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// An installation, shared by the tests.
static INSTALLED: LazyLock<Installed> = LazyLock::new(Installed::make);

struct Installed {
    folder: tempfile::TempDir,
}

impl Installed {
    fn make() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
        let mut make = Command::new("make");
        make.args(["--no-print-directory", "-f"])
            .arg(Path::new(HERE).join("Makefile"))
            .args(["install", "PROFILE=dev", "PREFIX=/usr"])
            .arg(format!("DESTDIR={}", folder.path().display()))
            .arg(format!("OUT={}", folder.path().join("build").display()))
            .env("CARGO", env!("CARGO"))
            .env("CARGO_TARGET_DIR", target);
        // Variables that `cargo test` set for this package would disturb another build.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("CARGO_PKG_") || name == "MAKEFLAGS" {
                make.env_remove(name);
            }
        }
        run(&mut make);
        Self { folder }
    }

    fn path(&self, below: &str) -> PathBuf {
        self.folder.path().join("usr").join(below)
    }

    /// Returns the compiler flags that pkg-config prints.
    fn flags(&self, arguments: &[&str]) -> Vec<String> {
        let text = run(Command::new("pkg-config")
            .args(arguments)
            .arg("drs")
            .env("PKG_CONFIG_SYSROOT_DIR", self.folder.path())
            .env("PKG_CONFIG_ALLOW_SYSTEM_CFLAGS", "1")
            .env("PKG_CONFIG_ALLOW_SYSTEM_LIBS", "1")
            .env("PKG_CONFIG_LIBDIR", self.path("lib/pkgconfig")));
        text.split_ascii_whitespace().map(str::to_owned).collect()
    }

    /// Compiles one of the examples. Returns the program's path.
    fn example(&self, name: &str, link: Link) -> PathBuf {
        // Each test has a file of its own, because a running program cannot be overwritten.
        let folder = tempfile::tempdir_in(self.folder.path()).unwrap().keep();
        let program = folder.join(format!("{name}-{link:?}"));
        let mut compile = Command::new("cc");
        compile
            .args([
                "-std=c99",
                "-Wall",
                "-Wextra",
                "-Wpedantic",
                "-Werror",
                "-o",
            ])
            .arg(&program)
            .arg(Path::new(HERE).join(format!("examples/{name}.c")));
        match link {
            Link::Shared => compile.args(self.flags(&["--cflags", "--libs"])),
            Link::Static => {
                let flags = self.flags(&["--static", "--cflags", "--libs"]);
                compile.args(flags.into_iter().map(|flag| match flag.as_str() {
                    "-ldrs" => "-l:libdrs.a".to_owned(),
                    _ => flag,
                }))
            }
        };
        run(&mut compile);
        program
    }
}

#[derive(Clone, Copy, Debug)]
enum Link {
    Shared,
    Static,
}

/// Runs a command that must succeed. Returns its output.
fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Starts a receiver. Returns it with the port on which it listens.
fn receiver(mut command: Command) -> (Child, BufReader<std::process::ChildStdout>, String) {
    let library = INSTALLED.path("lib");
    let mut child = command
        .env("LD_LIBRARY_PATH", library)
        .args(["0", "auto"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    let port = line.trim().rsplit(' ').next().unwrap().to_owned();
    (child, out, port)
}

/// Sends `bytes` from one example to the other. Returns the output of each.
fn transfer(receiving: Command, mut sending: Command, host: &str, bytes: u64) -> (String, String) {
    let (mut child, mut out, port) = receiver(receiving);
    let sent = run(sending.env("LD_LIBRARY_PATH", INSTALLED.path("lib")).args([
        host,
        &port,
        &bytes.to_string(),
        "auto",
    ]));
    let mut received = String::new();
    out.read_to_string(&mut received).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(
        received.contains(&format!("received {bytes} bytes")),
        "{received}"
    );
    (sent, received)
}

#[test]
fn the_header_is_clean_c_and_cpp() {
    let header = INSTALLED.path("include/drs.h");
    let strict = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"];
    run(Command::new("cc")
        .args(["-std=c99", "-x", "c"])
        .args(strict)
        .arg(&header));
    if Command::new("c++").arg("--version").output().is_err() {
        eprintln!("left out: no C++ compiler here");
        return;
    }
    run(Command::new("c++")
        .args(["-std=c++11", "-x", "c++"])
        .args(strict)
        .arg(&header));
}

#[test]
fn the_layout_is_what_c_compilers_make_of_the_header() {
    let source = INSTALLED.folder.path().join("layout.c");
    let members = [
        "flags",
        "actions",
        "advice_text",
        "interval_us",
        "retransmits",
    ];
    let offsets =
        members.map(|member| format!("printf(\"%zu \", offsetof(struct drs_report, {member}));"));
    let text = format!(
        "#include <drs.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {{ {} \
         printf(\"%zu %zu\", sizeof(struct drs_report), sizeof(struct drs_action)); return 0; }}\n",
        offsets.concat()
    );
    std::fs::write(&source, text).unwrap();
    let program = INSTALLED.folder.path().join("layout");
    run(Command::new("cc")
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .args(INSTALLED.flags(&["--cflags"])));
    let reported: Vec<usize> = run(&mut Command::new(program))
        .split(' ')
        .map(|number| number.parse().unwrap())
        .collect();
    use std::mem::offset_of;
    type Report = libdrs::DrsReport;
    let ours = [
        offset_of!(Report, flags),
        offset_of!(Report, actions),
        offset_of!(Report, advice_text),
        offset_of!(Report, interval_us),
        offset_of!(Report, retransmits),
        size_of::<Report>(),
        size_of::<libdrs::DrsAction>(),
    ];
    assert_eq!(reported, ours);
}

#[test]
fn the_shared_library_has_its_name_and_versions() {
    let library = INSTALLED.path("lib/libdrs.so.0");
    let Ok(output) = Command::new("readelf")
        .args(["-dW", "--dyn-syms"])
        .arg(&library)
        .output()
    else {
        eprintln!("left out: no readelf here");
        return;
    };
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("soname: [libdrs.so.0]"), "{text}");
    let map = std::fs::read_to_string(Path::new(HERE).join("drs.map")).unwrap();
    let header = std::fs::read_to_string(Path::new(HERE).join("include/drs.h")).unwrap();
    for line in text
        .lines()
        .filter(|line| line.contains(" GLOBAL ") && !line.contains(" UND "))
    {
        assert!(
            line.contains("DRS_0.1"),
            "exported beside the interface: {line}"
        );
    }
    let names = map.lines().filter_map(|line| line.trim().strip_suffix(';'));
    let names: Vec<&str> = names.filter(|name| name.starts_with("drs_")).collect();
    assert_eq!(names.len(), 13);
    for name in names {
        assert!(
            text.contains(&format!("{name}@@DRS_0.1")),
            "{name} is missing"
        );
        assert!(
            header.contains(&format!("{name}(")),
            "{name} is not declared"
        );
    }
}

#[test]
fn the_versions_agree() {
    assert_eq!(
        run(Command::new("sed")
            .args(["-n", "s/^#define DRS_VERSION \"\\(.*\\)\"/\\1/p"])
            .arg(INSTALLED.path("include/drs.h")))
        .trim(),
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!(
        INSTALLED.flags(&["--modversion"]),
        [env!("CARGO_PKG_VERSION")]
    );
}

#[test]
fn the_examples_talk_over_loopback_however_they_are_linked() {
    for (receiving, sending) in [(Link::Shared, Link::Static), (Link::Static, Link::Shared)] {
        let receiving = Command::new(INSTALLED.example("receiver", receiving));
        let sending = Command::new(INSTALLED.example("sender", sending));
        transfer(receiving, sending, "127.0.0.1", 3_000_000);
    }
}

#[test]
fn the_examples_right_size_a_long_path() {
    if let Err(why) = Lab::possible() {
        eprintln!("left out: no lab here: {why}");
        return;
    }
    let scenario =
        Scenario::read(Path::new(HERE).join("../../scenarios/drs-low-ceiling.toml")).unwrap();
    let lab = Lab::up(&scenario, &Overrides::default()).unwrap();
    let receiving = lab
        .command("receiver", INSTALLED.example("receiver", Link::Shared))
        .unwrap();
    let sending = lab
        .command("sender", INSTALLED.example("sender", Link::Shared))
        .unwrap();
    let host = lab.address("receiver").unwrap().to_string();
    let (sent, received) = transfer(receiving, sending, &host, 12_000_000);
    // The limit of the flow before any action, the actions, and their side.
    assert!(received.contains("limit receive-window"), "{received}");
    assert!(received.contains("action receive-buffer"), "{received}");
    assert!(sent.contains("action send-buffer"), "{sent}\n{received}");
}
