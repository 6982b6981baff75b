//! Programs that fetch a file, for the table of programs without knowledge of routes: curl, wget,
//! git, psql, Python, Go, Java, Chromium, iperf3.

mod chromium;
mod iperf3;

use super::place::{PeerNode, SERVED, Serving, USER, write};
use super::{Abilities, Item, Need, Peer, Program, http};
use crate::children::output_within;
use anyhow::{Result, ensure};
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const CURL: Need = Need {
    program: "curl",
    package: "curl",
};
const WGET: Need = Need {
    program: "wget",
    package: "wget",
};
const GIT: Need = Need {
    program: "git",
    package: "git",
};
const PSQL: Need = Need {
    program: "psql",
    package: "postgresql-client",
};
const CLUSTER: Need = Need {
    program: "pg_ctlcluster",
    package: "postgresql",
};
const PYTHON: Need = Need {
    program: "python3",
    package: "python3-requests",
};
const GO: Need = Need {
    program: "go",
    package: "golang-go",
};
const JAVA: Need = Need {
    program: "javac",
    package: "default-jdk-headless",
};

/// Ports of the servers other than HTTP servers.
const GIT_PORT: u16 = 9418;
const POSTGRES_PORT: u16 = 5432;

/// Maximum time to make a repository or a database, or to compile an example.
const PREPARATION_TIMEOUT: Duration = Duration::from_secs(120);

/// A program that fetches one file.
pub struct Fetcher {
    name: &'static str,
    title: &'static str,
    needs: &'static [Need],
    /// If true, it can use a SOCKS5 server.
    socks: bool,
    serve: fn(&PeerNode, &Path) -> Result<Serving>,
    fetch: fn(&PeerNode, &Serving, &Item, &Path) -> Result<Command>,
}

/// Returns all of them.
pub const ALL: [Fetcher; 11] = [
    Fetcher {
        name: "curl",
        title: "curl",
        needs: &[http::RCLONE, CURL],
        socks: true,
        serve: http::serve,
        fetch: curl,
    },
    Fetcher {
        name: "wget",
        title: "wget",
        needs: &[http::RCLONE, WGET],
        socks: false,
        serve: http::serve,
        fetch: wget,
    },
    Fetcher {
        name: "git",
        title: "git clone",
        needs: &[GIT],
        socks: false,
        serve: serve_git,
        fetch: git,
    },
    Fetcher {
        name: "psql",
        title: "psql with PostgreSQL",
        needs: &[PSQL, CLUSTER],
        socks: false,
        serve: serve_postgres,
        fetch: psql,
    },
    Fetcher {
        name: "python-requests",
        title: "Python, requests",
        needs: &[http::RCLONE, PYTHON],
        socks: false,
        serve: http::serve,
        fetch: |place, from, item, to| {
            let script = include_str!("../../../../examples/python/fetch_requests.py");
            python(place, from, item, to, script)
        },
    },
    Fetcher {
        name: "python-asyncio",
        title: "Python, asyncio",
        needs: &[http::RCLONE, PYTHON],
        socks: false,
        serve: http::serve,
        fetch: |place, from, item, to| {
            let script = include_str!("../../../../examples/python/fetch_asyncio.py");
            python(place, from, item, to, script)
        },
    },
    Fetcher {
        name: "java",
        title: "a Java program",
        needs: &[http::RCLONE, JAVA],
        socks: true,
        serve: http::serve,
        fetch: java,
    },
    Fetcher {
        name: "go",
        title: "a Go program, a static binary",
        needs: &[http::RCLONE, GO],
        socks: true,
        serve: http::serve,
        fetch: go,
    },
    Fetcher {
        name: "nc",
        title: "nc (netcat-openbsd)",
        needs: &[http::RCLONE, NETCAT],
        socks: true,
        serve: http::serve,
        fetch: netcat,
    },
    Fetcher {
        name: "chromium",
        title: "Chromium, a page over HTTPS",
        needs: &[http::RCLONE, chromium::CHROMIUM, chromium::OPENSSL],
        socks: true,
        serve: chromium::serve,
        fetch: chromium::fetch,
    },
    Fetcher {
        name: "iperf3",
        title: "iperf3",
        needs: &[super::iperf3::IPERF3],
        socks: false,
        serve: iperf3::serve,
        fetch: iperf3::fetch,
    },
];

const NETCAT: Need = Need {
    program: "nc.openbsd",
    package: "netcat-openbsd",
};

impl Program for Fetcher {
    fn name(&self) -> &'static str {
        self.name
    }
    fn title(&self) -> &'static str {
        self.title
    }
    fn options(&self) -> &'static str {
        ""
    }
    fn needs(&self) -> &'static [Need] {
        self.needs
    }
}

