//! Lists of checksums, a line for each file.
//!
//! - `HASH  NAME` and `HASH *NAME`: `b3sum`, `sha256sum`, `md5sum`. A name with a line feed, a
//!   carriage return or a backslash is escaped, and the line then begins with a backslash.
//! - `HASH NAME`: XRootD's `xrdadler32` and `xrdcrc32c`.
//! - `SHA256 (NAME) = HASH`: BSD's programs, and `sha256sum --tag`.
//! - `adler32 HASH`: `xrdfs query checksum`, which names no file.

use data_encoding::HEXLOWER_PERMISSIVE;

use crate::algorithm::{Algorithm, Checksum};

/// Form of the lines of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ListFormat {
    /// Hash and name, as the algorithm's usual program prints them.
    #[default]
    Plain,
    /// Algorithm, name and hash, as BSD's programs print them.
    Bsd,
    /// Algorithm and hash, as `xrdfs query checksum` prints them.
    Xrdfs,
}

impl ListFormat {
    /// Formats the line of a file, without its end.
    pub fn line(self, sum: &Checksum, name: &[u8]) -> Vec<u8> {
        let algorithm = sum.algorithm();
        let (name, is_escaped) = escape(name);
        let mut line = Vec::new();
        if is_escaped && self != Self::Xrdfs {
            line.push(b'\\');
        }
        match self {
            Self::Plain => {
                let gap = if algorithm.is_of_xrootd() { " " } else { "  " };
                line.extend_from_slice(format!("{sum}{gap}").as_bytes());
                line.extend_from_slice(&name);
            }
            Self::Bsd => {
                line.extend_from_slice(format!("{} (", algorithm.tag()).as_bytes());
                line.extend_from_slice(&name);
                line.extend_from_slice(format!(") = {sum}").as_bytes());
            }
            Self::Xrdfs => line.extend_from_slice(format!("{algorithm} {sum}").as_bytes()),
        }
        line
    }
}

/// A line of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedSum {
    /// The algorithm, if the line names it.
    pub algorithm: Option<Algorithm>,
    /// The value.
    pub value: Vec<u8>,
    /// The name of the file.
    pub name: Vec<u8>,
}

/// Reason why a line of a list cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ListLineError {
    /// The line has another form than those of `b3sum`, `sha256sum`, BSD's programs and XRootD.
    #[error("not a line of a checksum list")]
    Form,
    /// The line names an algorithm that is not supported.
    #[error("unknown algorithm")]
    Algorithm,
    /// The line names no file, as those of `xrdfs query checksum`. Add the name to the line:
    /// `HASH NAME`.
    #[error("the line names no file")]
    NoName,
}

/// Parses a line without its end. `None` if it is empty or a comment.
///
/// # Errors
/// [`ListLineError`].
pub fn parse_line(line: &[u8]) -> Result<Option<ListedSum>, ListLineError> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.is_empty() || line.starts_with(b"#") {
        return Ok(None);
    }
    let (line, is_escaped) = match line.strip_prefix(b"\\") {
        Some(rest) => (rest, true),
        None => (line, false),
    };
    let (algorithm, value, name) = match split_plain(line) {
        Some((value, name)) => (None, value, name),
        None => {
            let (algorithm, value, name) = split_bsd(line)?;
            (Some(algorithm), value, name)
        }
    };
    if name.is_empty() {
        return Err(ListLineError::NoName);
    }
    let name = match is_escaped {
        true => unescape(name).ok_or(ListLineError::Form)?,
        false => name.to_vec(),
    };
    Ok(Some(ListedSum {
        algorithm,
        value,
        name,
    }))
}

/// Splits a line that begins with a value.
fn split_plain(line: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let end = line.iter().position(|&byte| byte == b' ')?;
    let (digits, rest) = line.split_at_checked(end)?;
    let is_value = |bytes: usize| {
        let mut all = Algorithm::ALL.into_iter();
        all.any(|algorithm| algorithm.value_bytes() == bytes)
    };
    let value = HEXLOWER_PERMISSIVE.decode(digits).ok()?;
    let rest = rest.get(1..)?;
    // A second space or an asterisk is the mode in which the file was read.
    let name = match rest.first() {
        Some(b' ' | b'*') => rest.get(1..)?,
        _ => rest,
    };
    is_value(value.len()).then_some((value, name))
}

/// Splits a line that begins with the name of an algorithm.
fn split_bsd(line: &[u8]) -> Result<(Algorithm, Vec<u8>, &[u8]), ListLineError> {
    let end = line.iter().position(|&byte| byte == b' ');
    let (name, rest) = end
        .and_then(|end| line.split_at_checked(end))
        .ok_or(ListLineError::Form)?;
    let algorithm = std::str::from_utf8(name)
        .ok()
        .and_then(|name| name.parse::<Algorithm>().ok());
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"-/".contains(byte);
    let Some(algorithm) = algorithm else {
        return Err(match name.iter().all(is_name) && rest.starts_with(b" (") {
            true => ListLineError::Algorithm,
            false => ListLineError::Form,
        });
    };
    let value =
        |digits: &[u8]| Checksum::from_hex(algorithm, digits).map(|sum| sum.as_bytes().to_vec());
    if rest.get(1..).and_then(value).is_some() {
        return Err(ListLineError::NoName);
    }
    let parts = rest.strip_prefix(b" (").and_then(|rest| {
        let digits = rest.len().checked_sub(2 * algorithm.value_bytes())?;
        let (name, digits) = rest.split_at_checked(digits)?;
        Some((name.strip_suffix(b") = ")?, value(digits)?))
    });
    let (name, value) = parts.ok_or(ListLineError::Form)?;
    Ok((algorithm, value, name))
}

