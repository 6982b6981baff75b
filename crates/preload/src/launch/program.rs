//! Checks that the loader will preload the library into a program.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use object::elf;
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, FileKind};

/// Maximum number of nested script interpreters, as in the kernel.
const MAX_SCRIPT_DEPTH: u32 = 4;

/// Reason why a program cannot be preloaded. Each message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum UnsuitableProgram {
    /// There is no program of this name.
    #[error("{0}: no such program; give its path, or see PATH")]
    Missing(PathBuf),
    /// The program cannot be run or read.
    #[error("cannot run {0}: {1}")]
    NotExecutable(PathBuf, std::io::Error),
    /// It has no loader.
    #[error("{0} is statically linked, so no library can be preloaded: {1}")]
    Static(PathBuf, &'static str),
    /// It runs with more privileges than its caller.
    #[error(
        "{0} is {1}, and the loader preloads nothing into such programs: run it as the user that \
         it would become"
    )]
    Privileged(PathBuf, &'static str),
    /// It is built for another machine.
    #[error(
        "{0} is built for another architecture than this {1}: use the {1} for that \
        architecture"
    )]
    Foreign(PathBuf, &'static str),
}

impl UnsuitableProgram {
    /// Returns the exit code that shells use: 127 if it does not exist, 126 if it cannot be run.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Missing(_) => 127,
            _ => 126,
        }
    }
}

/// Command that starts programs, for its messages about unsuitable ones.
#[derive(Debug, Clone, Copy)]
pub struct Starter {
    /// Its name.
    pub name: &'static str,
    /// Advice for a statically linked program.
    pub instead: &'static str,
}

/// Finds a program as the shell would, and checks that a library can be preloaded into it.
///
/// # Errors
/// [`UnsuitableProgram`] with the reason.
pub fn find(name: &OsStr, starter: Starter) -> Result<PathBuf, UnsuitableProgram> {
    let path = in_path(name).ok_or_else(|| UnsuitableProgram::Missing(name.into()))?;
    check(&path, 0, starter)?;
    Ok(path)
}

/// Finds a program as the shell would, for a start without a library.
///
/// # Errors
/// [`UnsuitableProgram`] if there is none, or it cannot be run.
pub fn locate(name: &OsStr) -> Result<PathBuf, UnsuitableProgram> {
    let path = in_path(name).ok_or_else(|| UnsuitableProgram::Missing(name.into()))?;
    if path.is_file() && is_executable(&path) {
        Ok(path)
    } else {
        Err(UnsuitableProgram::NotExecutable(
            path,
            std::io::ErrorKind::PermissionDenied.into(),
        ))
    }
}

/// Returns the reason why a program runs with other privileges than its caller, if it does.
#[must_use]
pub fn privilege_reason(path: &Path) -> Option<&'static str> {
    let mode = fs::metadata(path).map_or(0, |file| file.permissions().mode());
    if mode & 0o4000 != 0 {
        Some("setuid")
    } else if mode & 0o2000 != 0 {
        Some("setgid")
    } else {
        let found = rustix::fs::getxattr(path, c"security.capability", &mut [0u8; 64]).is_ok();
        found.then_some("given capabilities by its file")
    }
}

fn in_path(name: &OsStr) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return path.exists().then_some(path);
    }
    let folders = env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    env::split_paths(&folders)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file() && is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.permissions().mode() & 0o111 != 0)
}

fn check(path: &Path, scripts: u32, starter: Starter) -> Result<(), UnsuitableProgram> {
    let not_executable = |error| UnsuitableProgram::NotExecutable(path.into(), error);
    let mut file = File::open(path).map_err(not_executable)?;
    if !is_executable(path) {
        return Err(not_executable(std::io::ErrorKind::PermissionDenied.into()));
    }
    // The headers of a program are in its first pages, whatever its size.
    let mut start = Vec::new();
    file.by_ref()
        .take(64 * 1024)
        .read_to_end(&mut start)
        .map_err(not_executable)?;
    if let Some(line) = start.strip_prefix(b"#!") {
        return match interpreter(line) {
            Some(interpreter) if scripts < MAX_SCRIPT_DEPTH => {
                check(&interpreter, scripts + 1, starter)
            }
            _ => Ok(()),
        };
    }
    if let Some(how) = privilege_reason(path) {
        return Err(UnsuitableProgram::Privileged(path.into(), how));
    }
    check_elf(path, &start, starter)
}

