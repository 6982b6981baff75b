//! X.509 certificates that vouch for keys: made, revoked and checked by OpenSSL.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use longhaul_session::{ConnectOptions, Identity, Route, ServerTrust, ServiceName, connect};
use tokio::io::AsyncReadExt;

use crate::control::Controller;
use crate::perf::{assert_withdrawn, under_way};
use crate::stage::*;

/// Configuration of `openssl ca` and `openssl req` for one authority.
const CONFIG: &str = "\
[req]
distinguished_name = name
prompt = no
x509_extensions = authority
[name]
[authority]
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign,cRLSign
subjectKeyIdentifier = hash
[ca]
default_ca = default
[default]
database = index.txt
new_certs_dir = .
rand_serial = yes
crlnumber = crlnumber
default_md = sha256
default_days = 2
default_crl_days = 2
policy = any
unique_subject = no
copy_extensions = copy
certificate = ca.pem
private_key = ca.key
crl_extensions = crl
[any]
domainComponent = optional
organizationName = optional
commonName = supplied
[user]
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature
[host]
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature
extendedKeyUsage = serverAuth
[proxy]
keyUsage = critical,digitalSignature
proxyCertInfo = critical,language:id-ppl-inheritAll
[crl]
authorityKeyIdentifier = keyid
";

/// A certificate authority, with its files in a directory.
struct Authority {
    dir: PathBuf,
}

/// A certificate and its private key.
struct Pair {
    certificate: PathBuf,
    key: PathBuf,
}

fn openssl(dir: &Path, arguments: &[&str]) -> String {
    let output = Command::new("openssl")
        .args(arguments)
        .current_dir(dir)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        errors(&output)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

impl Authority {
    /// Makes an authority whose own key is of this kind.
    fn new(stage: &Stage, name: &str, kind: &[&str]) -> Self {
        let dir = Self::make_dir(stage, name);
        let subject = format!("/DC=org/DC=Lab/CN={name}");
        let mut arguments = vec![
            "req",
            "-x509",
            "-config",
            "openssl.cnf",
            "-nodes",
            "-newkey",
        ];
        arguments.extend(kind);
        arguments.extend([
            "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", &subject,
        ]);
        openssl(&dir, &arguments);
        Self { dir }
    }

    /// Makes the directory of an authority, without its certificate.
    fn make_dir(stage: &Stage, name: &str) -> PathBuf {
        let dir = stage.path(name);
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join("openssl.cnf"), CONFIG).unwrap();
        std::fs::write(dir.join("index.txt"), "").unwrap();
        std::fs::write(dir.join("crlnumber"), "01\n").unwrap();
        dir
    }

    /// Makes an authority whose certificate this one issues. It has 3 KB.
    fn subordinate(&self, stage: &Stage, name: &str) -> Self {
        let comment = format!("nsComment={}", "long ".repeat(600));
        let subject = format!("/DC=org/DC=Lab/CN={name}");
        let options = [&*comment, "-extensions", "authority"];
        let pair = self.issue(name, ECDSA, &subject, &options);
        let dir = Self::make_dir(stage, name);
        std::fs::copy(pair.certificate, dir.join("ca.pem")).unwrap();
        std::fs::copy(pair.key, dir.join("ca.key")).unwrap();
        Self { dir }
    }

    /// Issues a certificate.
    fn issue(&self, file: &str, kind: &[&str], subject: &str, more: &[&str]) -> Pair {
        let (key, request) = (format!("{file}.key"), format!("{file}.csr"));
        let certificate = format!("{file}.pem");
        let mut arguments = vec!["req", "-new", "-config", "openssl.cnf", "-nodes", "-newkey"];
        arguments.extend(kind);
        arguments.extend(["-keyout", &key, "-out", &request, "-subj", subject]);
        if let Some(alternative) = more.first() {
            arguments.extend(["-addext", alternative]);
        }
        openssl(&self.dir, &arguments);
        let mut arguments = vec![
            "ca",
            "-batch",
            "-notext",
            "-config",
            "openssl.cnf",
            "-in",
            &request,
            "-out",
            &certificate,
        ];
        let rest = more.get(1..).filter(|rest| !rest.is_empty());
        arguments.extend(rest.unwrap_or(&["-extensions", "user"]));
        openssl(&self.dir, &arguments);
        Pair {
            certificate: self.dir.join(certificate),
            key: self.dir.join(key),
        }
    }

    /// Installs the certificate as IGTF does, in a directory.
    fn install(&self, anchors: &Path) {
        std::fs::create_dir_all(anchors).unwrap();
        let hash = openssl(&self.dir, &["x509", "-hash", "-noout", "-in", "ca.pem"]);
        let file = anchors.join(format!("{}.0", hash.trim()));
        std::fs::copy(self.dir.join("ca.pem"), file).unwrap();
    }

    /// Writes the revocation list into the directory of anchors.
    fn publish_revoked(&self, anchors: &Path) {
        let hash = openssl(&self.dir, &["x509", "-hash", "-noout", "-in", "ca.pem"]);
        openssl(
            &self.dir,
            &["ca", "-config", "openssl.cnf", "-gencrl", "-out", "crl.pem"],
        );
        let file = anchors.join(format!("{}.r0", hash.trim()));
        std::fs::copy(self.dir.join("crl.pem"), file).unwrap();
    }

    fn revoke(&self, pair: &Pair) {
        let certificate = pair.certificate.to_str().unwrap();
        openssl(
            &self.dir,
            &["ca", "-config", "openssl.cnf", "-revoke", certificate],
        );
    }
}

