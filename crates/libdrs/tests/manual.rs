//! Tests that the manual pages format without a warning and name every function of the header.

#![allow(clippy::unwrap_used)] // a test that can't go on has failed

use std::path::Path;
use std::process::Command;

#[test]
fn the_pages_format() {
    for name in ["drs.1", "drs.3"] {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("man").join(name);
        let groff = Command::new("groff")
            .args(["-man", "-Tutf8", "-ww"])
            .arg(&page)
            .output();
        let Ok(output) = groff else {
            eprintln!("left out: no groff here");
            return;
        };
        assert!(output.status.success());
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{name}");
        assert!(output.stdout.len() > 1000, "{name}");
    }
}

#[test]
fn the_pages_name_every_function() {
    let read = |name: &str| {
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
    };
    let (page, map) = (read("man/drs.3"), read("drs.map"));
    for name in map.lines().filter_map(|line| line.trim().strip_suffix(';')) {
        if name.starts_with("drs_") {
            assert!(page.contains(&format!("{name}(")), "{name}");
        }
    }
    assert!(page.contains(concat!("drs ", env!("CARGO_PKG_VERSION"))));
    assert!(read("man/drs.1").contains(concat!("drs ", env!("CARGO_PKG_VERSION"))));
}
