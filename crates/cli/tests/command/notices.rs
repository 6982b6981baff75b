//! The end of a job is reported to a URL: signed, and repeated until it is accepted, whatever ends
//! the agent.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::Stdio;

use longhaul_api::signatures::message::Scheme;
use longhaul_api::signatures::{Message, Presented, Purpose, SignatureError, digest};
use serde_json::Value;

use crate::agent::Agent;
use crate::stage::Stage;

/// A POST as it was received.
struct Reported {
    target: String,
    head: hyper::http::request::Parts,
    body: Vec<u8>,
}

impl Reported {
    fn field(&self, name: &str) -> &str {
        self.head.headers[name].to_str().unwrap()
    }
}

/// Accepts one request, and sends the answer. A connection without a request is that of an agent
/// that was killed.
fn answered(listener: &TcpListener, answer: &str) -> Reported {
    let mut line = String::new();
    let (mut stream, mut reader) = loop {
        line.clear();
        let (stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        if reader.read_line(&mut line).is_ok_and(|length| length > 0) {
            break (stream, reader);
        }
    };
    let mut words = line.split_whitespace();
    let (method, target) = (
        words.next().unwrap().to_owned(),
        words.next().unwrap().to_owned(),
    );
    let mut request = hyper::Request::builder()
        .method(method.as_str())
        .uri(&target);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            break;
        };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.parse().unwrap();
        }
        request = request.header(name, value);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    stream.write_all(answer.as_bytes()).unwrap();
    Reported {
        target,
        head: request.body(()).unwrap().into_parts().0,
        body,
    }
}

#[test]
fn notices_are_repeated_until_accepted_even_after_a_kill() {
    let stage = Stage::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook?for=ana", listener.local_addr().unwrap());
    let agent = Agent::start_by(stage.longhaul("me"), &[]);
    let copied = stage.noise("here/data", 1000).len();
    let paths = ["here/data", "there"].map(|path| stage.path(path).to_str().unwrap().to_owned());
    let submit = |more: &[&str]| {
        let mut command = stage.longhaul("me");
        command
            .arg("submit")
            .args(more)
            .args(&paths)
            .output()
            .unwrap()
    };
    let wrong = submit(&["--on-end-url", "file:///etc/passwd"]);
    assert!(
        String::from_utf8_lossy(&wrong.stderr).contains("http or https"),
        "{wrong:?}"
    );
    assert!(submit(&["--on-end-url", &url]).status.success());
    // A redirect is not followed.
    let first = answered(
        &listener,
        "HTTP/1.1 302 Found\r\nlocation: /other\r\ncontent-length: 0\r\n\r\n",
    );
    agent.kill();
    let agent = Agent::start_by(stage.longhaul("me"), &[]);
    let second = answered(&listener, "HTTP/1.1 204 No Content\r\n\r\n");
    for reported in [&first, &second] {
        assert_eq!(
            (reported.head.method.as_str(), reported.target.as_str()),
            ("POST", "/hook?for=ana")
        );
        assert_eq!(reported.field("content-type"), "application/json");
        let job: Value = serde_json::from_slice(&reported.body).unwrap();
        assert_eq!(
            (job["id"].as_i64(), job["state"].as_str()),
            (Some(1), Some("done"))
        );
        assert_eq!(job["progress"]["bytes"].as_u64(), Some(copied as u64));
        let message = Message::from_parts(&reported.head, Scheme::Http).unwrap();
        let signature = Presented::read(&message, Purpose::Notice).unwrap();
        assert_eq!(signature.verify(&message), Ok(()));
        assert!(signature.covers("idempotency-key"));
        assert_eq!(
            digest::check(&reported.head.headers, &reported.body),
            Ok(())
        );
        // The signature is not valid for a request.
        let as_request = Presented::read(&message, Purpose::Api).unwrap_err();
        assert!(matches!(as_request, SignatureError::Missing(_)));
    }
    assert_eq!(
        first.field("idempotency-key"),
        second.field("idempotency-key")
    );
    assert_ne!(
        first.field("signature-input"),
        second.field("signature-input")
    );
    agent.kill();
}

/// The agent's default URL, over TLS: it reports to another agent, which accepts nothing that was
/// not signed for it.
#[test]
fn a_notice_is_not_a_request_to_another_agent() {
    let stage = Stage::new();
    let mut own = stage.longhaul("me");
    // Makes its key before it is an agent that reports.
    Agent::start_by(stage.longhaul("me"), &[]).kill();
    let mut key = stage.longhaul("me");
    let identity = stage.path("me/state/agent/identity");
    std::fs::copy(identity, stage.path("me/identity")).unwrap();
    let key = String::from_utf8(key.args(["keys", "show"]).output().unwrap().stdout).unwrap();
    std::fs::write(stage.path("keys"), format!("{} me all\n", key.trim())).unwrap();
    let mut other = stage
        .longhaul("other")
        .args([
            "agent",
            "--json",
            "--listen",
            "127.0.0.1:0",
            "--authorized-keys",
            "keys",
        ])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    let mut out = BufReader::new(other.stdout.take().unwrap());
    out.read_line(&mut ready).unwrap();
    let ready: Value = serde_json::from_str(&ready).unwrap();
    let url = format!(
        "https://{}/api/v1/jobs/1/cancel",
        ready["https"].as_str().unwrap()
    );
    let mut agent = own
        .env(
            "SSL_CERT_FILE",
            stage.path("other/state/agent/certificate.pem"),
        )
        .env("RUST_LOG", "info")
        .args(["agent", "--on-end-url", &url])
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let mut out = BufReader::new(agent.stdout.take().unwrap());
    out.read_line(&mut said).unwrap();
    stage.noise("here/data", 1000);
    let submitted = stage
        .longhaul("me")
        .args(["submit", "here/data", "there"])
        .output()
        .unwrap();
    assert!(submitted.status.success(), "{submitted:?}");
    let lines = BufReader::new(agent.stderr.take().unwrap()).lines();
    let reported = lines
        .map(Result::unwrap)
        .find(|line| line.contains("did not accept the notice") && line.contains("answered "));
    for child in [&mut agent, &mut other] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let reported = reported.unwrap();
    assert!(reported.contains("answered 401"), "{reported}");
}
