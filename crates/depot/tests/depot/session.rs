//! Real initiators and acceptors, with TLS, through depots.

use std::sync::Arc;

use longhaul_session::{
    ConnectOptions, Identity, ListenOptions, Listener, ServerTrust, Service, connect,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::bed::*;

#[tokio::test]
async fn a_secured_session_through_three_depots() {
    let (client, server) = (
        Arc::new(Identity::generate().expect("key")),
        Arc::new(Identity::generate().expect("key")),
    );
    let depots: Vec<Running> = (0..3)
        .map(|_| depot_with(loopback_policy(client.public(), ""), |_| {}))
        .collect();
    let known = client.public();
    let options = ListenOptions::new(
        "127.0.0.1:0".parse().expect("address"),
        server.clone(),
        Arc::new(move |key| *key == known),
        vec![Service::COPY],
    );
    let listener = Listener::bind(options).await.expect("listen");
    let address = listener.local_addr();
    let hops: Vec<String> = depots
        .iter()
        .map(|depot| depot.address.to_string())
        .collect();
    let acceptor = tokio::spawn(async move {
        let mut session = listener.accept().await.expect("accept");
        let mut arrived = Vec::new();
        session
            .read_to_end(&mut arrived)
            .await
            .expect("a clean end");
        session.write_all(&arrived).await.expect("echo");
        session.shutdown().await.expect("end");
        arrived.len()
    });
    let route = hops.join(",").parse().expect("route");
    let options = ConnectOptions::new(
        Service::COPY,
        route,
        address.into(),
        client,
        ServerTrust::Pinned(server.public()),
    );
    let mut session = soon(connect(&options)).await.expect("connect");
    let (mut echo, sent) = (Vec::new(), vec![42; 1 << 20]);
    session.write_all(&sent).await.expect("write");
    session.shutdown().await.expect("end");
    soon(session.read_to_end(&mut echo))
        .await
        .expect("a clean end");
    assert!(echo == sent);
    assert_eq!(acceptor.await.expect("acceptor"), sent.len());
}
