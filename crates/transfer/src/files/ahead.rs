//! Prefetches the pages of a directory, so that no page waits a round trip for the one before
//! (LH-FILES-12).
//!
//! Only a page itself tells behind which name the next one begins. The first request is therefore
//! followed by others that ask for the next page, and the server answers them in order. The number
//! of outstanding requests is the flow control. It begins at one, as most directories are short and
//! the reader may soon look elsewhere, and grows by one with each page that is read. Pages that are
//! no longer needed are received and discarded.

use std::collections::VecDeque;

use super::MAX_ENTRIES_PER_PAGE;
use super::message::{FilesFailureKind, FilesRequest, FilesResponse, PathBytes};

/// Maximum number of prefetched pages. A page has half a megabyte, so these fill 300 Mbit/s over
/// 100 ms.
const MAX_PREFETCHED_PAGES: usize = 8;

/// Channel that carries file requests and their responses, in the same order.
pub trait FilesChannel {
    /// Error that ends the channel.
    type Error;

    /// Sends these requests, without waiting for responses. An error may be reported by the next
    /// [`FilesChannel::receive`] instead.
    fn send(
        &mut self,
        asks: &[FilesRequest],
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Receives the next response. Messages that respond to no request are skipped.
    fn receive(&mut self) -> impl Future<Output = Result<FilesResponse, Self::Error>> + Send;
}

/// Prefetch state of one channel. Only [`PagePrefetch::ask_over`] does I/O.
#[derive(Debug, Default)]
pub struct PagePrefetch {
    /// Directory whose pages are prefetched, and the name behind which the next one begins. `None`
    /// after its end.
    listing: Option<(PathBytes, PathBytes)>,
    /// Maximum number of entries in each outstanding page.
    under_way: VecDeque<u32>,
    /// Number of pages read in sequence.
    taken: usize,
    /// True if the server does not know requests for the next page.
    is_unknown: bool,
}

/// Actions for one request.
#[derive(Debug, PartialEq, Eq)]
struct PrefetchStep {
    /// Requests to send now, in this order.
    say: Vec<FilesRequest>,
    /// Number of responses to receive first and discard.
    discard: usize,
    /// True if the response after those belongs to a prefetch request.
    is_ahead: bool,
}

impl PagePrefetch {
    /// Sends a request on `channel` and receives its response. After an error, or if this is
    /// dropped before it is done, the channel must not be used any more.
    ///
    /// # Errors
    /// Those of the channel.
    pub async fn ask_over<C: FilesChannel>(
        &mut self,
        channel: &mut C,
        ask: &FilesRequest,
    ) -> Result<FilesResponse, C::Error> {
        loop {
            let step = self.step(ask);
            channel.send(&step.say).await?;
            for _ in 0..step.discard {
                channel.receive().await?;
            }
            let answer = channel.receive().await?;
            if !self.must_repeat(&step, &answer) {
                self.received(ask, &answer);
                return Ok(answer);
            }
        }
    }

    /// Sends several requests on `channel` without waiting in between, and receives their responses
    /// in order. After an error, or if this is dropped before it is done, the channel must not be
    /// used any more.
    ///
    /// # Errors
    /// Those of the channel.
    pub async fn ask_all_over<C: FilesChannel>(
        &mut self,
        channel: &mut C,
        asks: &[FilesRequest],
    ) -> Result<Vec<FilesResponse>, C::Error> {
        let discard = self.under_way.len();
        *self = Self {
            is_unknown: self.is_unknown,
            ..Self::default()
        };
        channel.send(asks).await?;
        for _ in 0..discard {
            channel.receive().await?;
        }
        let mut answers = Vec::with_capacity(asks.len());
        for _ in asks {
            answers.push(channel.receive().await?);
        }
        Ok(answers)
    }

