//! Flags of OpenSSH's scp.

use super::flag_table::Effect::{Becomes, Holds, Ignored, Quiet, Refused};
use super::flag_table::FlagValue::{Bare, Required};
use super::flag_table::{Effect, Flag, FlagTable, FlagValue};

const fn flag(letter: &'static str, value: FlagValue, effect: Effect) -> Flag {
    Flag {
        letter,
        value,
        effect,
    }
}

const OTHER_PROTOCOL: &str =
    "longhaul speaks a protocol of its own, and sftp where the host has no longhaul";

/// Flags of scp. It replaces existing files.
pub static TABLE: FlagTable = FlagTable {
    program: "scp",
    about: "Copy files over ssh, as scp does",
    always: &["--overwrite"],
    flags: &[
        flag("r", Bare, Becomes("-r")),
        flag(
            "p",
            Bare,
            Holds("permissions and modification times are always kept"),
        ),
        flag("q", Bare, Quiet),
        flag("v", Bare, Becomes("-v")),
        flag("B", Bare, Becomes("-B")),
        flag("4", Bare, Becomes("-4")),
        flag("6", Bare, Becomes("-6")),
        flag("P", Required("PORT"), Becomes("-P")),
        flag("i", Required("FILE"), Becomes("-i")),
        flag("F", Required("FILE"), Becomes("-F")),
        flag("J", Required("HOST"), Becomes("-J")),
        flag("o", Required("OPTION"), Becomes("-o")),
        flag("S", Required("PROGRAM"), Becomes("-S")),
        flag(
            "C",
            Bare,
            Ignored("data is compressed only while that makes the copy faster"),
        ),
        flag("3", Bare, Ignored("data between two hosts goes directly")),
        flag("A", Bare, Ignored("neither host logs in to the other")),
        flag("R", Bare, Ignored("data between two hosts goes directly")),
        flag("O", Bare, Ignored(OTHER_PROTOCOL)),
        flag("s", Bare, Ignored(OTHER_PROTOCOL)),
        flag(
            "T",
            Bare,
            Ignored("names are bytes, and no shell reads them"),
        ),
        flag(
            "c",
            Required("CIPHER"),
            Ignored("data goes over TLS 1.3, which chooses its cipher"),
        ),
        flag(
            "X",
            Required("OPTION"),
            Ignored("requests are sized automatically"),
        ),
        flag(
            "D",
            Required("PROGRAM"),
            Refused("no sftp server is started here: name the host as user@host:path"),
        ),
        flag(
            "l",
            Required("LIMIT"),
            Refused(
                "a copy has no rate limit: a depot on the --route of longhaul cp can have one \
                 (max_rate)",
            ),
        ),
    ],
};
