//! Attempts to keep a circuit's rate at a depot after the controller has taken it back.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use longhaul_hop::unix_ms;
use longhaul_hostile::opens;
use longhaul_hostile::status::ReceivedStatus;
use longhaul_proto::{CircuitGrant, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::stage::{Service, Stage, errors};
use crate::world::*;

const ANSWER: Duration = Duration::from_secs(60);
/// Time within which a depot that reaches the controller must drop a withdrawn grant.
const WITHDRAWN_WITHIN: Duration = Duration::from_secs(40);
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(20);
/// The policy's rate limit, shared by all sessions.
const MAX_RATE: &str = "max_rate = \"80 kbit/s\"";
const RULE_BURST: f64 = 65_536.0;
const RULE_BYTES_PER_SECOND: f64 = 10_000.0;
/// Bytes sent at once: 45 s at the policy's rate, a twentieth of a second on a circuit of 80
/// Mbit/s.
const BYTES: usize = 512 << 10;

/// A controller process.
struct Controller {
    child: Child,
    key: String,
    url: String,
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Controller {
    fn start(stage: &Stage) -> Self {
        let mut command = stage.longhaul("control");
        command.args(["control", "--json", "--listen", "127.0.0.1:0"]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap();
        let text = |field: &str| ready[field].as_str().unwrap().to_owned();
        Self {
            child,
            key: text("key"),
            url: format!("https://{}", text("https")),
        }
    }
}

/// Runs a command as `who`, and returns its output.
fn run(stage: &Stage, who: &str, arguments: &[&str]) -> String {
    let output = stage.longhaul(who).args(arguments).output().unwrap();
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        errors(&output)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// A depot on the path from `dtn` to `store`. It accepts the grants of a controller that lets `me`
/// and `attacker` reserve.
struct Bed {
    world: World,
    depot: Service,
    _controller: Controller,
}

impl Bed {
    fn new() -> Self {
        let world = World::new();
        let stage = &world.stage;
        let controller = Controller::start(stage);
        let keys = ["me", "attacker"].map(|who| stage.key(who));
        let capacity = json!({"capacity": {"rate_bps": 1e9}});
        let map = json!({
            "sites": [{"name": "west"}, {"name": "east"}],
            "hosts": [
                {"name": "dtn", "site": "west", "addresses": ["192.0.2.1"]},
                {"name": "store", "site": "east", "addresses": ["192.0.2.2"]},
            ],
            "depots": [{
                "name": "d", "key": stage.key("depot"), "site": "east",
                "addresses": [{"endpoint": "192.0.2.3:7510"}],
            }],
            "links": [
                {
                    "name": "w-e", "from": "west", "to": "east", "forward": capacity,
                    "backward": capacity
                },
            ],
        });
        std::fs::write(stage.path("map.json"), map.to_string()).unwrap();
        run(stage, "control", &["map", "import", "map.json"]);
        run(
            stage,
            "control",
            &["control", "grant", &stage.key("depot"), "depot"],
        );
        for (who, key) in ["me", "attacker"].iter().zip(&keys) {
            run(
                stage,
                "control",
                &["control", "grant", key, "reserver", "--name", who],
            );
            let known = [
                "controller",
                "use",
                "--host-key",
                &controller.key,
                &controller.url,
            ];
            run(stage, who, &known);
        }
        let policy = format!(
            "controllers = [\"{}\"]\n{}{MAX_RATE}\n",
            controller.key,
            policy(&keys, "127.0.0.0/8")
        );
        std::fs::write(stage.path("depot.toml"), policy).unwrap();
        let mut command = stage.longhaul("depot");
        command.args(["depot", "--listen", "127.0.0.1:0", "--policy", "depot.toml"]);
        command.args([
            "--controller",
            &controller.url,
            "--controller-key",
            &controller.key,
        ]);
        let depot = stage.service(command, "addresses");
        Self {
            world,
            depot,
            _controller: controller,
        }
    }

    /// Reserves as `who`, and returns the number of the reservation.
    fn reserve(&self, who: &str) -> String {
        let arguments = ["reserve", "dtn", "store", "--rate", "80M", "--until", "+1h"];
        let arguments = [&arguments[..], &["--provision", "--json"]].concat();
        let reserved: Value =
            serde_json::from_str(&run(&self.world.stage, who, &arguments)).unwrap();
        reserved["reservations"][0]["id"].to_string()
    }

    fn grant(&self, who: &str, reservation: &str) -> CircuitGrant {
        let arguments = ["reservations", reservation, "grants", "--json"];
        let granted: Value =
            serde_json::from_str(&run(&self.world.stage, who, &arguments)).unwrap();
        granted["items"][0]["grant"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap()
    }

    /// Builds an OPEN by `who` to `listener` that shows a grant.
    fn open(&self, who: &str, grant: &CircuitGrant, to: SocketAddr) -> Vec<u8> {
        let identity = self.world.identity(who);
        let depot = self.depot.address.parse().unwrap();
        let mut open = opens::to_depot(identity.signing_key(), depot, to.into()).unwrap();
        open.grant = Some(Box::new(grant.clone()));
        open.sign(identity.signing_key(), unix_ms()).unwrap();
        opens::bytes(&open).unwrap()
    }

    /// Opens a session by `who` by hand, and returns both ends.
    fn session(&self, who: &str, grant: &CircuitGrant) -> (TcpStream, TcpStream) {
        self.world.attackers.block_on(async {
            let listener = TcpListener::bind(ANY).await.unwrap();
            let open = self.open(who, grant, listener.local_addr().unwrap());
            let mut initiator = TcpStream::connect(&self.depot.address).await.unwrap();
            initiator.write_all(&open).await.unwrap();
            let accepted = tokio::time::timeout(ANSWER, listener.accept()).await;
            let mut acceptor = accepted.expect("the depot connects").unwrap().0;
            // The depot passes on the rest of the OPEN before the first bytes of the session.
            initiator.write_all(MARK).await.unwrap();
            let mut seen = Vec::new();
            while !seen.ends_with(MARK) {
                seen.push(acceptor.read_u8().await.unwrap());
            }
            (initiator, acceptor)
        })
    }

    /// Returns the depot's answer to one more session by `who`.
    fn answer(&self, who: &str, grant: &CircuitGrant) -> ReceivedStatus {
        let listener = std::net::TcpListener::bind(ANY).unwrap();
        let open = self.open(who, grant, listener.local_addr().unwrap());
        let asked = opens::ask(self.depot.address.parse().unwrap(), None, &open, ANSWER);
        self.world.attackers.block_on(asked).unwrap()
    }

    fn is_withdrawn(&self, who: &str, grant: &CircuitGrant) -> bool {
        let ReceivedStatus { code, detail, .. } = self.answer(who, grant);
        code == StatusCode::GrantRefused && detail.contains("has withdrawn it")
    }

    /// Sends everything at once. Returns the bytes that arrive within `limit`, and the seconds they
    /// took.
    fn carried(&self, ends: &mut (TcpStream, TcpStream), limit: Duration) -> (usize, f64) {
        let (initiator, acceptor) = ends;
        let began = Instant::now();
        let mut arrived = 0;
        let sends = async {
            initiator.write_all(&vec![7; BYTES]).await.unwrap();
            std::future::pending::<()>().await;
        };
        let receives = async {
            let mut buffer = vec![0; 64 << 10];
            while arrived < BYTES {
                arrived += acceptor.read(&mut buffer).await.unwrap();
            }
        };
        self.world.attackers.block_on(async {
            tokio::select! {
                () = sends => {}
                () = receives => {}
                () = tokio::time::sleep(limit) => {}
            }
        });
        (arrived, began.elapsed().as_secs_f64())
    }

    fn assert_granted(&self, ends: &mut (TcpStream, TcpStream)) {
        let (arrived, seconds) = self.carried(ends, HONEST);
        assert_eq!(arrived, BYTES, "after {seconds} s");
    }

    /// Waits until the depot refuses the grant.
    fn assert_withdrawn(&self, who: &str, grant: &CircuitGrant) {
        let began = Instant::now();
        while !self.is_withdrawn(who, grant) {
            assert!(began.elapsed() < WITHDRAWN_WITHIN, "it still counts");
            // Each attempt is a session, and a key has a limited share of the remembered ones.
            std::thread::sleep(BETWEEN_ATTEMPTS);
        }
    }
}

/// Marks the end of a session's early data.
const MARK: &[u8] = b"\0\xff mark \xff\0";

/// LH-GRANT-3. The grant in hand is valid for most of a minute, but the depot drops it within
/// seconds. It resets no session, and leaves the holder of another circuit its rate.
#[test]
fn a_cancelled_reservation_lifts_no_rate_of_a_depot() {
    let bed = Bed::new();
    let (mine, others) = (bed.reserve("me"), bed.reserve("attacker"));
    let honest = bed.grant("me", &mine);
    let taken_back = bed.grant("attacker", &others);
    let stored = bed.grant("attacker", &others);
    let left = |grant: &CircuitGrant| grant.end_unix_ms.saturating_sub(unix_ms());
    assert!(left(&taken_back) <= 60_000, "{taken_back:?}");
    let mut honest_ends = bed.session("me", &honest);
    let mut ends = bed.session("attacker", &taken_back);
    bed.assert_granted(&mut ends);
    run(
        &bed.world.stage,
        "control",
        &["reservations", &others, "cancel"],
    );
    bed.assert_withdrawn("attacker", &taken_back);
    assert!(left(&taken_back) > 0, "it has not just ended");
    // A grant that was stored and never shown.
    assert!(bed.is_withdrawn("attacker", &stored));
    let (arrived, seconds) = bed.carried(&mut ends, Duration::from_secs(5));
    let allowed = RULE_BYTES_PER_SECOND.mul_add(seconds, RULE_BURST);
    assert!(
        arrived > 0 && arrived as f64 <= allowed,
        "{arrived} of {allowed} bytes"
    );
    bed.assert_granted(&mut honest_ends);
    // A new one, as the one in hand may have ended.
    let honest = bed.grant("me", &mine);
    assert_eq!(bed.answer("me", &honest).code, StatusCode::Ok);
}

/// The same for a key that loses its role while its reservation remains.
#[test]
fn a_revoked_key_has_no_circuit_at_a_depot() {
    let bed = Bed::new();
    let (mine, others) = (bed.reserve("me"), bed.reserve("attacker"));
    let stored = bed.grant("attacker", &others);
    let shown = bed.grant("attacker", &others);
    assert_eq!(bed.answer("attacker", &shown).code, StatusCode::Ok);
    let attacker = bed.world.stage.key("attacker");
    run(
        &bed.world.stage,
        "control",
        &["control", "revoke", &attacker],
    );
    bed.assert_withdrawn("attacker", &shown);
    // Every stored grant is from before.
    assert!(bed.is_withdrawn("attacker", &stored));
    let honest = bed.grant("me", &mine);
    assert_eq!(bed.answer("me", &honest).code, StatusCode::Ok);
}
