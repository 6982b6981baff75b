//! An agent that serves other machines: over TLS, for the keys of a file. On loopback; `tests/lab`
//! has two machines.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use serde_json::Value;

use crate::stage::{Stage, errors, signal};

/// An agent of the user `host`.
struct Remote {
    child: Child,
    url: String,
    key: String,
    // Kept open so that its writes do not fail.
    _out: BufReader<ChildStdout>,
}

impl Remote {
    /// Starts it with these lines of keys, and more arguments.
    fn start(stage: &Stage, keys: &[String], more: &[&str]) -> Self {
        write_keys(stage, keys);
        let mut command = stage.longhaul("host");
        command
            .args([
                "agent",
                "--json",
                "--listen",
                "127.0.0.1:0",
                "--authorized-keys",
                "keys",
            ])
            .args(more);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let reported: Value = serde_json::from_str(&line).unwrap();
        Self {
            child,
            url: format!("https://{}", reported["https"].as_str().unwrap()),
            key: reported["key"].as_str().unwrap().to_owned(),
            _out: out,
        }
    }

    /// Runs a command of `who` that asks it.
    fn ask(&self, stage: &Stage, who: &str, arguments: &[&str]) -> Output {
        let mut command = stage.longhaul(who);
        command.args(arguments).env("LONGHAUL_AGENT", &self.url);
        command.output().unwrap()
    }

