//! Receipts of a worker, which the front signs: the worker does not have the server's key.
//!
//! The front signs nothing but statements about copies of the account's own keys.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::Arc;
use std::time::Duration;

use longhaul_proto::{PublicKey, SigningKey};
use longhaul_transfer::GrantsInForce;
use longhaul_transfer::receipt::{ReceiptAuthority, ReceiptStatement};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// Maximum length of a request or an answer, in bytes.
const MAX_LINE_BYTES: u64 = 4096;
/// Time limit for a signature.
const SIGN_TIMEOUT: Duration = Duration::from_secs(2);

/// A statement to be signed.
#[derive(Serialize, Deserialize)]
struct SigningRequest {
    client: String,
    fetch: bool,
    entries: u64,
    manifest: [u8; 32],
    time_ms: u64,
}

/// The signature, or `None` if the statement is not signed.
#[derive(Serialize, Deserialize)]
struct SigningAnswer(Option<Vec<u8>>);

/// Signs the statements that arrive at `socket` and are about keys of `account`, until the worker
/// ends.
pub(super) async fn sign_for(
    socket: StdUnixStream,
    account: String,
    key: SigningKey,
    grants: Arc<GrantsInForce>,
) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    let mut socket = tokio::io::BufReader::new(UnixStream::from_std(socket)?);
    loop {
        let mut line = Vec::new();
        let mut bounded = (&mut socket).take(MAX_LINE_BYTES);
        if bounded.read_until(b'\n', &mut line).await? == 0 {
            return Ok(());
        }
        let statement = serde_json::from_slice::<SigningRequest>(&line)?.statement();
        let statement = statement.filter(|statement| {
            let of = grants.current();
            let of = of.account_of(&statement.client);
            of.is_some_and(|of| of.name == account)
        });
        let signature = statement.and_then(|statement| ReceiptAuthority::sign(&key, &statement));
        let answer = SigningAnswer(signature.map(|signature| signature.to_vec()));
        let mut line = serde_json::to_vec(&answer)?;
        line.push(b'\n');
        socket.write_all(&line).await?;
    }
}

impl SigningRequest {
    fn new(statement: &ReceiptStatement) -> Self {
        Self {
            client: statement.client.to_string(),
            fetch: statement.fetch,
            entries: statement.entries,
            manifest: statement.manifest,
            time_ms: statement.time_ms,
        }
    }

    fn statement(&self) -> Option<ReceiptStatement> {
        Some(ReceiptStatement {
            client: self.client.parse().ok()?,
            fetch: self.fetch,
            entries: self.entries,
            manifest: self.manifest,
            time_ms: self.time_ms,
        })
    }
}

/// The server's key, as a worker sees it.
#[derive(Debug)]
pub(super) struct FrontKey {
    key: PublicKey,
    /// `None` after an error: a late answer would be taken for the next one.
    socket: Mutex<Option<BufReader<StdUnixStream>>>,
}

impl FrontKey {
    /// Creates the key that signs at the other end of `socket`.
    pub(super) fn new(key: PublicKey, socket: OwnedFd) -> io::Result<Self> {
        let socket = StdUnixStream::from(socket);
        socket.set_read_timeout(Some(SIGN_TIMEOUT))?;
        socket.set_write_timeout(Some(SIGN_TIMEOUT))?;
        let socket = Mutex::new(Some(BufReader::new(socket)));
        Ok(Self { key, socket })
    }

    fn request(&self, statement: &ReceiptStatement) -> io::Result<Option<Vec<u8>>> {
        let mut line = serde_json::to_vec(&SigningRequest::new(statement))?;
        line.push(b'\n');
        let mut held = self.socket.lock();
        let mut socket = held.take().ok_or(io::ErrorKind::NotConnected)?;
        socket.get_mut().write_all(&line)?;
        let mut answer = Vec::new();
        (&mut socket)
            .take(MAX_LINE_BYTES)
            .read_until(b'\n', &mut answer)?;
        let SigningAnswer(signature) = serde_json::from_slice(&answer)?;
        *held = Some(socket);
        Ok(signature)
    }
}

impl ReceiptAuthority for FrontKey {
    fn public(&self) -> PublicKey {
        self.key
    }

    fn sign(&self, statement: &ReceiptStatement) -> Option<[u8; 64]> {
        self.request(statement).ok()??.try_into().ok()
    }
}

#[cfg(test)]
mod tests {
    use longhaul_transfer::Grants;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn front_signs_for_keys_of_the_account_alone() {
        let [ana, ben] = [1, 2].map(|n| PublicKey::from_bytes([n; 32]));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("grants.toml");
        let text = format!(
            "[[grant]]\nkey = \"{ana}\"\naccount = \"ana\"\nread = [\"/\"]\n\
             [[grant]]\nkey = \"{ben}\"\naccount = \"ben\"\nread = [\"/\"]\n"
        );
        std::fs::write(&file, text).unwrap();
        let mut grants = Grants::default();
        grants.add_file(&file).unwrap();
        let key = SigningKey::generate().unwrap();
        let (front, worker) = StdUnixStream::pair().unwrap();
        let signing = sign_for(front, "ana".into(), key.clone(), GrantsInForce::new(grants));
        let signing = tokio::spawn(signing);
        let worker = FrontKey::new(key.public(), worker.into()).unwrap();
        let statement = |client| ReceiptStatement {
            client,
            fetch: false,
            entries: 1,
            manifest: [3; 32],
            time_ms: 5,
        };
        let (own, other) = tokio::task::spawn_blocking(move || {
            (worker.sign(&statement(ana)), worker.sign(&statement(ben)))
        })
        .await
        .unwrap();
        assert_eq!(own, ReceiptAuthority::sign(&key, &statement(ana)));
        assert_eq!((own.is_some(), other), (true, None));
        signing.await.unwrap().unwrap();
    }
}
