//! Whatever happens to a circuit, the program continues as best effort, and one line says why.

use std::process::Child;

use crate::common::bed::Bed;

const BYTES: usize = 45 << 20;

/// Starts a web server, an on-ramp, and curl with a wish.
fn curl(bed: &mut Bed, rate: &str) -> Child {
    bed.serve_web(BYTES);
    bed.start_onramp("", &[]);
    bed.curl(&["--rate", rate, "--for", "2min", "--purpose", "test"])
}

fn is_fetched_by_best_effort(bed: &Bed, curl: Child) {
    bed.is_fetched(curl);
    let said = bed.log();
    assert_eq!(
        said.matches("continues as best effort").count(),
        1,
        "{said}"
    );
}

/// Reserves on the client's behalf at the controller.
fn reserve(bed: &Bed, rate: &str) {
    let reserve = ["reserve", "server", "client", "--rate", rate, "--for", "1h"];
    bed.operate(&reserve);
}

#[test]
fn a_full_network_is_best_effort() {
    let Some(mut bed) = Bed::up() else { return };
    reserve(&bed, "50M");
    let curl = curl(&mut bed, "20M");
    bed.logged("no circuit: ");
    is_fetched_by_best_effort(&bed, curl);
    assert_eq!(bed.reservations().len(), 1);
}

#[test]
fn a_lower_offer_is_taken() {
    let Some(mut bed) = Bed::up() else { return };
    reserve(&bed, "30M");
    let curl = curl(&mut bed, "35M");
    bed.until("classes", || bed.has_classes("server", "client"));
    bed.is_fetched(curl);
    bed.logged("circuit of reservation 2: 20");
    bed.until("returned", || {
        bed.reservations()[1]["state"]["life"] == "terminated"
    });
    assert_eq!(
        bed.reservations()[1]["wish"]["rate"]["rate_bps"],
        20_000_000
    );
}

#[test]
fn a_revoked_circuit_is_best_effort() {
    let Some(mut bed) = Bed::up() else { return };
    // Slow enough that it lasts until the circuit is revoked.
    let curl = curl(&mut bed, "10M");
    bed.logged("circuit of reservation 1: 10");
    bed.operate(&["reservations", "1", "cancel"]);
    bed.logged("reservation 1 was lost: it was cancelled: continues as best effort");
    is_fetched_by_best_effort(&bed, curl);
}

#[test]
fn without_a_controller_everything_is_best_effort() {
    let Some(mut bed) = Bed::up() else { return };
    drop(bed.services.remove("controller"));
    let curl = curl(&mut bed, "20M");
    bed.is_fetched(curl);
    assert!(
        bed.log().matches("no circuit: ").count() <= 1,
        "{}",
        bed.log()
    );
}

#[test]
fn a_rule_refuses_wishes() {
    let Some(mut bed) = Bed::up() else { return };
    bed.serve_web(1 << 20);
    for (rules, options) in [
        (
            "[[route]]\nto = [\"*\", \"0.0.0.0/0\"]\nreserve = false\n",
            &[][..],
        ),
        ("", &["--no-reserve"]),
    ] {
        bed.start_onramp(rules, options);
        bed.is_fetched(bed.curl(&["--rate", "20M"]));
        bed.logged("way=direct");
        assert!(bed.reservations().is_empty());
    }
}
