//! Sessions of the service `stripe` at a member of a striped server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use longhaul_session::{
    ConnectOptions, Identity, ListenOptions, Listener, Route, ServerTrust, ServiceName, Session,
    connect,
};
use longhaul_transfer::store::confine::Dir;
use longhaul_transfer::{Grants, Server, ServerLimits, StripeMembers, serve_striped};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const LOOPBACK: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// A member of a striped server, alone.
struct Member {
    address: SocketAddr,
    identity: Arc<Identity>,
    _root: tempfile::TempDir,
}

impl Member {
    async fn start(limits: ServerLimits) -> Self {
        let identity = Arc::new(Identity::generate().unwrap());
        let root = tempfile::tempdir().unwrap();
        let server = Server::new(Dir::open(root.path()).unwrap(), Grants::default(), limits);
        let own = "192.0.2.1:7511".parse().unwrap();
        let members = StripeMembers::new(own, &[own], identity.clone(), None).unwrap();
        let members = Arc::new(members);
        server.join_stripe(members.own());
        let options = ListenOptions::new(
            LOOPBACK,
            identity.clone(),
            Arc::new(|_| true),
            vec![ServiceName::STRIPE],
        );
        let listener = Listener::bind(options).await.unwrap();
        let address = listener.local_addr();
        tokio::spawn(async move {
            while let Ok(session) = listener.accept().await {
                tokio::spawn(serve_striped(server.clone(), session, members.clone()));
            }
        });
        Self {
            address,
            identity,
            _root: root,
        }
    }

    async fn connect(&self, identity: Arc<Identity>) -> Session {
        let options = ConnectOptions::new(
            ServiceName::STRIPE,
            Route::direct(),
            self.address.into(),
            identity,
            ServerTrust::Pinned(self.identity.public()),
        );
        connect(&options).await.unwrap()
    }

    /// Announces a client's stream, and ends. Returns the answer.
    async fn claim_client(&self, identity: Arc<Identity>) -> String {
        let client = Identity::generate().unwrap().public().to_string();
        let preface = serde_json::json!({"from_client": {"client": client, "origin": null}});
        let preface = preface.to_string();
        let len = u16::try_from(preface.len()).unwrap();
        let mut session = self.connect(identity).await;
        let message = [&len.to_be_bytes()[..], preface.as_bytes()].concat();
        session.write_all(&message).await.unwrap();
        session.shutdown().await.unwrap();
        answer(&mut session).await
    }
}

/// Returns what arrives before the stream ends or is reset.
async fn answer(session: &mut Session) -> String {
    let mut answer = Vec::new();
    let _ = session.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn lh_copy_78_only_the_key_of_members_speaks_for_clients() {
    let member = Member::start(ServerLimits::default()).await;
    let other = Arc::new(Identity::generate().unwrap());
    let refused = member.claim_client(other).await;
    assert!(refused.contains("only members of this server"), "{refused}");
    // The stream is served: it ends before HELLO, so there is nothing to answer.
    let served = member.claim_client(member.identity.clone()).await;
    assert_eq!(served, "");
}

#[tokio::test]
async fn sessions_without_a_preface_count_as_streams() {
    let limits = ServerLimits {
        streams: 2,
        // Longer than the test.
        hello_timeout: Duration::from_secs(3600),
        ..ServerLimits::default()
    };
    let member = Member::start(limits).await;
    let client = Arc::new(Identity::generate().unwrap());
    let _silent = member.connect(client.clone()).await;
    let refused = answer(&mut member.connect(client).await).await;
    assert!(refused.contains("streams"), "{refused}");
}
