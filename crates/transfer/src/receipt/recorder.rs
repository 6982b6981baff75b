//! Writes the receipt of a running copy.

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use longhaul_filter::PathText;
use longhaul_proto::SigningKey;
use parking_lot::Mutex;
use serde::Serialize;

use super::format::{
    ClientSignature, ReceiptEnd, ReceiptEntry, ReceiptHeader, RecordedEntry, ServerLine,
    client_statement,
};
use super::signature::ServerReceipt;
use crate::manifest::{ManifestObserver, ManifestRecord};
use crate::path::RelPath;
use crate::tree_hash::Hash;

/// Bytes that are read at once to hash what was written.
const HASH_BUFFER_BYTES: usize = 1 << 16;

/// Recorder of a copy's receipt. The client's end of the copy reports each entry to it.
#[derive(Debug)]
pub struct ReceiptRecorder(Mutex<RecorderState>);

#[derive(Debug)]
struct RecorderState {
    out: BufWriter<File>,
    /// Length of the first line, behind which entries begin.
    header_bytes: u64,
    entries: u64,
    /// First error of writing. Nothing is written after it.
    failed: Option<io::Error>,
    server: Option<ServerReceipt>,
}

impl ReceiptRecorder {
    /// Creates a recorder that writes to `file`, which is empty and readable.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn new(file: File, header: &ReceiptHeader) -> io::Result<Self> {
        let mut out = BufWriter::new(file);
        put(&mut out, header)?;
        out.flush()?;
        let header_bytes = out.get_mut().stream_position()?;
        Ok(Self(Mutex::new(RecorderState {
            out,
            header_bytes,
            entries: 0,
            failed: None,
            server: None,
        })))
    }

    /// Forgets the entries, as the copy begins again.
    pub(crate) fn restart(&self) {
        let mut state = self.0.lock();
        let restarted = state.restart();
        state.note(restarted);
    }

    /// Notes the server's statement.
    pub(crate) fn receive(&self, receipt: ServerReceipt) {
        self.0.lock().server = Some(receipt);
    }

    /// Returns true once the server's statement has arrived.
    pub(crate) fn has_server(&self) -> bool {
        self.0.lock().server.is_some()
    }

    /// Ends the receipt of a copy with this manifest, and forces it to the disk. `fetch` tells that
    /// the server had the sources, and is `None` for a copy without a server.
    ///
    /// # Errors
    /// Writing failed now or before, or the server's statement is missing or about something else.
    pub fn finish(&self, manifest: &Hash, fetch: Option<bool>, key: &SigningKey) -> io::Result<()> {
        let mut state = self.0.lock();
        if let Some(error) = state.failed.take() {
            return Err(error);
        }
        let server = state.server.filter(|_| fetch.is_some());
        if let Some(fetch) = fetch {
            let is_valid = |receipt: ServerReceipt| receipt.verify(fetch, state.entries, manifest);
            match server {
                None => return Err(io::Error::other("the server's signature did not arrive")),
                Some(receipt) if !is_valid(receipt) => {
                    return Err(io::Error::other(
                        "the server's signature is about another copy",
                    ));
                }
                Some(_) => {}
            }
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let end = ReceiptEnd {
            entries: state.entries,
            manifest: *manifest,
            ended_ms: since.map_or(0, |since| since.as_millis() as u64),
            client: key.public().to_string(),
            server: server.as_ref().map(ServerLine::new),
        };
        put(&mut state.out, &end)?;
        state.out.flush()?;
        let lines = hash_file(state.out.get_mut())?;
        let signature = key
            .sign(&client_statement(&lines))
            .map_err(io::Error::other)?;
        let signature = ClientSignature {
            client_signature: signature.to_vec(),
        };
        put(&mut state.out, &signature)?;
        state.out.flush()?;
        state.out.get_ref().sync_all()
    }
}

impl RecorderState {
    fn restart(&mut self) -> io::Result<()> {
        self.out.flush()?;
        self.entries = 0;
        self.server = None;
        let header_bytes = self.header_bytes;
        let file = self.out.get_mut();
        file.set_len(header_bytes)?;
        file.seek(io::SeekFrom::Start(header_bytes))?;
        Ok(())
    }

    fn note(&mut self, written: io::Result<()>) {
        if let Err(error) = written {
            self.failed.get_or_insert(error);
        }
    }
}

impl ManifestObserver for ReceiptRecorder {
    fn recorded(&self, id: u64, source: u32, path: &RelPath, record: ManifestRecord<'_>) {
        let entry = ReceiptEntry {
            id,
            source,
            path: PathText(path.as_bytes().to_vec()),
            recorded: RecordedEntry::from_record(record),
        };
        let mut state = self.0.lock();
        if state.failed.is_none() {
            state.entries += 1;
            let written = put(&mut state.out, &entry);
            state.note(written);
        }
    }
}

fn put(out: &mut impl Write, line: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")
}

/// Hashes a file from its beginning, and leaves it at its end.
fn hash_file(file: &mut File) -> io::Result<blake3::Hash> {
    file.rewind()?;
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; HASH_BUFFER_BYTES];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.finalize()),
            read => hasher.update(buffer.get(..read).unwrap_or_default()),
        };
    }
}
