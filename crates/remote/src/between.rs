//! A copy between two far sides. One serves and the other is its client, depending on which can
//! reach the other. No file data passes through this host.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use data_encoding::HEXLOWER;
use longhaul_transfer::{
    Compression, Error as CopyError, ExistingPolicy, Failure, FilterRules, Hash, Observer,
    Preservation, RouteInfo, TransferEvent, TransferProgress,
};

use crate::message::{
    Access, CopyAsk, CopyDirection, CopyEnd, CopyErrorKind, CopyEvent, CopyProgress, FarAnswer,
    FarQuestion, PathBytes,
};
use crate::{ClientClock, Error, FarSide, Login, ServeRequest};

/// Options of a copy between two hosts.
#[derive(Debug, Clone)]
pub struct CopyBetween {
    /// Sources, all on one host.
    pub sources: Vec<Login>,
    /// Destination, on the other host.
    pub destination: Login,
    /// If true, directories are copied with all they hold.
    pub recursive: bool,
    /// If true, existing files are replaced.
    pub overwrite: bool,
    /// If true, files are forced to disk.
    pub fsync: bool,
    /// If true, parts of large files are kept when the copy ends early, and resumed.
    pub resume: bool,
    /// If true, the content of existing files is compared instead of their sizes and times.
    pub checksum: bool,
    /// If true, hard links are kept.
    pub hard_links: bool,
    /// Fixed number of streams, if there is one.
    pub streams: Option<u32>,
    /// Time for which an outage is tolerated.
    pub patience: Duration,
    /// If true, every completed entry is reported, not only counted.
    pub report_done: bool,
    /// Ports to listen on.
    pub ports: Option<longhaul_proto::PortRange>,
    /// TCP congestion control.
    pub congestion: Option<String>,
    /// If true, the data of large files is sent as plaintext.
    pub no_encrypt: bool,
    /// Compression of the data of large files.
    pub compression: Compression,
    /// If true, blocks are put together from existing files.
    pub delta: bool,
    /// Filter of what is copied.
    pub filter: FilterRules,
    /// Restriction of what is created and replaced.
    pub existing: ExistingPolicy,
    /// Selection of what is kept besides permissions and times.
    pub keep: Preservation,
}

/// Result of a copy.
#[derive(Debug, Clone)]
pub struct CopyResult {
    /// BLAKE3 over the record of every entry.
    pub manifest: Hash,
    /// Reason why the destination connects to the source instead of the other way round, if it
    /// does.
    pub notice: Option<String>,
}

impl CopyBetween {
    /// Copies from `source` to `destination`. `progress` and `observer` see what the copy's own
    /// client would show them.
    ///
    /// # Errors
    /// [`Error::Apart`] if neither host reaches the other; [`Error::Copy`] if the copy ended early.
    pub async fn copy(
        &self,
        source: &mut FarSide,
        destination: &mut FarSide,
        progress: &TransferProgress,
        observer: &Arc<dyn Observer>,
    ) -> Result<CopyResult, Error> {
        let receiving = EventReceiver { progress, observer };
        let to_destination = match self.push(source, destination, &receiving).await? {
            Ok(manifest) => {
                return Ok(CopyResult {
                    manifest,
                    notice: None,
                });
            }
            Err(reason) => reason,
        };
        match self.pull(source, destination, &receiving).await? {
            Ok(manifest) => Ok(CopyResult {
                manifest,
                notice: Some(format!(
                    "{} cannot be reached from {} ({to_destination}); it connects to {} \
                     instead",
                    destination.host, source.host, source.host
                )),
            }),
            Err(from_destination) => Err(Error::Apart {
                source_host: source.host.clone(),
                destination_host: destination.host.clone(),
                reason: format!(
                    "to {}: {to_destination}; back: {from_destination}",
                    destination.host
                ),
            }),
        }
    }