    /// Runs a command, and returns its JSON answer.
    fn reported(&self, stage: &Stage, who: &str, arguments: &[&str]) -> Value {
        let output = self.ask(stage, who, &[arguments, &["--json"]].concat());
        assert!(output.status.success(), "{}", errors(&output));
        let text = String::from_utf8(output.stdout).unwrap();
        serde_json::from_str(text.lines().last().unwrap()).unwrap()
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn write_keys(stage: &Stage, keys: &[String]) {
    let (file, beside) = (stage.path("keys"), stage.path("keys.new"));
    fs::write(&beside, keys.join("\n")).unwrap();
    fs::set_permissions(&beside, fs::Permissions::from_mode(0o644)).unwrap();
    fs::rename(beside, file).unwrap();
}

fn runs(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok()
        || Command::new(program).arg("version").output().is_ok();
    if !found {
        eprintln!("not tested: there is no {program}");
    }
    found
}

#[test]
fn jobs_are_managed_from_another_machine() {
    let stage = Stage::new();
    let keys = [
        format!("{} ana all", stage.key("me")),
        format!("{} ben read", stage.key("other")),
    ];
    let remote = Remote::start(&stage, &keys, &[]);
    // It must be known, as any server.
    let unknown = remote.ask(&stage, "me", &["jobs"]);
    assert_eq!(unknown.status.code(), Some(4));
    assert!(
        errors(&unknown).contains("--accept-new"),
        "{}",
        errors(&unknown)
    );
    let wrong = remote.ask(&stage, "me", &["jobs", "--host-key", &stage.key("other")]);
    assert_eq!(wrong.status.code(), Some(4));
    assert!(
        errors(&wrong).contains("someone may be intercepting"),
        "{}",
        errors(&wrong)
    );
    let known = remote.ask(&stage, "me", &["jobs", "--accept-new"]);
    assert!(known.status.success(), "{}", errors(&known));
    let pinned = remote.ask(&stage, "other", &["jobs", "--host-key", &remote.key]);
    assert!(pinned.status.success(), "{}", errors(&pinned));

    let data = stage.noise("here/data", 300_000);
    let (source, destination) = (stage.path("here/data"), stage.path("there"));
    let copy = [
        "submit",
        source.to_str().unwrap(),
        destination.to_str().unwrap(),
    ];
    let job = remote.reported(&stage, "me", &copy);
    assert_eq!(
        (job["id"].as_i64(), job["user"].as_str()),
        (Some(1), Some("ana"))
    );
    let end = remote.reported(&stage, "me", &["job", "1", "--follow"]);
    assert_eq!(end["state"], "done");
    assert_eq!(fs::read(&destination).unwrap(), data);
    // Local paths mean nothing there.
    let relative = remote.ask(&stage, "me", &["submit", "here/data", "/there"]);
    assert_eq!(relative.status.code(), Some(2));
    assert!(
        errors(&relative).contains("that agent's machine"),
        "{}",
        errors(&relative)
    );

    let later = ["--not-before", "2999-01-01T00:00:00Z"];
    let job = remote.reported(&stage, "me", &[&copy[..], &later].concat());
    assert_eq!(job["state"], "queued");
    for (verb, state) in [("pause", "paused"), ("cancel", "cancelled")] {
        assert_eq!(remote.reported(&stage, "me", &[verb, "2"])["state"], state);
    }
    assert!(
        remote
            .ask(&stage, "me", &["places", "add", "scratch", "/scratch/"])
            .status
            .success()
    );

    // A key that may only read changes nothing.
    let trust = ["--host-key", &remote.key];
    let list = remote.ask(&stage, "other", &[&["jobs"], &trust[..]].concat());
    assert!(
        String::from_utf8_lossy(&list.stdout).contains("1 cancelled"),
        "{list:?}"
    );
    let refused = remote.ask(&stage, "other", &[&["retry", "2"], &trust[..]].concat());
    assert_eq!(refused.status.code(), Some(4));
    assert!(
        errors(&refused).contains("the key of ben may only read"),
        "{}",
        errors(&refused)
    );
    // Each key has its own places.
    let places = remote.ask(&stage, "other", &[&["places"], &trust[..]].concat());
    assert!(!String::from_utf8_lossy(&places.stdout).contains("scratch"));
}

#[test]
fn a_key_removed_from_the_file_is_refused() {
    let stage = Stage::new();
    let [me, other] = ["me", "other"].map(|who| format!("{} {who} all", stage.key(who)));
    let remote = Remote::start(&stage, std::slice::from_ref(&other), &[]);
    let key = remote.key.clone();
    let ask = |who| remote.ask(&stage, who, &["jobs", "--host-key", &key]);
    let refused = ask("me");
    assert_eq!(refused.status.code(), Some(4));
    assert!(
        errors(&refused).contains("is not authorized here"),
        "{}",
        errors(&refused)
    );
    assert!(ask("other").status.success());
    write_keys(&stage, &[me]);
    signal(&remote.child, "HUP");
    // It reads the file asynchronously.
    while !ask("me").status.success() {}
    assert_eq!(ask("other").status.code(), Some(4));
    // An invalid file changes nothing.
    write_keys(&stage, &["nonsense".to_owned()]);
    signal(&remote.child, "HUP");
    assert!(ask("me").status.success());
}

#[test]
fn without_keys_only_loopback_is_served() {
    let stage = Stage::new();
    let agent = |arguments: &[&str]| {
        let output = stage
            .longhaul("host")
            .arg("agent")
            .args(arguments)
            .output()
            .unwrap();
        (output.status.code(), errors(&output))
    };
    let (code, reported) = agent(&["--listen", "0.0.0.0:0"]);
    assert!(
        code == Some(2) && reported.contains("--authorized-keys FILE"),
        "{reported}"
    );
    write_keys(&stage, &[]);
    let (code, reported) = agent(&["--listen", "0.0.0.0:0", "--authorized-keys", "keys"]);
    assert!(
        code == Some(2) && reported.contains("nobody could use the service"),
        "{reported}"
    );
    fs::set_permissions(stage.path("keys"), fs::Permissions::from_mode(0o666)).unwrap();
    let (code, reported) = agent(&["--listen", "0.0.0.0:0", "--authorized-keys", "keys"]);
    assert!(
        code == Some(2) && reported.contains("can write it"),
        "{reported}"
    );
}

/// TLS as seen by an independent program.
#[test]
fn curl_trusts_the_certificate_but_must_sign() {
    if !runs("curl") {
        return;
    }
    let stage = Stage::new();
    let remote = Remote::start(
        &stage,
        &[format!("{} ana all", stage.key("me"))],
        &["--server-name", "dtn.example"],
    );
    let certificate = stage.path("host/state/agent/certificate.pem");
    let curl = |more: &[&str]| {
        let mut command = Command::new("curl");
        command
            .args(["-sS", "--write-out", "\n%{http_code} %{content_type}"])
            .args(more);
        command.output().unwrap()
    };
    let url = format!("{}/api/v1/jobs", remote.url);
    let ca = ["--cacert", certificate.to_str().unwrap()];
    let unsigned = curl(&[&ca[..], &[&url]].concat());
    let reported = String::from_utf8_lossy(&unsigned.stdout).into_owned();
    assert!(
        reported.contains("is not signed"),
        "{reported} {}",
        errors(&unsigned)
    );
    assert!(
        reported.ends_with("401 application/problem+json"),
        "{reported}"
    );
    let token = curl(&[&ca[..], &["-H", "Authorization: Bearer x", &url]].concat());
    assert!(String::from_utf8_lossy(&token.stdout).ends_with("403 application/problem+json"));
    assert!(!curl(&[&url]).status.success(), "nobody vouches for it");
    // By its configured name, and by no other.
    let port = remote.url.rsplit(':').next().unwrap();
    for (host, works) in [("dtn.example", true), ("other.example", false)] {
        let resolve = format!("{host}:{port}:127.0.0.1");
        let url = format!("https://{host}:{port}/api/v1/jobs");
        let output = curl(&[&ca[..], &["--resolve", &resolve, &url]].concat());
        assert_eq!(
            output.status.success(),
            works,
            "{host}: {}",
            errors(&output)
        );
    }
}

/// A certificate signed by a site's own authority.
#[test]
fn a_site_certificate_is_trusted_by_its_authority() {
    if !runs("openssl") {
        return;
    }
    let stage = Stage::new();
    let openssl = |line: &str| {
        let mut command = Command::new("openssl");
        command.args(line.split(' ')).current_dir(stage.tmp.path());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{line}: {}", errors(&output));
    };
    openssl("req -x509 -newkey ed25519 -nodes -keyout ca.key -out ca.pem -subj /CN=site -days 2");
    openssl("req -newkey rsa:2048 -nodes -keyout tls.key -out tls.csr -subj /CN=dtn");
    fs::write(
        stage.path("names"),
        "subjectAltName=IP:127.0.0.1\nbasicConstraints=CA:FALSE\n",
    )
    .unwrap();
    openssl(
        "x509 -req -in tls.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out tls.pem -days 2 \
         -extfile names",
    );
    let keys = [format!("{} ana all", stage.key("me"))];
    let remote = Remote::start(
        &stage,
        &keys,
        &["--tls-cert", "tls.pem", "--tls-key", "tls.key"],
    );
    let trusted = remote.ask(&stage, "me", &["jobs", "--ca", "ca.pem"]);
    assert!(trusted.status.success(), "{}", errors(&trusted));
    for arguments in [
        &["jobs"][..],
        &["jobs", "--accept-new"],
        &["jobs", "--ca", "tls.pem"],
    ] {
        let refused = remote.ask(&stage, "me", arguments);
        assert!(
            matches!(refused.status.code(), Some(2 | 3)),
            "{arguments:?} {}",
            errors(&refused)
        );
    }
}
