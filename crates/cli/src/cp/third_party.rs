//! Copies from one server to another. The destination's server fetches, under a delegation that
//! this client signs, and no file data passes through this machine.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use longhaul_filter::Filter;
use longhaul_hop::unix_ms;
use longhaul_proto::{DelegatedAction, Delegation};
use longhaul_session::{Endpoint, Identity, KnownHosts, PublicKey, ServiceName};
use longhaul_transfer::fetch::message::FetchAsk;
use longhaul_transfer::fetch::{
    CLOCK_MARGIN, DELEGATION_LIFETIME, FETCH_VERSION, FetchView, fetch,
};
use longhaul_transfer::files::message::PathBytes;
use longhaul_transfer::remote_copy::{CopyAsk, CopyDirection};
use longhaul_transfer::{
    ConnectError, ConnectFailure, Connector, CopyOutcome, CopyRequest, CopyToken, Error, Observer,
};
use tokio::task::JoinSet;

use super::{Cp, FinishedCopy, NO_SOURCE};
use crate::home;
use crate::server_options::ServerOptions;
use crate::target::Remote;
use crate::trust::RememberingConnector;
use crate::watch::CopyWatch;

/// The permission that this client gives to the destination's server.
struct ReadPermission {
    identity: Identity,
    delegate: PublicKey,
    /// Key of the source's server.
    audience: PublicKey,
    /// Name of what may be read.
    from: String,
    /// Name of the destination's server.
    to: String,
}

impl ReadPermission {
    /// Signs a delegation that is valid from now on.
    fn sign(&self) -> Result<String, Error> {
        let now = unix_ms();
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let mut given = Delegation {
            id: CopyToken::random()?.0,
            action: DelegatedAction::Read,
            principal: self.identity.public(),
            delegate: self.delegate,
            audience: Some(self.audience),
            from: self.from.clone(),
            to: self.to.clone(),
            both_ways: false,
            max_rate: u64::MAX,
            start_unix_ms: now.saturating_sub(millis(CLOCK_MARGIN)),
            end_unix_ms: now.saturating_add(millis(DELEGATION_LIFETIME)),
            signature: [0; 64],
        };
        given
            .sign(self.identity.signing_key())
            .map_err(|error| Error::Unauthorised(error.to_string()))?;
        given
            .to_text()
            .map_err(|error| Error::Refused(error.to_string()))
    }
}

impl Cp {
    /// Returns an option that does not fit a copy between two servers, and what to do.
    pub(super) fn impossible_between_servers(&self) -> Option<(&'static str, &'static str)> {
        const DIRECT: &str = "the destination's server connects to the source's directly";
        const RUN_THERE: &str = "run the copy on one of the two";
        let options = &self.options;
        let given = [
            (!options.routes.is_empty(), "--route", DIRECT),
            (options.fall_back, "--fall-back", DIRECT),
            (!options.source_addresses.is_empty(), "--source", DIRECT),
            (options.transport.is_some(), "--transport", DIRECT),
            (
                options.congestion.is_some(),
                "--congestion",
                "the destination's server has an option of that name",
            ),
            (
                options.host_key.is_some(),
                "--host-key",
                "there are two servers: give --accept-new, or use longhaul ls with each once",
            ),
            (options.by.is_some(), "--by", RUN_THERE),
            (options.reserve.is_some(), "--reserve", RUN_THERE),
        ];
        let mut given = given.into_iter().filter(|(is_given, ..)| *is_given);
        given.next().map(|(_, flag, instead)| (flag, instead))
    }

