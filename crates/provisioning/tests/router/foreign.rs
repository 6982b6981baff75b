//! Configuration of others on the router's machine.

use longhaul_provisioning::ask::DriverError;
use longhaul_provisioning::driver::{list, set_up, tear_down};

use crate::bed::{LINK, lab, name, part, router, said, state, streams};

#[tokio::test]
async fn foreign_numbers_are_neither_used_nor_touched() {
    let Some(lab) = lab() else { return };
    // Objects with foreign numbers, with the router's first numbers, and with the router's protocol
    // at foreign numbers.
    for command in [
        "ip rule add pref 500 from 10.77.0.0/16 lookup 500",
        "ip rule add pref 12000 from 10.78.0.0/16 lookup 500",
        "ip rule add pref 12001 from 10.79.0.0/16 lookup 120001 protocol 17",
        "ip rule add pref 501 from 10.80.0.0/16 lookup 501 protocol 176",
        "ip route add 10.77.0.0/16 dev near table 500",
        "ip route add 10.77.0.0/16 dev near table 120002 proto 17",
        "ip route add 10.77.0.0/16 dev near table 501 proto 176",
        "tc qdisc add dev access root handle 1: tbf rate 500mbit burst 64kb limit 1mb",
    ] {
        said(&lab, command);
    }
    let before = state(&lab);
    let folder = tempfile::tempdir().unwrap();
    let router = router(&lab, folder.path());
    assert_eq!(list(&router, name("us")).await, Ok(vec![]));

    let (one, other) = (
        part("one", "near", LINK / 4, streams(&lab, 21_000, 21_009)),
        part("other", "far", LINK / 4, streams(&lab, 22_000, 22_009)),
    );
    set_up(&router, one.clone()).await.unwrap();
    set_up(&router, other.clone()).await.unwrap();
    set_up(&router, other.clone()).await.unwrap();
    let rules = said(&lab, "ip rule show");
    assert!(
        rules.contains("12003:") && rules.contains("12004:"),
        "{rules}"
    );
    let there = list(&router, name("us")).await.unwrap();
    assert!(
        there.len() == 2 && there.iter().all(|found| found.whole),
        "{there:?}"
    );

    tear_down(&router, name("us"), one.id.clone())
        .await
        .unwrap();
    tear_down(&router, name("us"), one.id).await.unwrap();
    tear_down(&router, name("us"), other.id).await.unwrap();
    assert_eq!(state(&lab), before);
}

#[tokio::test]
async fn foreign_queues_and_foreign_owners_are_refused() {
    let Some(lab) = lab() else { return };
    said(&lab, "tc qdisc add dev near root handle 1: htb default 10");
    said(
        &lab,
        "tc class add dev near parent 1: classid 1:10 htb rate 50mbit",
    );
    let before = state(&lab);
    let folder = tempfile::tempdir().unwrap();
    let router = router(&lab, folder.path());
    let streams = streams(&lab, 21_000, 21_009);
    let good = part("c", "far", LINK / 4, streams);

    let taken = part("c", "near", LINK / 4, streams);
    let anothers = longhaul_provisioning::circuit::CircuitPart {
        owner: name("them"),
        ..good.clone()
    };
    let elsewhere = part("c", "nowhere", LINK / 4, streams);
    let too_much = part("c", "far", LINK / 2 + 1, streams);
    let too_little = part("c", "far", 1, streams);
    for (part, why) in [
        (
            taken,
            "near has a queueing discipline that this router did not set (htb 1:)",
        ),
        (anothers, "this router serves us, not them"),
        (
            elsewhere,
            "this router has no link nowhere: it has far, near",
        ),
        (too_much, "link far has 50000000 bit/s for circuits"),
        (too_little, "1 bit/s cannot be guaranteed"),
    ] {
        let error = set_up(&router, part).await.unwrap_err();
        assert!(
            matches!(error, DriverError::Refused { .. }) && error.to_string().contains(why),
            "{error}"
        );
        assert_eq!(state(&lab), before);
    }

    set_up(&router, good.clone()).await.unwrap();
    let more = part("d", "far", LINK / 4 + 1, streams);
    let error = set_up(&router, more).await.unwrap_err();
    assert!(matches!(error, DriverError::NoRoom { .. }), "{error}");
    let anothers = tear_down(&router, name("them"), good.id.clone()).await;
    assert!(matches!(anothers, Err(DriverError::Refused { .. })));
    tear_down(&router, name("us"), good.id).await.unwrap();
    assert_eq!(state(&lab), before);
}
