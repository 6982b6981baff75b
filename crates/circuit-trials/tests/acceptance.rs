//! Random requests on real networks, with each answer verified by the independent checker.

#![allow(clippy::unwrap_used)] // A test that can't go on has failed.

use longhaul_circuit_trials::networks::network;
use longhaul_circuit_trials::trial::{Outcome, Trial, by_oscars, run};

/// Number of requests per network; `longhaul-figures figures admission` uses more.
const REQUESTS: usize = 300;

fn holds(name: &'static str) {
    let network = network(name).unwrap();
    let base = Trial {
        requests: REQUESTS,
        seed: 7,
        paths: 1,
        takes_offers: false,
    };
    let outcomes: Vec<Outcome> = [(1, false), (2, true), (4, true)]
        .into_iter()
        .map(|(paths, takes_offers)| {
            run(
                &network,
                &Trial {
                    paths,
                    takes_offers,
                    ..base
                },
            )
            .unwrap()
        })
        .collect();
    for outcome in &outcomes {
        let open = outcome.open();
        assert!(
            open * 50 <= REQUESTS,
            "{name}: {open} refusals that nothing shows to be right: {outcome:?}"
        );
        assert!(
            outcome.granted < REQUESTS,
            "{name}: nothing was refused, so nothing was shown"
        );
    }
    assert!(
        outcomes[1].offers > 0 && outcomes[1].by_offer > 0,
        "{name}: {:?}",
        outcomes[1]
    );
    let (granted, booked) = by_oscars(&network, &base);
    assert!(
        outcomes[0].granted >= granted && outcomes[0].booked > booked,
        "{name}: OSCARS grants {granted}"
    );
    assert!(
        outcomes[1].booked > outcomes[0].booked,
        "{name}: two paths carry more than one"
    );
}

#[test]
fn esnet() {
    holds("ESnet");
}

#[test]
fn abilene() {
    holds("Abilene");
}

#[test]
fn geant() {
    holds("Geant2012");
}

#[test]
fn uunet() {
    holds("Uunet");
}
