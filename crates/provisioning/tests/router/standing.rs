//! A queueing discipline that stays while there is no circuit.

use longhaul_provisioning::driver::{list, set_up, tear_down};
use longhaul_provisioning::linux::LinuxRouter;

use crate::bed::{LINK, config, in_router, lab, name, part, said, state, streams};

#[tokio::test]
async fn a_standing_discipline_is_installed_first_and_stays() {
    let Some(lab) = lab() else { return };
    said(&lab, "tc qdisc add dev far root handle 1: htb default 10");
    let folder = tempfile::tempdir().unwrap();
    let mut config = config();
    for link in config.links.values_mut() {
        link.standing = true;
    }
    let open = || LinuxRouter::open(config.clone(), folder.path(), in_router(&lab)).unwrap();
    let router = open();
    let failed = router.install_standing_disciplines().await;
    let [(link, error)] = &failed[..] else {
        panic!("{failed:?}")
    };
    assert!(
        *link == name("far") && error.to_string().contains("that this router did not set"),
        "{link}: {error}"
    );
    let standing = state(&lab);
    assert!(
        standing.contains("class htb 4c48:2 parent 4c48:1"),
        "{standing}"
    );

    let part = part("c", "near", LINK / 4, streams(&lab, 21_000, 21_009));
    set_up(&router, part.clone()).await.unwrap();
    assert_ne!(state(&lab), standing);
    tear_down(&router, name("us"), part.id.clone())
        .await
        .unwrap();
    assert_eq!(list(&router, name("us")).await, Ok(vec![]));
    assert_eq!(state(&lab), standing);

    // A restarted router finds its circuit, and changes nothing.
    set_up(&router, part.clone()).await.unwrap();
    let busy = state(&lab);
    drop(router);
    let router = open();
    assert_eq!(router.install_standing_disciplines().await.len(), 1);
    assert_eq!(state(&lab), busy);
    tear_down(&router, name("us"), part.id).await.unwrap();
    assert_eq!(state(&lab), standing);
}
