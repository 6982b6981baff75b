//! Attacks by keys that may only read.

use std::io::ErrorKind;
use std::net::TcpListener;

use longhaul_control_client::settings::{ControllerEntry, ControllerTrust};
use longhaul_control_client::{ServiceUrl, percent_encode};
use longhaul_proto::SigningKey;

use crate::world::World;

#[test]
fn a_read_only_key_cannot_make_the_agent_connect() {
    let world = World::new();
    let [reader, all] = [(); 2].map(|()| SigningKey::generate().unwrap());
    let keys = format!("{} ben read\n{} ana all\n", reader.public(), all.public());
    std::fs::write(world.stage.path("keys"), keys).unwrap();
    let mut command = world.logged("agent");
    command.args([
        "agent",
        "--listen",
        "127.0.0.1:0",
        "--authorized-keys",
        "keys",
    ]);
    let agent = world.stage.service(command, "https");
    let list = |key: &SigningKey, at: &str| {
        let site = ControllerEntry {
            url: format!("https://{}", agent.address)
                .parse::<ServiceUrl>()
                .unwrap(),
            known: Some(ControllerTrust::Key(agent.key.parse().unwrap())),
        };
        let client = site.client(key).unwrap();
        let path = format!("/files?at={}", percent_encode(at));
        world.attackers.block_on(async {
            let response = client.send("GET", &path, None::<&()>, None).await.unwrap();
            response.status().as_u16()
        })
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let inside = format!("lh://{}/", listener.local_addr().unwrap());
    for at in [inside.as_str(), "somebody@localhost:/", "localhost:"] {
        assert_eq!(list(&reader, at), 403, "{at}");
    }
    let came = listener.accept();
    assert!(came.is_err_and(|error| error.kind() == ErrorKind::WouldBlock));
    // It may list directories of the agent's machine.
    let here = format!("{}/", world.stage.path("root").display());
    assert_eq!(list(&reader, &here), 200);
    assert_eq!(list(&all, &here), 200);
}
