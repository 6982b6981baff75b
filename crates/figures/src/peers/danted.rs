//! Dante's SOCKS server, in a depot's place.

use super::place::{Endpoint, PeerNode, Serving, write};
use super::{Need, Program, Relay, RelayKind};
use anyhow::Result;
use std::net::SocketAddrV4;

const DANTED: Need = Need {
    program: "danted",
    package: "dante-server",
};

/// Registered port of SOCKS.
const PORT: u16 = 1080;

/// danted(8), sockd.conf(5) at its defaults, open to every node of the lab.
pub struct Danted;

impl Program for Danted {
    fn name(&self) -> &'static str {
        "danted"
    }
    fn title(&self) -> &'static str {
        "Dante, SOCKS5"
    }
    fn options(&self) -> &'static str {
        "defaults"
    }
    fn needs(&self) -> &'static [Need] {
        &[DANTED]
    }
}

impl Relay for Danted {
    fn kind(&self) -> RelayKind {
        RelayKind::Socks
    }

    fn start(&self, place: &PeerNode, server: SocketAddrV4) -> Result<Serving> {
        let settings = place.settings()?;
        let file = settings.path().join("danted.conf");
        let own = place.address()?;
        write(
            &file,
            &format!(
                "logoutput: stderr\ninternal: {own} port = {PORT}\nexternal: {own}\n\
                 clientmethod: none\nsocksmethod: none\n\
                 client pass {{ from: 0.0.0.0/0 to: 0.0.0.0/0 }}\n\
                 socks pass {{ from: 0.0.0.0/0 to: 0.0.0.0/0 protocol: tcp }}\n"
            ),
        )?;
        let mut relaying = place.serve(
            &DANTED,
            &["-f", &file.to_string_lossy()],
            settings,
            place.scratch,
            PORT,
        )?;
        relaying.endpoint = Endpoint {
            address: server,
            socks: Some(relaying.endpoint.address),
        };
        Ok(relaying)
    }
}