    /// Copies with the source's host as client. Returns `Ok(Err(why))` if it does not reach the
    /// other.
    async fn push(
        &self,
        source: &mut FarSide,
        destination: &mut FarSide,
        receiving: &EventReceiver<'_>,
    ) -> Result<Result<Hash, String>, Error> {
        let access = if self.overwrite || self.keep.has_attributes() {
            Access::Write
        } else {
            Access::Create
        };
        let place = vec![self.destination.path.clone()];
        let serve = self.serve(access, place);
        let (port, paths) = match start_serving(destination, source, &serve).await? {
            Ok(begun) => begun,
            Err(why_not) => return Ok(Err(why_not)),
        };
        let ask = CopyAsk {
            direction: CopyDirection::Push,
            sources: self
                .sources
                .iter()
                .map(|login| PathBytes(login.path.clone()))
                .collect(),
            destination: paths.into_iter().next().unwrap_or_default(),
            ..self.ask(destination, port)
        };
        receiving.copy(source, ask).await
    }

    /// Copies with the destination's host as client. Returns `Ok(Err(why))` if it does not reach
    /// the other.
    async fn pull(
        &self,
        source: &mut FarSide,
        destination: &mut FarSide,
        receiving: &EventReceiver<'_>,
    ) -> Result<Result<Hash, String>, Error> {
        let typed = self
            .sources
            .iter()
            .map(|login| login.path.clone())
            .collect();
        let serve = self.serve(Access::Read, typed);
        let (port, paths) = match start_serving(source, destination, &serve).await? {
            Ok(begun) => begun,
            Err(why_not) => return Ok(Err(why_not)),
        };
        let ask = CopyAsk {
            direction: CopyDirection::Pull,
            sources: paths,
            destination: PathBytes(self.destination.path.clone()),
            ..self.ask(source, port)
        };
        receiving.copy(destination, ask).await
    }

    fn serve(&self, access: Access, paths: Vec<Vec<u8>>) -> ServeRequest {
        ServeRequest {
            access,
            paths,
            follow: !self.recursive,
            ports: self.ports,
            congestion: self.congestion.clone(),
            no_encrypt: self.no_encrypt,
            routes: vec![],
            last_way: None,
        }
    }

    fn ask(&self, server: &FarSide, port: u16) -> CopyAsk {
        CopyAsk {
            server: server.ready.key,
            hosts: server.hosts(),
            port,
            direction: CopyDirection::Push,
            sources: vec![],
            names: self
                .sources
                .iter()
                .map(|login| PathBytes(login.name()))
                .collect(),
            labels: self.sources.iter().map(Login::to_string).collect(),
            destination: PathBytes::default(),
            into: self.destination.is_directory() || self.sources.len() > 1,
            recursive: self.recursive,
            overwrite: self.overwrite,
            fsync: self.fsync,
            resume: self.resume,
            checksum: self.checksum,
            hard_links: self.hard_links,
            streams: self.streams,
            patience_ms: Some(u64::try_from(self.patience.as_millis()).unwrap_or(u64::MAX)),
            congestion: self.congestion.clone(),
            no_encrypt: self.no_encrypt,
            compression: self.compression,
            delta: self.delta,
            report_done: self.report_done,
            filter: self.filter.clone(),
            update: self.existing.update,
            existing: self.existing.existing,
            ignore_existing: self.existing.ignore_existing,
            keep: self.keep,
        }
    }
}

/// Has `server` serve `client`. Returns its port and its paths, or the reason why it can't listen.
async fn start_serving(
    server: &mut FarSide,
    client: &FarSide,
    serve: &ServeRequest,
) -> Result<Result<(u16, Vec<PathBytes>), String>, Error> {
    // A client of an earlier release does not send its clock.
    let clock = client
        .ready
        .unix_ms
        .map(|theirs_ms| ClientClock::read(server.ready_ms).to_clock(theirs_ms, client.ready_ms));
    match server.ask(&serve.ask(client.ready.key, clock)).await? {
        FarAnswer::Serving {
            port: Some(port),
            paths,
            ..
        } => Ok(Ok((port, paths))),
        FarAnswer::Serving { why_not, .. } => {
            Ok(Err(why_not.unwrap_or("it does not listen".into())))
        }
        other => Err(server.unexpected_answer(&other)),
    }
}

/// Receiver of a copy's events.
struct EventReceiver<'a> {
    progress: &'a TransferProgress,
    observer: &'a Arc<dyn Observer>,
}

