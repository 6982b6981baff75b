//! Test API with a client.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{HeaderMap, Request, StatusCode};
use hyper_util::rt::TokioIo;
use longhaul_agent::agent::CopyProgram;
use longhaul_agent::http::Asset;
use longhaul_agent::jobs::JobLimits;
use longhaul_agent::places::{
    Browse, FileEntry, FileKind, FilePage, Place, PlaceAnswer, PlaceChange, PlaceError,
    PlaceErrorKind,
};
use longhaul_agent::{Agent, AgentSettings, JobRequest, JobStore, http};
use longhaul_api::access::{BearerToken, PageSessions};
use longhaul_api::{LocalGate, listen};
use longhaul_proto::SigningKey;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::watch;

/// API on loopback, of an agent that does not run jobs.
pub struct Bench {
    _dir: tempfile::TempDir,
    pub address: std::net::SocketAddr,
    pub token: String,
    pub sessions: Arc<PageSessions>,
    _stop: watch::Sender<bool>,
}

/// Places with one entry, of which one does not exist.
#[derive(Debug)]
struct Fake;

impl Browse for Fake {
    fn list<'a>(&'a self, at: &'a str, _: Option<&'a str>, _: u32) -> PlaceAnswer<'a, FilePage> {
        Box::pin(async move {
            if at.starts_with("gone") {
                return Err(PlaceError {
                    kind: PlaceErrorKind::Unreachable,
                    detail: format!("{at} is not there\nat all"),
                });
            }
            let entry = FileEntry {
                name: "<b>\u{202e}".into(),
                addressable: true,
                kind: FileKind::File,
                bytes: 1,
                mode: "0644".into(),
                modified: None,
                target: None,
            };
            Ok(FilePage {
                entries: vec![entry],
                next: None,
            })
        })
    }

    fn change<'a>(&'a self, change: &'a PlaceChange) -> PlaceAnswer<'a, ()> {
        Box::pin(async move {
            match change {
                PlaceChange::MakeDirectory { .. } => Ok(()),
                _ => Err(PlaceError {
                    kind: PlaceErrorKind::Denied,
                    detail: "no".into(),
                }),
            }
        })
    }
}

fn understood(request: &JobRequest) -> Result<(), String> {
    match request.destination.contains("nonsense") {
        true => Err("nonsense".into()),
        false => Ok(()),
    }
}

/// Creates an agent that does not run jobs, with its store in that directory.
pub async fn agent_in(dir: &Path) -> Agent {
    let store = JobStore::sqlite(&dir.join("jobs.sqlite")).await.unwrap();
    let settings = AgentSettings {
        name: "bench".into(),
        instance: "bench".into(),
        program: CopyProgram {
            file: "/bin/false".into(),
            arguments: Vec::new(),
        },
        limits: JobLimits {
            in_all: 1,
            per_place: 1,
            per_user: None,
        },
        history: Duration::from_secs(3600),
        places: vec![Place::new("home", "/home/ana/").unwrap()],
        assets: &[Asset {
            path: "/index.html",
            media_type: "text/html; charset=utf-8",
            bytes: b"<!doctype html>",
        }],
        on_end_url: None,
        key: SigningKey::generate().unwrap(),
        browse: Arc::new(Fake),
        check: understood,
    };
    Agent::new(store, settings)
}

impl Bench {
    pub async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let agent = agent_in(dir.path()).await;
        let token = BearerToken::random().unwrap();
        let sessions = Arc::new(PageSessions::default());
        let gate = LocalGate {
            uid: rustix::process::getuid().as_raw(),
            user: "ana".into(),
            token: Some(token.clone()),
            sessions: sessions.clone(),
        };
        let (stop, stopped) = watch::channel(false);
        let listener = listen::loopback("127.0.0.1:0".parse().unwrap())
            .await
            .unwrap();
        let address = listener.local_addr().unwrap();
        let router = http::router(agent, gate, None, stopped.clone());
        tokio::spawn(listen::serve(listener, router, stopped));
        Self {
            _dir: dir,
            address,
            token: token.text().to_owned(),
            sessions,
            _stop: stop,
        }
    }

    /// Sends a request as it is.
    pub async fn raw(&self, request: Request<Full<Bytes>>) -> (StatusCode, HeaderMap, Bytes) {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let response = sender.send_request(request).await.unwrap();
        let (parts, body) = response.into_parts();
        (
            parts.status,
            parts.headers,
            body.collect().await.unwrap().to_bytes(),
        )
    }

    pub fn request(&self, method: &str, path: &str) -> hyper::http::request::Builder {
        Request::builder()
            .method(method)
            .uri(path)
            .header("host", self.address.to_string())
            .header("authorization", format!("Bearer {}", self.token))
    }

    /// Sends an authenticated request with a JSON body.
    pub async fn ask(&self, method: &str, path: &str, body: Option<Value>) -> (StatusCode, Value) {
        let request = self
            .request(method, path)
            .header("content-type", "application/json");
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let (status, _, bytes) = self
            .raw(request.body(Full::new(body.into())).unwrap())
            .await;
        (
            status,
            serde_json::from_slice(&bytes).unwrap_or(Value::Null),
        )
    }
}