    fn step(&mut self, ask: &FilesRequest) -> PrefetchStep {
        let page = match ask {
            FilesRequest::Look {
                path,
                list: true,
                after,
                limit,
            } => Some((path, after.as_ref(), limit.unwrap_or(u32::MAX))),
            _ => None,
        };
        let follows = |(path, after, limit): (&PathBytes, Option<&PathBytes>, u32)| {
            let listed = self.listing.as_ref();
            listed.is_some_and(|(of, reported)| of == path && Some(reported) == after)
                && self.under_way.front().is_some_and(|&most| most <= limit)
        };
        let is_ahead = page.is_some_and(follows);
        let mut step = PrefetchStep {
            say: Vec::new(),
            discard: 0,
            is_ahead,
        };
        if is_ahead {
            self.under_way.pop_front();
            self.taken += 1;
        } else {
            step.discard = self.under_way.len();
            self.under_way.clear();
            self.taken = 0;
            step.say.push(ask.clone());
        }
        if let Some((_, _, limit)) = page
            && !self.is_unknown
        {
            let limit = limit.min(MAX_ENTRIES_PER_PAGE as u32);
            while self.under_way.len() < (1 + self.taken).min(MAX_PREFETCHED_PAGES) {
                self.under_way.push_back(limit);
                step.say.push(FilesRequest::More { limit: Some(limit) });
            }
        }
        step
    }

    /// Returns true if the request must be repeated, because a server of an earlier release did not
    /// know the prefetch request (LH-FILES-1).
    fn must_repeat(&mut self, step: &PrefetchStep, answer: &FilesResponse) -> bool {
        let is_unknown = matches!(
            answer,
            FilesResponse::Failed(failure) if failure.kind == FilesFailureKind::NotUnderstood
        );
        if step.is_ahead && is_unknown {
            self.is_unknown = true;
            self.listing = None;
            return true;
        }
        false
    }

