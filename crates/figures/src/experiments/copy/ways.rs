//! Ways to copy: `longhaul cp` and programs of others, each with its number of streams and its
//! protection.

use anyhow::Result;

use super::data::Data;
use crate::peers::longhaul::{self, Longhaul};
use crate::peers::longhaul_over_ssh::{self, LonghaulOverSsh};
use crate::peers::{self, Peer};
use crate::tools::Tools;

/// A program with a number of streams.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CopyContender {
    /// The name in commands and records.
    pub name: &'static str,
    /// A peer's short name, or `longhaul`.
    pub program: &'static str,
    /// Number of streams that is set; `None` if the program has no choice, or chooses itself.
    pub streams: Option<u32>,
    /// If true, the bytes are encrypted between the hosts.
    pub encrypts: bool,
    /// The program's own comparison of source and copy, beyond TCP's checksum and its cipher's.
    pub verifies: Option<&'static str>,
    /// If true, it requests one file after the other and waits for answers, which costs round trips
    /// for each file of a tree.
    pub waits_for_files: bool,
    /// Maximum of its own window, in bytes.
    pub window: Option<f64>,
}

/// Maximum bytes in flight in a channel of OpenSSH: 64 packets of 32 KiB.
const SSH_WINDOW: f64 = 2097152.0;

const fn way(name: &'static str, program: &'static str, streams: Option<u32>) -> CopyContender {
    CopyContender {
        name,
        program,
        streams,
        encrypts: false,
        verifies: None,
        waits_for_files: true,
        window: None,
    }
}

impl CopyContender {
    const fn encrypting(self) -> Self {
        Self {
            encrypts: true,
            ..self
        }
    }

    const fn by_ssh(self) -> Self {
        Self {
            window: Some(SSH_WINDOW),
            ..self.encrypting()
        }
    }

    const fn verifying(self, verifies: &'static str) -> Self {
        Self {
            verifies: Some(verifies),
            ..self
        }
    }

    const fn pipelined(self) -> Self {
        Self {
            waits_for_files: false,
            ..self
        }
    }

    /// Returns true if it is `longhaul cp`, with or without options.
    pub fn is_own(&self) -> bool {
        [longhaul::NAME, longhaul_over_ssh::NAME].contains(&self.program)
    }

    /// Returns the program.
    ///
    /// # Errors
    /// There is no such peer.
    pub fn peer<'a>(&self, tools: &'a Tools) -> Result<Box<dyn Peer + 'a>> {
        match self.program {
            longhaul::NAME => Ok(Box::new(Longhaul {
                tools,
                streams: self.streams,
                is_clear: !self.encrypts,
                options: &[],
            })),
            longhaul_over_ssh::NAME => Ok(Box::new(LonghaulOverSsh { tools })),
            _ => self.other(),
        }
    }

    /// Returns the program of others.
    ///
    /// # Errors
    /// It is `longhaul cp`, not a program of others.
    pub fn other(&self) -> Result<Box<dyn Peer>> {
        Ok(Box::new(peers::find(self.program)?))
    }

    /// Returns the reason why it cannot copy such data in a word, or `None` if it can.
    pub fn cannot(&self, data: Data) -> Option<&'static str> {
        let peer = self.other().ok()?;
        (data.is_tree() && !peer.abilities().trees).then_some("copies no folders")
    }

    /// Returns the program's name on a page.
    pub fn title(&self) -> String {
        let own = match self.program {
            longhaul_over_ssh::NAME => "longhaul cp over ssh",
            _ => "longhaul cp",
        };
        let title = self.other().map_or(own, |peer| peer.title());
        let title = match self.is_own() && !self.encrypts {
            true => format!("{title} --no-encrypt"),
            false => title.to_owned(),
        };
        match self.streams {
            None => title,
            Some(1) => format!("{title}, 1 stream"),
            Some(number) => format!("{title}, {number} streams"),
        }
    }
}

/// `longhaul cp` without options.
pub const OWN: CopyContender = way("longhaul", longhaul::NAME, None)
    .encrypting()
    .verifying(OWN_HASH)
    .pipelined();
/// `longhaul cp` with 16 streams, for comparison with its own choice.
pub const OWN_FIXED: CopyContender = CopyContender {
    name: "longhaul-16",
    streams: Some(16),
    ..OWN
};
/// `longhaul cp` with file contents in plaintext, for comparison with programs that do not encrypt.
pub const OWN_CLEAR: CopyContender = CopyContender {
    name: "longhaul-clear",
    encrypts: false,
    ..OWN
};
/// `longhaul cp` without a server: the far side is started over ssh.
pub const OWN_OVER_SSH: CopyContender = CopyContender {
    name: "longhaul-ssh",
    program: longhaul_over_ssh::NAME,
    ..OWN
};
/// `scp`, which most people use.
pub const SCP: CopyContender = way("scp", "scp", None).by_ssh();

const OWN_HASH: &str = "every file, BLAKE3";
const RSYNC_HASH: &str = "every file, a hash on the way";
const RCLONE_HASH: &str = "every file, a hash afterwards";
const XRD_CHECKSUM: &str = "every page, CRC-32C on the way";

/// All ways, in the order of the tables.
pub const WAYS: [CopyContender; 17] = [
    OWN,
    OWN_FIXED,
    OWN_CLEAR,
    OWN_OVER_SSH,
    SCP,
    way("rsync-ssh", "rsync-ssh", None)
        .by_ssh()
        .verifying(RSYNC_HASH)
        .pipelined(),
    way("rsync", "rsync", None)
        .verifying(RSYNC_HASH)
        .pipelined(),
    way("rclone-sftp-4", "rclone-sftp", Some(4))
        .by_ssh()
        .verifying(RCLONE_HASH),
    way("rclone-sftp-16", "rclone-sftp", Some(16))
        .by_ssh()
        .verifying(RCLONE_HASH),
    way("rclone-http-4", "rclone-http", Some(4)),
    way("rclone-http-16", "rclone-http", Some(16)),
    way("gridftp-1", "gridftp", Some(1)),
    way("gridftp-4", "gridftp", Some(4)),
    way("gridftp-16", "gridftp", Some(16)),
    way("xrdcp-1", "xrdcp", Some(1)).verifying(XRD_CHECKSUM),
    way("xrdcp-16", "xrdcp", Some(16)).verifying(XRD_CHECKSUM),
    way("lftp-16", "lftp", Some(16)),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_is_some_peers_and_its_streams_are_a_choice_there() {
        for way in WAYS.iter().filter(|way| !way.is_own()) {
            let able = way.other().unwrap().abilities();
            assert_eq!(way.streams.is_some(), able.streams, "{}", way.name);
        }
    }
}