    /// Has the destination's server fetch the sources.
    pub(super) async fn between_servers(
        &self,
        sources: &[Remote],
        destination: &Remote,
        filter: &Filter,
        watch: &Arc<CopyWatch>,
    ) -> Result<FinishedCopy> {
        let Some(first) = sources.first() else {
            bail!(NO_SOURCE)
        };
        watch.set_server(destination.server.host.to_string());
        let servers = ServerOptions::for_copy(&self.options);
        let request = CopyRequest::Pull {
            recursive: self.options.recursive,
            sources: sources.iter().map(|source| source.path.clone()).collect(),
        };
        // Checks the bounds of the request.
        let hello = self.hello(request, filter)?;
        let audience = self.key_of_source(&first.server, &servers).await?;
        let fetching = servers.connector(ServiceName::FETCH, &destination.server);
        let connector = fetching.await?;
        let session = connector
            .connect(0)
            .await
            .map_err(|error| self.not_fetched(error, &connector, destination, &first.server))?;
        let permission = ReadPermission {
            identity: home::identity(self.options.identity.as_deref())?,
            delegate: session.info().peer,
            audience,
            from: hello.delegated_name(),
            to: destination.server.host.to_string(),
        };
        let ask = FetchAsk {
            lowest: FETCH_VERSION,
            highest: FETCH_VERSION,
            delegation: permission.sign()?,
            copy: self.fetched_copy(sources, destination, audience, filter),
        };
        let labels: Vec<String> = sources.iter().map(Remote::to_string).collect();
        watch.expect_sources(&labels);
        let observer: Arc<dyn Observer> = watch.clone();
        let view = FetchView {
            server: &destination.server.to_string(),
            progress: &watch.progress,
            observer: &observer,
        };
        let ended = fetch(session, &ask, || permission.sign(), view).await?;
        if ended.left_out > 0 {
            watch.notice(&format!(
                "{} events are not listed, as they came faster than this connection took them",
                ended.left_out
            ));
        }
        let outcome = CopyOutcome {
            manifest: ended.manifest,
            closing: JoinSet::new(),
        };
        Ok(outcome.into())
    }

    /// Returns the key of the source's server. If it is not known, a session proves it.
    async fn key_of_source(&self, server: &Endpoint, options: &ServerOptions) -> Result<PublicKey> {
        let known = KnownHosts::open(&home::known_hosts_file()?)?;
        if let Some(key) = known.get(server) {
            return Ok(key);
        }
        let connector = options.connector(ServiceName::FILES, server).await?;
        let session = connector.connect(0).await.map_err(|error| {
            let text = error.message.clone();
            self.advise_about(error.into_error(text), &connector, server)
        })?;
        let key = session.info().peer;
        // It has no other purpose.
        let _ = session.close().await;
        Ok(key)
    }

    fn not_fetched(
        &self,
        error: ConnectError,
        connector: &RememberingConnector,
        destination: &Remote,
        source: &Endpoint,
    ) -> anyhow::Error {
        if error.kind == ConnectFailure::NotOffered {
            return anyhow!(Error::Refused(format!(
                "{} does not fetch from other servers: its operator must give --third-party {}, \
                 or copy here first",
                destination.server, source.host
            )));
        }
        let text = error.message.clone();
        self.advise_about(error.into_error(text), connector, &destination.server)
    }

    /// Returns what the destination's server is asked to do.
    fn fetched_copy(
        &self,
        sources: &[Remote],
        destination: &Remote,
        key: PublicKey,
        filter: &Filter,
    ) -> CopyAsk {
        let options = &self.options;
        let existing = options.existing_policy();
        let source = sources.first().map(|source| &source.server);
        let paths = sources.iter().map(|source| source.path.as_bytes().to_vec());
        CopyAsk {
            server: key,
            hosts: source
                .iter()
                .map(|server| server.host.to_string())
                .collect(),
            port: source.map_or(0, |server| server.port),
            direction: CopyDirection::Pull,
            sources: paths.map(PathBytes).collect(),
            names: sources
                .iter()
                .map(|source| PathBytes(source.name()))
                .collect(),
            labels: Vec::new(),
            destination: PathBytes(destination.path.as_bytes().to_vec()),
            into: destination.is_directory || sources.len() > 1,
            recursive: options.recursive,
            overwrite: options.replaces(),
            fsync: options.fsync,
            resume: !options.no_resume,
            checksum: options.checksum,
            hard_links: options.hard_links,
            streams: options.streams,
            patience_ms: Some(u64::try_from(self.patience().as_millis()).unwrap_or(u64::MAX)),
            congestion: None,
            no_encrypt: options.no_encrypt,
            compression: self.compression(),
            delta: options.delta || options.inplace,
            in_place: options.inplace,
            // The report names the hash if a single file was copied.
            report_done: self.run_options.json || (!options.recursive && sources.len() == 1),
            filter: filter.rules().clone(),
            update: existing.update,
            existing: existing.existing,
            ignore_existing: existing.ignore_existing,
            keep: self.preservation(),
        }
    }
}
