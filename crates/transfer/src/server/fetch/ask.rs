//! The client's first line, and delegations, as far as this server can check them.

use longhaul_proto::{Delegation, Endpoint, Host, PublicKey};

use crate::error::Error;
use crate::fetch::FETCH_VERSION;
use crate::fetch::message::FetchAsk;
use crate::path::RelPath;
use crate::remote_copy::{CopyAsk, CopyDirection};
use crate::wire::{CopyRequest, CopyToken};

/// The principal of a session, and this server's own key.
#[derive(Debug, Clone, Copy)]
pub(super) struct FetchKeys {
    pub principal: PublicKey,
    pub me: PublicKey,
}

/// What a client asked for, checked as far as this server can.
pub(super) struct CheckedAsk {
    pub copy: CopyAsk,
    pub delegation: Delegation,
    pub server: Endpoint,
    /// Request as if the client sent the files itself: it decides about rights here.
    pub here: CopyRequest,
    /// Request to the other server.
    pub there: CopyRequest,
    /// Name of what the delegation must permit.
    pub name: String,
}

impl CheckedAsk {
    /// Reads the client's first line (LH-FETCH-1, LH-FETCH-2).
    pub(super) fn read(line: &[u8], keys: FetchKeys) -> Result<Self, Error> {
        let ask: FetchAsk = serde_json::from_slice(line)
            .map_err(|_| Error::Protocol("the first line does not ask for a copy".into()))?;
        if !(ask.lowest..=ask.highest).contains(&FETCH_VERSION) {
            return Err(Error::Protocol(format!(
                "this server speaks version {FETCH_VERSION} of the fetch protocol"
            )));
        }
        let copy = ask.copy;
        let odd = |what: &str| Error::Protocol(format!("a copy with {what}"));
        if copy.direction != CopyDirection::Pull {
            return Err(odd("this server as the source"));
        }
        let is_plain = |name: &Vec<u8>| RelPath::from_bytes(name).is_ok() && !name.contains(&b'/');
        let names = copy.source_names();
        if names.len() != copy.sources.len() || !names.iter().all(is_plain) {
            return Err(odd("invalid names"));
        }
        let [host] = &copy.hosts[..] else {
            return Err(odd("other than one server"));
        };
        let host = Host::parse(host).map_err(|_| odd("an invalid server"))?;
        if copy.port == 0 {
            return Err(odd("an invalid port"));
        }
        let server = Endpoint::new(host, copy.port);
        let there = copy.request().map_err(|_| odd("an invalid source"))?;
        let here = CopyRequest::Push {
            destination: RelPath::from_bytes(&copy.destination.0)
                .map_err(|_| odd("an invalid destination"))?,
            into: copy.into,
            overwrite: copy.overwrite,
            fsync: copy.fsync,
            names,
        };
        // The bounds of a client's own copy hold for this one.
        let fits = |request: &CopyRequest| {
            let hello = copy.hello(request.clone(), CopyToken([0; 16]));
            hello.fits() && !copy.sources.is_empty()
        };
        if !fits(&there) || !fits(&here) {
            return Err(odd("no sources, or too many"));
        }
        let name = copy
            .hello(there.clone(), CopyToken([0; 16]))
            .delegated_name();
        let delegation = read_delegation(&ask.delegation, keys, copy.server, &name)?;
        Ok(Self {
            copy,
            delegation,
            server,
            here,
            there,
            name,
        })
    }

    /// Returns the names of the sources in reports.
    pub(super) fn labels(&self) -> Vec<String> {
        let CopyRequest::Pull { sources, .. } = &self.there else {
            return Vec::new();
        };
        let label = |source: &RelPath| match source.is_root() {
            true => format!("lh://{}/", self.server),
            false => format!("lh://{}/{source}", self.server),
        };
        sources.iter().map(label).collect()
    }
}

/// Reads a delegation, and checks that the other server could accept it. That server decides.
pub(super) fn read_delegation(
    text: &str,
    keys: FetchKeys,
    server: PublicKey,
    name: &str,
) -> Result<Delegation, Error> {
    let delegation: Delegation = text
        .parse()
        .map_err(|error: longhaul_proto::InvalidDelegation| Error::Protocol(error.to_string()))?;
    let is_for_this = delegation.principal == keys.principal
        && delegation.delegate == keys.me
        && delegation.audience == Some(server)
        && delegation.from == name;
    match is_for_this {
        true => Ok(delegation),
        false => Err(Error::Unauthorised(
            "the delegation is for another copy: its principal must sign one for this".into(),
        )),
    }
}
