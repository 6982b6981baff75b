//! Copies that have what another one of the same is to go on with, and that nobody carries any more: they let go of it.
//!
//! A client that was killed, or that lost its network, comes back with a new copy, while the old one still waits for it here. Or another client goes on with
//! what it did, by a key of its own, as where agents share jobs.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, mpsc};
use std::time::{Duration, Instant};

use longhaul_proto::PublicKey;

use super::copy::{Copy, EarlyEnd};
use super::{Copies, Ending, Server};
use crate::frame_io::KEEP_ALIVE;
use crate::lock::Locked;
use crate::part::Portion;
use crate::store::Rivals;
use crate::wire::Request;

/// How long a copy waits for a rival whose client is there: it may have been killed, which its host reports at once. Shorter where nothing
/// says that the rival has anything.
const RIVAL_TIMEOUT: Duration = Duration::from_secs(3);
const MAYBE_RIVAL_TIMEOUT: Duration = Duration::from_millis(250);
/// A client that lives says something every [`KEEP_ALIVE`]. One that has said nothing for so long is gone, though its connection stands.
const RIVAL_SILENCE: Duration = Duration::from_secs(2 * KEEP_ALIVE.as_secs());
/// How often silent ones are looked at.
const SILENCE_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How long a rival may take to let go of its files.
const LET_GO_TIMEOUT: Duration = Duration::from_secs(30);

/// How a rival is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rival {
    /// Nobody carries it.
    Gone,
    /// Nothing is known of it since it is looked at.
    Silent,
    /// Somebody does.
    Carried,
}

impl Server {
    /// Has copies give way that hold what `copy` is to go on with.
    pub(super) fn rivals_of(self: &Arc<Self>, copy: &Arc<Copy>) -> Rivals {
        let (server, copy) = (Arc::downgrade(self), Arc::downgrade(copy));
        Box::new(move |is_contested| {
            if let (Some(server), Some(copy)) = (server.upgrade(), copy.upgrade()) {
                server.dismiss_rivals(&copy, is_contested);
            }
        })
    }

    /// Ends the rivals of `copy` whose client is gone, and waits until they have let go of their files. Those whose client may be gone are
    /// waited for until that is known. Blocking.
    fn dismiss_rivals(&self, copy: &Copy, is_contested: bool) {
        let began = Instant::now();
        let timeout = if is_contested {
            RIVAL_TIMEOUT
        } else {
            MAYBE_RIVAL_TIMEOUT
        };
        loop {
            let mut copies = self.copies.locked();
            let ending = take_ending(&mut copies, copy);
            if !ending.is_empty() {
                drop(copies);
                for ended in ending {
                    // Nobody ever says anything: it is over when there is nobody who could.
                    let _ = ended.recv_timeout(LET_GO_TIMEOUT);
                }
                continue;
            }
            let rivals = rivals(&copies, copy);
            let state = |rival: &Arc<Copy>| {
                let silence = rival.received.silence();
                match rival.streams.load(Ordering::Relaxed) {
                    0 => Rival::Gone,
                    // Whoever lives must not lose its copy by what another key asks for.
                    _ if rival.principal != copy.principal => Rival::Carried,
                    _ if silence >= RIVAL_SILENCE => Rival::Gone,
                    _ if silence >= began.elapsed() => Rival::Silent,
                    _ => Rival::Carried,
                }
            };
            let states: Vec<Rival> = rivals.iter().map(state).collect();
            let mut gone = Vec::new();
            for (rival, _) in rivals
                .into_iter()
                .zip(&states)
                .filter(|(_, state)| **state == Rival::Gone)
            {
                drop(copies.end(rival.hello.token));
                gone.push(rival);
            }
            if !gone.is_empty() {
                drop(copies);
                gone.iter()
                    .for_each(|rival| rival.end_early(EarlyEnd::Superseded));
                continue;
            }
            let left = match (states.contains(&Rival::Silent), states.is_empty()) {
                (_, true) => return,
                (true, _) if is_contested => SILENCE_POLL_INTERVAL,
                _ => timeout.saturating_sub(began.elapsed()),
            };
            if left.is_zero() {
                return;
            }
            let waited = self.abandoned.wait_timeout(copies, left);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
    }
}

/// Other copies of the same.
fn rivals(copies: &Copies, copy: &Copy) -> Vec<Arc<Copy>> {
    let is_rival = |other: &&Arc<Copy>| {
        let theirs = &other.hello;
        theirs.token != copy.hello.token
            && is_of_the_same(copy, &other.principal, &theirs.request, theirs.portion)
    };
    copies.running.values().filter(is_rival).cloned().collect()
}

/// Whether what a copy of this may have is what `copy` is to go on with. One client has one part of a tree at a time, whatever part it had before;
/// other clients have other parts of it.
fn is_of_the_same(copy: &Copy, principal: &PublicKey, request: &Request, portion: Portion) -> bool {
    let ours = &copy.hello;
    *request == ours.request && (*principal == copy.principal || portion == ours.portion)
}

/// What ends when copies that are over have let go of what `copy` is to go on with.
fn take_ending(copies: &mut Copies, copy: &Copy) -> Vec<mpsc::Receiver<()>> {
    let is_rival =
        |ending: &mut Ending| is_of_the_same(copy, &ending.principal, &ending.request, ending.portion);
    let ending = copies.ending.extract_if(.., is_rival);
    ending.map(|ending| ending.ended).collect()
}
