//! The script that starts longhaul at the far side, and brings a program along if requested: the
//! statically linked one that packages install, else this very program.
//!
//! A program that was brought is kept in `~/.cache/longhaul/HASH/longhaul`, where HASH is its
//! SHA-256, in a directory that only its owner may enter. The far side's own tools check its hash
//! before every run.

use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{Context, SHA256};
use longhaul_platform::process::{own_program, own_program_path};

/// Printed by ssh itself at this side once it has authenticated (`LocalCommand`).
pub(crate) const AUTHENTICATED: &str = "longhaul-authenticated";
/// Printed when the login runs the script.
pub(crate) const BEGUN: &str = "longhaul-begun";
/// Printed when the far side has no usable longhaul: `NEEDS` and the output of `uname -sm`. A
/// script with `bring` then waits for [`GO`] and the program.
pub(crate) const NEEDS: &str = "longhaul-needs ";
/// Printed when the received program is damaged, or could not be written.
pub(crate) const DAMAGED: &str = "longhaul-damaged";
/// Printed when the received program does not run there.
pub(crate) const UNFIT: &str = "longhaul-unfit";
/// Sent before the program's bytes.
pub(crate) const GO: &str = "go\n";
/// Arguments that start the far side.
const ARGUMENTS: &str = "serve --over-stdio";

/// Statically linked program of the same package, relative to this program's directory. It runs on
/// hosts with an older C library or another one.
const STATIC_PROGRAM: &str = "../lib/longhaul/longhaul-static";

/// A program to bring along.
#[derive(Debug, Clone)]
pub(crate) struct ProgramFile {
    /// Its file.
    pub path: PathBuf,
    /// SHA-256 hash, in hexadecimal.
    pub hash: String,
    /// Size in bytes.
    pub size: u64,
}

impl ProgramFile {
    /// Finds, reads and hashes the program.
    pub(crate) fn find() -> io::Result<Self> {
        // The file of the running program, also if it has been replaced since it was started.
        Self::read(&portable(&own_program_path()).unwrap_or_else(own_program))
    }

    /// Reads and hashes a program's file.
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        let mut file = std::fs::File::open(path)?;
        let mut hash = Hashing(Context::new(&SHA256));
        let size = io::copy(&mut file, &mut hash)?;
        let mut text = String::new();
        for byte in hash.0.finish().as_ref() {
            // Writing to a string can't fail.
            let _ = write!(text, "{byte:02x}");
        }
        Ok(Self {
            path: path.to_owned(),
            hash: text,
            size,
        })
    }
}

/// Returns the statically linked program that was installed with `own`, if there is one.
fn portable(own: &Path) -> Option<PathBuf> {
    let path = own.parent()?.join(STATIC_PROGRAM);
    path.is_file().then_some(path)
}

struct Hashing(Context);

impl io::Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the script. It is one line without single quotes and exclamation marks, which a login
/// shell may interpret. With `bring` it only uses this longhaul, and requests it if it is missing;
/// otherwise the one in the login's PATH comes first. The script does not contain the words that it
/// prints in their printed form, since some hosts print a command that they refuse.
pub(crate) fn script(own: &ProgramFile, bring: bool) -> String {
    let ProgramFile { hash, size, .. } = own;
    let mut script = format!(
        "echo {}; d=\"$HOME/.cache/longhaul/{hash}\"; p=\"$d/longhaul\"; \
         sum() {{ {{ sha256sum \"$1\" || shasum -a 256 \"$1\" || openssl dgst -sha256 -r \"$1\"; \
         }} 2>/dev/null | cut -c1-64; }}; ",
        quoted(BEGUN)
    );
    if !bring {
        script += &format!(
            "if command -v longhaul >/dev/null 2>&1; then exec longhaul {ARGUMENTS}; fi; "
        );
    }
    script += &format!(
        "if [ -x \"$p\" ] && [ \"$(sum \"$p\")\" = {hash} ]; then exec \"$p\" {ARGUMENTS}; fi; \
         echo {}\" $(uname -sm)\"; ",
        quoted(NEEDS.trim_end())
    );
    let (damaged, unfit) = (quoted(DAMAGED), quoted(UNFIT));
    if bring {
        script += &format!(
            "read go || exit 1; umask 077; mkdir -p \"$d\" && chmod 700 \"$d\" || {{ echo \
             {damaged}; exit 1; }}; t=\"$d/new.$$\"; \
             head -c {size} > \"$t\"; \
             if [ \"$(sum \"$t\")\" = {hash} ] && chmod 700 \"$t\" && mv -f \"$t\" \"$p\"; then :; \
             else rm -f \"$t\"; echo {damaged}; exit 1; fi; \
             \"$p\" --version >/dev/null 2>&1 || {{ echo {unfit}; exit 1; }}; exec \"$p\" \
             {ARGUMENTS}"
        );
    } else {
        script += "exit 127";
    }
    script
}

/// Formats a word so that the shell prints it, but the script does not contain it.
fn quoted(word: &str) -> String {
    let (head, tail) = word.split_at(word.len() / 2);
    format!("{head}\"{tail}\"")
}

