use std::time::Duration;

use longhaul_proto::{Endpoint, Route, ServiceName, SessionId, SigningKey};
use rcgen::KeyPair;
use tempfile::TempDir;

use super::*;
use crate::authority::tests::{Ca, revocation_list, root, user};
use crate::{VouchRequest, vouch};

/// A directory with a file of principals, whose authority vouches for `/O=Lab/CN=*`.
struct Stage {
    dir: TempDir,
    ca: Ca,
}

impl Stage {
    fn new() -> Self {
        let (dir, ca) = (tempfile::tempdir().unwrap(), root("ca"));
        std::fs::write(dir.path().join("ca.pem"), ca.as_ref().pem()).unwrap();
        let stage = Self { dir, ca };
        stage.write_principals("ana");
        stage
    }

    /// Names the holder of Ana's certificate.
    fn write_principals(&self, name: &str) {
        let text = format!(
            "[[principal]]\nname = \"{name}\"\ncertificates = [\"/O=Lab/CN=Ana\"]\n\
             [[authority]]\nanchors = \".\"\nsubjects = [\"/O=Lab/CN=*\"]\ngroups = [\"grid\"]\n"
        );
        std::fs::write(self.file(), text).unwrap();
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("principals.toml")
    }

    /// Returns a request with a voucher of the authority for its key.
    fn open(&self, subject: &str) -> Open {
        let (key, pair) = (
            SigningKey::generate().unwrap(),
            KeyPair::generate().unwrap(),
        );
        let certificate = user(subject).signed_by(&pair, &self.ca).unwrap();
        let voucher = vouch(&VouchRequest {
            key: key.public(),
            certificates: certificate.pem().as_bytes(),
            private_key: pair.serialize_pem().as_bytes(),
            now_unix_ms: unix_ms(),
            lifetime: Duration::from_secs(3600),
        })
        .unwrap();
        let destination: Endpoint = "server.example:7511".parse().unwrap();
        let session = SessionId::from_bytes([1; 16]);
        let budget = Duration::from_secs(1);
        let mut open = Open::new(
            session,
            ServiceName::COPY,
            Route::direct(),
            destination,
            budget,
        );
        assert_eq!(open.add_voucher(&voucher), Ok(true));
        open.sign(&key, unix_ms()).unwrap();
        open
    }
}

/// LH-VOUCHER-5.
#[tokio::test]
async fn introduced_key_has_names_until_they_are_taken() {
    let stage = Stage::new();
    let identities = Identities::load(&stage.file()).unwrap();
    let mut changes = identities.subscribe();
    let open = stage.open("Ana");
    assert!(identities.principal(&open.principal).names.is_empty());
    assert_eq!(identities.introduce(&open).await, Ok(()));
    let ana = identities.principal(&open.principal);
    assert!(ana.names.contains("ana") && ana.names.contains("/O=Lab/CN=Ana"));
    assert!(ana.groups.contains("grid") && ana.expires_unix_ms.is_some());
    assert!(!changes.has_changed().unwrap(), "nobody lost a name");

    // A file with an error changes nothing.
    std::fs::write(stage.file(), "[[principal]").unwrap();
    assert!(identities.reload().is_err());
    assert_eq!(identities.principal(&open.principal), ana);
    stage.write_principals("bo");
    identities.reload().unwrap();
    let renamed = identities.principal(&open.principal);
    assert!(renamed.names.contains("bo") && !renamed.names.contains("ana"));

    changes.mark_unchanged();
    let revoked = revocation_list(&stage.ca, &[7], 2040);
    std::fs::write(stage.dir.path().join("ca.r0"), revoked).unwrap();
    identities.reload().unwrap();
    assert!(changes.has_changed().unwrap());
    assert!(identities.principal(&open.principal).names.is_empty());
    assert_eq!(
        identities.introduce(&open).await,
        Err(VoucherFault::Revoked)
    );
    assert_eq!(identities.vouched_keys(), 0);
}

#[tokio::test]
async fn forged_request_introduces_nobody() {
    let stage = Stage::new();
    let identities = Identities::load(&stage.file()).unwrap();
    let mut open = stage.open("Ana");
    open.size = Some(1);
    assert_eq!(identities.introduce(&open).await, Ok(()));
    assert_eq!(identities.vouched_keys(), 0);
}

#[tokio::test]
async fn concurrent_sessions_are_judged_in_turn() {
    let stage = Stage::new();
    let identities = Identities::load(&stage.file()).unwrap();
    let turns = Arc::clone(&identities.judgements);
    let all = u32::try_from(MAX_CONCURRENT_JUDGEMENTS).unwrap();
    let busy = turns.acquire_many_owned(all).await.unwrap();
    let (ana, bo) = (stage.open("Ana"), stage.open("Bo"));
    let waiting: Vec<_> = [&ana, &ana, &bo]
        .map(|open| {
            let (identities, open) = (Arc::clone(&identities), open.clone());
            tokio::spawn(async move { identities.introduce(&open).await })
        })
        .into();
    tokio::task::yield_now().await;
    assert_eq!(identities.vouched_keys(), 0);
    drop(busy);
    for introduced in waiting {
        assert_eq!(introduced.await.unwrap(), Ok(()));
    }
    assert_eq!(identities.vouched_keys(), 2);
}

#[tokio::test(start_paused = true)]
async fn voucher_does_not_wait_forever() {
    let stage = Stage::new();
    let identities = Identities::load(&stage.file()).unwrap();
    let turns = Arc::clone(&identities.judgements);
    let all = u32::try_from(MAX_CONCURRENT_JUDGEMENTS).unwrap();
    let _busy = turns.acquire_many_owned(all).await.unwrap();
    let open = stage.open("Ana");
    assert_eq!(identities.introduce(&open).await, Err(VoucherFault::Busy));
}

/// LH-VOUCHER-8.
#[tokio::test]
async fn registered_voucher_is_believed_for_its_own_key_only() {
    let stage = Stage::new();
    let identities = Identities::load(&stage.file()).unwrap();
    let (ana, bo) = (stage.open("Ana"), stage.open("Bo"));
    let bytes = ana.voucher().unwrap().unwrap().to_bytes().unwrap();
    let stolen = identities.register(&bo.principal, &bytes).await;
    assert_eq!(stolen, Err(VoucherFault::Signature));
    assert!(
        identities
            .register(&ana.principal, b"voucher")
            .await
            .is_err()
    );
    assert_eq!(identities.vouched_keys(), 0);
    for _ in 0..2 {
        assert_eq!(identities.register(&ana.principal, &bytes).await, Ok(()));
    }
    assert_eq!(identities.vouched_keys(), 1);
    assert!(identities.principal(&ana.principal).names.contains("ana"));
    let unnamed = Identities::unnamed().register(&ana.principal, &bytes).await;
    assert_eq!(unnamed, Err(VoucherFault::UnknownIssuer));
}
