//! Tests of the meaning of scenarios, and of messages about invalid ones.

use std::time::Duration;

use super::*;
use crate::spec::{BitRate, CodelSpec, JitterSpec, LossModel, ReorderSpec};

const GOOD: &str = r#"title = "two hosts"
seed = 7

[nodes.left]
congestion = "reno"
buffers = "8 MB"
[nodes.right]
sysctl = { tcp_sack = 0, "net.core.somaxconn" = "1024" }

[links.wan]
ends = ["left", "right"]
delay = "53 ms"
rate = "155 Mbit/s"
queue = "1 bdp"
loss = "0.1%"
backward = { delay = "40 ms", loss = { mean = "1%", burst = 10 } }
"#;

fn resolve(text: &str) -> Result<ScenarioNetwork> {
    Scenario::from_text("s.toml", text).resolve(&Overrides::default())
}

#[test]
fn a_scenario_is_worked_out() {
    let network = resolve(GOOD).unwrap();
    assert_eq!((network.title.as_str(), network.seed), ("two hosts", 7));
    assert_eq!(network.nodes[0].congestion.as_deref(), Some("reno"));
    assert!(
        network.nodes[0]
            .sysctls
            .contains(&("net.ipv4.tcp_rmem".into(), "4096 131072 16777216".into()))
    );
    assert!(
        network.nodes[1]
            .sysctls
            .contains(&("net.ipv4.tcp_sack".into(), "0".into()))
    );
    assert!(
        network.nodes[1]
            .sysctls
            .contains(&("net.core.somaxconn".into(), "1024".into()))
    );
    assert!(!network.nodes[0].forwards);

    let wan = &network.links[0].spec;
    assert_eq!(
        (wan.mtu, wan.forward.delay, wan.backward.delay),
        (1500, Duration::from_millis(53), Duration::from_millis(40))
    );
    assert_eq!(wan.forward.rate, Some(BitRate(155_000_000)));
    // One bandwidth-delay product of the link's own round trip: 155e6 / 8 * 0.093.
    assert_eq!(wan.forward.queue, 1_801_875);
    assert_eq!(
        wan.forward.loss,
        LossModel::Independent { probability: 0.001 }
    );
    let LossModel::GilbertElliott {
        good_to_bad,
        bad_to_good,
        ..
    } = wan.backward.loss
    else {
        panic!("{:?}", wan.backward.loss)
    };
    assert!((bad_to_good - 0.1).abs() < 1e-12);
    assert!(
        (good_to_bad / (good_to_bad + bad_to_good) - 0.01).abs() < 1e-12,
        "the mean loss is as asked"
    );
}

