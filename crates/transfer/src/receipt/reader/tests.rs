use std::sync::Arc;

use longhaul_filter::PathText;
use longhaul_proto::SigningKey;

use super::*;
use crate::manifest::ManifestRecord;
use crate::receipt::{ReceiptRecorder, ReceiptSigner};

/// A receipt in a file, and the keys that signed it.
struct Written {
    folder: tempfile::TempDir,
    client: PublicKey,
    server: PublicKey,
}

impl Written {
    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("receipt")
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.path()).unwrap()
    }
}

/// Records a copy of a file, a directory and a link, and before it another one that was lost.
fn written() -> Written {
    let folder = tempfile::tempdir().unwrap();
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(folder.path().join("receipt"))
        .unwrap();
    let text = |text: &str| PathText(text.into());
    let header = ReceiptHeader::new(
        vec![text("runs")],
        text("lh://store.example/runs"),
        false,
        vec![text("/data/runs")],
    );
    let recorder = Arc::new(ReceiptRecorder::new(file, &header).unwrap());
    let path = |name: &str| RelPath::from_bytes(name.as_bytes()).unwrap();
    let mut lost = Manifest::default();
    lost.observe(recorder.clone());
    lost.record(0, 0, &path("lost"), ManifestRecord::Directory);
    recorder.restart();
    let mut manifest = Manifest::default();
    manifest.observe(recorder.clone());
    // Entries end in any order.
    for (id, name, record) in [
        (
            2,
            "a",
            ManifestRecord::File {
                size: 3,
                hash: blake3::hash(b"abc").as_bytes(),
                mtime: (-1, 5),
                parts: &[],
            },
        ),
        (0, "", ManifestRecord::Directory),
        (1, "l", ManifestRecord::Symlink { target: b"\xff" }),
        (
            3,
            "b",
            ManifestRecord::HardLink {
                size: 3,
                source: 0,
                path: &path("a"),
            },
        ),
        (4, "c", ManifestRecord::Failed),
    ] {
        assert!(manifest.record(id, 0, &path(name), record));
    }
    let (client, server) = (
        SigningKey::generate().unwrap(),
        SigningKey::generate().unwrap(),
    );
    let (client_key, server_key) = (client.public(), server.public());
    assert!(
        recorder
            .finish(&manifest.hash(), Some(false), &client)
            .is_err(),
        "the server's signature is missing"
    );
    let signer = ReceiptSigner::new(Arc::new(server), client_key, false);
    recorder.receive(signer.sign(5, &manifest.hash()).unwrap());
    recorder
        .finish(&manifest.hash(), Some(false), &client)
        .unwrap();
    Written {
        folder,
        client: client_key,
        server: server_key,
    }
}

#[tokio::test]
async fn a_receipt_is_read_as_it_was_written() {
    let written = written();
    let mut receipt = Receipt::open(&written.path()).unwrap();
    assert_eq!(receipt.client(), written.client);
    assert_eq!(receipt.server().unwrap().key, written.server);
    assert_eq!(receipt.header().here, [PathText(b"/data/runs".to_vec())]);
    for _ in 0..2 {
        let mut names = Vec::new();
        receipt
            .for_each::<ReceiptError>(async |entry| {
                names.push((entry.id, entry.path.0));
                Ok(())
            })
            .await
            .unwrap();
        let names: Vec<_> = names.iter().map(|(id, name)| (*id, &name[..])).collect();
        assert_eq!(
            names,
            [(2, &b"a"[..]), (0, b""), (1, b"l"), (3, b"b"), (4, b"c")]
        );
    }
}

#[test]
fn every_change_of_a_receipt_is_noticed() {
    let written = written();
    let text = written.text();
    assert_eq!(text.lines().count(), 8);
    let lines: Vec<&str> = text.lines().collect();
    let digest = blake3::hash(b"abc").to_hex();
    let other = blake3::hash(b"abd").to_hex();
    let without = |left_out: usize| {
        let kept = lines.iter().enumerate().filter(|(n, _)| *n != left_out);
        kept.map(|(_, line)| format!("{line}\n"))
            .collect::<String>()
    };
    let mut changed = vec![
        text.replace(digest.as_str(), other.as_str()),
        text.replace("\"size\":3", "\"size\":4"),
        text.replace("\"mtime\":[-1,5]", "\"mtime\":[-1,6]"),
        text.replace("/data/runs", "/data/ruin"),
        text.replace("\"entries\":5", "\"entries\":4"),
        text.trim_end().to_owned(),
        text.replace("\"receipt\":1", "\"receipt\":2"),
    ];
    changed.extend((0..lines.len()).map(without));
    for changed in changed {
        assert_ne!(changed, text);
        std::fs::write(written.path(), &changed).unwrap();
        let error = Receipt::open(&written.path()).unwrap_err().to_string();
        assert!(!error.contains('\n'), "{error}");
    }
    std::fs::write(written.path(), text).unwrap();
    Receipt::open(&written.path()).unwrap();
}

#[test]
fn a_signature_of_another_server_is_refused() {
    let (written, other) = (written(), written());
    let line = |text: &str| {
        let line = text.lines().nth(6).unwrap();
        serde_json::from_str::<serde_json::Value>(line).unwrap()
    };
    let mut end = line(&written.text());
    end["server"]["key"] = line(&other.text())["server"]["key"].clone();
    let key = SigningKey::generate().unwrap();
    end["client"] = key.public().to_string().into();
    let mut text: String = written
        .text()
        .lines()
        .take(6)
        .map(|line| format!("{line}\n"))
        .collect();
    text += &format!("{end}\n");
    let signed = key
        .sign(&client_statement(&blake3::hash(text.as_bytes())))
        .unwrap();
    let signature = ClientSignature {
        client_signature: signed.to_vec(),
    };
    text += &(serde_json::to_string(&signature).unwrap() + "\n");
    std::fs::write(written.path(), text).unwrap();
    let error = Receipt::open(&written.path()).unwrap_err();
    assert!(
        matches!(error, ReceiptError::Entries("server's signature")),
        "{error}"
    );
}
