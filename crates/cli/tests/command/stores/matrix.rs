//! Copies from every kind of end to every kind of end.

use std::fs;
use std::path::Path;

use super::clouds::Cloud;
use super::nginx::{Certificate, Served};
use super::peers::Peer;
use super::sshd::{self, Hosts};
use super::{Copied, assert_same, assert_same_trees, isolated};
use crate::common::noise;
use crate::stage::{Service, Stage, no_temps};

const LOGIN: (&str, &str) = ("ana", "s3cret");

/// A kind of end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Local,
    /// `longhaul serve`.
    Server,
    /// sshd with longhaul.
    Login,
    /// sshd and nothing else.
    Sftp,
    Cloud(Cloud),
    /// rclone.
    Dav,
    /// nginx, with TLS.
    DavTls,
    /// Single files of nginx, with TLS.
    Web,
}

impl End {
    const ALL: [Self; 10] = [
        Self::Local,
        Self::Server,
        Self::Login,
        Self::Sftp,
        Self::Cloud(Cloud::S3),
        Self::Cloud(Cloud::Azure),
        Self::Cloud(Cloud::Google),
        Self::Dav,
        Self::DavTls,
        Self::Web,
    ];

    /// Returns true if copies with a tree there pass through this machine, or may do so.
    fn has_trees(self) -> bool {
        !matches!(self, Self::Local | Self::Web)
    }

    /// Returns words of the advice with which the copy of a tree is refused. `None` if it is done.
    fn refusal(self, to: Self) -> Option<&'static str> {
        match (self, to) {
            (_, Self::Web) => Some("webdavs://"),
            (Self::Web, _) => Some("name each"),
            _ => None,
        }
    }
}

/// Servers of every kind, and a machine that copies with them.
struct Ends {
    stage: Stage,
    server: Service,
    certificate: Certificate,
    clouds: Vec<(Cloud, Peer)>,
    dav: Option<Peer>,
    nginx: Option<Peer>,
    hosts: Option<Hosts>,
}

impl Ends {
    fn start() -> Self {
        let stage = Stage::new();
        let server = stage.serve(&[]);
        let certificate = Certificate::new(&stage.path("certificate"));
        fs::create_dir_all(stage.path("me")).unwrap();
        let (user, password) = LOGIN;
        let login = format!("machine 127.0.0.1 login {user} password {password}\n");
        fs::write(stage.path("me/.netrc"), login).unwrap();
        let served = Served {
            root: &stage.path("nginx"),
            state: &stage.path("nginx-state"),
            certificate: &certificate,
            login: LOGIN,
            limit: "0",
        };
        fs::create_dir(stage.path("rclone")).unwrap();
        Self {
            nginx: served.start(),
            dav: Peer::webdav(&stage.path("rclone"), Some(LOGIN)),
            clouds: Cloud::ALL
                .into_iter()
                .filter_map(|cloud| Some((cloud, cloud.start()?)))
                .collect(),
            hosts: Hosts::new(&stage),
            server,
            certificate,
            stage,
        }
    }

    /// Returns true if the end was started.
    fn has(&self, end: End) -> bool {
        match end {
            End::Local | End::Server => true,
            End::Login | End::Sftp => self.hosts.is_some(),
            End::Cloud(wanted) => self.clouds.iter().any(|(cloud, _)| *cloud == wanted),
            End::Dav => self.dav.is_some(),
            End::DavTls | End::Web => self.nginx.is_some(),
        }
    }

    /// Returns the ends with trees that were started, without this machine.
    fn others(&self) -> Vec<End> {
        let others = End::ALL.into_iter().filter(|end| end.has_trees());
        others.filter(|end| self.has(*end)).collect()
    }

    /// Returns the location of a path at an end. It need not be started.
    fn location(&self, end: End, path: &str) -> String {
        let address = |peer: &Option<Peer>| {
            let peer = peer.as_ref();
            peer.map_or("127.0.0.1:1".to_owned(), |peer| peer.address.clone())
        };
        match end {
            End::Local => format!("here/{path}"),
            End::Server => format!("lh://{}/{path}", self.server.address),
            End::Login => format!("{}:{path}", sshd::LOGIN),
            End::Sftp => {
                let root = self.stage.path("sftp");
                format!("sftp://{}{}/{path}", sshd::SFTP, root.display())
            }
            End::Cloud(cloud) => cloud.location(path),
            End::Dav => format!("webdav://{}/{path}", address(&self.dav)),
            End::DavTls => format!("webdavs://{}/{path}", address(&self.nginx)),
            End::Web => format!("https://{}/{path}", address(&self.nginx)),
        }
    }

    /// Runs the command for a copy from one end to another.
    fn cp(&self, ends: [End; 2], arguments: &[&str]) -> Copied {
        let mut command = isolated(&self.stage);
        for (cloud, peer) in &self.clouds {
            command.envs(cloud.variables(&peer.address));
        }
        command.env("SSL_CERT_FILE", &self.certificate.authority);
        command.args(["cp", "--json"]);
        // Servers copy to each other by themselves, and have two keys.
        if ends.contains(&End::Server) && ends != [End::Server; 2] {
            command.args(["--host-key", &self.server.key]);
        }
        if let Some(hosts) = &self.hosts
            && (ends.contains(&End::Login) || ends.contains(&End::Sftp))
        {
            command.arg("-F").arg(&hosts.config);
        }
        Copied::new(command.args(arguments))
    }
}