#[test]
fn settings_and_seeds_go_over_the_file() {
    let scenario = Scenario::from_text("s.toml", GOOD);
    let overrides = Overrides::default()
        .set("links.wan.loss", "0.5%")
        .set("links.*.rate", "\"10 Mbit/s\"")
        .set("nodes.*.congestion", "cubic")
        .set("links.wan.backward.loss", r#"{ mean = "2%", burst = 5 }"#)
        .seed(9);
    let network = scenario.resolve(&overrides).unwrap();
    assert_eq!(network.seed, 9);
    assert!(
        network
            .nodes
            .iter()
            .all(|node| node.congestion.as_deref() == Some("cubic"))
    );
    assert_eq!(
        network.links[0].spec.forward.loss,
        LossModel::Independent { probability: 0.005 }
    );
    assert_eq!(
        network.links[0].spec.backward.rate,
        Some(BitRate(10_000_000))
    );
    let first = scenario.resolve(&Overrides::default()).unwrap();
    assert_ne!(
        first.links[0].spec.seed, network.links[0].spec.seed,
        "another seed, other losses"
    );
}

#[test]
fn noise_is_worked_out_for_each_direction() {
    let with = |settings: &[(&str, &str)]| {
        let overrides = settings
            .iter()
            .fold(Overrides::default(), |all, (path, value)| {
                all.set(*path, *value)
            });
        let network = Scenario::from_text("s.toml", GOOD)
            .resolve(&overrides)
            .unwrap();
        let link = network.links.into_iter().next().unwrap().spec;
        (link.forward, link.backward)
    };
    let ms = Duration::from_millis;
    let (forward, backward) = with(&[
        ("links.wan.jitter", "1 ms"),
        (
            "links.*.reorder",
            "{ probability = \"0.1%\", by = \"3 ms\" }",
        ),
        ("links.wan.aqm", "codel"),
        ("links.wan.backward.aqm", "none"),
        ("links.wan.forward.ecn", "true"),
        (
            "links.wan.cross",
            "{ rate = \"100 Mbit/s\", on = \"200 ms\", off = \"800 ms\" }",
        ),
        (
            "links.wan.backward.jitter",
            "{ deviation = \"5 ms\", reorder = true }",
        ),
    ]);
    let jitter = |deviation, reorder| {
        Some(JitterSpec {
            deviation: ms(deviation),
            reorder,
        })
    };
    assert_eq!(
        (forward.jitter, backward.jitter),
        (jitter(1, false), jitter(5, true))
    );
    let reorder = Some(ReorderSpec {
        probability: 0.001,
        by: ms(3),
    });
    assert_eq!((forward.reorder, backward.reorder), (reorder, reorder));
    assert_eq!(
        (forward.aqm, backward.aqm),
        (Some(CodelSpec::RFC_8289), None)
    );
    assert_eq!((forward.ecn, backward.ecn), (true, false));
    assert_eq!(forward.cross, backward.cross);
    assert_eq!(forward.cross.unwrap().mean_rate(), 20e6);
    let (forward, _) = with(&[(
        "links.wan.aqm",
        "{ kind = \"codel\", target = \"10 ms\", interval = \"200 ms\" }",
    )]);
    assert_eq!(
        forward.aqm,
        Some(CodelSpec {
            target: ms(10),
            interval: ms(200)
        })
    );
    let (plain, _) = with(&[("links.wan.jitter", "0 ms"), ("links.wan.cross", "none")]);
    assert_eq!((plain.jitter, plain.cross), (None, None));
}

#[test]
fn mistakes_in_noise_name_the_field() {
    let cases = [
        (
            "jitter",
            "5 s",
            "links.wan.jitter: deviation must be from 1 us to 1 s",
        ),
        (
            "jitter",
            "{ reorder = true }",
            "links.wan.jitter: `deviation` is missing",
        ),
        (
            "reorder",
            "0.1%",
            "links.wan.reorder: is text, should be a table",
        ),
        (
            "reorder",
            "{ probability = \"0.1%\", by = \"0 s\" }",
            "links.wan.reorder: by must be more than 0",
        ),
        ("aqm", "red", "links.wan.aqm: \"red\" is not an AQM"),
        (
            "aqm",
            "{ kind = \"codel\", target = \"1 s\" }",
            "links.wan.aqm: target must be",
        ),
        (
            "ecn",
            "true",
            "links.wan.ecn: what is marked is what an AQM would drop",
        ),
        (
            "cross",
            "{ rate = \"unlimited\", on = \"1 s\", off = \"1 s\" }",
            "links.wan.cross.rate: cross traffic has a rate",
        ),
        (
            "cross",
            "{ rate = \"1 Mbit/s\", off = \"1 s\" }",
            "links.wan.cross: `on` is missing",
        ),
    ];
    for (field, value, expected) in cases {
        let overrides = Overrides::default().set(format!("links.wan.{field}"), value);
        let error = Scenario::from_text("s.toml", GOOD)
            .resolve(&overrides)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(expected),
            "for {value}\n  got    {error}\n  wanted {expected}"
        );
    }
    let unlimited = Overrides::default()
        .set("links.wan.rate", "unlimited")
        .set("links.wan.queue", "1 MB")
        .set("links.wan.aqm", "codel");
    let error = Scenario::from_text("s.toml", GOOD)
        .resolve(&unlimited)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("links.wan.aqm: a link without a rate has no queue"),
        "{error}"
    );
}

