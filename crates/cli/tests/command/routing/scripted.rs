//! A controller with scripted answers.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, mpsc};

use serde_json::Value;

use super::use_controller;
use crate::stage::Stage;

/// Requests to a controller: method and path, and the body.
type Asked = Arc<Mutex<Vec<(String, Value)>>>;

/// A controller at a socket with scripted answers; other requests are refused.
pub(super) struct Scripted {
    asked: Asked,
    /// Receives a message for every request.
    again: Mutex<mpsc::Receiver<()>>,
    socket: PathBuf,
}

impl Scripted {
    pub(super) fn start(stage: &Stage, answers: BTreeMap<&'static str, Value>) -> Self {
        let socket = stage.path("controller");
        let listener = UnixListener::bind(&socket).unwrap();
        let asked = Asked::default();
        let received = asked.clone();
        let (asks, again) = mpsc::channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                let _ = answer(stream, &answers, &received);
                let _ = asks.send(());
            }
        });
        let again = Mutex::new(again);
        let scripted = Self {
            asked,
            again,
            socket,
        };
        use_controller(stage, &format!("unix:{}", scripted.socket.display()));
        scripted
    }

    /// Waits until it was asked, forever if it never is.
    pub(super) fn wait_for(&self, what: &str) {
        while self.received(what).is_empty() {
            self.again.lock().unwrap().recv().unwrap();
        }
    }

    pub(super) fn received(&self, what: &str) -> Vec<Value> {
        let asked = self.asked.lock().unwrap();
        let of = asked.iter().filter(|(path, _)| path.starts_with(what));
        of.map(|(_, content)| content.clone()).collect()
    }
}

fn answer(
    stream: UnixStream,
    answers: &BTreeMap<&'static str, Value>,
    asked: &Asked,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut content = vec![0; length];
    reader.read_exact(&mut content)?;
    let path = first
        .rsplit_once(" HTTP")
        .map_or("", |(path, _)| path)
        .to_owned();
    let content = serde_json::from_slice(&content).unwrap_or(Value::Null);
    asked.lock().unwrap().push((path.clone(), content));
    let found = answers.iter().find(|(known, _)| path.starts_with(**known));
    let (status, text) = match found {
        Some((_, value)) => ("200 OK", value.to_string()),
        None => ("404 Not Found", "{}".to_owned()),
    };
    let mut stream = reader.into_inner();
    write!(
        stream,
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{text}",
        text.len()
    )
}
