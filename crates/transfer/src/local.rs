//! Copies within one machine. The same engine runs on both sides of an in-memory pipe, so the same
//! guarantees hold as between machines.

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::account::Account;
use crate::client::Outcome;
use crate::error::Error;
use crate::frame_io::FrameReader;
use crate::progress::{Observer, Progress};
use crate::receive::{AfterDone, receive_stream};
use crate::receive::{Asked, Receiver};
use crate::send::{ClearData, CloseIfPanicking, Presence, Queue, Sources, send_stream};
use crate::store::Destination;
use crate::wire::Compare;

/// Capacity of the pipe, in bytes.
const PIPE: usize = 4 << 20;

/// Copies `sources` to `destination`. `names` are the names of the sources in messages, and
/// `compare` is the method that detects existing files. With `hard_links`, names of one file stay
/// names of one file.
pub async fn copy_local(
    sources: Sources,
    names: Vec<String>,
    destination: Destination,
    compare: Compare,
    hard_links: bool,
    progress: Arc<Progress>,
    observer: Arc<dyn Observer>,
) -> Result<Outcome, Error> {
    // Only the writing side is watched, as it knows what is in place.
    let labels = || Sources::labels(names.clone());
    let resume = destination.resumes();
    let presence = match destination.has_something() {
        true => Presence::Something,
        false => Presence::Nothing,
    };
    let queue = Queue::new(
        sources,
        resume,
        Account::alone(),
        Arc::default(),
        Arc::new(()),
        labels(),
    )?;
    queue.expect(presence, compare);
    if hard_links {
        queue.keep_links(true);
    }
    let (account, asked) = (Account::alone(), Asked::Anything);
    let receiver = Receiver::new(
        destination,
        asked,
        account,
        progress.clone(),
        observer,
        labels(),
    )?;
    let walk = queue.clone();
    let found = progress.clone();
    let walked = tokio::task::spawn_blocking(move || {
        let _close = CloseIfPanicking(&walk);
        walk.walk();
        found.mirror_found(&walk.progress);
    });
    let (near, far) = tokio::io::duplex(PIPE);
    let (near_read, mut near_write) = tokio::io::split(near);
    let (far_read, mut far_write) = tokio::io::split(far);
    let (mut near_read, mut far_read) = (FrameReader::new(near_read), FrameReader::new(far_read));
    let counters = progress.add_stream("local", None, false);
    let unwatched = queue.progress.add_stream("local", None, false);
    let protected = ClearData::never();
    let send = send_stream(
        &queue,
        0,
        &unwatched,
        &mut near_read,
        &mut near_write,
        Vec::new(),
        &protected,
    );
    let receive = receive_stream(
        &receiver,
        &counters,
        &mut far_read,
        &mut far_write,
        &[],
        AfterDone::Leave,
    );
    let ended = tokio::try_join!(send, receive);
    queue.close();
    let _ = walked.await;
    ended?;
    match receiver.conclusion() {
        Some(manifest) => Ok(Outcome {
            manifest,
            closing: JoinSet::new(),
        }),
        None => Err(Error::StreamsLost(
            "the copy ended before all was written".into(),
        )),
    }
}
