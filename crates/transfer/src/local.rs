//! Copies within one machine. The same engine runs on both sides of an in-memory pipe, so the same
//! guarantees hold as between machines.

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::account::Account;
use crate::client::CopyOutcome;
use crate::error::Error;
use crate::frame_io::FrameReader;
use crate::progress::{Observer, TransferProgress};
use crate::receive::{AfterDone, Receiver, RequestedEntries, receive_stream};
use crate::route_info::RouteInfo;
use crate::send::{CloseOnPanic, DataSetting, Presence, Sources, WorkQueue, send_stream};
use crate::store::CopyDestination;
use crate::wire::Compare;

/// Capacity of the pipe, in bytes.
const PIPE_BYTES: usize = 4 << 20;

/// Copies `sources` to `destination`. `names` are the names of the sources in messages, and
/// `compare` is the method that detects existing files. With `hard_links`, names of one file stay
/// names of one file.
pub async fn copy_local(
    sources: Sources,
    names: Vec<String>,
    destination: CopyDestination,
    compare: Compare,
    hard_links: bool,
    progress: Arc<TransferProgress>,
    observer: Arc<dyn Observer>,
) -> Result<CopyOutcome, Error> {
    // Only the writing side is watched, as it knows what is in place.
    let labels = || Sources::labels(names.clone());
    let resume = destination.resumes();
    let presence = match destination.has_something() {
        true => Presence::Something,
        false => Presence::Nothing,
    };
    let queue = WorkQueue::new(
        sources,
        resume,
        Account::unshared(),
        Arc::default(),
        Arc::new(()),
        labels(),
    )?;
    queue.set_presence(presence, compare);
    if hard_links {
        queue.keep_links(true);
    }
    queue.keep_understood();
    let (account, asked) = (Account::unshared(), RequestedEntries::Anything);
    let receiver = Receiver::new(
        destination,
        asked,
        account,
        progress.clone(),
        observer,
        labels(),
    )?;
    receiver.take_late_sizes();
    queue.settle_late_sizes(receiver.takes_late_sizes());
    let walk = queue.clone();
    let found = progress.clone();
    let walked = tokio::task::spawn_blocking(move || {
        let _close = CloseOnPanic(&walk);
        walk.walk();
        found.mirror_found(&walk.reporter.progress);
    });
    let (near, far) = tokio::io::duplex(PIPE_BYTES);
    let (near_read, mut near_write) = tokio::io::split(near);
    let (far_read, mut far_write) = tokio::io::split(far);
    let (mut near_read, mut far_read) = (FrameReader::new(near_read), FrameReader::new(far_read));
    let here = RouteInfo::without_depots("local");
    let counters = progress.add_stream(&here, None, false);
    let unwatched = queue.reporter.progress.add_stream(&here, None, false);
    let protected = DataSetting::disabled();
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
        Some(manifest) => Ok(CopyOutcome {
            manifest,
            closing: JoinSet::new(),
        }),
        None => Err(Error::StreamsLost(
            "the copy ended before all was written".into(),
        )),
    }
}
