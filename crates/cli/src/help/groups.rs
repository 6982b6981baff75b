//! Groups of commands in the help.

/// Headings, and the commands below each, in the order in which they are shown.
pub const GROUPS: &[(&str, &[&str])] = &[
    ("Copy", &["cp", "sync", "mkdir", "mv", "rm", "leftovers"]),
    (
        "Jobs",
        &[
            "submit", "jobs", "job", "pause", "resume", "cancel", "retry", "places", "ui", "agent",
        ],
    ),
    (
        "Look",
        &[
            "ls", "stat", "du", "find", "cat", "head", "sum", "verify", "doctor", "perf", "route",
            "trace",
        ],
    ),
    ("Programs", &["run", "onramp", "offramp"]),
    (
        "Operate",
        &[
            "serve",
            "serve-accounts",
            "depot",
            "node",
            "router",
            "control",
            "map",
            "keys",
            "login",
            "logout",
            "accounts",
        ],
    ),
    ("Network", &["controller", "reserve", "reservations"]),
    ("Help", &["completions", "man", "help"]),
];