impl EventReceiver<'_> {
    async fn copy(
        &self,
        client: &mut FarSide,
        ask: CopyAsk,
    ) -> Result<Result<Hash, String>, Error> {
        let question = ask.into_question();
        let is_selected = matches!(question, FarQuestion::CopySelected(_));
        let mut answer = match client.ask(&question).await {
            // A far side of this release answers this question otherwise.
            Err(Error::Refused { host, .. }) if is_selected => {
                let reason = "its longhaul is of an earlier release and can neither filter nor \
                              leave files alone: upgrade it, or give --bootstrap"
                    .to_owned();
                return Err(Error::Refused { host, reason });
            }
            answer => answer?,
        };
        loop {
            match answer {
                FarAnswer::NotReached { reason } => return Ok(Err(reason)),
                FarAnswer::Event(event) => self.event(event),
                FarAnswer::Progress(counts) => self.count(&counts),
                FarAnswer::Ended(end) => return self.ended(client, end).map(Ok),
                other => return Err(client.unexpected_answer(&other)),
            }
            answer = client.receive(true).await?;
        }
    }

    fn count(&self, counts: &CopyProgress) {
        let progress = self.progress;
        for (counter, value) in [
            (&progress.entries_found, counts.entries_found),
            (&progress.bytes_found, counts.bytes_found),
            (&progress.entries_done, counts.entries_done),
            (&progress.files_done, counts.files_done),
            (&progress.bytes_done, counts.bytes_done),
            (&progress.files_unchanged, counts.files_unchanged),
            (&progress.bytes_unchanged, counts.bytes_unchanged),
            (&progress.files_linked, counts.files_linked),
            (&progress.bytes_linked, counts.bytes_linked),
            (&progress.failures, counts.failures),
            (&progress.bytes_plaintext, counts.bytes_clear),
            (&progress.bytes_saved, counts.bytes_saved),
        ] {
            counter.store(value, Ordering::Relaxed);
        }
        if let Some(resumed) = counts.bytes_resumed {
            progress.bytes_resumed.store(resumed, Ordering::Relaxed);
        }
        progress
            .walk_complete
            .store(counts.walk_complete, Ordering::Relaxed);
    }

    fn event(&self, event: CopyEvent) {
        let route = RouteInfo::without_depots("between the hosts");
        self.observer.event(match event {
            CopyEvent::StreamOpened { stream } => TransferEvent::StreamOpened { stream, route },
            CopyEvent::StreamLost { stream, reason } => TransferEvent::StreamLost {
                stream,
                route,
                reason,
                is_silent: false,
            },
            CopyEvent::Resumed { path, bytes, size } => {
                self.progress
                    .bytes_resumed
                    .fetch_add(bytes, Ordering::Relaxed);
                TransferEvent::Resumed { path, bytes, size }
            }
            CopyEvent::Done {
                path,
                bytes,
                blake3,
                same,
            } => TransferEvent::Done {
                path,
                bytes,
                hash: blake3.and_then(|text| hash(&text)),
                same,
            },
            CopyEvent::Waiting {
                silence_ms,
                patience_ms,
            } => TransferEvent::Waiting {
                silence: Duration::from_millis(silence_ms),
                patience: Duration::from_millis(patience_ms),
            },
            CopyEvent::Back { after_ms } => TransferEvent::ArrivalResumed {
                after: Duration::from_millis(after_ms),
            },
            CopyEvent::BegunAgain { reason } => TransferEvent::CopyReplaced { reason },
            CopyEvent::Failed { path, kind, detail } => TransferEvent::Failed {
                path,
                failure: Failure::with_detail(kind, detail),
            },
        });
    }

    fn ended(&self, client: &FarSide, end: CopyEnd) -> Result<Hash, Error> {
        if let Some(manifest) = end.manifest.as_deref().and_then(hash) {
            return Ok(manifest);
        }
        let reported = end.error.unwrap_or("it did not report a result".into());
        let text =
            longhaul_proto::text::printable(format!("{}: {reported}", client.host).as_bytes());
        Err(Error::Copy(match end.kind {
            Some(CopyErrorKind::Connect) => CopyError::Connect(text),
            Some(CopyErrorKind::Unauthorised) => CopyError::Unauthorised(text),
            Some(CopyErrorKind::Disagreement) => CopyError::Disagreement,
            Some(CopyErrorKind::BrokeOff) | None => CopyError::StreamsLost(text),
            Some(CopyErrorKind::Refused | CopyErrorKind::Path) => CopyError::Refused(text),
        }))
    }
}

fn hash(text: &str) -> Option<Hash> {
    HEXLOWER.decode(text.as_bytes()).ok()?.try_into().ok()
}