const RSA: &[&str] = &["rsa:2048"];
const ECDSA: &[&str] = &["ec", "-pkeyopt", "ec_paramgen_curve:P-256"];
const P384: &[&str] = &["ec", "-pkeyopt", "ec_paramgen_curve:P-384"];
const ED25519: &[&str] = &["ed25519"];

/// Vouches for the key of `who`.
fn vouch(stage: &Stage, who: &str, pair: &Pair, more: &[&str]) -> Output {
    stage.key(who);
    let vouched = stage
        .longhaul(who)
        .args(["keys", "vouch", "--certificate"])
        .arg(&pair.certificate)
        .arg("--private-key")
        .arg(&pair.key)
        .args(more)
        .output();
    vouched.unwrap()
}

#[track_caller]
fn assert_vouched(output: &Output) {
    assert!(output.status.success(), "{}", errors(output));
}

/// Copies a file as `who` to the server, and returns the exit code and standard error.
fn copy(stage: &Stage, who: &str, server: &Service, more: &[&str]) -> (Option<i32>, String) {
    std::fs::write(stage.path("here/f"), "content").unwrap();
    let there = format!("lh://{}/{who}", server.address);
    let copied = stage
        .longhaul(who)
        .args(["cp", "--overwrite", "--host-key", &server.key])
        .args(["here/f", &there])
        .args(more)
        .output()
        .unwrap();
    (copied.status.code(), errors(&copied))
}