    fn received(&mut self, ask: &FilesRequest, answer: &FilesResponse) {
        self.listing = match (ask, answer) {
            (
                FilesRequest::Look {
                    path, list: true, ..
                },
                FilesResponse::Entries {
                    next: Some(next), ..
                },
            ) => Some((path.clone(), next.clone())),
            _ => None,
        };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::message::{EntryKind, FilesFailure, ListingEntry};
    use super::*;

    /// A server of directories whose names have two bytes. It answers in order, and each response
    /// identifies its request.
    #[derive(Default)]
    struct SimulatedServer {
        /// Number of names in each of the directories `a` and `b`.
        names: [u16; 2],
        knows_more: bool,
        asked: VecDeque<FilesRequest>,
        /// Position from which a request for the next page continues.
        listing: Option<(PathBytes, PathBytes)>,
        /// Maximum number of requests that waited at a time.
        most_waiting: usize,
        said: usize,
        /// Number of times that something was sent after something had been received.
        turns: usize,
        received_since: bool,
    }

    impl SimulatedServer {
        fn new(names: [u16; 2], knows_more: bool) -> Self {
            Self {
                names,
                knows_more,
                received_since: true,
                ..Self::default()
            }
        }

        fn look(
            &mut self,
            path: &PathBytes,
            after: Option<&PathBytes>,
            limit: Option<u32>,
        ) -> FilesResponse {
            let count = self.names[usize::from(path.0 == b"b")];
            let from = after.map_or(0, |after| u16::from_be_bytes([after.0[0], after.0[1]]) + 1);
            let most = limit.unwrap_or(u32::MAX).clamp(1, 5) as u16;
            let to = count.min(from.saturating_add(most));
            let name = |n: u16| PathBytes(n.to_be_bytes().to_vec());
            let entries = (from..to).map(|n| ListingEntry {
                name: name(n),
                kind: EntryKind::File,
                size: path.0[0].into(),
                mode: 0,
                modified: 0,
                nanoseconds: None,
                target: None,
            });
            let next = (to < count).then(|| name(to - 1));
            self.listing = next.clone().map(|next| (path.clone(), next));
            FilesResponse::Entries {
                entries: entries.collect(),
                next,
            }
        }
    }

    impl FilesChannel for SimulatedServer {
        type Error = std::convert::Infallible;

        async fn send(&mut self, asks: &[FilesRequest]) -> Result<(), Self::Error> {
            if !asks.is_empty() {
                self.turns += usize::from(std::mem::take(&mut self.received_since));
            }
            self.said += asks.len();
            self.asked.extend(asks.iter().cloned());
            self.most_waiting = self.most_waiting.max(self.asked.len());
            Ok(())
        }

        async fn receive(&mut self) -> Result<FilesResponse, Self::Error> {
            self.received_since = true;
            Ok(match self.asked.pop_front().unwrap() {
                FilesRequest::Look {
                    path, after, limit, ..
                } => self.look(&path, after.as_ref(), limit),
                FilesRequest::More { .. } if !self.knows_more => FilesResponse::Failed(
                    FilesFailure::new(FilesFailureKind::NotUnderstood, &PathBytes::default()),
                ),
                FilesRequest::More { limit } => match self.listing.take() {
                    Some((path, after)) => self.look(&path, Some(&after), limit),
                    None => FilesResponse::Entries {
                        entries: Vec::new(),
                        next: None,
                    },
                },
                _ => FilesResponse::Changed,
            })
        }
    }

    fn look(path: &str, after: Option<PathBytes>, limit: Option<u32>) -> FilesRequest {
        FilesRequest::Look {
            path: PathBytes(path.into()),
            list: true,
            after,
            limit,
        }
    }

    fn ask(
        ahead: &mut PagePrefetch,
        server: &mut SimulatedServer,
        ask: &FilesRequest,
    ) -> FilesResponse {
        longhaul_proto::fuzzing::expect_ready(ahead.ask_over(server, ask)).unwrap()
    }

    proptest! {
        /// The responses are those of a server that receives one request after the other, whatever
        /// is requested in between.
        #[test]
        fn lh_files_12_responses_match_the_requests(
            names in prop::array::uniform2(0u16..60),
            knows_more: bool,
            // Each step continues the directory or requests something else first, with pages of
            // this size.
            asked in prop::collection::vec((0u8..8, prop::option::of(0u32..7)), 1..60),
        ) {
            let mut ahead = PagePrefetch::default();
            let mut server = SimulatedServer::new(names, knows_more);
            let mut plain = SimulatedServer::new(names, true);
            let (mut path, mut after) = ("a", None);
            for (what, limit) in asked {
                match what {
                    0 => (path, after) = ("a", None),
                    1 => (path, after) = ("b", None),
                    2 => prop_assert_eq!(
                        ask(
                            &mut ahead,
                            &mut server,
                            &FilesRequest::Remove {
                                path: PathBytes::default(),
                                recursive: false,
                                keep_time: false,
                            },
                        ),
                        FilesResponse::Changed
                    ),
                    _ => {}
                }
                let answer = ask(&mut ahead, &mut server, &look(path, after.clone(), limit));
                let FilesResponse::Entries { entries, next } = answer else { panic!("{answer:?}") };
                // A page may be shorter than requested, and then another one follows.
                let most = limit.map_or(5, |limit| limit.max(1));
                prop_assert!(entries.len() <= most as usize);
                prop_assert!(next.is_none() || !entries.is_empty());
                let FilesResponse::Entries { entries: expected, next: after_expected } =
                    plain.look(&PathBytes(path.into()), after.as_ref(), Some(entries.len() as u32))
                else { unreachable!() };
                if !entries.is_empty() {
                    prop_assert_eq!(&entries, &expected);
                    prop_assert_eq!(&next, &after_expected);
                }
                prop_assert!(server.asked.len() <= MAX_PREFETCHED_PAGES);
                after = next;
            }
        }
    }

    #[test]
    fn lh_files_12_prefetch_grows_with_use_and_is_bounded() {
        let (mut ahead, mut server) = (
            PagePrefetch::default(),
            SimulatedServer::new([500, 0], true),
        );
        let (mut after, mut under_way) = (None, Vec::new());
        for _ in 0..12 {
            let FilesResponse::Entries { next, .. } =
                ask(&mut ahead, &mut server, &look("a", after, None))
            else {
                unreachable!()
            };
            after = next;
            under_way.push(server.asked.len());
        }
        assert_eq!(under_way, [1, 2, 3, 4, 5, 6, 7, 8, 8, 8, 8, 8]);
        assert_eq!(server.most_waiting, MAX_PREFETCHED_PAGES + 1);
        // In another directory, all outstanding responses are discarded, and prefetching begins
        // again with one page.
        ask(&mut ahead, &mut server, &look("b", None, None));
        assert_eq!(server.asked.len(), 1);
    }

    #[test]
    fn lh_files_1_older_server_is_asked_page_by_page() {
        let (mut ahead, mut server) = (
            PagePrefetch::default(),
            SimulatedServer::new([23, 0], false),
        );
        let (mut after, mut reported) = (None, 0);
        loop {
            let FilesResponse::Entries { entries, next } =
                ask(&mut ahead, &mut server, &look("a", after, None))
            else {
                unreachable!()
            };
            reported += entries.len();
            after = next;
            if after.is_none() {
                break;
            }
        }
        // Five pages, and the three requests that the server did not understand.
        assert_eq!((reported, server.said), (23, 5 + 3));
        assert!(server.asked.is_empty());
    }
}
