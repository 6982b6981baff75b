//! Programs without configuration get through, or report why not.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use super::world::{CLOSED_PORT, FILE, FORBIDDEN_PORT, WEB_PORT, World, nft};

#[test]
fn unmodified_programs_use_two_depots_and_an_offramp() {
    let Some(world) = World::up() else { return };
    world.rules("fall_back = false");
    let server = world.address("server");
    let forward = format!("0={server}:{WEB_PORT},purpose=a test,size=10M");
    let mut onramp = world.onramp(&["--socks=0", "--http=0", "--forward", &forward]);
    let (socks, http) = (onramp.entry_address("socks"), onramp.entry_address("http"));
    let (url, named) = (world.url(), format!("http://server:{WEB_PORT}/{FILE}"));
    let by_forward = format!("http://{}/{FILE}", onramp.entry_address("forwards"));
    let route = format!(
        "way=route {}:7510,{}:7510 off-ramp",
        world.address("near"),
        world.address("far")
    );
    let held = onramp.descriptors();

    let proxy = format!("http://{http}");
    let curls: [(&str, &[&str], &str); 7] = [
        ("socks", &["--socks5", &socks], &url),
        ("socks", &["--socks5-hostname", &socks], &named),
        ("socks", &["--socks4", &socks], &url),
        ("socks", &["--socks4a", &socks], &named),
        ("http", &["-x", &proxy], &url),
        ("http", &["-p", "-x", &proxy], &named),
        ("forward", &[], &by_forward),
    ];
    for (entry, options, url) in curls {
        let output = world.curl(options, url);
        onramp.logged(&[
            "connection requested",
            &format!("entry=\"{entry}\""),
            &route,
        ]);
        onramp.logged(&[&format!("entry=\"{entry}\""), "sent="]);
        world.is_the_file(&output, &format!("curl {options:?} {url}"));
    }
    for (how, proxy) in [("5", &socks), ("4", &socks), ("connect", &http)] {
        let mut nc = world.lab.command("laptop", "nc").unwrap();
        nc.args([
            "-N",
            "-X",
            how,
            "-x",
            proxy,
            &server.to_string(),
            &WEB_PORT.to_string(),
        ]);
        let mut nc = nc
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // nc ends its direction when its input ends.
        let mut input = nc.stdin.take().unwrap();
        input
            .write_all(format!("GET /{FILE} HTTP/1.0\r\n\r\n").as_bytes())
            .unwrap();
        drop(input);
        let output = nc.wait_with_output().unwrap();
        assert!(
            output.stdout.ends_with(&world.data),
            "nc -X {how}: {} bytes came",
            output.stdout.len()
        );
        onramp.logged(&["connection requested", &route]);
    }
    let mut wget = world.lab.command("laptop", "busybox").unwrap();
    wget.env("http_proxy", &proxy)
        .args(["wget", "-q", "-O", "-", &url]);
    world.is_the_file(&wget.output().unwrap(), "busybox wget");

    // A repository, over git's plain HTTP.
    let git = |arguments: &[&str]| {
        let mut git = world.lab.command("laptop", "git").unwrap();
        git.env("HOME", world.dir.path())
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .current_dir(world.dir.path());
        let output = git.args(arguments).output().unwrap();
        assert!(
            output.status.success(),
            "git {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    };
    git(&["init", "-q", "-b", "main", "origin"]);
    fs::copy(world.file("www").join(FILE), world.file("origin/file")).unwrap();
    git(&["-C", "origin", "add", "file"]);
    git(&[
        "-C",
        "origin",
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@b",
        "commit",
        "-q",
        "-m",
        "a",
    ]);
    git(&["clone", "-q", "--bare", "origin", "www/repository.git"]);
    git(&["-C", "www/repository.git", "update-server-info"]);
    let remote = format!("http://server:{WEB_PORT}/repository.git");
    git(&[
        "-c",
        &format!("http.proxy={proxy}"),
        "clone",
        "-q",
        &remote,
        "copy",
    ]);
    assert!(fs::read(world.file("copy/file")).unwrap() == world.data);
    onramp.holds_again(held);
}

#[test]
fn failures_reach_programs_and_leave_nothing_behind() {
    let Some(world) = World::up() else { return };
    world.rules("fall_back = false");
    let mut onramp = world.onramp(&["--socks=0", "--http=0"]);
    let (socks, http, server) = (
        onramp.entry_address("socks"),
        onramp.entry_address("http"),
        world.address("server"),
    );
    let held = onramp.descriptors();
    for (port, reply, status, errno) in [
        (CLOSED_PORT, "(5)", "502", "errno=111"),
        (FORBIDDEN_PORT, "(2)", "403", "errno=13"),
    ] {
        let url = format!("http://{server}:{port}/");
        let refused = world.curl(&["--socks5", &socks], &url);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(
            !refused.status.success() && said.contains(reply),
            "{port}: {said}"
        );
        onramp.logged(&["not connected", errno]);
        let refused = world.curl(&["-p", "-x", &format!("http://{http}")], &url);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(said.contains(status), "{port}: {said}");
    }
    // The server does not answer: the program exits while it is being connected.
    nft(
        &world,
        "server",
        "table ip hole { chain c { type filter hook input priority 0; tcp dport 22 drop; }; }\n",
    );
    let mut nc = world.lab.command("laptop", "nc").unwrap();
    nc.args(["-X", "5", "-x", &socks, &server.to_string(), "22"]);
    let mut nc = nc
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    onramp.logged(&["connection requested", &format!("{server}:22")]);
    nc.kill().unwrap();
    nc.wait().unwrap();
    onramp.logged(&["the program closed its socket while it was being connected"]);
    onramp.holds_again(held);
}
