//! Tests of `AF_LSL`: addresses, routes, options and names of programs written for the library.

#![allow(clippy::unwrap_used, clippy::panic)] // a test that can't go on has failed

mod support;

use std::path::Path;

use support::{Installed, Onramp, World, run};

const EXPECTED: &str = r#"bind: ok
listen: ok
name: ok family:1 port:1 length:1
route: ok
connect: ok
accept: ok family:1 length:1
reason: ok "the program requested a direct connection" 1
purpose: ok "nightly" 1
key: lhk1: 58
no-key: ok "" 1
routed: ok 1
peer: ok name:store.example same:1
recv: 5 hello
end: 0
came-to: ok same:1
no-such-key: EINVAL
other-key: ok "lhk1:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" 1
another: EACCES
right-key: ok
accept: ok
unknown-name: EHOSTUNREACH
direct: ok
accept: ok
routed: 0
reason: ok "the program requested a direct connection" 1
nowhere: EADDRNOTAVAIL
short: EINVAL
hops: EINVAL
udp: EAFNOSUPPORT
datagrams: EPROTONOSUPPORT
route: EINVAL
null-route: EFAULT
option: ENOPROTOOPT
option-udp: ENOPROTOOPT
option-closed: EBADF
option-short: EINVAL
read-only: ENOPROTOOPT
timeout: ETIMEDOUT
open: ECONNREFUSED
reason: ok "no on-ramp answers" 1
closed: ENETUNREACH
listen: ENETUNREACH
acceptor: ENETUNREACH
localhost: 0 family:1 name:localhost port:80 length:1
elsewhere: 0 name:only.known.there.invalid port:81 address:0 next:0
numeric: 1
address: 0 name:"" mapped:1
"#;

#[test]
fn native_program_uses_af_lsl() {
    let installed = Installed::get();
    let Some(world) = World::new() else { return };
    let onramp = Onramp::start(&world, World::NEAR);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/native/native.c");
    let options = ["-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror"];
    let program = installed.compile(
        "native",
        &options,
        &[source],
        &installed.flags(&["--cflags", "--libs"]),
    );
    let found = run(world
        .command(World::NEAR, &program)
        .env("LONGHAUL_ONRAMP", &onramp.path)
        .env("LD_LIBRARY_PATH", installed.path("lib")));
    assert_eq!(found, EXPECTED);
}
