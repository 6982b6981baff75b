use std::os::unix::fs::PermissionsExt;
use std::sync::Mutex;
use std::time::Duration;

use tokio::io::{AsyncReadExt, duplex};

use super::*;
use crate::ask::{DriverRequest, ListedPart, MAX_REPLY_BYTES, read_reply};
use crate::circuit::PartId;
use crate::driver::{DriverFuture, list, set_up, tear_down};
use crate::remote::RemoteDriver;
use crate::testing::{name, part};

/// Time limit that even a very slow machine meets.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(60);

/// A driver that keeps the parts in memory.
#[derive(Default)]
struct Memory(Mutex<Vec<ListedPart>>);

impl Driver for Memory {
    fn ask<'a>(&'a self, request: &'a DriverRequest) -> DriverFuture<'a, DriverReply> {
        let mut parts = self.0.lock().unwrap();
        let reply = match request {
            DriverRequest::SetUp { part } if part.rate == 13 => {
                Err(DriverError::refused("not this one"))
            }
            DriverRequest::SetUp { part } => {
                parts.push(ListedPart {
                    owner: part.owner.clone(),
                    id: part.id.clone(),
                    part: Some(part.clone()),
                    whole: true,
                });
                Ok(DriverReply::Done)
            }
            DriverRequest::TearDown { id, .. } => {
                parts.retain(|found| found.id != *id);
                Ok(DriverReply::Done)
            }
            DriverRequest::List { .. } => Ok(DriverReply::Parts {
                parts: parts.clone(),
            }),
            DriverRequest::Counters { id, .. } => Err(DriverError::missing(id)),
        };
        Box::pin(std::future::ready(reply))
    }
}

/// Returns the agent's answers to these bytes, after which the stream ends.
async fn said(bytes: &[u8]) -> Vec<Result<DriverReply, DriverError>> {
    let (mut near, far) = duplex(1 << 20);
    let (input, output) = tokio::io::split(far);
    near.write_all(bytes).await.unwrap();
    near.shutdown().await.unwrap();
    serve(input, output, &Memory::default()).await.unwrap();
    let mut text = Vec::new();
    near.read_to_end(&mut text).await.unwrap();
    text.split_inclusive(|byte| *byte == b'\n')
        .map(read_reply)
        .collect()
}

#[tokio::test]
async fn the_next_request_after_nonsense_is_answered() {
    let answers =
        said(b"\n{}\n\xff\xfe\n{\"version\":1,\"do\":\"list\",\"owner\":\"us\"}\nhalf a li").await;
    assert_eq!(answers.len(), 4);
    for answer in &answers[..3] {
        let nonsense = matches!(answer, Ok(DriverReply::Error(DriverError::Nonsense { .. })));
        assert!(nonsense, "{answer:?}");
    }
    assert_eq!(answers[3], Ok(DriverReply::Parts { parts: vec![] }));
}

#[tokio::test]
async fn an_endless_line_ends_the_connection() {
    let answers = said(&vec![b'a'; 3 * MAX_REQUEST_BYTES]).await;
    assert_eq!(answers.len(), 1);
    assert!(
        matches!(
            &answers[0],
            Ok(DriverReply::Error(DriverError::Nonsense { .. }))
        ),
        "{answers:?}"
    );
}

#[tokio::test]
async fn a_driver_is_asked_through_a_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run/agent");
    let (stopping, stop) = watch::channel(false);
    let listener = bind(&path).unwrap();
    assert!(matches!(bind(&path), Err(AgentListenError::Taken(_))));
    let agent = tokio::spawn(listen(listener, Arc::new(Memory::default()), stop));
    let remote = RemoteDriver::socket(&path, PROGRAM_TIMEOUT);

    let part = part("us", "c", "a", "ab", 5);
    set_up(&remote, part.clone()).await.unwrap();
    let refused = crate::circuit::CircuitPart {
        rate: 13,
        ..part.clone()
    };
    assert_eq!(
        set_up(&remote, refused).await,
        Err(DriverError::refused("not this one"))
    );
    let there = list(&remote, name("us")).await.unwrap();
    assert_eq!(there[0].part, Some(part.clone()));
    tear_down(&remote, name("us"), part.id.clone())
        .await
        .unwrap();
    let counted = crate::driver::counters(&remote, name("us"), part.id.clone()).await;
    assert_eq!(counted, Err(DriverError::missing(&part.id)));

    stopping.send(true).unwrap();
    agent.await.unwrap().unwrap();
    assert!(matches!(
        list(&remote, name("us")).await,
        Err(DriverError::Failed { .. })
    ));
    // The socket that it left does not disturb the next agent, which receives new connections.
    let (_tell, stop) = watch::channel(false);
    let _agent = tokio::spawn(listen(
        bind(&path).unwrap(),
        Arc::new(Memory::default()),
        stop,
    ));
    assert_eq!(list(&remote, name("us")).await, Ok(vec![]));
}

#[tokio::test]
async fn only_the_owner_can_enter_the_agents_directory() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let open = bind(&folder.path().join("agent")).unwrap_err();
    assert!(
        matches!(open, AgentListenError::Open { mode: 0o755, .. }),
        "{open}"
    );
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).unwrap();
    std::fs::write(folder.path().join("file"), "precious").unwrap();
    let file = bind(&folder.path().join("file")).unwrap_err();
    assert!(matches!(file, AgentListenError::NoSocket(_)), "{file}");
    assert_eq!(
        std::fs::read(folder.path().join("file")).unwrap(),
        b"precious"
    );
}

/// Returns a driver for an agent that gives everyone the same answer.
fn liar(folder: &Path, says: Vec<u8>) -> RemoteDriver {
    let path = folder.join("liar");
    let listener = UnixListener::bind(&path).unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(&says).await;
            // Until the other side closes the stream.
            let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
        }
    });
    RemoteDriver::socket(path, PROGRAM_TIMEOUT)
}

#[tokio::test]
async fn a_lying_agent_only_causes_an_error() {
    let long = vec![b' '; MAX_REPLY_BYTES + 2];
    for says in [
        b"{}\n".to_vec(),
        b"\xff\n".to_vec(),
        b"{\"answer\":\"done\"}\n{\"answer\":\"done\"}\n".to_vec(),
        b"{\"answer\":\"counters\",\"bytes\":-1,\"packets\":0,\"drops\":0}\n".to_vec(),
        b"{\"answer\":\"parts\",\"parts\":[]}\n".to_vec(),
        long,
    ] {
        let folder = tempfile::tempdir().unwrap();
        let remote = liar(folder.path(), says.clone());
        let id: PartId = "x".parse().unwrap();
        let answer = tear_down(&remote, name("us"), id).await;
        let nonsense = matches!(answer, Err(DriverError::Nonsense { .. }));
        assert!(nonsense, "{:?}: {answer:?}", &says[..says.len().min(60)]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_agent_times_out() {
    let folder = tempfile::tempdir().unwrap();
    let remote = liar(folder.path(), Vec::new());
    let answer = list(&remote, name("us")).await;
    assert!(
        matches!(answer, Err(DriverError::Failed { .. })),
        "{answer:?}"
    );
}