impl Peer for Fetcher {
    fn abilities(&self) -> Abilities {
        Abilities {
            send: false,
            trees: false,
            streams: false,
            forward: true,
            socks: self.socks,
        }
    }

    fn serve(&self, place: &PeerNode, root: &Path) -> Result<Serving> {
        (self.serve)(place, root)
    }

    fn fetch(
        &self,
        place: &PeerNode,
        from: &Serving,
        item: &Item,
        to: &Path,
        _streams: u32,
    ) -> Result<Command> {
        (self.fetch)(place, from, item, to)
    }
}

fn url_and_path(command: &mut Command, from: &Serving, item: &Item, to: &Path) {
    command
        .arg(http::url(from, &item.name))
        .arg(to.join(&item.name));
}

fn curl(place: &PeerNode, from: &Serving, item: &Item, to: &Path) -> Result<Command> {
    let mut command = place.client(&CURL, from)?;
    command.args(["-q", "--silent", "--show-error", "--fail"]);
    if let Some(socks) = from.endpoint.socks {
        command.args(["--socks5-hostname", &socks.to_string()]);
    }
    command
        .arg(http::url(from, &item.name))
        .arg("-o")
        .arg(to.join(&item.name));
    Ok(command)
}

fn wget(place: &PeerNode, from: &Serving, item: &Item, to: &Path) -> Result<Command> {
    let mut command = place.client(&WGET, from)?;
    command.args(["--no-config", "--no-verbose", "--tries=1", "-O"]);
    command
        .arg(to.join(&item.name))
        .arg(http::url(from, &item.name));
    Ok(command)
}

/// A request of HTTP/1.0 by hand, and what follows the header.
fn netcat(place: &PeerNode, from: &Serving, item: &Item, to: &Path) -> Result<Command> {
    let at = from.endpoint.address;
    let socks = from
        .endpoint
        .socks
        .map_or_else(String::new, |socks| format!("-X 5 -x {socks}"));
    let mut command = place.client(&SHELL, from)?;
    command.arg("-c").arg(format!(
        "printf 'GET /{} HTTP/1.0\\r\\n\\r\\n' | {} {socks} -N {} {} | sed '1,/^\\r$/d' > '{}'",
        item.name,
        NETCAT.find()?.display(),
        at.ip(),
        at.port(),
        to.join(&item.name).display()
    ));
    Ok(command)
}

const SHELL: Need = Need {
    program: "sh",
    package: "dash",
};

/// Runs a command of the preparation until it ends.
fn prepare(mut command: Command, folder: &Path, name: &str) -> Result<()> {
    command.env("HOME", folder).current_dir(folder);
    let (status, out, err) = output_within(command, name, PREPARATION_TIMEOUT)?;
    ensure!(
        status.success(),
        "{name} ended with {status}: {}{}",
        out.trim(),
        err.trim()
    );
    Ok(())
}

/// Serves a repository with the files of `root` by `git daemon`.
fn serve_git(place: &PeerNode, root: &Path) -> Result<Serving> {
    let settings = place.settings()?;
    let mut make = Command::new(SHELL.find()?);
    make.arg("-c").arg(format!(
        "git init --quiet --initial-branch=main work && cp '{}'/* work/ && cd work && git add \
         --all && \
         git -c user.name=peer -c user.email=peer@localhost commit --quiet --message=files && cd \
         .. && \
         git clone --quiet --bare work served.git && chmod -R a+rX .",
        root.display()
    ));
    prepare(make, settings.path(), "git")?;
    let base = format!("--base-path={}", settings.path().display());
    let port = format!("--port={GIT_PORT}");
    let arguments = [
        "-c",
        "safe.directory=*",
        "daemon",
        "--reuseaddr",
        "--export-all",
        &base,
        &port,
    ];
    place.serve(&GIT, &arguments, settings, root, GIT_PORT)
}

fn git(place: &PeerNode, from: &Serving, item: &Item, to: &Path) -> Result<Command> {
    let mut command = place.client(&SHELL, from)?;
    let clone = from.setting("clone");
    command.arg("-c").arg(format!(
        "rm -rf '{0}' && git clone --quiet git://{1}/served.git '{0}' && cp '{0}/{2}' '{3}'",
        clone.display(),
        from.endpoint.address,
        item.name,
        to.display()
    ));
    Ok(command)
}

/// Returns PostgreSQL's server program in Debian's folder, which is not in PATH.
fn postgres_program(name: &str) -> Result<PathBuf> {
    let mut versions: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")?
        .filter_map(|entry| Some(entry.ok()?.path().join("bin").join(name)))
        .filter(|program| program.is_file())
        .collect();
    versions.sort();
    versions
        .pop()
        .ok_or_else(|| anyhow::anyhow!("{name} is missing: apt-get install {}", CLUSTER.package))
}

