//! The same records in systemd's journal, by its native protocol: a datagram of lines `FIELD=value`
//! (<https://systemd.io/JOURNAL_NATIVE_PROTOCOL>). No value has a newline.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::record::AccountRecord;

/// Socket of the journal.
pub(crate) const JOURNAL_SOCKET: &str = "/run/systemd/journal/socket";
/// Priority `info` (syslog(3)).
const PRIORITY: &str = "6";

/// Connection with the journal.
pub(crate) struct Journal {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Journal {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        // The journal may restart, so each datagram names its socket.
        std::fs::metadata(path)?;
        let socket = UnixDatagram::unbound()?;
        // The writer of the file must not wait for the journal.
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            path: path.to_owned(),
        })
    }

    pub(crate) fn send(&self, record: &AccountRecord) -> io::Result<()> {
        self.socket
            .send_to(entry(record).as_bytes(), &self.path)
            .map(drop)
    }
}

/// Returns the fields of a record: a message for people, and `LONGHAUL_` with each field.
fn entry(record: &AccountRecord) -> String {
    let kind = match record {
        AccountRecord::Copy(_) => "copy",
        AccountRecord::Session(_) => "session",
    };
    let message = format!("{kind} of {}: {}", record.key(), record.result());
    let mut entry = format!("MESSAGE={message}\nPRIORITY={PRIORITY}\nSYSLOG_IDENTIFIER=longhaul\n");
    let fields = serde_json::to_value(record).unwrap_or_default();
    for (name, value) in fields.as_object().into_iter().flatten() {
        let name = name.to_ascii_uppercase();
        let value = match value {
            Value::String(text) => text.clone(),
            Value::Array(values) => {
                let texts = values.iter().filter_map(Value::as_str);
                texts.collect::<Vec<_>>().join(", ")
            }
            other => other.to_string(),
        };
        entry.push_str(&format!("LONGHAUL_{name}={value}\n"));
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::copy;

    #[test]
    fn a_record_is_one_datagram_of_fields() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        assert!(Journal::open(&path).is_err(), "there is no journal");
        let received = UnixDatagram::bind(&path).unwrap();
        let journal = Journal::open(&path).unwrap();
        journal
            .send(&copy("lhk1:A", "2026-11-30T00:00:00Z", 7))
            .unwrap();
        let mut bytes = [0; 4096];
        let length = received.recv(&mut bytes).unwrap();
        let text = std::str::from_utf8(&bytes[..length]).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        for line in [
            "MESSAGE=copy of lhk1:A: completed",
            "PRIORITY=6",
            "LONGHAUL_KEY=lhk1:A",
            "LONGHAUL_BYTES=7",
            "LONGHAUL_NAMES=data/run 7",
            "LONGHAUL_ENDED=2026-11-30T00:00:00.000Z",
        ] {
            assert!(lines.contains(&line), "{line} is not in\n{text}");
        }
        assert!(text.ends_with('\n') && lines.iter().all(|line| line.contains('=')));
    }
}
