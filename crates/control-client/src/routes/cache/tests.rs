//! Files that are complete, broken, too long, and from another controller.

use longhaul_control_api::routes::Destination;
use proptest::prelude::*;

use super::*;
use crate::routes::question::Urgency;

fn table(destinations: usize) -> RouteTable {
    RouteTable {
        from: "me".into(),
        receives: false,
        map_version: 1,
        made_ms: 5,
        valid_until_ms: 6,
        destinations: (0..destinations)
            .map(|number| Destination {
                to: format!("{number:0100}"),
                addresses: vec![],
                sizes: vec![],
                direct: vec![],
            })
            .collect(),
        next: Some("more".into()),
    }
}

fn cache(dir: &tempfile::TempDir) -> RouteCache {
    RouteCache {
        dir: dir.path().to_owned(),
        controller: "https://c:1".into(),
    }
}

#[test]
fn a_table_is_stored_atomically_and_per_controller() {
    let dir = tempfile::tempdir().unwrap();
    let cache = cache(&dir);
    assert_eq!(cache.table(false), None);
    for count in [3, 1] {
        cache.store(table(count)).unwrap();
        let kept = cache.table(false).unwrap();
        assert_eq!((kept.destinations.len(), kept.next), (count, None));
    }
    assert_eq!(
        std::fs::read_dir(dir.path()).unwrap().count(),
        1,
        "nothing is left beside it"
    );
    let other = RouteCache {
        controller: "https://other:1".into(),
        ..cache
    };
    assert_eq!(other.table(false), None);
}

#[test]
fn sending_and_fetching_have_separate_tables() {
    let dir = tempfile::tempdir().unwrap();
    let cache = cache(&dir);
    cache.store(table(3)).unwrap();
    let fetched = RouteTable {
        receives: true,
        ..table(1)
    };
    cache.store(fetched).unwrap();
    let kept = [false, true].map(|receives| cache.table(receives).unwrap().destinations.len());
    assert_eq!(kept, [3, 1]);
}

#[test]
fn a_table_that_is_too_long_loses_destinations() {
    let dir = tempfile::tempdir().unwrap();
    let cache = cache(&dir);
    cache.store(table(60_000)).unwrap();
    let kept = cache.table(false).unwrap();
    assert!((10_000..60_000).contains(&kept.destinations.len()));
    std::fs::write(cache.file(false), vec![b' '; MAX_FILE_BYTES + 1]).unwrap();
    assert_eq!(cache.table(false), None);
}

proptest! {
    #[test]
    fn an_unreadable_cache_file_counts_as_missing(
        at in 0usize..1000,
        byte: u8,
        cut in 0usize..2000,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let cache = cache(&dir);
        cache.store(table(3)).unwrap();
        let mut content = std::fs::read(cache.file(false)).unwrap();
        if let Some(broken) = content.get_mut(at) {
            *broken = byte;
        }
        content.truncate(cut);
        std::fs::write(cache.file(false), &content).unwrap();
        let source =
            CacheSource { cache, held: HeldFile(dir.path().join("held.json")), now_ms: || 5 };
        let question = RouteQuery {
            destination: "h:1".parse().unwrap(),
            receives: false,
            bytes: None,
            streams: None,
            congestion: None,
            urgency: Urgency::Usual,
        };
        prop_assert!(source.choose(&question).is_err());
        crate::routes::fuzzing::table(&content);
    }
}
