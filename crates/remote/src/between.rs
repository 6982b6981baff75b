//! A copy between two far sides. One serves and the other is its client, depending on which can
//! reach the other. No file data passes through this host.

use std::sync::Arc;
use std::time::Duration;

use longhaul_transfer::{
    Compression, ExistingPolicy, FilterRules, Hash, Observer, Preservation, RouteInfo,
    TransferProgress,
};

use crate::message::{
    Access, CopyAsk, CopyDirection, FarAnswer, FarQuestion, PathBytes, copy_question,
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
    /// Compression of the data on its way.
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
            // An earlier release would not know it.
            in_place: false,
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
        let question = copy_question(ask);
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
                FarAnswer::Event(event) => {
                    let route = RouteInfo::without_depots("between the hosts");
                    self.observer.event(event.into_event(route, self.progress));
                }
                FarAnswer::Progress(counts) => counts.apply(self.progress),
                FarAnswer::Ended(end) => {
                    let ended = end.into_result(&client.host);
                    return Ok(Ok(ended.map_err(Error::Copy)?));
                }
                other => return Err(client.unexpected_answer(&other)),
            }
            answer = client.receive(true).await?;
        }
    }
}
