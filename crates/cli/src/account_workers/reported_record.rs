//! Records of copies as workers report them. Their users may control the workers.

use longhaul_accounts::CopyRecord;
use longhaul_accounts::record::{MAX_NAMES, MAX_ROUTES, bounded};
use longhaul_proto::PublicKey;

/// Returns a record of a copy of `key` as it may be logged. A worker, which its user may control,
/// has stated the rest of it.
pub(super) fn checked_record(key: PublicKey, record: CopyRecord) -> CopyRecord {
    let texts = |texts: Vec<String>, most: usize| -> Vec<String> {
        texts.into_iter().take(most).map(bounded).collect()
    };
    CopyRecord {
        id: bounded(record.id),
        key: key.to_string(),
        delegate: None,
        subject: None,
        from: texts(record.from, MAX_ROUTES),
        routes: texts(record.routes, MAX_ROUTES),
        names: texts(record.names, MAX_NAMES),
        purpose: record.purpose.map(bounded),
        reason: record.reason.map(bounded),
        receipt: record.receipt.map(bounded),
        ..record
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_worker_states_is_bounded_and_printable() {
        let record = serde_json::json!({
            "v": 1, "ended": "2026-01-02T03:04:05Z", "seconds": 1.5, "id": "a\nb", "key": "lhk1:x",
            "delegate": "lhk1:y", "subject": "root@issuer", "from": vec!["\u{1b}[2J"; 100],
            "routes": ["direct"], "streams": 1, "direction": "received",
            "names": vec!["x".repeat(10_000); 100], "bytes": 3, "bytes_travelled": 3, "files": 1,
            "files_unchanged": 0, "failed": 0, "result": "completed"
        });
        let key = PublicKey::from_bytes([1; 32]);
        let record = checked_record(key, serde_json::from_value(record).unwrap());
        assert_eq!(record.key, key.to_string());
        assert_eq!(
            (record.delegate.as_ref(), record.subject.as_ref()),
            (None, None)
        );
        assert_eq!(
            (record.from.len(), record.names.len()),
            (MAX_ROUTES, MAX_NAMES)
        );
        let line = serde_json::to_string(&record).unwrap();
        assert!(line.len() < 16 << 10 && record.names[0].len() < 1000);
        let texts = [&record.id, &record.from[0]]
            .into_iter()
            .chain(&record.names);
        assert!(
            texts
                .into_iter()
                .all(|text| !text.contains(char::is_control))
        );
    }
}
