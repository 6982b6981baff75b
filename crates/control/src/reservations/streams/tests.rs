use longhaul_circuits::network::LinkId;
use longhaul_circuits::request::Piece;
use longhaul_circuits::split::Route;
use longhaul_circuits::time::Window;

use super::*;

fn prefixes(texts: &[&str]) -> Vec<Prefix> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn end<'a>(asked: Option<&'a str>, known: &'a [Prefix], is_free: bool) -> AskedEnd<'a> {
    AskedEnd {
        option: "from_address",
        asked,
        known,
        is_free,
    }
}

#[test]
fn addresses_match_in_version_and_are_on_the_map() {
    let (six, both) = (
        prefixes(&["2001:db8::1"]),
        prefixes(&["192.0.2.0/24", "2001:db8::/64"]),
    );
    let found = addresses(end(None, &both, false), end(None, &six, false)).unwrap();
    assert_eq!(found.0.unwrap().to_string(), "2001:db8::/64");
    let asked = Some("192.0.2.7");
    let found = addresses(end(asked, &both, false), end(None, &both, false)).unwrap();
    assert_eq!(found.0, Some(prefixes(&["192.0.2.7"])[0]));
    let error =
        addresses(end(Some("10.0.0.1"), &both, false), end(None, &both, false)).unwrap_err();
    assert!(error.to_string().contains("192.0.2.0/24"), "{error}");
    assert!(addresses(end(Some("10.0.0.1"), &both, true), end(None, &both, false)).is_ok());
    assert!(
        addresses(
            end(Some("10.0.0.0/4"), &both, true),
            end(asked, &both, false)
        )
        .is_err()
    );
    assert_eq!(
        addresses(end(None, &[], false), end(None, &[], false)),
        Ok((None, None))
    );
    let mixed = addresses(
        end(Some("10.0.0.1"), &[], true),
        end(Some("2001:db8::1"), &[], true),
    );
    assert!(mixed.is_err());
}

fn piece(start: i64, end: i64, paths: &[u32]) -> Piece {
    let route = |link: &u32| Route {
        path: Path(vec![LinkId(*link)]),
        rate: 1,
    };
    Piece {
        window: Window::new(start, end),
        routes: paths.iter().map(route).collect(),
    }
}

#[test]
fn paths_keep_distinct_ports() {
    let plan = Plan(vec![
        piece(0, 1, &[1, 2]),
        piece(1, 2, &[3, 2]),
        piece(2, 3, &[2]),
    ]);
    let found = ports(&plan, Some(FIRST_PORT), true);
    let first = |piece: usize, route: usize| found[piece][route].unwrap().first;
    assert_eq!(
        (first(0, 0), first(0, 1)),
        (FIRST_PORT, FIRST_PORT + PORTS_OF_PATH)
    );
    assert_eq!((first(1, 0), first(1, 1)), (first(0, 0), first(0, 1)));
    assert_eq!(first(2, 0), first(0, 1));
    let found = ports(&plan, Some(FIRST_PORT), false);
    assert_eq!(found[2], [None]);
    assert!(found[0].iter().all(Option::is_some));
    assert!(
        ports(&plan, None, true)
            .iter()
            .flatten()
            .all(Option::is_none)
    );
}

#[test]
fn blocks_are_assigned_until_exhausted() {
    let mut taken = BTreeSet::new();
    while let Some(block) = free_block(&taken) {
        assert!(
            taken.insert(block) && block >= FIRST_PORT && block + (PORTS_OF_BLOCK - 1) < PORTS_END
        );
    }
    assert_eq!(taken.len(), 44);
}
