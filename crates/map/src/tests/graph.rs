//! Nodes and edges.

use quantities::Rate;

use super::everything;
use crate::Graph;

#[test]
fn each_direction_is_an_edge() {
    let map = everything();
    let graph = Graph::from_map(&map);
    let [chicago, amsterdam, campus] =
        ["chicago", "amsterdam", "campus"].map(|name| graph.node(name).unwrap());
    assert_eq!(graph.nodes(), 3);
    assert_eq!(graph.name(campus), Some("campus"));
    assert_eq!((graph.node("nowhere"), graph.name(3)), (None, None));
    let from = |node: u32| &graph.edges()[graph.edges_from(node)];
    assert_eq!(
        (
            from(chicago).len(),
            from(amsterdam).len(),
            from(campus).len()
        ),
        (2, 1, 2)
    );
    assert!(graph.edges_from(3).is_empty() && graph.edges_from(u32::MAX).is_empty());
    assert!(
        from(campus)
            .iter()
            .all(|edge| edge.from == campus && edge.to == chicago && edge.forward)
    );
    let back = from(amsterdam)[0];
    assert_eq!((back.to, back.link, back.forward), (chicago, 0, false));
    assert_eq!(back.capacity, Rate::new(10e9));
    assert_eq!(back.reservable, Rate::new(2e9));
    assert_eq!(back.metric, Some(10));
    assert_eq!(
        back.latency,
        map.links[0].latency.map(|latency| latency.one_way)
    );
}