/// A database of its own, whose server reads files of [`SERVED`].
fn serve_postgres(place: &PeerNode, root: &Path) -> Result<Serving> {
    let settings = place.settings()?;
    let (initdb, postgres) = (postgres_program("initdb")?, postgres_program("postgres")?);
    let start = settings.path().join("start.sh");
    write(
        &start,
        &format!(
            "set -e\n{} --pgdata=/run/base --username={USER} --auth=trust --no-sync \
             >/run/initdb.log 2>&1\n\
             echo 'host all all 0.0.0.0/0 trust' >>/run/base/pg_hba.conf\n\
             exec {} -D /run/base -c listen_addresses='*' -c port={POSTGRES_PORT} -c \
             unix_socket_directories=/run -c fsync=off\n",
            initdb.display(),
            postgres.display()
        ),
    )?;
    let start = start.to_string_lossy().into_owned();
    place.serve(&SHELL, &[&start], settings, root, POSTGRES_PORT)
}

fn psql(place: &PeerNode, from: &Serving, item: &Item, to: &Path) -> Result<Command> {
    let at = from.endpoint.address;
    let mut command = place.client(&SHELL, from)?;
    command.arg("-c").arg(format!(
        "psql --no-psqlrc --host={} --port={} --username={USER} --dbname=postgres --tuples-only \
         --no-align \
         --command=\"select upper(encode(pg_read_binary_file('{SERVED}/{2}'), 'hex'))\" \
         >'{3}.hex' && \
         basenc --base16 --decode '{3}.hex' >'{3}' && rm '{3}.hex'",
        at.ip(),
        at.port(),
        item.name,
        to.join(&item.name).display()
    ));
    Ok(command)
}

fn python(
    place: &PeerNode,
    from: &Serving,
    item: &Item,
    to: &Path,
    script: &str,
) -> Result<Command> {
    let file = from.setting("fetch.py");
    write(&file, script)?;
    let mut command = place.client(&PYTHON, from)?;
    command.arg(file);
    url_and_path(&mut command, from, item, to);
    Ok(command)
}

fn java(place: &PeerNode, from: &Serving, item: &Item, to: &Path) -> Result<Command> {
    let file = from.setting("Fetch.java");
    write(&file, include_str!("../../../../examples/java/Fetch.java"))?;
    let folder = from.setting("classes");
    let mut compile = Command::new(JAVA.find()?);
    compile.arg("-d").arg(&folder).arg(&file);
    prepare(compile, place.scratch, "javac")?;
    let mut command = place.client(&JAVA_RUNTIME, from)?;
    if let Some(socks) = from.endpoint.socks {
        command
            .arg(format!("-DsocksProxyHost={}", socks.ip()))
            .arg(format!("-DsocksProxyPort={}", socks.port()));
    }
    command.arg("-cp").arg(&folder).arg("Fetch");
    url_and_path(&mut command, from, item, to);
    Ok(command)
}

const JAVA_RUNTIME: Need = Need {
    program: "java",
    package: "default-jre-headless",
};

fn go(place: &PeerNode, from: &Serving, item: &Item, to: &Path) -> Result<Command> {
    let file = from.setting("fetch.go");
    write(&file, include_str!("../../../../examples/go/fetch.go"))?;
    let program = from.setting("fetch");
    let mut compile = Command::new(GO.find()?);
    compile
        .env("CGO_ENABLED", "0")
        .env("GOFLAGS", "-mod=mod")
        .env("GOPROXY", "off")
        .env("GOTOOLCHAIN", "local")
        .env("GOCACHE", from.setting("go-cache"))
        .args(["build", "-o"])
        .arg(&program)
        .arg(&file);
    prepare(compile, place.scratch, "go build")?;
    let mut command = place.lab.command(place.node, &program)?;
    command.env("HOME", place.scratch);
    if let Some(socks) = from.endpoint.socks {
        command.env("HTTP_PROXY", format!("socks5://{socks}"));
    }
    url_and_path(&mut command, from, item, to);
    Ok(command)
}

/// Returns true if a program can tunnel through an HTTP CONNECT entry.
pub fn tunnels(name: &str) -> bool {
    matches!(name, "curl" | "chromium")
}

/// Tells a program that does of the entry.
pub fn tunnel(name: &str, command: &mut Command, proxy: SocketAddrV4) {
    match name {
        "curl" => {
            command.args(["--proxytunnel", "--proxy", &format!("http://{proxy}")]);
        }
        "chromium" => chromium::tunnel(command, proxy),
        _ => {}
    }
}
