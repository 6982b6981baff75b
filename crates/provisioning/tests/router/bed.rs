//! A client and a server with a router between them, from which two links lead to the server.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use longhaul_circuits::time::Window;
use longhaul_provisioning::ask::DriverRequest;
use longhaul_provisioning::circuit::{
    CircuitHop, CircuitPart, CircuitPiece, CircuitRoute, CircuitSpec, EntityName, PartId,
};
use longhaul_provisioning::driver::Driver;
use longhaul_provisioning::linux::{CommandBuilder, LinuxRouter, RouterConfig};
use longhaul_provisioning::reconcile::Reconciler;
use longhaul_provisioning::streams::{PortProtocol, Prefix, SourcePorts, StreamSelector};
use wanbed::{Lab, Overrides, Scenario};

/// By default, packets take `near`, which is shorter.
const SCENARIO: &str = r#"
nodes = { client = {}, router = {}, server = {} }
[links]
access = { ends = ["client", "router"], delay = "1 ms", rate = "1 Gbit/s" }
near = { ends = ["router", "server"], delay = "1 ms", rate = "1 Gbit/s" }
far = { ends = ["router", "server"], delay = "3 ms", rate = "1 Gbit/s" }
"#;

/// Rate of each link of the router, in bit/s. It is less than that of the lab's links.
pub const LINK: u64 = 100_000_000;

pub fn name(text: &str) -> EntityName {
    text.parse().unwrap()
}

/// Returns the lab, if the machine can run one.
pub fn lab() -> Option<Arc<Lab>> {
    if let Err(why) = Lab::possible() {
        eprintln!("left out: no lab here: {why}");
        return None;
    }
    let scenario = Scenario::from_text("the router's bed", SCENARIO);
    let lab = Arc::new(Lab::up(&scenario, &Overrides::default()).unwrap());
    let runs = |program: &str| {
        lab.command("router", program)
            .unwrap()
            .arg("-V")
            .output()
            .is_ok()
    };
    if !runs("tc") {
        eprintln!("left out: tc is not installed");
        return None;
    }
    Some(lab)
}

/// Returns the configuration of a router of owner `us`, whose links are named as in the lab.
pub fn config() -> RouterConfig {
    serde_json::from_value(serde_json::json!({
        "owner": "us",
        "links": {
            "near": {"interface": "near", "rate": LINK, "standing": false},
            "far": {"interface": "far", "rate": LINK, "standing": false},
        },
    }))
    .unwrap()
}

/// Returns a factory for commands in the router's node.
pub fn in_router(lab: &Arc<Lab>) -> CommandBuilder {
    let lab = Arc::clone(lab);
    Arc::new(move |program, arguments| {
        let mut command = lab.command("router", program).map_err(io::Error::other)?;
        command.args(arguments);
        Ok(command)
    })
}

/// Returns a factory for commands in the router's node that fails after `most` commands that change
/// anything; and the number of such commands that were attempted.
pub fn some_in_router(lab: &Arc<Lab>, most: usize) -> (CommandBuilder, Arc<AtomicUsize>) {
    let all = in_router(lab);
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let start: CommandBuilder = Arc::new(move |program, arguments| {
        let changes = usize::from(!arguments.contains(&"show"));
        let before = counted.fetch_add(changes, Ordering::SeqCst);
        if before + changes > most {
            return Err(io::Error::other("it is dead"));
        }
        all(program, arguments)
    });
    (start, count)
}

pub fn router(lab: &Arc<Lab>, record: &Path) -> LinuxRouter {
    LinuxRouter::open(config(), record, in_router(lab)).unwrap()
}

/// Returns the streams from the client to the server from TCP ports of this range.
pub fn streams(lab: &Lab, first: u16, last: u16) -> StreamSelector {
    let [from, to] =
        ["client", "server"].map(|node| Prefix::single(lab.address(node).unwrap().into()));
    StreamSelector {
        from,
        to,
        source_ports: Some(SourcePorts {
            first,
            last,
            transport: PortProtocol::Tcp,
        }),
        dscp: None,
        mark: None,
    }
}

pub fn part(circuit: &str, link: &str, rate: u64, streams: StreamSelector) -> CircuitPart {
    CircuitPart {
        owner: name("us"),
        id: PartId::for_streams(&name(circuit), &name("router"), &name(link), &streams),
        circuit: name(circuit),
        node: name("router"),
        link: name(link),
        rate,
        window: Window::new(0, 1_000),
        streams,
    }
}

/// Returns a circuit of that part alone.
pub fn circuit(part: &CircuitPart) -> CircuitSpec {
    let hop = CircuitHop {
        node: part.node.clone(),
        link: part.link.clone(),
    };
    CircuitSpec {
        id: part.circuit.clone(),
        pieces: vec![CircuitPiece {
            window: part.window,
            routes: vec![CircuitRoute {
                hops: vec![hop],
                rate: part.rate,
                streams: part.streams,
            }],
        }],
    }
}

/// Sends requests to a driver until none is due, in a time that stands still. Then exactly the
/// wanted circuits are set up.
pub async fn reconcile(driver: &dyn Driver, wanted: Vec<CircuitSpec>) {
    let nodes = [(name("router"), name("driver"))];
    let mut reconciler = Reconciler::new(name("us"), nodes.into());
    reconciler.set_wanted(wanted);
    loop {
        let asks = reconciler.next_requests(0);
        if asks.is_empty() {
            return;
        }
        for ask in asks {
            let answer = driver.ask(&ask.request).await;
            assert!(answer.is_ok(), "{:?}: {answer:?}", ask.request);
            reconciler.take_answer(ask.number, answer, 0);
        }
    }
}

/// Sends a request, and ignores the answer.
pub async fn ask(driver: &dyn Driver, request: DriverRequest) {
    let _ = driver.ask(&request).await;
}

/// Returns the output of a command in the router's node.
pub fn said(lab: &Lab, words: &str) -> String {
    let mut words = words.split_whitespace();
    let program = words.next().unwrap();
    let output = lab
        .command("router", program)
        .unwrap()
        .args(words)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Returns all configured queues, rules and routes in the router's node.
pub fn state(lab: &Lab) -> String {
    let mut state = String::new();
    for words in [
        "ip -4 rule show",
        "ip -6 rule show",
        "ip -4 route show table all",
        "ip -6 route show table all",
    ] {
        state.push_str(&said(lab, words));
    }
    for device in ["access", "near", "far"] {
        for what in ["qdisc", "class", "filter"] {
            state.push_str(&said(lab, &format!("tc {what} show dev {device}")));
        }
    }
    state
}
