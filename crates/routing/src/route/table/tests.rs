use super::*;
use crate::route::RouteDepots;
use crate::route::choice::Policy;
use crate::route::map::{Node, RouteMap};
use crate::route::testing::{exact, map};
use crate::route::trust::TransferOutcomes;

const FROM: NodeId = NodeId(0);
const DEPOT: NodeId = NodeId(1);
const TO: NodeId = NodeId(2);

fn chosen(map: &RouteMap, to: NodeId) -> Option<Vec<RouteDepots>> {
    let (outcomes, policy) = (TransferOutcomes::default(), Policy::default());
    let mut chooser = Chooser::new(map, &outcomes, &policy);
    let choices = class_choices(&mut chooser, FROM, to, 4, 1000.0);
    (!all_direct(&choices)).then(|| choices.iter().map(|choice| choice.via).collect())
}

#[test]
fn a_table_has_all_classes_unless_all_go_direct() {
    let by_depot = map(
        vec![Node::END, Node::DEPOT, Node::END],
        &[
            (0, 1, exact(50.0, 0.0, 500.0)),
            (1, 2, exact(50.0, 0.0, 500.0)),
            (0, 2, exact(100.0, 1e-3, 500.0)),
        ],
    );
    let vias = chosen(&by_depot, TO).unwrap();
    assert_eq!(vias.len(), CLASS_COUNT);
    assert!(vias[0].is_direct(), "small ones go direct: {vias:?}");
    assert_eq!(vias[CLASS_COUNT - 1], RouteDepots::new(&[DEPOT]).unwrap());
    assert_eq!(chosen(&by_depot, DEPOT), None, "all go direct");
}

#[test]
fn classes_are_by_size() {
    assert_eq!(
        (
            size_class(0),
            size_class(256 << 10),
            size_class((256 << 10) + 1),
            size_class(u64::MAX)
        ),
        (0, 0, 1, CLASS_COUNT - 1)
    );
    for (number, bytes) in TYPICAL_BYTES.iter().enumerate() {
        assert_eq!(size_class(*bytes), number);
    }
}
