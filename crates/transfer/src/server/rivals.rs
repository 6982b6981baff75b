//! Ends abandoned copies that hold what another copy of the same request wants to resume.
//!
//! A client that was killed or lost its network comes back with a new copy, while the old one still
//! waits for it here. Or another client resumes its work with a key of its own, for example when
//! agents share jobs.

use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use longhaul_proto::PublicKey;

use super::copy::ServerCopy;
use super::ending::{CopyEnd, EarlyEnd};
use super::{Copies, EndingCopy, Server};
use crate::frame_io::KEEP_ALIVE_INTERVAL;
use crate::part::Portion;
use crate::store::{Rival, RivalCheck};
use crate::wire::CopyRequest;

/// Silence after which a client is presumed gone, even if its connection is open. A living client
/// sends something every [`KEEP_ALIVE_INTERVAL`].
const RIVAL_SILENCE: Duration = Duration::from_secs(2 * KEEP_ALIVE_INTERVAL.as_secs());

/// Signs that determine the state of a rival.
#[derive(Debug, Clone, Copy)]
struct RivalSigns {
    /// Number of streams that carry it.
    streams: u32,
    /// Time since data of it was received.
    silence: Duration,
    has_same_key: bool,
    is_older: bool,
}

impl RivalSigns {
    /// Returns the state of the rival for a copy that first looked for others `looking` ago, or
    /// `None` if the rival is abandoned.
    fn judge(&self, looking: Duration) -> Option<Rival> {
        match self.is_older {
            _ if self.streams == 0 => None,
            // A living client must not lose its copy because of another key.
            true if !self.has_same_key => Some(Rival::Older),
            false if !self.has_same_key => Some(Rival::Younger),
            _ if self.silence >= RIVAL_SILENCE => None,
            true if self.silence >= looking => Some(Rival::Silent),
            true => Some(Rival::Older),
            false => Some(Rival::Younger),
        }
    }
}

impl Server {
    /// Returns a function that makes rivals release what `copy` wants to resume.
    pub(super) fn rivals_of(self: &Arc<Self>, copy: &Arc<ServerCopy>) -> RivalCheck {
        let (server, copy) = (Arc::downgrade(self), Arc::downgrade(copy));
        Arc::new(move |looking| match (server.upgrade(), copy.upgrade()) {
            (Some(server), Some(copy)) => server.dismiss_rivals(&copy, looking),
            _ => Vec::new(),
        })
    }

    /// Ends the rivals of `copy` whose client is gone. Returns the states of all that it may have
    /// to wait for. It first looked for them `looking` ago. Blocking.
    fn dismiss_rivals(&self, copy: &ServerCopy, looking: Duration) -> Vec<Rival> {
        let mut copies = self.copies.lock();
        let mut states = Vec::new();
        let mut gone = Vec::new();
        for rival in rivals(&copies, copy) {
            let signs = RivalSigns {
                streams: rival.streams.load(Ordering::Relaxed),
                silence: rival.received.silence(),
                has_same_key: rival.principal == copy.principal,
                is_older: rival.order < copy.order,
            };
            match signs.judge(looking) {
                Some(state) => states.push(state),
                None => gone.push(rival),
            }
        }
        for rival in &gone {
            drop(copies.end(rival.hello.token));
        }
        states.extend(ending(&mut copies, copy).map(|_| Rival::Releasing));
        drop(copies);
        for rival in &gone {
            self.record_end(rival, &CopyEnd::Early(EarlyEnd::Superseded));
            rival.end_early(EarlyEnd::Superseded);
        }
        states
    }
}

/// Returns the other copies of the same request. One that has everything in place holds nothing,
/// even if its client is still there.
fn rivals(copies: &Copies, copy: &ServerCopy) -> Vec<Arc<ServerCopy>> {
    let is_rival = |other: &&Arc<ServerCopy>| {
        let theirs = &other.hello;
        theirs.token != copy.hello.token
            && !other.has_all_in_place()
            && is_of_the_same(copy, &other.principal, &theirs.request, theirs.portion)
    };
    copies.running.values().filter(is_rival).cloned().collect()
}

/// Returns true if a copy with this request may hold what `copy` wants to resume. A client has one
/// part of a tree at a time, whatever part it had before. Other clients have other parts of it.
fn is_of_the_same(
    copy: &ServerCopy,
    principal: &PublicKey,
    request: &CopyRequest,
    portion: Portion,
) -> bool {
    let ours = &copy.hello;
    *request == ours.request && (*principal == copy.principal || portion == ours.portion)
}

/// Returns the copies that are over and still hold what `copy` wants to resume.
fn ending<'a>(
    copies: &'a mut Copies,
    copy: &'a ServerCopy,
) -> impl Iterator<Item = &'a EndingCopy> {
    copies.forget_ended();
    let is_rival = |ending: &&EndingCopy| {
        is_of_the_same(copy, &ending.principal, &ending.request, ending.portion)
    };
    copies.ending.iter().filter(is_rival)
}

impl Copies {
    /// Forgets copies that have released their files.
    pub(super) fn forget_ended(&mut self) {
        let is_over =
            |ended: &mpsc::Receiver<()>| ended.try_recv() == Err(mpsc::TryRecvError::Disconnected);
        self.ending.retain(|ending| !is_over(&ending.ended));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIVELY: RivalSigns = RivalSigns {
        streams: 3,
        silence: Duration::from_millis(10),
        has_same_key: true,
        is_older: true,
    };
    const LOOKING: Duration = Duration::from_secs(1);

    #[test]
    fn rival_is_gone_without_streams_or_after_long_silence() {
        let signs = |streams, silence| RivalSigns {
            streams,
            silence,
            ..LIVELY
        };
        assert_eq!(LIVELY.judge(LOOKING), Some(Rival::Older));
        assert_eq!(signs(0, Duration::ZERO).judge(LOOKING), None);
        assert_eq!(signs(3, LOOKING).judge(LOOKING), Some(Rival::Silent));
        assert_eq!(signs(3, RIVAL_SILENCE).judge(LOOKING), None);
        // A rival that was heard since the copy first looked is alive, however long ago that was.
        let heard_of = signs(3, RIVAL_SILENCE / 2);
        assert_eq!(heard_of.judge(RIVAL_SILENCE), Some(Rival::Older));
    }

    #[test]
    fn other_key_does_not_end_a_carried_copy() {
        let silent = RivalSigns {
            silence: RIVAL_SILENCE,
            has_same_key: false,
            ..LIVELY
        };
        assert_eq!(silent.judge(LOOKING), Some(Rival::Older));
        let abandoned = RivalSigns {
            streams: 0,
            ..silent
        };
        assert_eq!(abandoned.judge(LOOKING), None);
    }

    #[test]
    fn later_copy_is_not_an_earlier_attempt() {
        let younger = RivalSigns {
            is_older: false,
            silence: LOOKING,
            ..LIVELY
        };
        assert_eq!(younger.judge(LOOKING), Some(Rival::Younger));
    }
}
