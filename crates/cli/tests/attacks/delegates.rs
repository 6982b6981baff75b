//! Keys that got a delegation to read, and use it for more.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use longhaul_proto::{DelegatedAction, Delegation, PublicKey, SigningKey};
use longhaul_session::{ConnectOptions, Route, ServerTrust, ServiceName, Session, connect};
use longhaul_transfer::path::RelPath;
use longhaul_transfer::{
    Client, Compare, Compression, ConnectError, ConnectFailure, Connector, CopyDestination,
    CopyRequest, CopyToken, Error, ExistingPolicy, FilterRules, Hello, Portion, Preservation,
    RouteInfo, WriteOptions,
};

use crate::stage::Service;
use crate::world::*;

/// Opens sessions under a delegation.
struct Delegate(ConnectOptions);

impl Connector for Delegate {
    type Stream = Session;

    fn routes(&self) -> Vec<RouteInfo> {
        vec![RouteInfo::direct()]
    }

    async fn connect(&self, _: usize) -> Result<Session, ConnectError> {
        connect(&self.0).await.map_err(|error| ConnectError {
            message: error.to_string(),
            kind: match error.is_identity_error() {
                true => ConnectFailure::Unauthorised,
                false => ConnectFailure::NoRoute,
            },
            retry: false,
            is_unknown_key: false,
        })
    }
}

fn hello(path: &str) -> Hello {
    Hello {
        token: CopyToken([0; 16]),
        request: CopyRequest::Pull {
            recursive: true,
            sources: vec![RelPath::from_typed(path.as_bytes()).unwrap()],
        },
        resume: false,
        clear: false,
        offer: None,
        hard_links: false,
        single: false,
        portion: Portion::Whole,
        placement: None,
        reports_not_kept: false,
        filter: FilterRules::default(),
        existing: ExistingPolicy::default(),
        receipt: false,
        compression: Compression::None,
        packs: false,
        delta: false,
        in_place: false,
        late_sizes: false,
        keep: Preservation::default(),
        bearer: None,
    }
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(now.as_millis()).unwrap()
}

/// Returns a delegation to the attacker for reading `data/f` at `server`, not signed yet.
fn delegation(delegate: PublicKey, server: &Service) -> Delegation {
    Delegation {
        id: [3; 16],
        action: DelegatedAction::Read,
        principal: delegate,
        delegate,
        audience: Some(server.key.parse().unwrap()),
        from: hello("data/f").delegated_name(),
        to: "b.example".to_owned(),
        both_ways: false,
        max_rate: 1,
        start_unix_ms: now_ms(),
        end_unix_ms: now_ms() + 600_000,
        signature: [0; 64],
    }
}

impl World {
    /// Has the attacker read `path` under a delegation.
    fn read_as_delegate(
        &self,
        server: &Service,
        delegation: Delegation,
        path: &str,
    ) -> Result<(), Error> {
        let options = ConnectOptions {
            delegation: Some(Box::new(delegation)),
            ..ConnectOptions::new(
                ServiceName::COPY,
                Route::direct(),
                server.address.parse().unwrap(),
                Arc::new(self.identity("attacker")),
                ServerTrust::Pinned(server.key.parse().unwrap()),
            )
        };
        self.read_over(Delegate(options), path)
    }

    /// Has an attacker read `path` over the streams of `connector`.
    pub fn read_over(&self, connector: impl Connector, path: &str) -> Result<(), Error> {
        let token = CopyToken::random().unwrap();
        let client = Client {
            connector: Arc::new(connector),
            hello: Hello {
                token,
                ..hello(path)
            },
            compare: Compare::default(),
            streams: Some(1),
            memory: None,
            patience: HONEST,
            progress: Arc::default(),
            observer: Arc::new(()),
            receipt: None,
            tokens: None,
        };
        let to = tempfile::tempdir().unwrap();
        let names = vec![b"stolen".to_vec()];
        let options = WriteOptions::default();
        let destination = CopyDestination::local(to.path(), names, options, token).unwrap();
        let pulling = client.pull(destination, vec![path.to_owned()]);
        self.attackers.block_on(async { pulling.await.map(drop) })
    }
}

#[test]
fn a_delegate_reads_only_what_was_delegated() {
    let world = World::new();
    let [me, victim] = ["me", "victim"].map(|who| world.identity(who));
    let attacker = world.identity("attacker").public();
    let server = world.serve(&["--read", &format!("{}=data", me.public())]);
    std::fs::create_dir(world.stage.path("root/data")).unwrap();
    for file in ["root/data/f", "root/data/g", "root/other"] {
        world.stage.noise(file, 1000);
    }
    let signed = |key: &SigningKey, change: fn(&mut Delegation)| {
        let mut given = delegation(attacker, &server);
        change(&mut given);
        given.sign(key).unwrap();
        given
    };
    let mine = me.signing_key();
    let good = signed(mine, |_| ());
    // The delegation works, so the refusals below are about what differs.
    world
        .read_as_delegate(&server, good.clone(), "data/f")
        .unwrap();
    let mut forged = good.clone();
    forged.from = hello("data/g").delegated_name();
    for (given, path) in [
        // Another file than was delegated.
        (good.clone(), "data/g"),
        (good.clone(), "data"),
        (forged, "data/g"),
        // A file that its principal may not read.
        (
            signed(mine, |given| given.from = hello("other").delegated_name()),
            "other",
        ),
        // A principal without any right, such as the attacker itself.
        (signed(victim.signing_key(), |_| ()), "data/f"),
        // Another delegate, server, action or time.
        (
            signed(mine, |given| {
                given.delegate = PublicKey::from_bytes([9; 32])
            }),
            "data/f",
        ),
        (
            signed(mine, |given| {
                given.audience = Some(PublicKey::from_bytes([9; 32]))
            }),
            "data/f",
        ),
        (signed(mine, |given| given.audience = None), "data/f"),
        (
            signed(mine, |given| given.action = DelegatedAction::Circuit),
            "data/f",
        ),
        (
            signed(mine, |given| {
                given.start_unix_ms -= 900_000;
                given.end_unix_ms -= 900_000;
            }),
            "data/f",
        ),
        (
            signed(mine, |given| given.end_unix_ms += 2 * 3_600_000),
            "data/f",
        ),
    ] {
        let shown = format!("{given:?}");
        let error = world.read_as_delegate(&server, given, path).unwrap_err();
        assert!(matches!(error, Error::Unauthorised(_)), "{error}: {shown}");
    }
}
