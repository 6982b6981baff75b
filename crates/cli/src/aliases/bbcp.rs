//! Flags of bbcp 17, as its help lists them.

use super::flag_table::Effect::{Becomes, Holds, Ignored, Means, PortRange, Refused};
use super::flag_table::FlagValue::{Bare, Optional, Required};
use super::flag_table::{Effect, Flag, FlagTable, FlagValue};

const fn flag(letter: &'static str, value: FlagValue, effect: Effect) -> Flag {
    Flag {
        letter,
        value,
        effect,
    }
}

const BUFFERS: &str = "buffers are sized automatically";
const CHECKSUMS: &str = "every file is verified with BLAKE3";
const FAR_PROGRAM: &str = "longhaul starts the other side by itself";
const RESUMES: &str = "an interrupted copy is resumed by the same command";
const WINDOWS: &str = "windows are set automatically";

/// Flags of bbcp. It replaces existing files only with `-f`, as `longhaul cp` does with
/// `--overwrite`.
pub static TABLE: FlagTable = FlagTable {
    program: "bbcp",
    about: "Copy files over ssh in several streams, with the command line of bbcp",
    always: &[],
    flags: &[
        flag("f", Bare, Means("--overwrite")),
        flag("r", Bare, Becomes("-r")),
        flag("s", Required("STREAMS"), Becomes("--streams")),
        flag("v", Bare, Becomes("-v")),
        flag("V", Bare, Means("-v")),
        flag("D", Bare, Means("-v")),
        flag("i", Required("FILE"), Becomes("-i")),
        flag("O", Bare, Means("--ignore-existing")),
        flag("y", Required("d|dd"), Means("--fsync")),
        flag("Z", Required("FIRST[:LAST]"), PortRange),
        flag("4", Optional("SIDE"), Means("-4")),
        flag(
            "p",
            Bare,
            Holds("permissions and modification times are always kept"),
        ),
        flag("~", Bare, Holds("modification times are always kept")),
        flag("a", Optional("DIR"), Holds(RESUMES)),
        flag("k", Bare, Holds(RESUMES)),
        flag("A", Bare, Holds("a missing destination dir/ is made")),
        flag(
            "P",
            Required("SECONDS"),
            Ignored("progress is shown on a terminal"),
        ),
        flag("w", Required("SIZE"), Ignored(WINDOWS)),
        flag("U", Required("SIZE"), Ignored(WINDOWS)),
        flag("b", Required("N"), Ignored(BUFFERS)),
        flag("B", Required("SIZE"), Ignored(BUFFERS)),
        flag("u", Required("SIDE"), Ignored(BUFFERS)),
        flag(
            "c",
            Optional("LEVEL"),
            Ignored("data is compressed only while that makes the copy faster"),
        ),
        flag("e", Bare, Ignored(CHECKSUMS)),
        flag("E", Required("ALGORITHM"), Ignored(CHECKSUMS)),
        flag(
            "o",
            Bare,
            Ignored("files get their names when they are whole"),
        ),
        flag(
            "K",
            Bare,
            Ignored("a file is replaced when the new one is whole"),
        ),
        flag(
            "F",
            Bare,
            Ignored("a full disk is reported when it is full"),
        ),
        flag(
            "z",
            Bare,
            Ignored("both directions of connecting are tried"),
        ),
        flag("S", Required("COMMAND"), Ignored(FAR_PROGRAM)),
        flag("T", Required("COMMAND"), Ignored(FAR_PROGRAM)),
        flag(
            "q",
            Required("LEVEL"),
            Ignored("packets are not marked for a quality of service"),
        ),
        flag("n", Bare, Ignored("addresses are not resolved to names")),
        flag("g", Bare, Ignored("it has no meaning here")),
        flag(
            "+",
            Bare,
            Ignored("what cannot be read is reported, and the rest is copied"),
        ),
        flag("^", Bare, Ignored("empty directories are copied")),
        flag(
            "@",
            Required("HOW"),
            Ignored("symbolic links are copied as links"),
        ),
        flag(
            "l",
            Required("FILE"),
            Ignored("messages go to standard error"),
        ),
        flag(
            "L",
            Required("OPTIONS"),
            Ignored("messages go to standard error"),
        ),
        flag(
            "C",
            Required("FILE"),
            Ignored("settings are in ~/.config/longhaul"),
        ),
        flag(
            "d",
            Required("PATH"),
            Refused("change to that directory, or use longhaul cp -r --files-from"),
        ),
        flag(
            "I",
            Required("FILE"),
            Refused("use longhaul cp -r --files-from, with the directory that the list is below"),
        ),
        flag(
            "m",
            Required("MODE"),
            Refused("permissions are those of the source: change them there, or afterwards"),
        ),
        flag(
            "N",
            Required("SIDES"),
            Refused("use - as the source or the destination of longhaul cp"),
        ),
        flag(
            "R",
            Optional("OPTIONS"),
            Refused("use longhaul cp --follow, to standard output"),
        ),
        flag(
            "t",
            Required("SECONDS"),
            Refused("a copy has no time limit: use timeout(1), and the same command resumes it"),
        ),
        flag(
            "x",
            Required("RATE"),
            Refused(
                "a copy has no rate limit: a depot on the --route of longhaul cp can have one \
                 (max_rate)",
            ),
        ),
    ],
};
