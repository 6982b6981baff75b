//! Issuers of other projects, which the tests start and command.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

/// Name by which the issuers know the server.
pub const AUDIENCE: &str = "https://dtn.example.org";

/// Variable that lets tests pass if an issuer cannot be installed.
const OFFLINE: &str = "LONGHAUL_TESTS_OFFLINE";

/// A running issuer.
pub struct Issuer {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    pub url: String,
}

impl Drop for Issuer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Issuer {
    /// Starts npm's oidc-provider, whose tokens are valid for this time. Returns `None`, and prints
    /// why, if it cannot be installed and [`OFFLINE`] is set.
    pub fn oidc_provider(token_seconds: u64) -> Option<Self> {
        Self::start("oidc-provider", token_seconds)
    }

    /// Starts an issuer with PyPI's scitokens.
    pub fn scitokens() -> Option<Self> {
        Self::start("scitokens", 0)
    }

    fn start(name: &str, token_seconds: u64) -> Option<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/issuer");
        let mut child = Command::new(script)
            .arg(name)
            .env("TOKEN_SECONDS", token_seconds.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let commands = child.stdin.take().unwrap();
        let mut answers = BufReader::new(child.stdout.take().unwrap());
        let mut url = String::new();
        answers.read_line(&mut url).unwrap();
        if url.is_empty() {
            let _ = child.wait();
            assert!(
                std::env::var_os(OFFLINE).is_some(),
                "{name} cannot be installed; set {OFFLINE}=1 to do without"
            );
            eprintln!("not tested: {name} cannot be installed");
            return None;
        }
        Some(Self {
            child,
            commands,
            answers,
            url: url.trim().to_owned(),
        })
    }

    /// Gives a command, and returns the answer.
    pub fn command(&mut self, command: &str) -> String {
        writeln!(self.commands, "{command}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        assert!(!answer.starts_with("failed"), "{command}: {answer}");
        answer.trim().to_owned()
    }

    /// Returns a token for [`AUDIENCE`] with a scope.
    pub fn token(&mut self, scope: &str) -> String {
        self.token_with(scope, &json!({}))
    }

    /// Returns such a token with other claims.
    pub fn token_with(&mut self, scope: &str, more: &Value) -> String {
        let mut claims = json!({
            "iss": self.url, "sub": "alice", "aud": AUDIENCE, "exp": unix_now() + 600,
            "scope": scope,
        });
        for (name, value) in more.as_object().unwrap() {
            claims[name] = value.clone();
        }
        self.command(&format!("mint {claims}"))
    }
}

/// Returns the time in seconds since 1970.
pub fn unix_now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap().as_secs()
}