#[test]
fn a_links_seed_does_not_depend_on_the_other_links() {
    let more = format!(
        "{GOOD}\n[links.second]\nends = [\"left\", \"right\"]\ndelay = \"1 ms\"\n\
         rate = \"1 Gbit/s\"\n"
    );
    let (one, two) = (resolve(GOOD).unwrap(), resolve(&more).unwrap());
    assert_eq!(one.links[0].spec.seed, two.links[0].spec.seed);
    assert_ne!(two.links[0].spec.seed, two.links[1].spec.seed);
}

#[test]
fn one_loss_is_spread_in_proportion_to_delay() {
    let text = r#"
        [nodes]
        a = {}
        b = {}
        c = {}
        d = {}
        [links]
        long = { ends = ["a", "b"], delay = "42.5 ms", rate = "155 Mbit/s" }
        short = { ends = ["b", "c"], delay = "18.5 ms", rate = "155 Mbit/s" }
        spur = { ends = ["b", "d"], delay = "1 ms", rate = "155 Mbit/s" }
        [spread.path]
        loss = "0.1%"
        path = ["long", "short"]
        also = ["spur"]
    "#;
    let network = resolve(text).unwrap();
    let kept = |link: usize| match network.links[link].spec.forward.loss {
        LossModel::Independent { probability } => 1.0 - probability,
        other => panic!("{other:?}"),
    };
    assert!(
        (kept(0) * kept(1) - 0.999).abs() < 1e-12,
        "the path as a whole loses what was asked"
    );
    assert!(
        (kept(2).ln() / kept(0).ln() - 1.0 / 42.5).abs() < 1e-9,
        "the spur loses the same for each millisecond"
    );
    assert!(network.nodes[1].forwards && !network.nodes[0].forwards);
}