/// Makes a small tree with names that are special in URLs, XML, shells or listings.
fn make_odd_tree(directory: &Path) {
    let files = [
        ("large.h5", 3 << 20),
        ("empty", 0),
        ("a b#c%2B+d&e;f.txt", 1000),
        ("odd ünï/<x> 'y' \"z\"?=@~", 2000),
        ("odd ünï/deeper/[1](2){3}!$,^`|*", 3),
    ];
    for (number, (name, len)) in files.into_iter().enumerate() {
        let file = directory.join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, noise(len, number as u64 + 1)).unwrap();
    }
}

#[test]
fn every_end_copies_to_every_other_or_says_why() {
    let ends = Ends::start();
    make_odd_tree(&ends.stage.path("here/tree"));
    copy_trees_between_all(&ends);
    compare_trees_of_all(&ends);
    copy_files_of_web_server(&ends);
    for from in End::ALL.into_iter().filter(|end| ends.has(*end)) {
        for to in End::ALL.into_iter().filter(|end| ends.has(*end)) {
            let Some(advice) = from.refusal(to) else {
                continue;
            };
            let source = match from {
                End::Local => "here/tree".to_owned(),
                _ => ends.location(from, "tree/"),
            };
            let target = ends.location(to, "refused");
            let refused = ends.cp([from, to], &["-r", &source, &target]);
            refused.assert_failed(2, &[advice]);
        }
    }
}

/// Copies the tree to `base` of every end, and from every end to every other through this machine.
fn copy_trees_between_all(ends: &Ends) {
    for to in End::ALL.into_iter().filter(|end| ends.has(*end)) {
        if to != End::Local && End::Local.refusal(to).is_none() {
            let base = ends.location(to, "base");
            let pushed = ends.cp([End::Local, to], &["-r", "here/tree", &base]);
            pushed.assert_done();
            assert_eq!(pushed.number("files"), 5, "{to:?}");
        }
    }
    let others = ends.others();
    let copy = |from: End, to: End| {
        let row = ends.location(to, &format!("{from:?}"));
        let copied = ends.cp([from, to], &["-r", &ends.location(from, "base"), &row]);
        copied.assert_done();
        assert_eq!(copied.number("files"), 5, "{from:?} to {to:?}");
        // Once more, into the directory that exists now.
        let again = ends.cp([from, to], &["-r", &ends.location(from, "base/."), &row]);
        again.assert_done();
        match to {
            // Longhaul gets small files before it has said that it has any (LH-COPY-39).
            End::Server | End::Login => {
                assert!(again.number("unchanged_bytes") >= 3 << 20, "{from:?}")
            }
            _ => assert_eq!(again.number("unchanged_files"), 5, "{from:?} to {to:?}"),
        }
    };
    // Rows are independent of each other.
    std::thread::scope(|scope| {
        for from in &others {
            let (copy, others) = (&copy, &others);
            scope.spawn(move || {
                let to = others.iter().filter(|to| is_relayed(*from, **to));
                to.for_each(|to| copy(*from, *to));
            });
        }
    });
}

/// Returns true if a copy between these ends passes through this machine.
fn is_relayed(from: End, to: End) -> bool {
    from != to || !matches!(from, End::Server | End::Login)
}

/// Copies back what each end has, and compares it with the tree.
fn compare_trees_of_all(ends: &Ends) {
    let tree = ends.stage.path("here/tree");
    let others = ends.others();
    for &from in &others {
        let back = format!("here/back {from:?}");
        fs::create_dir(ends.stage.path(&back)).unwrap();
        // A whole bucket or server has what came from each.
        let at_host = matches!(from, End::Login | End::Sftp);
        let source = ends.location(from, if at_host { "." } else { "" });
        let pulled = ends.cp([from, End::Local], &["-r", &source, &back]);
        pulled.assert_done();
        let back = ends.stage.path(&back);
        assert_same_trees(&tree, &back.join("base"));
        for row in others.iter().filter(|row| is_relayed(**row, from)) {
            assert_same_trees(&tree, &back.join(format!("{row:?}")));
        }
        assert!(no_temps(&back));
    }
    for root in ["login", "nginx", "rclone", "root", "sftp"] {
        let root = ends.stage.path(root);
        assert!(!root.exists() || no_temps(&root), "{}", root.display());
    }
}

/// Copies a file to a web server and from there, by way of every other end.
fn copy_files_of_web_server(ends: &Ends) {
    if !ends.has(End::Web) {
        return;
    }
    let file = ends.stage.path("here/f");
    fs::write(&file, noise(3 << 20, 7)).unwrap();
    let url = ends.location(End::Web, "a%20b");
    let pushed = ends.cp([End::Local, End::Web], &["here/f", &url]);
    pushed.assert_done();
    assert_same(&file, &ends.stage.path("nginx/a b"));
    for end in [&[End::Local][..], &ends.others()[..]].concat() {
        let copy = ends.location(end, "from-web");
        ends.cp([End::Web, end], &[&url, &copy]).assert_done();
        let there = ends.location(End::Web, &format!("by {end:?}"));
        ends.cp([end, End::Web], &[&copy, &there]).assert_done();
        assert_same(&file, &ends.stage.path(&format!("nginx/by {end:?}")));
    }
}
