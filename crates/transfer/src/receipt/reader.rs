//! Reads a receipt, and checks its signatures.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::path::Path;

use longhaul_proto::PublicKey;
use serde::de::DeserializeOwned;

use super::format::{
    ClientSignature, RECEIPT_VERSION, ReceiptEnd, ReceiptEntry, ReceiptHeader, RecordedEntry,
    client_statement,
};
use super::signature::ServerReceipt;
use crate::manifest::Manifest;
use crate::path::RelPath;

/// Maximum length of a line, in bytes. The parts of a file take up to 0.7 MiB.
const MAX_LINE_BYTES: u64 = 2 << 20;

/// Reason why a receipt cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ReceiptError {
    /// The receipt cannot be read.
    #[error("reading the receipt failed: {0}")]
    Io(#[from] io::Error),
    /// The file is no receipt, or was cut or edited. Use the file that `longhaul cp --receipt`
    /// wrote.
    #[error("line {line} of the receipt is not valid: it is no receipt, or was changed")]
    Line {
        /// Number of the line, from 1.
        line: u64,
    },
    /// A later release wrote the receipt. Use that release, or a newer one.
    #[error("the receipt has version {0}, which this release does not know: use a newer release")]
    Version(u32),
    /// The receipt was edited after it was signed, or was signed with another key.
    #[error("the client's signature does not belong to this receipt: it was changed")]
    ClientSignature,
    /// The lines about entries were changed, or are not those of the copy that the server signed.
    #[error("the {0} does not belong to these entries: the receipt was changed")]
    Entries(&'static str),
}

/// A receipt whose signatures are valid.
#[derive(Debug)]
pub struct Receipt {
    header: ReceiptHeader,
    client: PublicKey,
    server: Option<ServerReceipt>,
    entries: u64,
    ended_ms: u64,
    lines: ReceiptLines,
}

impl Receipt {
    /// Opens a receipt, and checks that both signatures are about its entries. Blocking.
    ///
    /// # Errors
    /// [`ReceiptError`].
    pub fn open(path: &Path) -> Result<Self, ReceiptError> {
        let mut lines = ReceiptLines {
            input: BufReader::new(File::open(path)?),
            number: 0,
            hasher: blake3::Hasher::new(),
        };
        let header: ReceiptHeader = lines.parse_next()?;
        if header.receipt != RECEIPT_VERSION {
            return Err(ReceiptError::Version(header.receipt));
        }
        let mut manifest = Manifest::default();
        let end: ReceiptEnd = loop {
            let line = lines.next()?;
            if let Ok(entry) = serde_json::from_slice::<ReceiptEntry>(&line) {
                record(&mut manifest, &entry).ok_or(lines.invalid())?;
                continue;
            }
            break serde_json::from_slice(&line).map_err(|_| lines.invalid())?;
        };
        let signed = client_statement(&lines.hasher.finalize());
        let signature: ClientSignature = lines.parse_next()?;
        let client: PublicKey = end.client.parse().map_err(|_| lines.invalid())?;
        let is_signed = <[u8; 64]>::try_from(signature.client_signature)
            .is_ok_and(|signature| client.verify(&signed, &signature));
        if !is_signed {
            return Err(ReceiptError::ClientSignature);
        }
        let is_whole = manifest.len() == end.entries && manifest.waiting_records() == 0;
        if !is_whole || manifest.hash() != end.manifest {
            return Err(ReceiptError::Entries("hash"));
        }
        let server = match &end.server {
            None => None,
            Some(line) => {
                let receipt = line.receipt().ok_or(lines.invalid())?;
                if !receipt.verify(header.fetch, end.entries, &end.manifest) {
                    return Err(ReceiptError::Entries("server's signature"));
                }
                Some(receipt)
            }
        };
        Ok(Self {
            header,
            client,
            server,
            entries: end.entries,
            ended_ms: end.ended_ms,
            lines,
        })
    }

    /// Returns the first line.
    pub fn header(&self) -> &ReceiptHeader {
        &self.header
    }

    /// Returns the key of the client, which signed the receipt.
    pub fn client(&self) -> PublicKey {
        self.client
    }

    /// Returns the server's statement. `None` if the copy had no server.
    pub fn server(&self) -> Option<&ServerReceipt> {
        self.server.as_ref()
    }

    /// Returns the client's clock at the end of the copy, in milliseconds since 1970.
    pub fn ended_ms(&self) -> u64 {
        self.ended_ms
    }

    /// Passes all entries to `each`, in the order of the lines. Blocking.
    ///
    /// # Errors
    /// The receipt was changed since it was opened, or cannot be read any more, or `each` fails.
    pub async fn for_each<E: From<ReceiptError>>(
        &mut self,
        mut each: impl AsyncFnMut(ReceiptEntry) -> Result<(), E>,
    ) -> Result<(), E> {
        self.lines.restart()?;
        self.lines.next()?;
        for _ in 0..self.entries {
            each(self.lines.parse_next()?).await?;
        }
        Ok(())
    }
}

/// Adds an entry to the manifest. `None` if it cannot be an entry of a copy.
fn record(manifest: &mut Manifest, entry: &ReceiptEntry) -> Option<()> {
    let path = RelPath::from_bytes(&entry.path.0).ok()?;
    if let RecordedEntry::File {
        size,
        blake3,
        parts,
        ..
    } = &entry.recorded
        && !parts.belong_to(*size, blake3)
    {
        return None;
    }
    let is_new = entry
        .recorded
        .with_record(|record| manifest.record(entry.id, entry.source, &path, record))?;
    is_new.then_some(())
}

/// Lines of a receipt.
#[derive(Debug)]
struct ReceiptLines {
    input: BufReader<File>,
    /// Number of lines that were read.
    number: u64,
    /// Hash of all of them.
    hasher: blake3::Hasher,
}

impl ReceiptLines {
    fn next(&mut self) -> Result<Vec<u8>, ReceiptError> {
        let mut line = Vec::new();
        self.number += 1;
        let mut input = (&mut self.input).take(MAX_LINE_BYTES);
        input.read_until(b'\n', &mut line)?;
        if line.last() != Some(&b'\n') {
            return Err(self.invalid());
        }
        self.hasher.update(&line);
        Ok(line)
    }

    fn parse_next<T: DeserializeOwned>(&mut self) -> Result<T, ReceiptError> {
        let line = self.next()?;
        serde_json::from_slice(&line).map_err(|_| self.invalid())
    }

    fn restart(&mut self) -> Result<(), ReceiptError> {
        self.input.rewind()?;
        self.number = 0;
        Ok(())
    }

    fn invalid(&self) -> ReceiptError {
        ReceiptError::Line { line: self.number }
    }
}

#[cfg(test)]
mod tests;
