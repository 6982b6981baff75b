//! HAProxy in TCP mode, in a depot's place.

use super::place::{PeerNode, Serving, write};
use super::{Need, Program, Relay, RelayKind};
use anyhow::Result;
use std::net::SocketAddrV4;

const HAPROXY: Need = Need {
    program: "haproxy",
    package: "haproxy",
};

/// HAProxy with `option splice-auto`, which lets the kernel move the bytes where that pays
/// (HAProxy's configuration manual).
pub struct HaProxy;

impl Program for HaProxy {
    fn name(&self) -> &'static str {
        "haproxy"
    }
    fn title(&self) -> &'static str {
        "HAProxy, mode tcp"
    }
    fn options(&self) -> &'static str {
        "mode tcp, option splice-auto"
    }
    fn needs(&self) -> &'static [Need] {
        &[HAPROXY]
    }
}

impl Relay for HaProxy {
    fn kind(&self) -> RelayKind {
        RelayKind::Forward
    }

    fn start(&self, place: &PeerNode, server: SocketAddrV4) -> Result<Serving> {
        let settings = place.settings()?;
        let file = settings.path().join("haproxy.cfg");
        // The server's own port, because clients such as SSH's recognise the server by it.
        let port = server.port();
        write(
            &file,
            &format!(
                "global\n    maxconn 256\ndefaults\n    mode tcp\n    option splice-auto\n    \
                 timeout connect 30s\n    \
                 timeout client 15m\n    timeout server 15m\n\
                 listen relay\n    bind 0.0.0.0:{port}\n    server to {server}\n"
            ),
        )?;
        place.serve(
            &HAPROXY,
            &["-db", "-f", &file.to_string_lossy()],
            settings,
            place.scratch,
            port,
        )
    }
}