#[test]
fn mistakes_name_file_line_and_field() {
    // (text of the valid file to replace, its replacement, the message)
    let cases = [
        ("title = \"two hosts\"", "title = ", "s.toml:1: not TOML: "),
        (
            "seed = 7",
            "seed = -7",
            "s.toml:2: seed: a seed cannot be negative",
        ),
        (
            "seed = 7",
            "sead = 7",
            "s.toml:2: sead: no such field here: there are title, seed, ipv6, nodes, links, \
             spread, route",
        ),
        (
            "\"reno\"",
            "3",
            "s.toml:5: nodes.left.congestion: is an integer, should be text in quotes",
        ),
        (
            "\"reno\"",
            "\"re no\"",
            "s.toml:5: nodes.left.congestion: \"re no\" is not a supported congestion control",
        ),
        (
            "\"8 MB\"",
            "\"100 KB\"",
            "s.toml:6: nodes.left.buffers: buffers are \"64 KB\"",
        ),
        (
            "tcp_sack = 0",
            "\"vm.swappiness\" = 0",
            "s.toml:8: nodes.right.sysctl.vm.swappiness: only sysctls under net.",
        ),
        (
            "tcp_sack = 0",
            "\"net.../x\" = 0",
            "s.toml:8: nodes.right.sysctl.net.../x: only sysctls under net.",
        ),
        (
            "[nodes.right]",
            "[nodes.ri_ght]",
            "s.toml:7: nodes.ri_ght: a name here is",
        ),
        (
            "[nodes.right]",
            "[nodes.localhost]",
            "s.toml:7: nodes.localhost: `localhost` is every node's name",
        ),
        (
            "\"right\"]",
            "\"wrong\"]",
            "s.toml:11: links.wan.ends[1]: there is no node \"wrong\"",
        ),
        (
            "\"right\"]",
            "\"left\"]",
            "s.toml:11: links.wan.ends: a link has two ends",
        ),
        (
            "[links.wan]",
            "[links.averyveryverylongname]",
            "s.toml:10: links.averyveryverylongname: a name here is 1 to 15",
        ),
        (
            "[links.wan]",
            "[links.left]",
            "s.toml:10: links.left: a link needs a name that no node or device has",
        ),
        (
            "delay = \"53 ms\"",
            "delay = \"53\"",
            "s.toml:12: links.wan.delay: \"53\" is not a time",
        ),
        (
            "delay = \"53 ms\"",
            "delay = \"2 min\"",
            "s.toml:12: links.wan.delay: a one-way delay is at most 60 s",
        ),
        (
            "delay = \"53 ms\"",
            "",
            "s.toml:10: links.wan: `delay` is missing",
        ),
        (
            "rate = \"155 Mbit/s\"",
            "",
            "s.toml:10: links.wan: `rate` is missing",
        ),
        (
            "155 Mbit/s",
            "155 MB/s",
            "s.toml:13: links.wan.rate: \"155 MB/s\" is not a rate",
        ),
        (
            "155 Mbit/s",
            "unlimited",
            "s.toml:14: links.wan.queue: without a rate there is no bdp",
        ),
        (
            "155 Mbit/s",
            "0 bit/s",
            "s.toml:10: links.wan: a rate of zero carries nothing",
        ),
        (
            "1 bdp",
            "100 B",
            "s.toml:14: links.wan.queue: a queue of 100 bytes holds no packet of 1500",
        ),
        (
            "1 bdp",
            "1 bpd",
            "s.toml:14: links.wan.queue: \"1 bpd\" is not a queue",
        ),
        (
            "\"0.1%\"",
            "\"110%\"",
            "s.toml:15: links.wan.loss: \"110%\" is not a probability",
        ),
        (
            "\"0.1%\"",
            "true",
            "s.toml:15: links.wan.loss: is true or false, should be text in quotes",
        ),
        (
            "burst = 10",
            "burst = 0",
            "s.toml:16: links.wan.backward.loss.burst: a mean burst is 1 to 1000000 packets",
        ),
        (
            "burst = 10",
            "length = 10",
            "s.toml:16: links.wan.backward.loss: `burst` is missing",
        ),
        (
            "queue = \"1 bdp\"",
            "mtu = 100",
            "s.toml:14: links.wan.mtu: an MTU is 576 to 65535 bytes",
        ),
        (
            "queue = \"1 bdp\"",
            "trace = \"no-such-file\"",
            "no-such-file: ",
        ),
        (
            "queue = \"1 bdp\"",
            "when = 1979-05-27",
            "s.toml:14: when: a scenario has no dates",
        ),
    ];
    for (old, new, expected) in cases {
        assert!(GOOD.contains(old), "{old} is not in the file");
        let error = resolve(&GOOD.replacen(old, new, 1))
            .expect_err(new)
            .to_string();
        assert!(
            error.contains(expected),
            "for {new:?}\n  got    {error}\n  wanted {expected}"
        );
        assert!(!error.contains('\n'), "more than one line: {error}");
    }
}

#[test]
fn mistakes_in_routes_name_file_line_and_field() {
    let row = r#"
[nodes]
a = {}
b = {}
c = {}
[links]
ab = { ends = ["a", "b"], delay = "1 ms", rate = "1 Gbit/s" }
bc = { ends = ["b", "c"], delay = "1 ms", rate = "1 Gbit/s" }
[[route]]
"#;
    let cases = [
        ("from = 'a'", "s.toml:9: route[0]: `to` is missing"),
        (
            "from = 'a'\nto = 'x'",
            "s.toml:11: route[0].to: there is no node \"x\"",
        ),
        (
            "from = 'a'\nto = 'a'",
            "s.toml:11: route[0].to: a route leads to another node",
        ),
        (
            "from = 'a'\nto = 'c'",
            "s.toml:9: route[0]: no link leads from a to c: name what lies between in `via`",
        ),
        (
            "from = 'a'\nto = 'c'\nvia = ['bc']",
            "s.toml:12: route[0].via[0]: link bc does not begin at a",
        ),
        (
            "from = 'a'\nto = 'c'\nvia = ['zz']",
            "s.toml:12: route[0].via[0]: there is no node or link \"zz\"",
        ),
        (
            "from = 'a'\nto = 'c'\nvia = ['b', 'a']",
            "s.toml:12: route[0].via[1]: passes a twice",
        ),
        (
            "from = 'a'\nto = 'b'\nports = '9-1'",
            "s.toml:12: route[0].ports: ports are TCP source ports",
        ),
        (
            "from = 'a'\nto = 'b'\nports = '0-70000'",
            "s.toml:12: route[0].ports: ports are TCP source ports",
        ),
    ];
    for (route, expected) in cases {
        let error = resolve(&format!("{row}{route}\n"))
            .expect_err(route)
            .to_string();
        assert!(
            error.starts_with(expected),
            "for {route:?}\n  got    {error}\n  wanted {expected}"
        );
    }
}

