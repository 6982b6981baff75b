//! Tests of the library as C programs get it: installed into a folder, found with pkg-config,
//! linked statically and dynamically, and run. Also tests its manual page and its environment
//! variables.

#![allow(clippy::unwrap_used, clippy::panic)] // a test that can't go on has failed

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::{Installed, Onramp, World, run};

const HERE: &str = env!("CARGO_MANIFEST_DIR");

fn read(name: &str) -> String {
    std::fs::read_to_string(Path::new(HERE).join(name)).unwrap()
}

/// Returns the names of the interface's functions.
fn functions() -> Vec<String> {
    let map = read("longhaul.map");
    let names = map.lines().filter_map(|line| line.trim().strip_suffix(';'));
    names
        .filter(|name| name.starts_with("lsl_"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_header_is_clean_c_and_cpp() {
    let header = Installed::get().path("include/longhaul.h");
    let strict = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"];
    for standard in ["-std=c99", "-std=gnu17"] {
        run(Command::new("cc")
            .args([standard, "-x", "c"])
            .args(strict)
            .arg(&header));
    }
    // Together with the macro header, included before and after it.
    let macros = Installed::get().path("include/longhaul-sockets.h");
    for standard in ["-std=c99", "-std=gnu17"] {
        run(Command::new("cc")
            .args([standard, "-D_GNU_SOURCE", "-x", "c", "-include"])
            .arg(&macros)
            .args(strict)
            .arg(&header));
    }
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
fn macro_header_keeps_function_types() {
    // If the system's headers declare a function that is renamed, its type must be that of
    // longhaul.h.
    let source = Installed::get().folder().join("types.c");
    let names = functions();
    let macros = read("include/longhaul-sockets.h");
    let replaced: Vec<&str> = macros
        .lines()
        .filter_map(|line| {
            line.strip_prefix("#define ")?
                .split_once(" lsl_")
                .map(|(name, _)| name)
        })
        .collect();
    assert_eq!(replaced.len(), 26);
    let mut text =
        "#include <longhaul.h>\n#include <unistd.h>\n#include <sys/sendfile.h>\n".to_owned();
    for name in &replaced {
        assert!(names.contains(&format!("lsl_{name}")), "{name}");
        if *name != "accept4" {
            text += &format!(
                "_Static_assert(__builtin_types_compatible_p(__typeof__(&{name}), \
                 __typeof__(&lsl_{name})), \"{name}\");\n"
            );
        }
    }
    std::fs::write(&source, text).unwrap();
    run(Command::new("cc")
        .args(["-std=gnu17", "-fsyntax-only", "-Wall", "-Werror"])
        .arg(&source)
        .args(Installed::get().flags(&["--cflags"])));
}

#[test]
fn the_layout_is_what_c_compilers_make_of_the_header() {
    use std::mem::offset_of;
    type Address = longhaul::SockaddrLsl;
    type Hop = longhaul::LslHop;
    let places = [
        ("struct sockaddr_lsl, slsl_port", offset_of!(Address, port)),
        (
            "struct sockaddr_lsl, slsl_flags",
            offset_of!(Address, flags),
        ),
        (
            "struct sockaddr_lsl, slsl_addr",
            offset_of!(Address, address),
        ),
        (
            "struct sockaddr_lsl, slsl_scope_id",
            offset_of!(Address, scope),
        ),
        (
            "struct sockaddr_lsl, slsl_hop_count",
            offset_of!(Address, hop_count),
        ),
        ("struct sockaddr_lsl, slsl_name", offset_of!(Address, name)),
        ("struct sockaddr_lsl, slsl_hops", offset_of!(Address, hops)),
        ("struct lsl_hop, port", offset_of!(Hop, port)),
        ("struct lsl_hop, loose", offset_of!(Hop, loose)),
        ("struct lsl_hop, key", offset_of!(Hop, key)),
    ];
    let mut text = "#include <longhaul.h>\n#include <stddef.h>\n".to_owned();
    for (place, offset) in places {
        text += &format!("_Static_assert(offsetof({place}) == {offset}, \"{place}\");\n");
    }
    text += &format!(
        "_Static_assert(sizeof(struct sockaddr_lsl) == {} && sizeof(struct lsl_hop) == {}, \
         \"sizes\");\n",
        size_of::<Address>(),
        size_of::<Hop>()
    );
    let source = Installed::get().folder().join("layout.c");
    std::fs::write(&source, text).unwrap();
    run(Command::new("cc")
        .args(["-std=gnu17", "-fsyntax-only"])
        .arg(&source)
        .args(Installed::get().flags(&["--cflags"])));
}

#[test]
fn the_shared_library_has_its_name_and_versions() {
    let library = Installed::get().path("lib/liblonghaul.so.0");
    let Ok(output) = Command::new("readelf")
        .args(["-dW", "--dyn-syms"])
        .arg(&library)
        .output()
    else {
        eprintln!("left out: no readelf here");
        return;
    };
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("soname: [liblonghaul.so.0]"), "{text}");
    let exported = text
        .lines()
        .filter(|line| line.contains(" GLOBAL ") && !line.contains(" UND "));
    for line in exported {
        assert!(
            line.contains("LONGHAUL_0.1"),
            "exported beside the interface: {line}"
        );
    }
    let header = read("include/longhaul.h");
    let names = functions();
    assert_eq!(names.len(), 28);
    for name in names {
        assert!(
            text.contains(&format!("{name}@@LONGHAUL_0.1")),
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
    let version = env!("CARGO_PKG_VERSION");
    assert!(read("include/longhaul.h").contains(&format!("#define LSL_VERSION \"{version}\"")));
    assert_eq!(Installed::get().flags(&["--modversion"]), [version]);
    assert!(read("man/longhaul.3").contains(&format!("longhaul {version}")));
    assert!(read("python/longhaul/__init__.py").contains(&format!("__version__ = \"{version}\"")));
}

#[test]
fn the_manual_page_formats_and_names_every_function() {
    let page = read("man/longhaul.3");
    for name in functions() {
        assert!(page.contains(&name), "{name}");
    }
    let groff = Command::new("groff")
        .args(["-man", "-Tutf8", "-ww"])
        .arg(Path::new(HERE).join("man/longhaul.3"))
        .output();
    let Ok(output) = groff else {
        eprintln!("left out: no groff here");
        return;
    };
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert!(output.stdout.len() > 1000);
}

#[test]
fn document_shows_the_examples() {
    let page = read("../../docs/capi.md");
    for example in ["examples/send.c", "python/examples/send.py"] {
        assert!(
            page.contains(read(example).trim_end()),
            "{example} is not in docs/capi.md as it is"
        );
    }
}

/// Compiles one of the examples.
fn example(name: &str, is_static: bool) -> PathBuf {
    let installed = Installed::get();
    let flags = if is_static {
        let flags = installed.flags(&["--static", "--cflags", "--libs"]);
        let library = |flag: String| {
            if flag == "-llonghaul" {
                "-l:liblonghaul.a".to_owned()
            } else {
                flag
            }
        };
        flags.into_iter().map(library).collect()
    } else {
        installed.flags(&["--cflags", "--libs"])
    };
    let options = ["-std=gnu99", "-Wall", "-Wextra", "-Wpedantic", "-Werror"];
    let source = Path::new(HERE).join(format!("examples/{name}.c"));
    installed.compile(name, &options, &[source], &flags)
}

#[test]
fn the_examples_talk_however_they_are_linked() {
    let Some(world) = World::new() else { return };
    let onramps = [World::NEAR, World::FAR].map(|machine| Onramp::start(&world, machine));
    for (receiving, sending) in [(false, true), (true, false)] {
        let (receiving, sending) = (example("receive", receiving), example("send", sending));
        let command = |machine: &str, program: &Path, onramp: &Onramp| {
            let mut command = world.command(machine, program);
            command
                .env("LONGHAUL_ONRAMP", &onramp.path)
                .env("LD_LIBRARY_PATH", Installed::get().path("lib"))
                .stdin(Stdio::piped())
                .stdout(Stdio::piped());
            command
        };
        let mut receiver = command(World::FAR, &receiving, &onramps[1])
            .spawn()
            .unwrap();
        let mut reported = BufReader::new(receiver.stdout.take().unwrap());
        let mut line = String::new();
        reported.read_line(&mut line).unwrap();
        let port = line.trim().rsplit(' ').next().unwrap().to_owned();
        let mut sender = command(World::NEAR, &sending, &onramps[0])
            .args([&world.address(World::FAR), &port])
            .spawn()
            .unwrap();
        sender
            .stdin
            .take()
            .unwrap()
            .write_all(&vec![7; 3_000_000])
            .unwrap();
        let sent = sender.wait_with_output().unwrap();
        assert!(sent.status.success());
        assert_eq!(
            String::from_utf8_lossy(&sent.stdout),
            "3000000 bytes, thank you\n"
        );
        line.clear();
        reported.read_to_string(&mut line).unwrap();
        assert!(line.starts_with("3000000 bytes from lhk1:"), "{line}");
        assert!(receiver.wait().unwrap().success());
    }
}
