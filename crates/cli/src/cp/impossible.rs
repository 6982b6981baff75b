//! Options that have no meaning in a copy whose other end has no longhaul, or that passes through
//! this machine.

use super::Cp;

/// Reason why a copy by SFTP is not verified.
pub(super) const SFTP_UNVERIFIED: &str = "sftp has no checksums";
/// Reason why a copy with a store is not verified.
pub(super) const STORE_UNVERIFIED: &str = "stores have no BLAKE3 checksums";

/// Protocol of an end that has no longhaul.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ForeignProtocol {
    /// SFTP.
    Sftp,
    /// That of an object store or a web server.
    Store,
    /// Those of two ends, between which the data passes through this machine.
    Relayed(RelayedEnds),
}

/// Ends of a copy that passes through this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RelayedEnds {
    /// True if the source is at `lh://`.
    pub from_server: bool,
    /// True if the destination is at `lh://`.
    pub to_server: bool,
    /// True if the destination is `user@host:`.
    pub to_login: bool,
    /// True if an end is reached by ssh.
    pub has_ssh: bool,
}

impl ForeignProtocol {
    /// Returns the protocol as messages name it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Sftp => "by sftp",
            Self::Store => "with stores and web servers",
            Self::Relayed(_) => "in a copy that passes through this machine",
        }
    }

    /// Returns what to do instead of compressing the data.
    const fn compression(self) -> &'static str {
        match self {
            Self::Sftp => "use -o Compression=yes",
            Self::Store | Self::Relayed(_) => "compress the files first",
        }
    }

    /// Returns why it has no routes and transports.
    const fn carrier(self) -> &'static str {
        match self {
            Self::Sftp => "the data goes through ssh",
            Self::Store => "the data goes by HTTP",
            Self::Relayed(_) => "neither end receives by the copy protocol",
        }
    }

    /// Returns why it has no ports for data.
    const fn ports(self) -> &'static str {
        match self {
            Self::Relayed(ends) if ends.to_server && ends.has_ssh => {
                "what the ssh host sends goes through ssh"
            }
            _ => self.carrier(),
        }
    }

    /// Returns true if the data arrives by the copy protocol, which has these options.
    const fn is_received_by_longhaul(self) -> bool {
        matches!(self, Self::Relayed(ends) if ends.to_server || ends.to_login)
    }

    /// Returns true if a session may take a route.
    const fn has_routes(self) -> bool {
        self.is_received_by_longhaul() || matches!(self, Self::Relayed(ends) if ends.from_server)
    }

    /// Returns true if an ssh host may receive the data at a port.
    const fn has_ports(self) -> bool {
        matches!(self, Self::Relayed(ends) if ends.to_login)
    }

    /// Returns true if an end is reached by ssh.
    const fn has_ssh(self) -> bool {
        match self {
            Self::Sftp => true,
            Self::Store => false,
            Self::Relayed(ends) => ends.has_ssh,
        }
    }
}

impl Cp {
    /// Returns the first option that the protocol cannot provide, and the reason.
    pub(super) fn impossible_by(
        &self,
        protocol: ForeignProtocol,
    ) -> Option<(&'static str, &'static str)> {
        let (options, carrier) = (&self.options, protocol.carrier());
        let is_carried = protocol.is_received_by_longhaul();
        let has_routes = protocol.has_routes();
        let flags = [
            (
                !options.routes.is_empty() && !has_routes,
                "--route",
                carrier,
            ),
            (
                options.transport.is_some() && !is_carried,
                "--transport",
                carrier,
            ),
            (
                options.congestion.is_some() && !is_carried,
                "--congestion",
                carrier,
            ),
            (options.no_encrypt && !is_carried, "--no-encrypt", carrier),
            (
                options.delta,
                "--delta",
                "the other end would have to read its files",
            ),
            (
                options.inplace,
                "--inplace",
                "the other end would have to read its files",
            ),
            (
                !is_carried
                    && self
                        .requested_compression()
                        .is_some_and(|method| !method.is_none()),
                "--compress",
                protocol.compression(),
            ),
            (
                options.ssh.port_range.is_some() && !protocol.has_ports(),
                "--port-range",
                protocol.ports(),
            ),
            (
                options.ssh.bootstrap && protocol == ForeignProtocol::Sftp,
                "--bootstrap",
                "name the path as user@host:path to use longhaul there",
            ),
            (
                options.hard_links,
                "--hard-links",
                "each name becomes a file of its own",
            ),
            (
                self.receipt.is_some(),
                "--receipt",
                "the other end would have to sign it",
            ),
            (self.part.is_some(), "--part", "the parts are for servers"),
        ];
        if let Some(flag) = options.metadata.first_given() {
            let why = "only permissions and modification times are kept, and links as they are";
            return Some((flag, why));
        }
        let found = flags.into_iter().find(|(given, ..)| *given);
        let of_ssh = || match protocol.has_ssh() {
            true => None,
            false => {
                let (flag, _) = options.ssh.meaningless_for_servers()?;
                Some((flag, "no path here is user@host:path: leave it out"))
            }
        };
        found.map(|(_, flag, why)| (flag, why)).or_else(of_ssh)
    }
}
