//! Tables.

use std::path::Path;

use unicode_width::UnicodeWidthStr;

use super::everything;
use crate::{DepotState, Map, file, render};

#[test]
fn a_map_prints_as_tables() {
    let mut map = everything();
    map.depots[0].state = DepotState::Live {
        heard: 1000.0,
        until: 1090.0,
    };
    let expected = "\
3 sites    latitude  longitude  label
chicago    41.90     -87.62     StarLight, Chicago
amsterdam  52.36     4.95
campus

1 depot    site     state                 listens at                limits                   version
starlight  chicago  live, heard 12 s ago  depot.starlight.example…  40 Gbit/s, 500 sessions  0.1.0

2 hosts  site       addresses                        access     sessions end
archive  amsterdam  *.archive.example, 192.0.2.0/24  10 Gbit/s  at gateway.example:7512
laptop   campus     laptop.example                              there

3 links              capacity                    reservable                one way
chicago - amsterdam  100 Gbit/s, back 10 Gbit/s  25 Gbit/s, back 2 Gbit/s  ~33.4 ms
tail                 10 Gbit/s                   5 Gbit/s                  2.5 ms
campus - chicago     ?, one way                  ?, one way                ?

~ estimated from coordinates: the great circle at 0.66 of the speed of light
";
    let printed = render::render_tables(&map, 1012.0);
    assert_eq!(printed, expected, "\n{printed}");
}

#[test]
fn an_empty_map_prints_that_it_is_empty() {
    assert_eq!(
        render::render_tables(&Map::default(), 0.0),
        "the map is empty\n"
    );
}

#[test]
fn wide_letters_and_long_names_fit() {
    let name = "東京".repeat(30);
    let text = format!(
        "[[site]]\nname = \"a\"\nlabel = \"{name}\"\n[[site]]\nname = \"{}\"\n",
        "x".repeat(128)
    );
    let map = file::read(&text, Path::new("m")).unwrap();
    let printed = render::render_tables(&map, 0.0);
    assert!(printed.contains('…'));
    assert!(
        printed
            .lines()
            .all(|line| line.width() <= render::MAX_COLUMNS),
        "{printed}"
    );
}
