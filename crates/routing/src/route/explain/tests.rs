use super::*;
use crate::route::Transfer;
use crate::route::choice::{Chooser, Policy, RouteRequest};
use crate::route::explore::ExplorationAccount;
use crate::route::map::{Node, RouteMap};
use crate::route::testing::{exact, map};
use crate::route::trust::TransferOutcomes;

fn explained(map: &RouteMap, bytes: u64) -> String {
    let (outcomes, policy) = (TransferOutcomes::default(), Policy::default());
    let transfer = Transfer { bytes, streams: 1 };
    let (from, to) = (NodeId(0), NodeId(2));
    let request = RouteRequest {
        from,
        to,
        transfer,
        urgent: false,
        now: 30.0,
        seed: 0,
    };
    let choice = Chooser::new(map, &outcomes, &policy).choose(
        &request,
        None,
        &ExplorationAccount::default(),
    );
    let names = ["laptop", "chicago", "store"];
    explain(&choice, from, to, &|id| names[id.0 as usize].to_owned()).join("\n")
}

#[test]
fn five_lines_say_why() {
    let map = map(
        vec![Node::END, Node::DEPOT, Node::END],
        &[
            (0, 1, exact(50.0, 0.0, 500.0)),
            (1, 2, exact(50.0, 0.0, 400.0)),
            (0, 2, exact(100.0, 1e-3, 500.0)),
        ],
    );
    let text = explained(&map, 60 << 20);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 5);
    assert_eq!(lines[0], "route: chicago: the fastest");
    assert!(
        lines[1].starts_with("time: ") && lines[1].ends_with("in eight cases of ten)"),
        "{text}"
    );
    assert_eq!(lines[2], "limit: the available rate from chicago to store");
    assert!(
        lines[3].starts_with("next: direct in ") && lines[3].ends_with("% later"),
        "{text}"
    );
    assert_eq!(
        lines[4],
        "based on: measurements of up to 30 s ago, at least 1000000 of each hop from laptop to \
         store"
    );
    assert!(
        explained(&map, 1000).starts_with("route: direct: small transfers go direct\n"),
        "{}",
        explained(&map, 1000)
    );
}

#[test]
fn an_unknown_route_is_explained_as_unknown() {
    let map = RouteMap::new(vec![Node::END; 3], &[]);
    let text = explained(&map, 60 << 20);
    assert_eq!(text.lines().count(), 5);
    assert!(
        text.contains("nothing is known of the direct route") && text.contains("time: not known"),
        "{text}"
    );
}
