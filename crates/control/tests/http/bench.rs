//! Controller under test, at a network address and over its socket, with a client.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use http_body_util::BodyExt;
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response};
use longhaul_api::tls::Certificate;
use longhaul_api::{KeyGate, LocalGate, listen};
use longhaul_control::controller::ControllerTasks;
use longhaul_control::http::{MAX_BODY_BYTES, router, router_for_keys};
use longhaul_control::topology::OspfConfig;
use longhaul_control::{Controller, ControllerConfig, ControllerStore};
use longhaul_proto::SigningKey;
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::sync::watch;

use crate::secured::{Secured, answer, now};

pub struct Bench {
    pub dir: tempfile::TempDir,
    pub controller: Controller,
    /// Client as on other machines.
    pub service: Secured,
    socket: PathBuf,
    pub stop: watch::Sender<bool>,
    pub work: ControllerTasks,
}

pub fn now_ms() -> u64 {
    u64::try_from(
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_millis(),
    )
    .unwrap()
}

impl Bench {
    pub async fn new() -> Self {
        Self::in_dir(tempfile::tempdir().unwrap()).await
    }

    /// Restarts the controller with the same store.
    pub async fn again(self) -> Self {
        self.stop.send_replace(true);
        self.work.end(&self.controller).await;
        Self::in_dir(self.dir).await
    }

    pub async fn in_dir(dir: tempfile::TempDir) -> Self {
        Self::following(dir, OspfConfig::default()).await
    }

    /// Starts a controller that follows a network.
    pub async fn following(dir: tempfile::TempDir, ospf: OspfConfig) -> Self {
        let store = ControllerStore::sqlite(&dir.path().join("control.sqlite"))
            .await
            .unwrap();
        let own = SigningKey::generate().unwrap();
        let settings = ControllerConfig {
            name: "bench".into(),
            key: own.public(),
            signer: own.clone(),
            retention: Default::default(),
            identities: Default::default(),
            registrations: Default::default(),
            setup: Default::default(),
            ospf,
            roots: Default::default(),
            advertise: None,
            domain: None,
        };
        let (stop, stopped) = watch::channel(false);
        let (controller, work) = Controller::begin(store, settings, stopped.clone())
            .await
            .unwrap();
        let listener = listen::any_address("127.0.0.1:0".parse().unwrap())
            .await
            .unwrap();
        let address = listener.local_addr().unwrap();
        let gate = KeyGate::with_body_limit(
            "longhaul control",
            MAX_BODY_BYTES,
            controller.keys(),
            [address.to_string()],
            now() - 100,
        );
        let gate = Arc::new(gate);
        controller.serve_gate(gate.clone());
        let certificate = Certificate::from_key(&own, &["127.0.0.1".to_owned()]).unwrap();
        let (_, config) = watch::channel(certificate.config);
        let keyed = router_for_keys(controller.clone(), gate);
        tokio::spawn(listen::serve_secured(
            listener,
            keyed,
            config,
            stopped.clone(),
        ));
        let socket = dir.path().join("socket");
        let gate = LocalGate {
            uid: rustix::process::getuid().as_raw(),
            user: "ana".into(),
            token: None,
            sessions: Arc::default(),
        };
        let unix = listen::unix(&socket).unwrap();
        tokio::spawn(listen::serve(
            unix,
            router(controller.clone(), gate),
            stopped,
        ));
        Self {
            dir,
            controller,
            service: Secured {
                address,
                key: own.public(),
            },
            socket,
            stop,
            work,
        }
    }

    /// Creates a principal with a role and a name.
    pub async fn principal(&self, role: &str, name: &str) -> SigningKey {
        let key = SigningKey::generate().unwrap();
        let path = format!("/api/v1/principals/{}/roles/{role}", key.public());
        let body = format!(r#"{{"name": "{name}"}}"#);
        assert_eq!(self.local("PUT", &path, &body).await, (204, Value::Null));
        key
    }

    /// Returns the status and the body.
    pub async fn send(&self, request: Request<Bytes>) -> (u16, Value) {
        read(self.service.send(request).await).await
    }

    /// Sends a request signed with this key.
    pub async fn ask(
        &self,
        key: &SigningKey,
        method: &str,
        path: &str,
        body: &str,
    ) -> (u16, Value) {
        self.send(self.service.signed(key, method, path, body))
            .await
    }

    /// Sends a request as the operator, over the socket.
    pub async fn local(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let stream = UnixStream::connect(&self.socket).await.unwrap();
        read(answer(stream, self.service.request(method, path, body)).await).await
    }

    /// Waits until there are `count` forecasts.
    pub async fn forecasts(&self, count: usize) -> Vec<Value> {
        loop {
            let (status, page) = self.local("GET", "/api/v1/forecasts", "").await;
            assert_eq!(status, 200, "{page}");
            let items = page["items"].as_array().unwrap();
            if items.len() >= count {
                return items.clone();
            }
            tokio::task::yield_now().await;
        }
    }
}

async fn read(response: Response<Incoming>) -> (u16, Value) {
    let status = response.status();
    assert_eq!(response.headers()["x-content-type-options"], "nosniff");
    let is_problem = response
        .headers()
        .get("content-type")
        .is_some_and(|kind| kind == "application/problem+json");
    assert!(
        is_problem || status.as_u16() < 400 || status == 503,
        "{status}"
    );
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let text = || Value::String(String::from_utf8_lossy(&body).into_owned());
    let value = match body.is_empty() {
        true => Value::Null,
        false => serde_json::from_slice(&body).unwrap_or_else(|_| text()),
    };
    (status.as_u16(), value)
}
