//! Requests that the options make, and combinations that are refused.

use clap::Parser;

use super::*;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    reserve: ReserveCommand,
}

/// Returns the request of a command line, or the reason why there is none.
fn request(words: &[&str]) -> Result<ReservationRequest, String> {
    let words = ["reserve", "west", "east", "--for", "2h"]
        .iter()
        .chain(words);
    let command = Command::try_parse_from(words).map_err(|error| error.to_string())?;
    let now: Zoned = "2026-11-25T12:30:00Z[UTC]".parse().unwrap();
    command
        .reserve
        .request(&now)
        .map_err(|error| error.to_string())
}

#[test]
fn each_path_option_is_part_of_the_request() {
    let asked = request(&[
        "--rate",
        "2G",
        "--via",
        "north",
        "--via",
        "dtn",
        "--only-links",
        "a,b",
        "--max-hops",
        "5",
        "--max-latency",
        "20 ms",
        "--ingress",
        "x",
        "--egress",
        "y",
        "--ports",
        "50000-50099",
        "--dscp",
        "46",
    ])
    .unwrap();
    let constraints = RouteConstraints {
        via: vec!["north".to_owned(), "dtn".to_owned()],
        only_links: vec!["a".to_owned(), "b".to_owned()],
        max_hops: Some(5),
        max_latency_us: Some(20_000),
        ingress: Some("x".to_owned()),
        egress: Some("y".to_owned()),
        paths: Vec::new(),
    };
    assert_eq!(asked.constraints, constraints);
    let ports = asked.filter.source_ports.unwrap();
    assert_eq!((ports.first, ports.last), (50_000, 50_099));
    assert_eq!(asked.filter.dscp, Some(46));
    assert_eq!(asked.paths, 1);
}

#[test]
fn paths_with_rates_replace_rate_and_paths() {
    let asked = request(&[
        "--path",
        "west,north,east=2G",
        "--path",
        "west,south,east=500M",
    ]);
    let asked = asked.unwrap();
    assert_eq!(
        asked.wish,
        Wish::Rate {
            rate_bps: 2_500_000_000
        }
    );
    assert_eq!(asked.paths, 2);
    assert_eq!(asked.constraints.paths[1].sites, ["west", "south", "east"]);
}

#[test]
fn conflicts_are_refused_in_one_line() {
    let path = ["--path", "west,east=2G"];
    let with_path = |more: &[&str]| request(&[&path[..], more].concat()).unwrap_err();
    for (more, start) in [
        (&["--via", "north"][..], "path and via exclude each other"),
        (
            &["--only-links", "a"],
            "path and only-links exclude each other",
        ),
        (&["--max-hops", "3"], "path and max-hops exclude each other"),
        (
            &["--max-latency", "9 ms"],
            "path and max-latency exclude each other",
        ),
        (
            &["--avoid-site", "north"],
            "path and avoid-site exclude each other",
        ),
        (
            &["--avoid-link", "a"],
            "path and avoid-link exclude each other",
        ),
        (&["--disjoint"], "path and disjoint exclude each other"),
        (&["--prefer", "room"], "path and prefer exclude each other"),
        (&["--paths", "2"], "paths 2 and path given 1 times"),
        (&["--bytes", "1T"], "path and bytes exclude each other"),
        (&["--rate", "3G"], "path and rate"),
    ] {
        let text = with_path(more);
        assert!(text.starts_with(start) && !text.contains('\n'), "{text}");
    }
    let rate = ["--rate", "2G"];
    for (more, start) in [
        (
            &["--via", "a", "--avoid-site", "a"][..],
            "via and avoid-site both name a",
        ),
        (
            &["--only-links", "a", "--avoid-link", "a"],
            "only-links and avoid-link both name a",
        ),
        (
            &["--via", "a", "--via", "b", "--max-hops", "2"],
            "max-hops 2 and via",
        ),
        (
            &["--ports", "9-10", "--pin"],
            "ports and pin exclude each other",
        ),
        (
            &["--ports", "9-10", "--paths", "3"],
            "ports 9-10 and paths 3",
        ),
    ] {
        let text = request(&[&rate[..], more].concat()).unwrap_err();
        assert!(text.starts_with(start) && !text.contains('\n'), "{text}");
    }
}

#[test]
fn malformed_options_say_what_to_write() {
    for (option, value, help) in [
        ("--path", "west=2G", "west,north,east=2G"),
        ("--path", "west,east", "west,north,east=2G"),
        ("--path", "west,,east=2G", "west,north,east=2G"),
        ("--ports", "9", "50000-50099"),
        ("--ports", "9-8", "50000-50099"),
        ("--ports", "0-8", "50000-50099"),
        ("--dscp", "64", "0..=63"),
        ("--max-hops", "0", "1.."),
    ] {
        let text = request(&["--rate", "1G", option, value]).unwrap_err();
        assert!(text.contains(help), "{text}");
    }
}
