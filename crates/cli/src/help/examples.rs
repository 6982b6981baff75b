//! Examples of every command. Each is shown in its help, in its manual page and in the command
//! reference.

/// Commands by their path, each with its examples: the command line, and its purpose.
pub const EXAMPLES: &[(&str, &[(&str, &str)])] = &[
    (
        "cp",
        &[
            (
                "longhaul cp -r results/ ana@store.example:run-42/",
                "a tree to a host that you can log in to",
            ),
            (
                "longhaul cp -r lh://store.example/runs/42 /scratch/",
                "a tree from a longhaul server",
            ),
            (
                "longhaul cp -r lh://store.example/runs/42 lh://archive.example/in/",
                "a tree from one server to another, without passing through here",
            ),
            (
                "longhaul cp -r s3://bucket/runs lh://store.example/runs",
                "a tree from an object store to a server, through here",
            ),
            (
                "longhaul cp -r --exclude '*.tmp' --newer 7d runs/ lh://store.example/runs/",
                "last week's files, without temporary ones",
            ),
        ],
    ),
    (
        "sync",
        &[
            (
                "longhaul sync photos/ ana@store.example:photos/",
                "bring the target up to date, and remove nothing",
            ),
            (
                "longhaul sync --delete --dry-run data/ lh://store.example/data/",
                "show what an exact mirror would copy, replace and remove",
            ),
            (
                "longhaul sync --delete --trash .trash lh://store.example/data/ /srv/data/",
                "mirror a server here, and keep what it no longer has in .trash",
            ),
            (
                "longhaul sync --delete --max-delete 100 --exclude-from rules a/ b/",
                "mirror without the files that rules names; refuse to remove more than 100",
            ),
            (
                "longhaul sync -a --delete /srv/data/ root@store.example:/srv/data/",
                "an exact mirror with owners, ACLs, extended attributes and hard links",
            ),
        ],
    ),
    (
        "mkdir",
        &[(
            "longhaul mkdir -p ana@store.example:runs/2026/42",
            "a directory and its parents",
        )],
    ),
    (
        "mv",
        &[(
            "longhaul mv lh://store.example/in/run42 lh://store.example/done/",
            "move a directory on the server, without copying it",
        )],
    ),
    (
        "rm",
        &[
            ("longhaul rm ana@store.example:notes.txt", "one file"),
            (
                "longhaul rm -r --dry-run lh://store.example/runs/41",
                "list what would be removed",
            ),
        ],
    ),
    (
        "leftovers",
        &[
            (
                "longhaul leftovers -r lh://store.example/runs",
                "list what unfinished copies left there",
            ),
            (
                "longhaul leftovers -r --remove --older-than '14 d' /srv/data",
                "remove what nobody has written to for two weeks",
            ),
        ],
    ),
    (
        "submit",
        &[
            (
                "longhaul submit -r results/ ana@store.example:run-42/",
                "copy in the background until all is there",
            ),
            (
                "longhaul submit --not-before 2030-01-31T22:00:00Z -r a/ lh://store.example/a/",
                "copy tonight",
            ),
        ],
    ),
    (
        "jobs",
        &[
            ("longhaul jobs", "the last 50 jobs, newest first"),
            (
                "longhaul jobs --state failed --json",
                "failed jobs, for a program",
            ),
        ],
    ),
    (
        "job",
        &[
            ("longhaul job 13 --follow", "watch job 13 until it ends"),
            (
                "longhaul job 13 --report",
                "the closing report of its last attempt",
            ),
        ],
    ),
    ("pause", &[("longhaul pause 13 14", "pause two jobs")]),
    (
        "resume",
        &[("longhaul resume 13", "continue where it stopped")],
    ),
    (
        "cancel",
        &[("longhaul cancel 13", "end a job; what it copied stays")],
    ),
    (
        "retry",
        &[("longhaul retry 13", "try a failed job again now")],
    ),
    (
        "places",
        &[("longhaul places", "list the places that have names")],
    ),
    (
        "places list",
        &[("longhaul places list --json", "for a program")],
    ),
    (
        "places add",
        &[(
            "longhaul places add store ana@store.example:",
            "call the home directory at that host store",
        )],
    ),
    (
        "places remove",
        &[("longhaul places remove store", "forget the name")],
    ),
    (
        "places test",
        &[(
            "longhaul places test store",
            "log in there, and report what fails",
        )],
    ),
    (
        "ui",
        &[
            ("longhaul ui", "open the page in a browser"),
            (
                "longhaul ui --print",
                "print its address, for a browser behind ssh -L",
            ),
        ],
    ),
    (
        "agent",
        &[(
            "longhaul agent --max-jobs 8",
            "run the agent in the foreground, with eight jobs at a time",
        )],
    ),
    (
        "agent install",
        &[("longhaul agent install", "write a unit for systemd")],
    ),
    (
        "ls",
        &[
            (
                "longhaul ls -l ana@store.example:runs/",
                "with sizes and times",
            ),
            ("longhaul ls --json lh://store.example/", "for a program"),
        ],
    ),
    (
        "du",
        &[
            (
                "longhaul du -sh lh://store.example/runs/41 lh://store.example/runs/42",
                "the size of two directories",
            ),
            (
                "longhaul du -h -d 1 ana@store.example:runs",
                "of each directory below runs, and of all",
            ),
        ],
    ),
    (
        "find",
        &[
            (
                "longhaul find --newer 7d --exclude '*.tmp' lh://store.example/runs",
                "last week's files, without temporary ones",
            ),
            (
                "longhaul find -0 --min-size 1G ana@store.example:runs",
                "paths of large files, for cp --files-from - -0",
            ),
            (
                "longhaul find --type d --json runs",
                "directories here, for a program",
            ),
        ],
    ),
    (
        "cat",
        &[
            (
                "longhaul cat lh://store.example/runs/42/notes.txt",
                "read a file without copying it",
            ),
            (
                "longhaul cat --offset 1G --length 64K ana@store.example:big.dat",
                "a part of a file",
            ),
        ],
    ),
    (
        "head",
        &[
            (
                "longhaul head lh://store.example/runs/42/events.csv",
                "the first ten lines",
            ),
            (
                "longhaul head -c 512 ana@store.example:image.fits",
                "the first 512 bytes",
            ),
        ],
    ),
    (
        "sum",
        &[
            (
                "longhaul sum -r lh://store.example/runs/42 > runs.b3",
                "BLAKE3 of every file, computed at the server",
            ),
            (
                "longhaul sum -a sha256 data/*.h5 > SHA256SUMS",
                "what sha256sum prints, on all processors",
            ),
            (
                "longhaul sum --check SHA256SUMS ana@store.example:data",
                "compare the files of a host with a list",
            ),
            (
                "longhaul sum -a adler32 --xrdfs run42.root",
                "what xrdfs query checksum prints",
            ),
        ],
    ),
    (
        "verify",
        &[
            (
                "longhaul verify run42.receipt",
                "compare the files here with what was copied",
            ),
            (
                "longhaul verify run42.receipt lh://store.example/runs/42",
                "have the server read its files and compare those",
            ),
        ],
    ),
    (
        "stat",
        &[(
            "longhaul stat lh://store.example/runs/42",
            "describe the directory itself",
        )],
    ),
    (
        "perf",
        &[
            (
                "longhaul perf store.example",
                "measure the path to a server",
            ),
            (
                "longhaul perf store.example --route near.example,far.example",
                "measure it through two depots",
            ),
            (
                "longhaul perf --plan --rate 10G --rtt 100ms",
                "what a path needs, without measuring",
            ),
        ],
    ),
    (
        "route",
        &[(
            "longhaul route store.example --size 10G",
            "the routes that a copy of 10 GB would take, and why",
        )],
    ),
    (
        "run",
        &[
            (
                "longhaul run -- curl -O https://archive.example/data.tar",
                "an ordinary program over the routes of routes.toml",
            ),
            (
                "longhaul run --isolate -- ./statically-linked-program",
                "a program that no library can be loaded into",
            ),
        ],
    ),
    (
        "onramp",
        &[
            (
                "longhaul onramp --socks 1080 --http 3128",
                "offer routes to programs that know a proxy",
            ),
            (
                "longhaul onramp --forward 5432=db.archive.example:5432",
                "forward a port",
            ),
        ],
    ),
    (
        "onramp install",
        &[(
            "longhaul onramp install --socks 1080",
            "write a unit for systemd with these options",
        )],
    ),
    (
        "onramp status",
        &[("longhaul onramp status", "what the running on-ramp did")],
    ),
    (
        "offramp",
        &[(
            "longhaul offramp --policy policy.toml",
            "end sessions at the servers that the policy names",
        )],
    ),
    (
        "serve",
        &[
            (
                "longhaul serve --root /srv/data --grants grants.toml",
                "serve a directory to the keys in grants.toml",
            ),
            (
                "longhaul serve --root /srv/data --grants grants.toml --perf",
                "let them measure the path too",
            ),
            (
                "longhaul serve --root /srv/data --issuers issuers.toml",
                "serve those whom the issuers in issuers.toml give rights",
            ),
        ],
    ),
    (
        "serve-accounts",
        &[(
            "longhaul serve-accounts --config /etc/longhaul/accounts.toml",
            "let longhaul serve write as the users that this file lists",
        )],
    ),
    (
        "node",
        &[(
            "longhaul node --config /etc/longhaul/node.toml",
            "run the services of that file in one process",
        )],
    ),
    (
        "node check",
        &[(
            "longhaul node check --config /etc/longhaul/node.toml",
            "what it would start, and what is wrong",
        )],
    ),
    (
        "node join",
        &[(
            "longhaul node join https://control.example:7513 --config node.toml",
            "verify that the controller accepts this machine's depot",
        )],
    ),
    (
        "accounts",
        &[(
            "longhaul accounts accounts.jsonl --by from,result",
            "add the records up",
        )],
    ),
    (
        "depot",
        &[(
            "longhaul depot --policy policy.toml --metrics 127.0.0.1:9510",
            "relay what the policy allows, with a metrics page",
        )],
    ),
    (
        "router",
        &[(
            "longhaul router --config router.json --listen unix:/run/longhaul-router/agent",
            "set up circuits as the controller asks over that socket",
        )],
    ),
    (
        "control",
        &[(
            "longhaul control --listen 0.0.0.0:7513 --server-name control.example",
            "run a controller",
        )],
    ),
    (
        "control grant",
        &[(
            "longhaul control grant lhk1:CLIENT... client --name dtn1",
            "let a client ask for routes",
        )],
    ),
    (
        "control revoke",
        &[(
            "longhaul control revoke lhk1:CLIENT...",
            "take all roles from a key",
        )],
    ),
    (
        "control names",
        &[("longhaul control names", "which depot has which name")],
    ),
    (
        "control release",
        &[(
            "longhaul control release quad",
            "let the next key that asks register this name",
        )],
    ),
    (
        "control principals",
        &[("longhaul control principals", "who may do what")],
    ),
    (
        "control install",
        &[("longhaul control install", "write a unit for systemd")],
    ),
    (
        "map",
        &[("longhaul map --json", "the whole map, for a program")],
    ),
    (
        "map import",
        &[(
            "longhaul map import --check map.toml",
            "report errors in a map, and change nothing",
        )],
    ),
    ("keys", &[("longhaul keys", "list the keys of this user")]),
    (
        "keys new",
        &[("longhaul keys new backup", "make a key named backup")],
    ),
    (
        "keys vouch",
        &[
            (
                "longhaul keys vouch --certificate cert.pem --private-key key.pem",
                "let a certificate vouch for the default key for a week",
            ),
            (
                "longhaul keys vouch --private-key /dev/stdin --valid 12h",
                "for 12 hours, with a private key that openssl pkey decrypts in a pipe",
            ),
        ],
    ),
    (
        "keys list",
        &[("longhaul keys list", "list the keys of this user")],
    ),
    (
        "keys show",
        &[("longhaul keys show", "print the default public key")],
    ),
    (
        "login",
        &[
            (
                "longhaul login https://iam.example/ --for dtn.example",
                "get a token for one server",
            ),
            (
                "longhaul login --from /run/user/1000/token --for dtn.example",
                "send the token that another program keeps in a file",
            ),
            ("longhaul login --list", "which logins there are"),
        ],
    ),
    (
        "logout",
        &[(
            "longhaul logout https://iam.example.org/",
            "forget the token, here and at the issuer",
        )],
    ),
    (
        "controller",
        &[("longhaul controller", "which controller is in use")],
    ),
    (
        "controller use",
        &[(
            "longhaul controller use --accept-new https://control.example:7513",
            "ask this controller for routes",
        )],
    ),
    (
        "controller add",
        &[(
            "longhaul controller add --accept-new https://control2.example:7513",
            "ask this one if the first does not answer",
        )],
    ),
    (
        "controller forget",
        &[("longhaul controller forget", "use no controller")],
    ),
    (
        "controller sync",
        &[(
            "longhaul controller sync",
            "send measurements and fetch routes now",
        )],
    ),
    (
        "controller routes",
        &[(
            "longhaul controller routes",
            "print its rules for this machine as routes.toml",
        )],
    ),
    (
        "reserve",
        &[
            (
                "longhaul reserve dtn1 archive --rate 2G --from 'Mon 9:00' --for 2h",
                "2 Gbit/s for two hours",
            ),
            (
                "longhaul reserve dtn1 archive --bytes 10T --by 'Fri 18:00'",
                "enough bandwidth for 10 TB by Friday evening",
            ),
        ],
    ),
    (
        "reservations",
        &[
            ("longhaul reservations", "a calendar"),
            (
                "longhaul reservations 12",
                "one reservation, with its paths",
            ),
            ("longhaul reservations cancel 12", "return it"),
        ],
    ),
    (
        "reservations commit",
        &[("longhaul reservations commit 12", "take what is held")],
    ),
    (
        "reservations abort",
        &[("longhaul reservations abort 12", "return what is held")],
    ),
    (
        "reservations cancel",
        &[(
            "longhaul reservations cancel 12 --series",
            "return it and all that follow in its series",
        )],
    ),
    (
        "reservations provision",
        &[(
            "longhaul reservations provision 12",
            "have its paths set up in its time",
        )],
    ),
    (
        "reservations release",
        &[(
            "longhaul reservations release 12",
            "have its paths torn down, and keep it",
        )],
    ),
    (
        "reservations grants",
        &[(
            "longhaul reservations grants 12",
            "routes and grants for longhaul perf",
        )],
    ),
    (
        "completions",
        &[
            (
                "longhaul completions bash",
                "save as ~/.local/share/bash-completion/completions/longhaul",
            ),
            (
                "longhaul completions zsh",
                "save as _longhaul in a directory of $fpath",
            ),
            (
                "longhaul completions fish",
                "save as ~/.config/fish/completions/longhaul.fish",
            ),
        ],
    ),
    (
        "man",
        &[(
            "longhaul man ~/.local/share/man/man1",
            "write a page for each command",
        )],
    ),
];
