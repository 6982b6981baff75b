//! Options that have no meaning in a copy whose other end has no longhaul.

use super::Cp;

/// Protocol of an end that has no longhaul.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ForeignProtocol {
    /// SFTP.
    Sftp,
    /// That of an object store or a web server.
    Store,
}

impl ForeignProtocol {
    /// Returns the protocol as messages name it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Sftp => "by sftp",
            Self::Store => "with stores and web servers",
        }
    }

    /// Returns what to do instead of compressing the data.
    const fn compression(self) -> &'static str {
        match self {
            Self::Sftp => "use -o Compression=yes",
            Self::Store => "compress the files first",
        }
    }

    /// Returns why it has no routes and transports.
    const fn carrier(self) -> &'static str {
        match self {
            Self::Sftp => "the data goes through ssh",
            Self::Store => "the data goes by HTTP",
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
        let is_store = protocol == ForeignProtocol::Store;
        let flags = [
            (!options.routes.is_empty(), "--route", carrier),
            (options.transport.is_some(), "--transport", carrier),
            (options.congestion.is_some(), "--congestion", carrier),
            (options.no_encrypt, "--no-encrypt", carrier),
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
                self.requested_compression()
                    .is_some_and(|method| !method.is_none()),
                "--compress",
                protocol.compression(),
            ),
            (options.ssh.port_range.is_some(), "--port-range", carrier),
            (
                options.ssh.bootstrap && !is_store,
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
        let of_ssh = || match is_store {
            true => {
                let (flag, _) = options.ssh.meaningless_for_servers()?;
                Some((flag, "no path here is user@host:path: leave it out"))
            }
            false => None,
        };
        found.map(|(_, flag, why)| (flag, why)).or_else(of_ssh)
    }
}
