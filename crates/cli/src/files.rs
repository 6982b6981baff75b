//! `longhaul ls`, `stat`, `mkdir`, `mv` and `rm`: files of a host where one can log in, for people and, with `--json`, for programs.

use std::ffi::OsString;

use anyhow::{Context, Result, bail};
use clap::Args;
use longhaul_proto::text::printable;
use longhaul_remote::message::{Entry, EntryKind, FilesAsk, PathBytes};
use longhaul_remote::{FarSide, Login};
use quantities::ByteCount;
use serde_json::json;

use crate::exit::Exit;
use crate::ssh_options::SshOptions;
use crate::target::Target;
use crate::{answer, logging};

/// List files at user@host:path.
///
/// A directory's entries in the order of their names, all of them; anything else itself.
#[derive(Args)]
pub struct Ls {
    /// What to list: user@host:path.
    #[arg(required = true)]
    path: Vec<OsString>,
    /// With permissions, size and modification time (UTC).
    #[arg(short, long)]
    long: bool,
    /// One JSON object a line for each entry.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    ssh: SshOptions,
}

/// Tell what is at user@host:path, itself: a symbolic link is not followed, a directory not listed.
#[derive(Args)]
pub struct Stat {
    /// What to look at: user@host:path.
    #[arg(required = true)]
    path: Vec<OsString>,
    /// One JSON object a line for each.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    ssh: SshOptions,
}

/// Make directories at user@host:path.
#[derive(Args)]
pub struct Mkdir {
    /// What to make: user@host:path.
    #[arg(required = true)]
    path: Vec<OsString>,
    /// Make those above as well; it is no error if it is there.
    #[arg(short, long)]
    parents: bool,
    #[command(flatten)]
    ssh: SshOptions,
}

/// Give a file at user@host:path another name, or put it into another directory there.
#[derive(Args)]
pub struct Mv {
    /// Its name: user@host:path.
    from: OsString,
    /// The new one, at the same host and in the same file system: user@host:path.
    to: OsString,
    /// Replace a file that has that name.
    #[arg(long)]
    overwrite: bool,
    #[command(flatten)]
    ssh: SshOptions,
}

/// Remove files at user@host:path.
#[derive(Args)]
pub struct Rm {
    /// What to remove: user@host:path.
    #[arg(required = true)]
    path: Vec<OsString>,
    /// Remove directories with all they hold.
    #[arg(short, long)]
    recursive: bool,
    #[command(flatten)]
    ssh: SshOptions,
}

impl Ls {
    /// Lists.
    pub fn run(self) -> Result<Exit> {
        let show = Show {
            json: self.json,
            long: self.long,
        };
        look(&self.path, true, show, &self.ssh)
    }
}

impl Stat {
    /// Tells.
    pub fn run(self) -> Result<Exit> {
        let show = Show {
            json: self.json,
            long: true,
        };
        look(&self.path, false, show, &self.ssh)
    }
}

impl Mkdir {
    /// Makes them.
    pub fn run(self) -> Result<Exit> {
        let parents = self.parents;
        change(&self.path, &self.ssh, |login| FilesAsk::MakeDirectory {
            path: PathBytes(login.path.clone()),
            parents,
        })
    }
}

impl Rm {
    /// Removes them.
    pub fn run(self) -> Result<Exit> {
        let recursive = self.recursive;
        change(&self.path, &self.ssh, |login| FilesAsk::Remove {
            path: PathBytes(login.path.clone()),
            recursive,
        })
    }
}

impl Mv {
    /// Renames.
    pub fn run(self) -> Result<Exit> {
        let (from, to) = (login(&self.from)?, login(&self.to)?);
        if from.host != to.host {
            bail!("{to} is on another host than {from}: copy it there with longhaul cp");
        }
        let paths = (PathBytes(from.path), PathBytes(to.path));
        let overwrite = self.overwrite;
        change(&[self.from], &self.ssh, |_| FilesAsk::Rename {
            from: paths.0.clone(),
            to: paths.1.clone(),
            overwrite,
        })
    }
}

fn login(path: &OsString) -> Result<Login> {
    match Target::parse(path)? {
        Target::Login(login) => Ok(login),
        _ => bail!(
            "{}: name a path as user@host:path",
            printable(path.as_encoded_bytes())
        ),
    }
}