/// Writes the principals: one authority in `anchors`, and Ana with her certificate.
fn write_principals(stage: &Stage, more: &str) -> String {
    let text = format!(
        "[[principal]]\nname = \"ana\"\ncertificates = [\"/DC=org/DC=Lab/CN=Ana\"]\n\
         groups = [\"lab\"]\n\
         [[authority]]\nanchors = \"anchors\"\n\
         subjects = [\"/DC=org/DC=Lab/CN=*\", \"*@lab.example\"]\ngroups = [\"grid\"]\n{more}"
    );
    let file = stage.path("principals.toml");
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

/// Starts a server that lets these principals write.
fn serve(stage: &Stage, principals: &[&str]) -> Service {
    let file = write_principals(stage, "");
    let mut options = vec!["--principals", &file];
    for principal in principals {
        options.extend(["--write", principal]);
    }
    stage.serve(&options)
}

/// LH-VOUCHER-2, LH-VOUCHER-5.
#[test]
fn certificates_of_every_kind_are_accepted() {
    let stage = Stage::new();
    let anchors = stage.path("anchors");
    let kinds = [
        ("rsa", RSA),
        ("ecdsa", ECDSA),
        ("p384", P384),
        ("ed25519", ED25519),
    ];
    for (name, kind) in kinds {
        Authority::new(&stage, &format!("ca-{name}"), kind).install(&anchors);
    }
    let server = serve(&stage, &["group:lab"]);
    for (name, kind) in kinds {
        let authority = Authority {
            dir: stage.path(&format!("ca-{name}")),
        };
        let pair = authority.issue("ana", kind, "/DC=org/DC=Lab/CN=Ana", &[]);
        assert_vouched(&vouch(&stage, name, &pair, &[]));
        let (code, said) = copy(&stage, name, &server, &[]);
        assert_eq!(code, Some(0), "{name}: {said}");
    }
    let (code, said) = copy(&stage, "nobody", &server, &[]);
    assert_eq!(code, Some(4), "{said}");
}

/// LH-VOUCHER-5.
#[test]
fn certificates_of_others_are_refused_with_the_reason() {
    let stage = Stage::new();
    let authority = Authority::new(&stage, "ca", RSA);
    authority.install(&stage.path("anchors"));
    let impostor = Authority::new(&stage, "impostor", ECDSA);
    let server = serve(&stage, &["name:ana", "name:*@lab.example"]);
    for (who, authority, subject, alternative, reason) in [
        (
            "wrong-ca",
            &impostor,
            "/DC=org/DC=Lab/CN=Ana",
            None,
            "no authority",
        ),
        (
            "wrong-name",
            &authority,
            "/DC=org/DC=Other/CN=Ana",
            None,
            "names",
        ),
        (
            "not-granted",
            &authority,
            "/DC=org/DC=Lab/CN=Bo",
            None,
            "not listed",
        ),
        (
            "wrong-mail",
            &authority,
            "/DC=org/CN=Ana",
            Some("ana@elsewhere.example"),
            "names",
        ),
        (
            "right-mail",
            &authority,
            "/DC=org/CN=Ana",
            Some("ana@lab.example"),
            "",
        ),
    ] {
        let alternative = alternative.map(|mail| format!("subjectAltName=email:{mail}"));
        let more: Vec<&str> = alternative.as_deref().into_iter().collect();
        let pair = authority.issue(who, ECDSA, subject, &more);
        assert_vouched(&vouch(&stage, who, &pair, &[]));
        let (code, said) = copy(&stage, who, &server, &[]);
        let expected = if reason.is_empty() { 0 } else { 4 };
        assert_eq!(code, Some(expected), "{who}: {said}");
        assert!(said.contains(reason), "{who}: {said}");
    }
}

#[test]
fn only_usable_certificates_vouch() {
    let stage = Stage::new();
    let authority = Authority::new(&stage, "ca", RSA);
    let subject = "/DC=org/DC=Lab/CN=Ana";
    let ana = authority.issue("ana", ECDSA, subject, &[]);
    let expired = {
        let request = [
            "req",
            "-new",
            "-config",
            "openssl.cnf",
            "-nodes",
            "-newkey",
            "rsa:2048",
        ];
        let files = ["-keyout", "old.key", "-out", "old.csr", "-subj", subject];
        openssl(&authority.dir, &[&request[..], &files[..]].concat());
        openssl(
            &authority.dir,
            &[
                "ca",
                "-batch",
                "-notext",
                "-config",
                "openssl.cnf",
                "-in",
                "old.csr",
                "-out",
                "old.pem",
                "-startdate",
                "20200101000000Z",
                "-enddate",
                "20200201000000Z",
            ],
        );
        Pair {
            certificate: authority.dir.join("old.pem"),
            key: authority.dir.join("old.key"),
        }
    };
    // RFC 3820: a certificate that a user's certificate has issued.
    let proxy = {
        let request = [
            "req",
            "-new",
            "-config",
            "openssl.cnf",
            "-nodes",
            "-newkey",
            "rsa:2048",
        ];
        let subject = format!("{subject}/CN=proxy");
        let files = [
            "-keyout",
            "proxy.key",
            "-out",
            "proxy.csr",
            "-subj",
            &subject,
        ];
        openssl(&authority.dir, &[&request[..], &files[..]].concat());
        openssl(
            &authority.dir,
            &[
                "x509",
                "-req",
                "-in",
                "proxy.csr",
                "-CA",
                "ana.pem",
                "-CAkey",
                "ana.key",
                "-set_serial",
                "1",
                "-days",
                "1",
                "-extfile",
                "openssl.cnf",
                "-extensions",
                "proxy",
                "-out",
                "proxy.pem",
            ],
        );
        Pair {
            certificate: authority.dir.join("proxy.pem"),
            key: authority.dir.join("proxy.key"),
        }
    };
    let encrypted = {
        openssl(
            &authority.dir,
            &[
                "pkey",
                "-in",
                "ana.key",
                "-aes256",
                "-passout",
                "pass:x",
                "-out",
                "secret.key",
            ],
        );
        Pair {
            certificate: ana.certificate.clone(),
            key: authority.dir.join("secret.key"),
        }
    };
    let mixed = Pair {
        certificate: ana.certificate.clone(),
        key: expired.key.clone(),
    };
    for (pair, reason) in [
        (&expired, "has expired"),
        (&proxy, "RFC 3820"),
        (&encrypted, "is encrypted"),
        (&mixed, "not that of the certificate"),
    ] {
        let output = vouch(&stage, "me", pair, &[]);
        let said = errors(&output);
        assert!(
            !output.status.success() && said.contains(reason),
            "{reason}: {said}"
        );
        assert!(!stage.path("me/identity.voucher").exists(), "{reason}");
    }
    assert_vouched(&vouch(&stage, "me", &ana, &[]));
}

#[test]
fn revocation_ends_copies_and_refuses_new_ones() {
    let stage = Stage::new();
    let anchors = stage.path("anchors");
    let authority = Authority::new(&stage, "ca", RSA);
    authority.install(&anchors);
    authority.publish_revoked(&anchors);
    let ana = authority.issue("ana", RSA, "/DC=org/DC=Lab/CN=Ana", &[]);
    let server = serve(&stage, &["group:lab"]);
    assert_vouched(&vouch(&stage, "ana", &ana, &[]));
    let (code, said) = copy(&stage, "ana", &server, &[]);
    assert_eq!(code, Some(0), "{said}");

    // A copy that takes long: the depot admits her by the same certificate.
    let depot = slow_depot(&stage, None);
    stage.noise("here/large", 60_000_000);
    let mut running = start_copy(&stage, "ana", &server, &depot);
    running.until_mid_copy();
    authority.revoke(&ana);
    authority.publish_revoked(&anchors);
    server.hang_up();
    let (report, code, said) = running.report();
    assert_eq!(code, Some(4), "{report} {said}");
    until("new copies are refused", || {
        let (code, said) = copy(&stage, "ana", &server, &[]);
        code == Some(4) && said.contains("was revoked")
    });
}

/// Opens a session of `doctor` as `who`, and returns what the server says until it ends it.
fn doctor_answer(stage: &Stage, who: &str, server: &Service, meanwhile: impl FnOnce()) -> String {
    let identity = Identity::load(&stage.path(who).join("identity")).unwrap();
    let options = ConnectOptions::new(
        ServiceName::DOCTOR,
        Route::direct(),
        server.address.parse().unwrap(),
        Arc::new(identity),
        ServerTrust::Pinned(server.key.parse().unwrap()),
    );
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(async {
        let mut session = connect(&options).await.unwrap();
        meanwhile();
        let mut answer = Vec::new();
        session.read_to_end(&mut answer).await.unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    })
}

#[test]
fn revocation_ends_measurements_and_diagnoses() {
    let stage = Stage::new();
    let anchors = stage.path("anchors");
    let authority = Authority::new(&stage, "ca", RSA);
    authority.install(&anchors);
    authority.publish_revoked(&anchors);
    let ana = authority.issue("ana", ECDSA, "/DC=org/DC=Lab/CN=Ana", &[]);
    let principals = write_principals(&stage, "");
    let names = ["--principals", &principals, "--read", "group:lab"];
    let server = stage.serve(&[&names[..], &["--perf"]].concat());
    assert_vouched(&vouch(&stage, "ana", &ana, &[]));
    let (measurement, lines) = under_way(&stage, "ana", &server, &["--reverse"]);
    authority.revoke(&ana);
    authority.publish_revoked(&anchors);
    let said = doctor_answer(&stage, "ana", &server, || server.hang_up());
    assert!(said.contains("nothing to read"), "{said}");
    assert_withdrawn(measurement, lines);
}

/// Makes a certificate with three issuers, too long for an OPEN, and its file of certificates.
fn issue_long_chain(stage: &Stage, root: &Authority, who: &str, subject: &str) -> Pair {
    let mut issuers = String::new();
    let mut issuer = None;
    for n in 1..=3 {
        let parent = issuer.as_ref().unwrap_or(root);
        let next = parent.subordinate(stage, &format!("{who}-issuer-{n}"));
        let pem = std::fs::read_to_string(next.dir.join("ca.pem")).unwrap();
        issuers.insert_str(0, &pem);
        issuer = Some(next);
    }
    let pair = issuer.unwrap().issue(who, RSA, subject, &[]);
    let leaf = std::fs::read_to_string(&pair.certificate).unwrap();
    std::fs::write(&pair.certificate, leaf + &issuers).unwrap();
    pair
}

/// LH-VOUCHER-8.
#[test]
fn long_chain_is_registered_where_its_key_is_unknown() {
    let stage = Stage::new();
    let root = Authority::new(&stage, "ca", RSA);
    root.install(&stage.path("anchors"));
    let server = serve(&stage, &["group:lab"]);
    let depot = slow_depot(&stage, None);
    let through_depot = ["--route", &*depot.address];
    let ana = issue_long_chain(&stage, &root, "ana", "/DC=org/DC=Lab/CN=Ana");
    assert_eq!(copy(&stage, "ana", &server, &[]).0, Some(4), "no voucher");
    assert_vouched(&vouch(&stage, "ana", &ana, &[]));
    let voucher = std::fs::read(stage.path("ana/identity.voucher")).unwrap();
    let bytes = voucher.len() * 3 / 4;
    assert!((8 << 10..16 << 10).contains(&bytes), "{bytes}");
    for more in [&through_depot[..], &[], &through_depot] {
        let (code, said) = copy(&stage, "ana", &server, more);
        assert_eq!(code, Some(0), "{more:?}: {said}");
    }
    // A server without names registers none.
    let unnamed = stage.serve(&[]);
    let (code, said) = copy(&stage, "ana", &unnamed, &[]);
    assert_eq!(
        (code, said.contains("not listed")),
        (Some(4), true),
        "{said}"
    );

    let impostor = Authority::new(&stage, "impostor", RSA);
    for (who, root, subject, reason) in [
        ("bo", &root, "/DC=org/DC=Lab/CN=Bo", "not listed"),
        ("eve", &impostor, "/DC=org/DC=Lab/CN=Ana", "no authority"),
    ] {
        let pair = issue_long_chain(&stage, root, who, subject);
        assert_vouched(&vouch(&stage, who, &pair, &[]));
        let (code, said) = copy(&stage, who, &server, &[]);
        assert_eq!(code, Some(4), "{who}: {said}");
        assert!(said.contains(reason), "{who}: {said}");
    }
    let (code, said) = copy(&stage, "eve", &server, &through_depot);
    assert_ne!(code, Some(0), "{said}");
    assert!(said.contains("no authority"), "{said}");
}

/// Starts a depot for the members of the group `grid`, so slow that a copy can be watched.
fn slow_depot(stage: &Stage, log: Option<&Path>) -> Service {
    let policy = stage.path("depot.toml");
    let rule = "[[allow]]\nprincipals = [\"group:grid\"]\nto = [\"127.0.0.0/8\"]\n\
                ports = [\"any\"]\nmax_rate = \"8 Mbit/s\"\n";
    std::fs::write(&policy, rule).unwrap();
    let mut command = stage.longhaul("depot");
    command.args(["depot", "--listen", "127.0.0.1:0", "--policy"]);
    command.arg(&policy).arg("--principals");
    command.arg(stage.path("principals.toml"));
    if let Some(log) = log {
        let log = std::fs::File::create(log).unwrap();
        command.env("RUST_LOG", "info").stderr(log);
    }
    stage.service(command, "addresses")
}

/// Starts a copy of `here/large` through the depot.
fn start_copy(stage: &Stage, who: &str, server: &Service, depot: &Service) -> Running {
    let there = format!("lh://{}/{who}-large", server.address);
    let arguments = ["--route", &depot.address, "here/large", &there];
    stage.start_cp_as(who, server, &arguments)
}

#[test]
fn depot_ends_sessions_of_revoked_certificates() {
    let stage = Stage::new();
    let anchors = stage.path("anchors");
    let authority = Authority::new(&stage, "ca", RSA);
    authority.install(&anchors);
    authority.publish_revoked(&anchors);
    let ana = authority.issue("ana", ECDSA, "/DC=org/DC=Lab/CN=Ana", &[]);
    write_principals(&stage, "");
    // The server knows the key, and the depot only the certificate.
    let key = stage.key("ana");
    let server = stage.serve(&["--write", &key]);
    let log = stage.path("depot.log");
    let depot = slow_depot(&stage, Some(&log));
    let (code, said) = copy(&stage, "ana", &server, &["--route", &depot.address]);
    assert_ne!(code, Some(0), "without a certificate: {said}");
    assert_vouched(&vouch(&stage, "ana", &ana, &[]));
    stage.noise("here/large", 60_000_000);
    let mut running = start_copy(&stage, "ana", &server, &depot);
    running.until_mid_copy();
    authority.revoke(&ana);
    authority.publish_revoked(&anchors);
    depot.hang_up();
    let (report, code, said) = running.report();
    assert_ne!(code, Some(0), "{report} {said}");
    until("the depot logs the revocation", || {
        let logged = std::fs::read_to_string(&log).unwrap();
        logged.contains("ending=\"revoked\"")
    });
}

#[test]
fn copy_ends_with_its_voucher() {
    let stage = Stage::new();
    let authority = Authority::new(&stage, "ca", RSA);
    authority.install(&stage.path("anchors"));
    let ana = authority.issue("ana", ECDSA, "/DC=org/DC=Lab/CN=Ana", &[]);
    let server = serve(&stage, &["group:lab"]);
    let depot = slow_depot(&stage, None);
    stage.noise("here/large", 60_000_000);
    assert_vouched(&vouch(&stage, "ana", &ana, &["--valid", "8"]));
    let (report, code, said) = start_copy(&stage, "ana", &server, &depot).report();
    assert_ne!(code, Some(0), "{report} {said}");
    let (code, said) = copy(&stage, "ana", &server, &[]);
    assert_eq!(code, Some(4), "{said}");
}

#[test]
fn names_and_groups_of_keys_need_no_certificates() {
    let stage = Stage::new();
    let (ana, bo) = (stage.key("ana"), stage.key("bo"));
    let file = stage.path("principals.toml");
    let principals = |lab: &str| {
        let text = format!(
            "[[principal]]\nname = \"ana\"\nkeys = [\"{ana}\"]\ngroups = [\"{lab}\"]\n\
             [[principal]]\nname = \"bo\"\nkeys = [\"{bo}\"]\n"
        );
        std::fs::write(&file, text).unwrap();
    };
    principals("lab");
    std::fs::create_dir(stage.path("root/bo")).unwrap();
    let grants = stage.path("grants.toml");
    std::fs::write(
        &grants,
        "[[grant]]\nprincipals = [\"group:lab\"]\nwrite = [\"/\"]\n\
         [[grant]]\nprincipals = [\"name:bo\"]\nwrite = [\"bo\"]\n",
    )
    .unwrap();
    let server = stage.serve(&[
        "--principals",
        file.to_str().unwrap(),
        "--grants",
        grants.to_str().unwrap(),
    ]);
    assert_eq!(copy(&stage, "ana", &server, &[]).0, Some(0));
    assert_eq!(copy(&stage, "bo", &server, &[]).0, Some(0));
    assert_eq!(copy(&stage, "nobody", &server, &[]).0, Some(4));
    principals("other");
    server.hang_up();
    until("Ana has left the group", || {
        copy(&stage, "ana", &server, &[]).0 == Some(4)
    });
    assert_eq!(copy(&stage, "bo", &server, &[]).0, Some(0));
}

/// Options of a certificate for this machine's loopback address.
const HOST: &[&str] = &[
    "subjectAltName=DNS:localhost,IP:127.0.0.1",
    "-extensions",
    "host",
];

/// LH-VOUCHER-6.
#[test]
fn servers_prove_their_names_by_certificates() {
    let stage = Stage::new();
    let anchors = stage.path("anchors");
    let authority = Authority::new(&stage, "ca", RSA);
    authority.install(&anchors);
    let host = authority.issue("host", ECDSA, "/DC=org/DC=Lab/CN=localhost", HOST);
    let elsewhere = ["subjectAltName=DNS:store.example", "-extensions", "host"];
    let other = authority.issue("other", ECDSA, "/DC=org/DC=Lab/CN=other", &elsewhere);
    let user = authority.issue("user", ECDSA, "/DC=org/DC=Lab/CN=Ana", &[HOST[0]]);
    let impostor = Authority::new(&stage, "impostor", RSA);
    impostor.install(&stage.path("others"));
    std::fs::write(stage.path("here/f"), "content").unwrap();
    let copy = |server: &Service, ca: &[&str], environment: Option<&Path>| {
        let there = format!("lh://{}/f", server.address);
        let mut command = stage.longhaul("me");
        command
            .args(["cp", "--overwrite", "here/f", &there])
            .args(ca);
        if let Some(dir) = environment {
            command.env("X509_CERT_DIR", dir);
        }
        let copied = command.output().unwrap();
        (copied.status.code(), errors(&copied))
    };
    let serve = |pair: &Pair| {
        let [certificate, key] = [&pair.certificate, &pair.key].map(|file| file.to_str().unwrap());
        stage.serve(&["--certificate", certificate, "--certificate-key", key])
    };
    let server = serve(&host);
    let file = authority.dir.join("ca.pem");
    for ca in ["anchors", file.to_str().unwrap()] {
        let (code, said) = copy(&server, &["--ca", ca], None);
        assert_eq!(code, Some(0), "{ca}: {said}");
    }
    assert_eq!(copy(&server, &[], Some(&anchors)).0, Some(0));
    assert!(
        !stage.path("me/known_hosts").exists(),
        "the certificate is enough"
    );
    for (what, server, ca) in [
        ("no authority", &server, &[][..]),
        ("another authority", &server, &["--ca", "others"][..]),
        ("another host", &serve(&other), &["--ca", "anchors"][..]),
        (
            "no certificate",
            &stage.serve(&[]),
            &["--ca", "anchors"][..],
        ),
    ] {
        let (code, said) = copy(server, ca, None);
        assert_ne!(code, Some(0), "{what}: {said}");
    }
    // Extended key usage is not required, only obeyed.
    assert_eq!(copy(&serve(&user), &["--ca", "anchors"], None).0, Some(0));
}

/// LH-VOUCHER-7.
#[test]
fn controller_knows_callers_by_their_certificates() {
    let stage = Stage::new();
    let authority = Authority::new(&stage, "ca", RSA);
    authority.install(&stage.path("anchors"));
    let impostor = Authority::new(&stage, "impostor", RSA);
    let host = authority.issue("host", RSA, "/DC=org/DC=Lab/CN=localhost", HOST);
    let [certificate, key] = [&host.certificate, &host.key].map(|file| file.to_str().unwrap());
    let principals = write_principals(&stage, "");
    let controller = Controller::start(
        &stage,
        &[
            "--listen",
            "127.0.0.1:0",
            "--tls-cert",
            certificate,
            "--tls-key",
            key,
            "--principals",
            &principals,
        ],
    );
    let address = controller.url().replace("https://", "");
    for (ca, trusted) in [(&authority, true), (&impostor, false)] {
        let mut command = Command::new("openssl");
        command.args([
            "s_client",
            "-brief",
            "-connect",
            &address,
            "-verify_return_error",
        ]);
        command
            .args(["-verify_hostname", "localhost", "-CAfile"])
            .arg(ca.dir.join("ca.pem"));
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.success(), trusted, "{}", errors(&output));
    }
    let run = |who: &str, arguments: &[&str]| {
        let output = stage.longhaul(who).args(arguments).output().unwrap();
        (output.status.success(), errors(&output))
    };
    let granted = run("control", &["control", "grant", "group:grid", "reserver"]);
    assert!(granted.0, "{}", granted.1);
    let nobody = run("control", &["control", "grant", "*", "reserver"]);
    assert!(!nobody.0, "everybody has the role");
    let ca = authority.dir.join("ca.pem");
    let ca = ca.to_str().unwrap();
    let subject = "/DC=org/DC=Lab/CN=Bo";
    for (who, authority, reason) in [
        ("ana", Some(&authority), ""),
        ("mallory", Some(&impostor), "no authority"),
        ("nobody", None, "not authorized"),
    ] {
        stage.key(who);
        let used = run(who, &["controller", "use", "--ca", ca, &controller.url()]);
        assert!(used.0, "{who}: {}", used.1);
        if let Some(authority) = authority {
            let pair = authority.issue(who, ECDSA, subject, &[]);
            assert_vouched(&vouch(&stage, who, &pair, &[]));
        }
        let (listed, said) = run(who, &["reservations"]);
        assert_eq!(listed, reason.is_empty(), "{who}: {said}");
        assert!(said.contains(reason), "{who}: {said}");
    }
    let revoked = run("control", &["control", "revoke", "group:grid"]);
    assert!(revoked.0, "{}", revoked.1);
    let (listed, said) = run("ana", &["reservations"]);
    assert!(!listed, "{said}");
}
