//! Options of a copy.

mod arguments;
mod filter;
mod metadata;
mod ssh;

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;
use longhaul_deadline::ReservationMode;
use longhaul_proto::{PublicKey, Route, Transport};
use longhaul_transfer::{Compression, ExistingPolicy, MAX_STREAMS};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use filter::FilterOptions;
pub use metadata::MetadataOptions;
pub use ssh::SshOptions;

/// Headings in the help. Each option names its own, as a heading of the whole struct would also
/// apply to the options after it.
const EXISTING: &str = "Existing files";
const WRITING: &str = "Writing";
const NETWORK: &str = "Network";
const TRUST: &str = "Keys and trust";
const DEADLINE: &str = "Deadline";

/// Options of `longhaul cp`, with the same names.
///
/// The name of a field is its key in JSON and the ID of its argument: [`Self::arguments`] relies on
/// that.
#[derive(Debug, Clone, Default, PartialEq, Args, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(description = "Options of `longhaul cp`, with the same names.")]
pub struct CopyOptions {
    /// Copy directories with all they hold.
    #[arg(help_heading = filter::HEADING, short, long)]
    #[arg(default_value_if("archive", "true", "true"))]
    pub recursive: bool,
    /// Options that select what is copied.
    #[command(flatten)]
    #[serde(flatten)]
    #[schema(ignore)]
    pub filter: FilterOptions,
    /// Options of metadata and links.
    #[command(flatten)]
    #[serde(flatten)]
    #[schema(ignore)]
    pub metadata: MetadataOptions,
    /// Replace files that exist and differ.
    #[arg(help_heading = EXISTING, long)]
    pub overwrite: bool,
    /// Replace files that exist and differ, unless they are newer than those of the source.
    // These three are left out if unused, so that older releases can read stored jobs.
    #[arg(help_heading = EXISTING, short, long)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub update: bool,
    /// Replace files that exist and differ, and create nothing new.
    #[arg(help_heading = EXISTING, long)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub existing: bool,
    /// Leave everything alone that exists.
    #[arg(help_heading = EXISTING, long)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ignore_existing: bool,
    /// Force names to disk as well as content before the copy counts as done (without it, a power
    /// failure can take away files copied in the last seconds, but never leaves wrong ones).
    #[arg(help_heading = WRITING, long)]
    pub fsync: bool,
    /// Start every file from its beginning, and keep nothing of unfinished ones.
    #[arg(help_heading = WRITING, long)]
    pub no_resume: bool,
    /// Send the content of large files unencrypted, for networks that nobody else can look into;
    /// names, small files and hashes stay encrypted, and every byte is still verified. A server
    /// must allow it (`serve --allow-no-encrypt`), or the copy is encrypted.
    #[arg(help_heading = NETWORK, long)]
    pub no_encrypt: bool,
    /// Compression of the data on its way [default: auto]: `auto` compresses while that makes the
    /// copy faster, `zstd` always, at level 3 or N (1 to 19), `none` never. A server compresses at
    /// level 3 at most.
    // Left out if unused, so that older releases can read stored jobs.
    #[arg(help_heading = NETWORK, long, value_name = "auto|zstd[:N]|none")]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub compress: Option<Compression>,
    /// Compare existing files by the hash of their content instead of by size and modification
    /// time: both ends read them.
    #[arg(help_heading = EXISTING, long)]
    pub checksum: bool,
    /// Send only the parts of a large file that the one it replaces lacks: both ends read theirs.
    // Left out if unused, so that older releases can read stored jobs.
    #[arg(help_heading = EXISTING, long)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub delta: bool,
    /// Overwrite large files that exist and differ in place, only where they differ (as --delta),
    /// without a second file: for images and databases. A copy that ends early leaves a mixture,
    /// which the same command completes.
    // Left out if unused, so that older releases can read stored jobs.
    #[arg(help_heading = EXISTING, long, conflicts_with_all = ["update", "ignore_existing"])]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub inplace: bool,
    /// Keep hard links: several names of one file in the sources become several names of one file,
    /// which is transferred once.
    #[arg(help_heading = WRITING, short = 'H', long)]
    #[arg(default_value_if("archive", "true", "true"))]
    pub hard_links: bool,
    /// Depots to pass, in order, or `direct`. Repeatable: streams spread over the routes, and the
    /// faster ones carry more. [default: the routes from routes.toml or the controller, in addition
    /// to the direct route; direct if there is neither]
    #[arg(help_heading = NETWORK, long = "route", value_name = "HOP[,HOP...]|direct")]
    #[schema(value_type = Vec<String>)]
    pub routes: Vec<Route>,
    /// Local address that sessions start from. Repeatable: streams spread over all addresses, and
    /// over all routes from each [default: the system's choice].
    #[arg(help_heading = NETWORK, long = "source", value_name = "ADDRESS")]
    #[schema(value_type = Vec<String>)]
    pub source_addresses: Vec<IpAddr>,
    /// Streams in all [default: one per route at first, and more while they make the copy faster].
    #[arg(
        help_heading = NETWORK,
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_STREAMS)),
    )]
    pub streams: Option<u32>,
    /// TCP congestion control of this host's connections [default: the system's].
    #[arg(help_heading = NETWORK, long, value_name = "NAME")]
    pub congestion: Option<String>,
    /// Transport of the last hop, to the server [default: tcp, and also quic once random losses
    /// slow the copy down]. The hops of --route name theirs, as in `quic:depot.example`.
    // Left out if unused, so that older releases can read stored jobs.
    #[arg(help_heading = NETWORK, long, value_name = "tcp|quic")]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub transport: Option<Transport>,
    /// When a route fails before anything was sent, connect directly instead.
    #[arg(help_heading = NETWORK, long)]
    pub fall_back: bool,
    /// The server's key, as `longhaul serve` prints it; nothing else is trusted then.
    #[arg(help_heading = TRUST, long, value_name = "KEY")]
    #[schema(value_type = Option<String>)]
    pub host_key: Option<PublicKey>,
    /// Trust a server that is not known yet, and remember its key.
    #[arg(help_heading = TRUST, long, conflicts_with = "host_key")]
    pub accept_new: bool,
    /// Trust servers that prove their names by certificates of these authorities: a PEM file, or a
    /// directory [default: $X509_CERT_DIR].
    #[arg(help_heading = TRUST, long, value_name = "FILE|DIR")]
    #[schema(value_type = Option<String>)]
    pub ca: Option<PathBuf>,
    /// The key to authenticate with [default: the default key, made when first needed].
    #[arg(help_heading = TRUST, long, value_name = "FILE")]
    #[schema(value_type = Option<String>)]
    pub identity: Option<PathBuf>,
    /// Finish by then: 18:00, 'Fri 18:00', '2026-11-27 18:00', +2h (in the API: RFC 3339). What
    /// best effort is not sure to carry by that time is reserved at the controller, and returned as
    /// soon as it is not needed. lh:// only.
    // Left out if unused, so that older releases can read stored jobs.
    #[arg(help_heading = DEADLINE, long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = "date-time")]
    pub by: Option<String>,
    /// Bandwidth to reserve: `auto`, what the deadline needs; `never`; or a rate, such as 2G, for
    /// as long as the copy is expected to take, also without --by. [default: auto with --by, else
    /// never]
    #[arg(help_heading = DEADLINE, long, value_name = "auto|never|RATE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub reserve: Option<ReservationMode>,
    /// Options of ssh.
    #[command(flatten)]
    #[serde(flatten)]
    #[schema(ignore)]
    pub ssh: SshOptions,
}

impl CopyOptions {
    /// Returns true if files that exist and differ are replaced.
    #[must_use]
    pub fn replaces(&self) -> bool {
        self.overwrite || self.update || self.existing
    }

    /// Returns the restriction of what is created and replaced.
    #[must_use]
    pub fn existing_policy(&self) -> ExistingPolicy {
        ExistingPolicy {
            update: self.update,
            existing: self.existing,
            ignore_existing: self.ignore_existing,
        }
    }
}
