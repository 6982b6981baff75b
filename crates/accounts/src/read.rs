//! Reads the records of a file and of its rotated ones.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::directory::{directory_of, file_name, names_in};
use crate::error::AccountsError;
use crate::record::{AccountRecord, MAX_LINE_BYTES};
use crate::rotation::rotated_files;

/// Calls `each` with every record, oldest file first. Returns the number of damaged lines, which
/// are left out: a crash may cut one off.
///
/// # Errors
/// [`AccountsError::Read`] if a file cannot be read.
pub fn read_records(
    path: &Path,
    mut each: impl FnMut(AccountRecord),
) -> Result<u64, AccountsError> {
    let failed = |path: &Path, source| AccountsError::Read {
        path: path.to_owned(),
        source,
    };
    // Opened first: a file that is rotated meanwhile is then read once all the same.
    let current = File::open(path).map_err(|source| failed(path, source))?;
    let identity = |file: &File| file.metadata().map(|meta| (meta.dev(), meta.ino()));
    let own = identity(&current).map_err(|source| failed(path, source))?;
    let directory = directory_of(path);
    let names = names_in(directory).map_err(|source| failed(directory, source))?;
    let name = file_name(path).map_err(|source| failed(path, source))?;
    let mut damaged = 0;
    for rotated in rotated_files(name, &names) {
        let path = directory.join(rotated);
        let read = File::open(&path).and_then(|file| match identity(&file)? == own {
            true => Ok(0),
            false => read_lines(&file, &mut each),
        });
        damaged += read.map_err(|source| failed(&path, source))?;
    }
    let read = read_lines(&current, &mut each).map_err(|source| failed(path, source))?;
    Ok(damaged + read)
}

/// Returns the number of damaged lines.
fn read_lines(file: &File, each: &mut impl FnMut(AccountRecord)) -> io::Result<u64> {
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    let mut damaged = 0;
    loop {
        line.clear();
        let read = (&mut reader)
            .take(MAX_LINE_BYTES)
            .read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(damaged);
        }
        let is_whole = line.ends_with(b"\n");
        if !is_whole {
            skip_line(&mut reader)?;
        }
        match serde_json::from_slice(&line) {
            Ok(record) => each(record),
            Err(_) if line == b"\n" => {}
            Err(_) => damaged += 1,
        }
    }
}

/// Skips the rest of a line.
fn skip_line(reader: &mut impl BufRead) -> io::Result<()> {
    loop {
        let bytes = reader.fill_buf()?;
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let (is_end, used) = match end {
            Some(end) => (true, end + 1),
            None => (bytes.is_empty(), bytes.len()),
        };
        reader.consume(used);
        if is_end {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::{copy, session};

    #[test]
    fn damaged_lines_are_left_out_and_counted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let long = vec![b'x'; 3 * MAX_LINE_BYTES as usize];
        let whole = copy("lhk1:A", "2026-11-30T00:00:00Z", 1).line();
        let other = session("lhk1:B", "2026-11-30T00:00:00Z", 1).line();
        let content = [
            &whole[..],
            b"{\"kind\":\n\n\0\0\0\xff\n",
            &long[..],
            b"\n",
            &other[..],
            b"{\"k",
        ]
        .concat();
        std::fs::write(&path, content).unwrap();
        let mut keys = Vec::new();
        let damaged = read_records(&path, |record| keys.push(record.key().to_owned())).unwrap();
        assert_eq!((keys, damaged), (vec!["lhk1:A".into(), "lhk1:B".into()], 4));
    }

    #[test]
    fn a_missing_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let error = read_records(&dir.path().join("none"), |_| ()).unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with("cannot read accounts: ") && text.contains("/none: "),
            "{text}"
        );
    }
}