#[test]
fn mistakes_in_settings_name_the_setting() {
    let cases = [
        (
            "links.wan.loss",
            "200%",
            "--set links.wan.loss: links.wan.loss: \"200%\" is not a probability",
        ),
        (
            "links.wan.los",
            "1%",
            "--set links.wan.los: links.wan.los: no such field here",
        ),
        (
            "links.wam.loss",
            "1%",
            "--set links.wam.loss: links.wam: `ends` is missing",
        ),
        (
            "links.wan.delay.x",
            "1 ms",
            "--set links.wan.delay.x: `x` would lie inside what is text, not a table (s.toml:12)",
        ),
        (
            "links..loss",
            "1%",
            "--set links..loss: the path has an empty part",
        ),
        (
            "title.*.x",
            "1",
            "--set title.*.x: `*` would lie inside what is text",
        ),
    ];
    for (path, value, expected) in cases {
        let overrides = Overrides::default().set(path, value);
        let error = Scenario::from_text("s.toml", GOOD)
            .resolve(&overrides)
            .expect_err(path)
            .to_string();
        assert!(
            error.starts_with(expected),
            "for {path}={value}\n  got    {error}\n  wanted {expected}"
        );
    }
    assert!("links.wan.loss".parse::<Setting>().is_err());
}

#[test]
fn ipv6_gives_every_node_a_second_address() {
    assert!(
        resolve(GOOD)
            .unwrap()
            .nodes
            .iter()
            .all(|node| node.ipv6.is_none())
    );
    let network = resolve(&format!("ipv6 = true\n{GOOD}")).unwrap();
    let addresses: Vec<String> = network
        .nodes
        .iter()
        .filter_map(|node| node.ipv6)
        .map(|ip| ip.to_string())
        .collect();
    assert_eq!(addresses, ["fd77::1", "fd77::2"]);
    let narrow = format!("ipv6 = true\n{GOOD}mtu = 1279\n");
    let error = resolve(&narrow).unwrap_err().to_string();
    assert!(
        error.contains("links.wan: IPv6 needs an MTU of at least 1280 bytes"),
        "{error}"
    );
}

#[test]
fn drops_are_timed_by_direction() {
    let at = |times: &str| {
        let overrides = Overrides::default().set("links.wan.forward.drop_at", times);
        Scenario::from_text("s.toml", GOOD).resolve(&overrides)
    };
    let spec = at("20 s").unwrap().links.remove(0).spec;
    assert_eq!(spec.forward.drop_at, [Duration::from_secs(20)]);
    assert!(spec.backward.drop_at.is_empty());
    let spec = at("[\"1 s\", \"2 s\"]").unwrap().links.remove(0).spec;
    assert_eq!(spec.forward.drop_at.len(), 2);
    for (times, problem) in [
        (
            "[\"2 s\", \"2 s\"]",
            "links.wan.forward.drop_at[1]: must come after the time before it",
        ),
        (
            "90000 s",
            "links.wan.forward.drop_at: must lie within a day",
        ),
    ] {
        let error = at(times).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    }
}