/// Returns the output of `uname -sm` on this machine.
pub(crate) fn machine() -> String {
    let name = rustix::system::uname();
    let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
    format!("{} {}", text(name.sysname()), text(name.machine()))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::os::unix::fs::PermissionsExt;
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// A program that prints a line when it is started as the far side.
    const STAND_IN: &str = "#!/bin/sh\n[ \"$1\" = --version ] || echo started \"$@\"\n";

    struct Login {
        home: tempfile::TempDir,
        own: ProgramFile,
    }

    impl Login {
        fn new() -> Self {
            let home = tempfile::tempdir().unwrap();
            let file = home.path().join("own");
            std::fs::write(&file, STAND_IN).unwrap();
            let own = ProgramFile::read(&file).unwrap();
            Self { home, own }
        }

        fn start(&self, bring: bool, path: &str) -> Child {
            let script = script(&self.own, bring);
            assert!(!script.contains(['\'', '!', '\n']), "{script}");
            for word in [BEGUN, NEEDS, DAMAGED, UNFIT] {
                assert!(!script.contains(word), "{script}");
            }
            let mut command = Command::new("sh");
            command.args(["-c", &format!("exec sh -c '{script}'")]);
            command.env("HOME", self.home.path()).env("PATH", path);
            command
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        }

        /// Returns the script's output, when it is sent `bytes` on request.
        fn said(&self, bring: bool, path: &str, bytes: &[u8]) -> (String, Option<i32>) {
            let mut child = self.start(bring, path);
            let mut out = BufReader::new(child.stdout.take().unwrap());
            let mut said = String::new();
            out.read_line(&mut said).unwrap();
            assert_eq!(said.trim_end(), BEGUN);
            said.clear();
            out.read_line(&mut said).unwrap();
            let mut input = child.stdin.take().unwrap();
            if bring && said.starts_with(NEEDS) {
                input.write_all(GO.as_bytes()).unwrap();
                input.write_all(bytes).unwrap();
            }
            drop(input);
            out.read_to_string(&mut said).unwrap();
            (said, child.wait().unwrap().code())
        }
    }

    fn path() -> String {
        std::env::var("PATH").unwrap()
    }

    #[test]
    fn a_program_is_brought_once_and_checked_each_time() {
        let login = Login::new();
        let needs = format!("{NEEDS}{}\n", machine());
        assert_eq!(
            login.said(false, "/usr/bin:/bin", b""),
            (needs.clone(), Some(127))
        );
        let started = "started serve --over-stdio\n".to_owned();
        let brought = login.said(true, &path(), STAND_IN.as_bytes());
        assert_eq!(brought, (needs.clone() + &started, Some(0)));
        let folder = login
            .home
            .path()
            .join(".cache/longhaul")
            .join(&login.own.hash);
        for place in [folder.clone(), folder.join("longhaul")] {
            let mode = std::fs::metadata(place).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700);
        }
        for bring in [true, false] {
            assert_eq!(
                login.said(bring, "/usr/bin:/bin", b""),
                (started.clone(), Some(0))
            );
        }
        // Somebody has changed it since.
        std::fs::write(folder.join("longhaul"), "#!/bin/sh\necho changed\n").unwrap();
        assert_eq!(login.said(false, "/usr/bin:/bin", b""), (needs, Some(127)));
        assert!(
            login
                .said(true, &path(), STAND_IN.as_bytes())
                .0
                .ends_with(&started)
        );
    }

    #[test]
    fn static_program_of_the_package_is_brought() {
        let root = tempfile::tempdir().unwrap();
        let own = root.path().join("bin/longhaul");
        let installed = root.path().join("lib/longhaul");
        std::fs::create_dir_all(own.parent().unwrap()).unwrap();
        std::fs::create_dir_all(&installed).unwrap();
        assert_eq!(portable(&own), None);
        std::fs::write(installed.join("longhaul-static"), STAND_IN).unwrap();
        let found = portable(&own).unwrap();
        assert_eq!(std::fs::read_to_string(found).unwrap(), STAND_IN);
    }

    #[test]
    fn damaged_programs_are_neither_run_nor_kept() {
        let login = Login::new();
        for bytes in [
            &STAND_IN.as_bytes()[1..],
            &STAND_IN.replace("started", "hacked!").into_bytes(),
        ] {
            let (said, code) = login.said(true, &path(), bytes);
            assert!(
                said.ends_with(&format!("{DAMAGED}\n")) && code == Some(1),
                "{said}"
            );
            let folder = login
                .home
                .path()
                .join(".cache/longhaul")
                .join(&login.own.hash);
            assert_eq!(std::fs::read_dir(folder).unwrap().count(), 0);
        }
    }

    #[test]
    fn longhaul_in_path_is_preferred_unless_bringing() {
        let login = Login::new();
        let programs = login.home.path().join("bin");
        std::fs::create_dir(&programs).unwrap();
        let installed = programs.join("longhaul");
        // Another process writes it: a program that another test starts at this moment would also
        // hold a file that this one writes, and such a file cannot be executed.
        let mut install = Command::new("install")
            .args(["-m", "755", "/dev/stdin"])
            .arg(&installed)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = install.stdin.take().unwrap();
        input
            .write_all(b"#!/bin/sh\necho installed \"$@\"\n")
            .unwrap();
        drop(input);
        assert!(install.wait().unwrap().success());
        let path = format!("{}:{}", programs.display(), path());
        let (said, _) = login.said(false, &path, b"");
        assert_eq!(said, "installed serve --over-stdio\n");
        let (said, _) = login.said(true, &path, STAND_IN.as_bytes());
        assert!(said.ends_with("started serve --over-stdio\n"), "{said}");
    }
}
