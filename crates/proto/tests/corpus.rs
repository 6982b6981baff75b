//! Replays the corpus of the fuzz targets, so that what fuzzing once found is tested wherever tests run.

#![allow(clippy::unwrap_used)] // a test that fails may panic, in its helpers too

#[path = "../../../fuzz/properties.rs"]
mod properties;

use std::path::Path;

fn replay(target: &str, property: fn(&[u8]), at_least: usize) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let mut replayed = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        println!("{}", path.display());
        property(&std::fs::read(path).unwrap());
        replayed += 1;
    }
    assert!(replayed >= at_least, "{replayed} files in {}", folder.display());
}

#[test]
fn opens() {
    replay("open", properties::open, 20);
}

#[test]
fn statuses() {
    replay("status", properties::status, 10);
}