/// All paths, which are at one host.
fn logins(paths: &[OsString]) -> Result<Vec<Login>> {
    let logins = paths.iter().map(login).collect::<Result<Vec<_>>>()?;
    let mut others = logins.iter();
    if let Some(first) = others.next()
        && let Some(other) = others.find(|other| other.host != first.host)
    {
        bail!("{other} is on another host than {first}: run one command for each");
    }
    Ok(logins)
}

#[derive(Clone, Copy)]
struct Show {
    json: bool,
    long: bool,
}

fn look(paths: &[OsString], list: bool, show: Show, ssh: &SshOptions) -> Result<Exit> {
    at_host(paths, ssh, async |far, login| {
        far.entries(&login.path, list, |entries| {
            for entry in entries {
                answer::line(show.line(&entry));
            }
        })
        .await
    })
}

fn change(paths: &[OsString], ssh: &SshOptions, ask: impl Fn(&Login) -> FilesAsk) -> Result<Exit> {
    at_host(paths, ssh, async |far, login| far.change(ask(login)).await)
}

/// Does it with each path, whatever came of the ones before.
fn at_host(
    paths: &[OsString],
    ssh: &SshOptions,
    each: impl AsyncFn(&mut FarSide, &Login) -> Result<(), longhaul_remote::Error>,
) -> Result<Exit> {
    logging::start("error");
    let logins = logins(paths)?;
    let runtime = tokio::runtime::Runtime::new().context("cannot start")?;
    runtime.block_on(async {
        let mut exit = Exit::Success;
        let Some(first) = logins.first() else {
            return Ok(exit);
        };
        let mut far = FarSide::start(&ssh.start(), &first.host).await?;
        for login in &logins {
            match each(&mut far, login).await {
                Ok(()) => {}
                Err(error @ longhaul_remote::Error::Refused { .. }) => {
                    eprintln!("longhaul: {error}");
                    exit = Exit::SomeFailed;
                }
                Err(error) => return Err(error.into()),
            }
        }
        far.end().await;
        Ok(exit)
    })
}

impl Show {
    fn line(self, entry: &Entry) -> String {
        let name = printable(&entry.name.0);
        let target = entry.target.as_ref().map(|target| printable(&target.0));
        let modified = jiff::Timestamp::from_second(entry.modified).ok();
        if self.json {
            let modified = modified.map(|time| time.to_string());
            return json!({
                "event": "entry", "name": name, "kind": entry.kind, "bytes": entry.size, "mode": format!("{:04o}", entry.mode),
                "modified": modified, "target": target,
            })
            .to_string();
        }
        let sign = match entry.kind {
            EntryKind::Directory => "/",
            EntryKind::Symlink => "@",
            EntryKind::File | EntryKind::Other => "",
        };
        if !self.long {
            return format!("{name}{sign}");
        }
        let time = modified.map_or(String::new(), |time| time.strftime("%Y-%m-%d %H:%M").to_string());
        let to = target.map_or(String::new(), |target| format!(" -> {target}"));
        let size = ByteCount(entry.size).to_string();
        format!("{:04o} {size:>12} {time} {name}{sign}{to}", entry.mode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_lines_whatever_they_are_called() {
        let entry = Entry {
            name: PathBytes(b"a\nb\x1b".to_vec()),
            kind: EntryKind::Symlink,
            size: 3,
            mode: 0o777,
            modified: 0,
            target: Some(PathBytes(b"there".to_vec())),
        };
        for (json, long) in [(false, false), (false, true), (true, false)] {
            let line = Show { json, long }.line(&entry);
            assert!(!line.contains(['\n', '\x1b']), "{line}");
            assert_eq!(line.contains("there"), json || long, "{line}");
        }
        let line = Show {
            json: true,
            long: false,
        }
        .line(&entry);
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(
            (&value["kind"], &value["mode"]),
            (&"symlink".into(), &"0777".into())
        );
        assert_eq!(value["modified"], "1970-01-01T00:00:00Z");
    }

    #[test]
    fn only_paths_of_one_host_are_taken() {
        assert!(logins(&["h:a".into(), "h:b".into()]).is_ok());
        for bad in [&["a"][..], &["lh://h/a"], &["h:a", "g:b"]] {
            let paths: Vec<OsString> = bad.iter().map(OsString::from).collect();
            assert!(logins(&paths).is_err(), "{bad:?}");
        }
    }
}