/// Escapes a name as `sha256sum` does. Returns true with it if anything was escaped.
fn escape(name: &[u8]) -> (Vec<u8>, bool) {
    let mut escaped = Vec::with_capacity(name.len());
    for &byte in name {
        match byte {
            b'\n' => escaped.extend_from_slice(b"\\n"),
            b'\r' => escaped.extend_from_slice(b"\\r"),
            b'\\' => escaped.extend_from_slice(b"\\\\"),
            byte => escaped.push(byte),
        }
    }
    let is_escaped = escaped.len() != name.len();
    (escaped, is_escaped)
}

/// Reverses [`escape`].
fn unescape(name: &[u8]) -> Option<Vec<u8>> {
    let mut plain = Vec::with_capacity(name.len());
    let mut bytes = name.iter();
    while let Some(&byte) = bytes.next() {
        plain.push(match byte {
            b'\\' => match bytes.next()? {
                b'n' => b'\n',
                b'r' => b'\r',
                b'\\' => b'\\',
                _ => return None,
            },
            byte => byte,
        });
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Hasher;

    const MD5: &str = "900150983cd24fb0d6963f7d28e17f72";

    fn listed(line: &str) -> Result<Option<(Option<Algorithm>, usize, String)>, ListLineError> {
        let found = parse_line(line.as_bytes())?;
        Ok(found.map(|found| {
            let name = String::from_utf8(found.name).unwrap();
            (found.algorithm, found.value.len(), name)
        }))
    }

    #[test]
    fn lines_of_other_programs_are_read() {
        let plain = |name: &str| Ok(Some((None, 16, name.to_owned())));
        assert_eq!(listed(&format!("{MD5}  a b")), plain("a b"));
        assert_eq!(listed(&format!("{MD5} *a")), plain("a"));
        assert_eq!(listed(&format!("{}  a\r", MD5.to_uppercase())), plain("a"));
        assert_eq!(listed(&format!("\\{MD5}  a\\nb\\\\")), plain("a\nb\\"));
        assert_eq!(listed(&format!("{MD5}  a\\n")), plain("a\\n"));
        assert_eq!(listed("11e60398 a"), Ok(Some((None, 4, "a".to_owned()))));
        let bsd = |name: &str| Ok(Some((Some(Algorithm::Md5), 16, name.to_owned())));
        assert_eq!(listed(&format!("MD5 (a) = {MD5}")), bsd("a"));
        assert_eq!(listed(&format!("MD5 (a) = (b) = {MD5}")), bsd("a) = (b"));
        assert_eq!(listed(""), Ok(None));
        assert_eq!(listed("# comment"), Ok(None));
    }

    #[test]
    fn unusable_lines_are_told_apart() {
        use ListLineError::*;
        for (line, error) in [
            ("hello", Form),
            ("hello world", Form),
            ("0011  a", Form),
            (&format!("MD5 (a) = {}", &MD5[2..]), Form),
            (&format!("SHA256 (a) = {MD5}"), Form),
            (&format!("\\{MD5}  a\\"), Form),
            (&format!("SHA3-256 (a) = {MD5}"), Algorithm),
            ("adler32 11e60398", NoName),
            (&format!("{MD5}  "), NoName),
            (&format!("MD5 () = {MD5}"), NoName),
        ] {
            assert_eq!(listed(line), Err(error), "{line}");
        }
    }

    proptest! {
        #[test]
        fn written_lines_are_read_again(
            name in prop::collection::vec(any::<u8>(), 1..40),
            algorithm in prop::sample::select(&Algorithm::ALL[..]),
            bsd: bool,
        ) {
            let format = if bsd { ListFormat::Bsd } else { ListFormat::Plain };
            let sum = Hasher::new(algorithm).finish();
            let line = format.line(&sum, &name);
            prop_assert!(!line.contains(&b'\n'));
            // With one space before the name, one more is taken for the mode.
            prop_assume!(bsd || !algorithm.is_of_xrootd() || !b" *".contains(&name[0]));
            let found = parse_line(&line).unwrap().unwrap();
            prop_assert_eq!(found.name, name);
            prop_assert_eq!(&found.value[..], sum.as_bytes());
            prop_assert_eq!(found.algorithm, bsd.then_some(algorithm));
        }

        #[test]
        fn any_line_is_read_or_refused(line: Vec<u8>) {
            let _ = parse_line(&line);
        }
    }
}
