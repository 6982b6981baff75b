//! The route that the data takes, and the messages about it.

use wanbed::Overrides;

use crate::hosts::{Hosts, PORTS, noise, same};

#[test]
fn the_reachable_side_is_dialled_else_ssh_carries_the_data() {
    // The large file takes some six seconds, so that its copy is not over before the third stream
    // is open.
    let slow = Overrides::default().set("links.b.rate", "\"50 Mbit/s\"");
    let Some(hosts) = Hosts::up_on(&slow, &["alpha"], "") else {
        return;
    };
    noise(&hosts.path("here/big"), 36 << 20);
    noise(&hosts.path("here/small"), 3 << 20);
    let copy = |arguments: &[&str]| {
        let copied = hosts.cp(&[&["--port-range", PORTS], arguments].concat());
        copied.assert_done();
        copied
    };
    // A busy machine may be so slow to connect that the host tries, too.
    hosts.block_data_ports_of("client");
    assert_eq!(copy(&["here/small", "alpha:one"]).routes[0], "direct");
    hosts.allow_data_ports_of("client");

    hosts.block_data_ports_of("alpha");
    let reverse = copy(&["--streams", "3", "here/big", "alpha:two"]);
    assert_eq!(reverse.routes, ["from the host"; 3]);
    assert!(
        reverse.notices[0].contains("alpha cannot be reached from here")
            && reverse.notices[0].contains("no answer in time"),
        "{:?}",
        reverse.notices
    );
    // Remembered from last time, so that nothing is waited for.
    let again = copy(&["alpha:two", "here/two"]);
    assert_eq!(again.routes[0], "from the host");
    assert!(
        again.notices[0].contains("not tried"),
        "{:?}",
        again.notices
    );

    hosts.block_data_ports_of("client");
    let inside = copy(&["here/small", "alpha:three"]);
    assert_eq!(inside.routes, ["inside ssh"]);
    assert!(
        inside.notices[0].contains("no direct connection with alpha")
            && inside.notices[0].contains(PORTS),
        "{:?}",
        inside.notices
    );
    copy(&["alpha:three", "here/three"]);
    for (here, there) in [
        ("small", "one"),
        ("big", "two"),
        ("two", "two"),
        ("three", "three"),
    ] {
        assert!(
            same(
                &hosts.path("here").join(here),
                &hosts.home("alpha").join(there)
            ),
            "{there}"
        );
    }
}

#[test]
fn a_jump_host_is_passed_and_the_data_goes_directly() {
    let Some(hosts) = Hosts::up(&["alpha"]) else {
        return;
    };
    noise(&hosts.path("here/big"), 3 << 20);
    hosts.block_data_ports_of("client");
    let arguments = ["--port-range", PORTS, "-o", "ProxyJump=hub", "here/big"];
    let copied = hosts.cp(&[&arguments[..], &["alpha:"]].concat());
    // ssh passes its settings file on to the jump only because it is named with -F.
    copied.assert_done();
    assert_eq!(copied.routes[0], "direct");
    assert!(same(
        &hosts.path("here/big"),
        &hosts.home("alpha").join("big")
    ));
    let jumped = hosts.cp(&["-J", "hub", "alpha:big", "here/back"]);
    jumped.assert_done();
}

#[test]
fn failed_logins_are_reported_in_one_line() {
    let Some(hosts) = Hosts::up(&[]) else { return };
    noise(&hosts.path("here/f"), 10);
    let nobody = hosts.cp(&["-P", "2223", "here/f", "alpha:"]);
    assert_eq!(nobody.code, Some(3), "{}", nobody.report);
    let error = nobody.error();
    assert!(
        error.starts_with("cannot log in to alpha: ") && error.contains("Connection refused"),
        "{error}"
    );
    let stranger = hosts.cp(&["-o", "User=nobody-here", "here/f", "alpha:"]);
    assert_eq!(stranger.code, Some(3), "{}", stranger.report);
    assert!(
        stranger.error().contains("Permission denied"),
        "{}",
        stranger.error()
    );
    let no_ssh = hosts.cp(&["--ssh", "no-such-ssh", "here/f", "alpha:"]);
    assert!(
        no_ssh.error().contains("cannot run no-such-ssh"),
        "{}",
        no_ssh.error()
    );
}

#[test]
fn ipv6_addresses_work_for_login_and_data() {
    let Some(hosts) = Hosts::up(&["alpha"]) else {
        return;
    };
    if !hosts
        .run("alpha", "ip", &["-6", "address", "show", "dev", "lo"])
        .contains("::1")
    {
        return eprintln!("not tested: no IPv6 in a node here");
    }
    noise(&hosts.path("here/big"), 3 << 20);
    let copied = hosts.cp_at("alpha", &["here/big", "[::1]:six"]);
    copied.assert_done();
    assert_eq!(
        (copied.routes[0].as_str(), &copied.notices),
        ("direct", &vec![])
    );
    assert!(same(
        &hosts.path("here/big"),
        &hosts.home("alpha").join("six")
    ));
}

#[test]
fn scp_flags_work_or_suggest_a_replacement() {
    let Some(hosts) = Hosts::up(&["alpha"]) else {
        return;
    };
    noise(&hosts.path("here/big"), 3 << 20);
    hosts.block_data_ports_of("client");
    let flags = ["-4", "-B", "-C", "-p", "-q", "--port-range", PORTS];
    let copied = hosts.cp(&[&flags[..], &["here/big", "alpha:four"]].concat());
    copied.assert_done();
    assert_eq!(copied.routes[0], "direct", "{:?}", copied.notices);
    let no_ipv6 = hosts.cp(&["-6", "-B", "here/big", "alpha:six"]);
    assert_eq!(no_ipv6.code, Some(3), "{}", no_ipv6.report);
    let limited = hosts.files("cp", &["-l", "8000", "here/big", "alpha:never"]);
    assert_eq!(limited.0, Some(2));
    assert!(limited.2.contains("scp's -l: "), "{}", limited.2);
    // Copies left nothing there.
    let (code, out, errors) = hosts.files("leftovers", &["-r", "alpha:"]);
    assert_eq!((code, out.as_str()), (Some(0), ""), "{errors}");
}
