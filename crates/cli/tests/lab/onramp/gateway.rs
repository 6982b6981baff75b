//! An on-ramp on the gateway of a network whose machines are not configured for it.

use std::fs;

use super::world::{WEB_PORT, World, nft};

#[test]
fn a_gateway_onramp_serves_a_whole_network() {
    let Some(world) = World::up() else { return };
    world.rules("fall_back = false");
    let mut onramp = world.onramp(&[
        "--redirect=0.0.0.0:0",
        "--redirect=[::]:0",
        "--tproxy=0.0.0.0:0",
    ]);
    let held = onramp.descriptors();
    let get = || world.run("pc", "curl", &["-sS", "--max-time", "60", &world.url()]);
    // `redirect` leads to the address of a packet's incoming interface, and the lab's interfaces
    // have none.
    let found = world.run(
        "laptop",
        "ip",
        &["-o", "route", "get", &world.address("pc").to_string()],
    );
    let found = String::from_utf8(found.stdout).unwrap();
    let interface = found
        .split_whitespace()
        .skip_while(|word| *word != "dev")
        .nth(1)
        .unwrap();
    assert!(
        world
            .run(
                "laptop",
                "ip",
                &["addr", "add", "10.99.0.1/32", "dev", interface]
            )
            .status
            .success()
    );
    let redirect = onramp.port("redirect");
    let ruleset = format!(
        "table ip lab {{ chain c {{ type nat hook prerouting priority dstnat; tcp dport {WEB_PORT} \
         redirect to :{redirect}; }}; }}\n"
    );
    nft(&world, "laptop", &ruleset);
    world.is_the_file(&get(), "redirected");
    onramp.logged(&["connection requested", "entry=\"redirect\"", "way=route"]);
    nft(&world, "laptop", "delete table ip lab\n");

    for arguments in [
        &[
            "rule", "add", "priority", "1", "fwmark", "1", "lookup", "100",
        ][..],
        &[
            "route",
            "add",
            "local",
            "0.0.0.0/0",
            "dev",
            "lo",
            "table",
            "100",
        ],
    ] {
        assert!(world.run("laptop", "ip", arguments).status.success());
    }
    let tproxy = onramp.port("tproxy");
    let ruleset = format!(
        "table ip lab {{ chain c {{ type filter hook prerouting priority mangle; iifname != \"lo\" \
         tcp dport {WEB_PORT} tproxy to :{tproxy} meta mark set 1 accept; }}; }}\n"
    );
    nft(&world, "laptop", &ruleset);
    world.is_the_file(&get(), "handed over");
    onramp.logged(&["connection requested", "entry=\"tproxy\"", "way=route"]);
    nft(&world, "laptop", "delete table ip lab\n");

    // IPv6, which the lab has switched off: the destination is recognized, and the connection is
    // reset.
    let redirect_v6 = onramp.places["redirect"][1]
        .as_str()
        .unwrap()
        .rsplit_once(':')
        .unwrap()
        .1
        .to_owned();
    assert!(
        world
            .run(
                "laptop",
                "sysctl",
                &["-w", "net.ipv6.conf.lo.disable_ipv6=0"]
            )
            .status
            .success()
    );
    for arguments in [
        &["-6", "addr", "add", "2001:db8::2/128", "dev", "lo"][..],
        &["-6", "route", "add", "2001:db8::/64", "dev", "lo"],
    ] {
        assert!(world.run("laptop", "ip", arguments).status.success());
    }
    let ruleset = format!(
        "table ip6 lab {{ chain c {{ type nat hook output priority -100; ip6 daddr 2001:db8::1 tcp \
         dport 80 redirect to :{redirect_v6}; }}; }}\n"
    );
    nft(&world, "laptop", &ruleset);
    let rule = format!(
        "[[route]]\nto = [\"2001:db8::1\"]\nofframp = \"{}@{}\"\nfall_back = false\n",
        world.offramp_key,
        world.address("far")
    );
    fs::write(world.file("laptop/routes.toml"), rule).unwrap();
    onramp.signal(rustix::process::Signal::HUP);
    onramp.logged(&["table of routes reloaded"]);
    assert!(!world.curl(&[], "http://[2001:db8::1]/").status.success());
    onramp.logged(&[
        "connection requested",
        "entry=\"redirect\"",
        "destination=[2001:db8::1]:80",
    ]);

    // This connection was not redirected.
    let own = format!("{}:{redirect}", world.address("laptop"));
    assert!(
        !world
            .run(
                "pc",
                "curl",
                &["-sS", "--max-time", "60", &format!("http://{own}/")]
            )
            .status
            .success()
    );
    onramp.logged(&["no firewall redirected here"]);
    onramp.holds_again(held);
}