/// Returns the interpreter in the first line of a script.
fn interpreter(line: &[u8]) -> Option<PathBuf> {
    let line = line.split(|byte| *byte == b'\n').next()?;
    let mut words = line
        .split(|byte| byte.is_ascii_whitespace())
        .filter(|word| !word.is_empty());
    let first = Path::new(OsStr::from_bytes(words.next()?)).to_path_buf();
    if first.file_name() != Some(OsStr::new("env")) {
        return Some(first);
    }
    in_path(OsStr::from_bytes(
        words.find(|word| !word.starts_with(b"-"))?,
    ))
}

fn check_elf(path: &Path, start: &[u8], starter: Starter) -> Result<(), UnsuitableProgram> {
    let own = if cfg!(target_pointer_width = "64") {
        FileKind::Elf64
    } else {
        FileKind::Elf32
    };
    match FileKind::parse(start) {
        Ok(kind) if kind == own => {}
        Ok(FileKind::Elf32 | FileKind::Elf64) => {
            return Err(UnsuitableProgram::Foreign(path.into(), starter.name));
        }
        // Another format that the kernel may know: it will decide.
        _ => return Ok(()),
    }
    #[cfg(target_pointer_width = "64")]
    type Header = elf::FileHeader64<Endianness>;
    #[cfg(target_pointer_width = "32")]
    type Header = elf::FileHeader32<Endianness>;
    let parts = Header::parse(start).and_then(|header| {
        let endian = header.endian()?;
        let loader = header
            .program_headers(endian, start)?
            .iter()
            .any(|part| part.p_type(endian) == elf::PT_INTERP);
        Ok((header.e_machine(endian), loader))
    });
    match parts {
        Ok((machine, _)) if own_machine().is_some_and(|own| own != machine) => {
            Err(UnsuitableProgram::Foreign(path.into(), starter.name))
        }
        Ok((_, false)) => Err(UnsuitableProgram::Static(path.into(), starter.instead)),
        _ => Ok(()),
    }
}

/// Returns the machine for which this program was built, if it is known.
fn own_machine() -> Option<u16> {
    if cfg!(target_arch = "x86_64") {
        Some(elf::EM_X86_64)
    } else if cfg!(target_arch = "aarch64") {
        Some(elf::EM_AARCH64)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STARTER: Starter = Starter {
        name: "test",
        instead: "do without",
    };

    fn find(name: &OsStr) -> Result<PathBuf, UnsuitableProgram> {
        super::find(name, STARTER)
    }

    #[test]
    fn script_interpreter_is_found() {
        assert_eq!(interpreter(b"/bin/sh -e\nrest"), Some("/bin/sh".into()));
        assert_eq!(interpreter(b" /bin/sh"), Some("/bin/sh".into()));
        assert_eq!(interpreter(b"\n"), None);
        let sh = interpreter(b"/usr/bin/env -S sh\n").unwrap();
        assert!(sh.ends_with("sh"), "{}", sh.display());
    }

    #[test]
    fn programs_that_can_and_cannot_be_helped() {
        assert!(find(OsStr::new("sh")).is_ok());
        assert!(matches!(
            find(OsStr::new("no-such-program")),
            Err(UnsuitableProgram::Missing(_))
        ));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "#!/bin/sh\n").unwrap();
        assert!(matches!(
            find(file.as_os_str()),
            Err(UnsuitableProgram::NotExecutable(..))
        ));

        let setuid = folder.path().join("setuid");
        fs::copy(find(OsStr::new("sh")).unwrap(), &setuid).unwrap();
        fs::set_permissions(&setuid, fs::Permissions::from_mode(0o4755)).unwrap();
        assert!(matches!(
            find(setuid.as_os_str()),
            Err(UnsuitableProgram::Privileged(..))
        ));
    }

    #[test]
    fn broken_headers_are_left_to_the_kernel() {
        let own = fs::read(env::current_exe().unwrap()).unwrap();
        for length in 0..200 {
            let _ = check_elf(Path::new("cut"), &own[..length], STARTER);
        }
        let mut other = own[..4096].to_vec();
        other[18] ^= 0x55; // e_machine
        if own_machine().is_some() {
            assert!(matches!(
                check_elf(Path::new("other"), &other, STARTER),
                Err(UnsuitableProgram::Foreign(..))
            ));
        }
    }
}
