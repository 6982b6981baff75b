//! Clients of a striped server that claim to be a member of it.

use std::sync::Arc;

use longhaul_proto::PublicKey;
use longhaul_session::{ConnectOptions, Route, ServerTrust, ServiceName, Session, connect};
use longhaul_transfer::{ConnectError, ConnectFailure, Connector, RouteInfo};
use tokio::io::AsyncWriteExt;

use crate::world::*;

/// Opens streams as a member does that relays them for `client`.
struct ClaimedMember {
    options: ConnectOptions,
    client: PublicKey,
}

fn failed(error: &impl ToString) -> ConnectError {
    ConnectError {
        message: error.to_string(),
        kind: ConnectFailure::NoRoute,
        retry: false,
        is_unknown_key: false,
    }
}

impl Connector for ClaimedMember {
    type Stream = Session;

    fn routes(&self) -> Vec<RouteInfo> {
        vec![RouteInfo::direct()]
    }

    async fn connect(&self, _: usize) -> Result<Session, ConnectError> {
        let mut session = connect(&self.options)
            .await
            .map_err(|error| failed(&error))?;
        let (client, origin) = (self.client.to_string(), None::<()>);
        let preface = serde_json::json!({"from_client": {"client": client, "origin": origin}});
        let preface = preface.to_string();
        let len = u16::try_from(preface.len()).unwrap();
        let message = [&len.to_be_bytes()[..], preface.as_bytes()].concat();
        let written = session.write_all(&message).await;
        written.map_err(|error| failed(&error))?;
        Ok(session)
    }
}

#[test]
fn lh_copy_78_only_members_speak_for_clients() {
    let world = World::new();
    let [me, attacker] = ["me", "attacker"].map(|who| world.identity(who).public());
    let own = "127.0.0.1:1";
    let server = world.serve(&[
        "--read",
        &format!("{me}=data"),
        "--read",
        &format!("{attacker}=other"),
        "--stripe",
        own,
        "--stripe-member",
        own,
    ]);
    std::fs::create_dir(world.stage.path("root/data")).unwrap();
    world.stage.noise("root/data/f", 1000);
    let read_as = |who: &str| {
        let options = ConnectOptions::new(
            ServiceName::STRIPE,
            Route::direct(),
            server.address.parse().unwrap(),
            Arc::new(world.identity(who)),
            ServerTrust::Pinned(server.key.parse().unwrap()),
        );
        world.read_over(
            ClaimedMember {
                options,
                client: me,
            },
            "data/f",
        )
    };
    // The stream is in order, so the refusal below is about the key.
    read_as("server").unwrap();
    let error = read_as("attacker").unwrap_err().to_string();
    assert!(error.contains("only members of this server"), "{error}");
}
