//! HELLO: the request of a copy. Every stream of a copy carries the same one, so the first to
//! arrive starts it.

use std::fmt;

use longhaul_filter::FilterRules;

use super::encode::{put_bytes, put_option};
use super::field_reader::FieldReader;
use super::options::{
    CLEAR, COMPRESSION, CRITICAL, DELTA, EXISTING, FILTER, HARD_LINKS, IN_PLACE, KEEP, LATE_SIZES,
    MAX_HELLO_OPTION_BYTES, NOT_KEPT, OFFER, PACKS, PART, PLACEMENT, RECEIPT, REST, RESUME, SINGLE,
    TOKEN, decode_keep, decode_options, put_keep,
};
use super::*;
use crate::bearer::{BearerToken, MAX_TOKEN_BYTES};
use crate::compression::Compression;
use crate::existing::ExistingPolicy;
use crate::part::{CopyPart, Portion};
use crate::preservation::Preservation;

const MAGIC: [u8; 4] = *b"LHCP";
/// Maximum number of sources of one copy.
pub(crate) const MAX_SOURCES: usize = 16 * 1024;
/// Maximum length of an encoded filter, in bytes. An option's value has a length of 16 bits.
pub(crate) const MAX_FILTER_BYTES: usize = 64 * 1024 - 1;

/// Identifies one copy at a server (LH-COPY-10). It has 128 random bits, so only the parties that
/// received it know it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CopyToken(pub [u8; 16]);

impl CopyToken {
    /// Returns a new token from the operating system's random numbers.
    pub fn random() -> std::io::Result<Self> {
        let mut bytes = [0; 16];
        longhaul_platform::random::fill(&mut bytes)?;
        Ok(Self(bytes))
    }
}

impl fmt::Debug for CopyToken {
    /// Only the beginning is shown, as the token is a secret of the two ends.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({:02x}{:02x}..)", self.0[0], self.0[1])
    }
}

/// The first frame of every stream (LH-COPY-5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// Copy that this stream belongs to.
    pub token: CopyToken,
    /// Sources and destination of the copy, and its options.
    pub request: CopyRequest,
    /// If true, unfinished files are kept, and resumed by the next copy of the same request.
    pub resume: bool,
    /// If true, the data of blocks may travel in plaintext if the server allows it too
    /// (LH-COPY-43).
    pub clear: bool,
    /// Set if some files of a pull may exist already, so that each must be offered and compared in
    /// this way. [`crate::Client::pull`] determines it.
    pub offer: Option<Compare>,
    /// If true, names of one file stay names of one file at the receiver (LH-COPY-45).
    pub hard_links: bool,
    /// If true, the copy has one stream at a time. Its sending end may pace it to the capacity of
    /// the path (LH-COPY-48).
    pub single: bool,
    /// Portion of the tree, if several copies bring it together (LH-COPY-49 to LH-COPY-52).
    pub portion: Portion,
    /// For a push that replaces a lost one, the placement that the lost one had (LH-COPY-53).
    /// [`crate::Client::push`] sets it.
    pub placement: Option<Placement>,
    /// If true, the server of a pull may count source properties that the copy does not keep
    /// (LH-COPY-54). [`crate::Client::pull`] sets it.
    pub reports_not_kept: bool,
    /// Filter of what the server of a pull sends (LH-COPY-55). Empty in a push, whose client
    /// filters by itself.
    pub filter: FilterRules,
    /// Treatment of what exists at the server of a push (LH-COPY-56).
    pub existing: ExistingPolicy,
    /// If true, the server should sign the result of the copy (LH-COPY-57). [`crate::Client`] sets
    /// it.
    pub receipt: bool,
    /// Method by which the data of blocks may be compressed (LH-COPY-60).
    pub compression: Compression,
    /// If true, other frames than blocks may travel compressed, too (LH-COPY-75).
    /// [`crate::Client`] sets it if anything is compressed.
    pub packs: bool,
    /// If true, blocks may be put together from existing files (LH-COPY-62).
    pub delta: bool,
    /// If true, existing files are overwritten in place (LH-COPY-73).
    pub in_place: bool,
    /// If true, the client of a push wants to tell the size of a file at its end (LH-COPY-79).
    /// [`crate::Client::push`] sets it.
    pub late_sizes: bool,
    /// Selection of what the copy keeps in addition (LH-COPY-65).
    pub keep: Preservation,
    /// Token of the client, which gives it rights in addition to those of its key (LH-COPY-71).
    /// [`crate::Client::tokens`] sets it for each stream.
    pub bearer: Option<BearerToken>,
}

/// Placement of the sources of a push. The number is its code on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromRepr)]
#[repr(u8)]
pub enum Placement {
    /// The single source becomes the destination itself.
    Itself = 0,
    /// The sources go into the destination under their names.
    IntoDirectory = 1,
}

/// Method that detects whether a file exists already. The number is its code on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromRepr)]
#[repr(u8)]
pub enum Compare {
    /// By its size and modification time in nanoseconds. No content is read.
    #[default]
    SizeAndTime = 1,
    /// By the BLAKE3 hash of its content, which both ends read.
    Content = 2,
}

/// Request of the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopyRequest {
    /// The client sends; the server writes.
    Push {
        /// Destination beneath the server's root.
        destination: RelPath,
        /// If true, the destination must be a directory, and sources go into it under their names.
        into: bool,
        /// If true, replace what exists.
        overwrite: bool,
        /// If true, force everything to disk before it counts as written.
        fsync: bool,
        /// Name of each source. Empty for a source without a name of its own (`.`, `/`).
        names: Vec<Vec<u8>>,
    },
    /// The server sends; the client writes.
    Pull {
        /// If true, copy directories with all their content.
        recursive: bool,
        /// Paths to send, beneath the server's root.
        sources: Vec<RelPath>,
    },
}

impl CopyRequest {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Push {
                destination,
                into,
                overwrite,
                fsync,
                names,
            } => {
                out.push(1);
                put_bytes(out, destination.as_bytes());
                out.extend_from_slice(&[u8::from(*into), u8::from(*overwrite), u8::from(*fsync)]);
                out.extend_from_slice(&(names.len() as u32).to_le_bytes());
                for name in names {
                    put_bytes(out, name);
                }
            }
            Self::Pull { recursive, sources } => {
                out.push(2);
                out.push(u8::from(*recursive));
                out.extend_from_slice(&(sources.len() as u32).to_le_bytes());
                for source in sources {
                    put_bytes(out, source.as_bytes());
                }
            }
        }
    }
}

impl Hello {
    /// Returns the name by which a delegation permits exactly what this HELLO reads: the BLAKE3
    /// hash of the request, of the selection of what is kept, and of the filter (LH-DELEGATION-6).
    #[must_use]
    pub fn delegated_name(&self) -> String {
        let mut encoded = Vec::new();
        self.request.encode(&mut encoded);
        encoded.extend_from_slice(&self.keep.flags().to_le_bytes());
        // It has no value that JSON cannot express.
        encoded.extend(serde_json::to_vec(&self.filter).unwrap_or_default());
        format!("request {}", blake3::hash(&encoded).to_hex())
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&MAGIC);
        // Oldest and newest version that is spoken.
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.token.0);
        self.request.encode(out);
        if self.resume {
            put_option(out, RESUME, &[]);
        }
        if let Some(compare) = self.offer {
            put_option(out, OFFER, &[compare as u8]);
        }
        if self.clear {
            put_option(out, CLEAR, &[]);
        }
        if self.hard_links {
            put_option(out, HARD_LINKS, &[]);
        }
        if self.single {
            put_option(out, SINGLE, &[]);
        }
        match self.portion {
            Portion::Whole => {}
            Portion::Part(part) => {
                let [number, of] = [part.number(), part.total()].map(u32::to_le_bytes);
                put_option(out, PART, &[number, of].concat());
            }
            Portion::Rest => put_option(out, REST, &[]),
        }
        if let Some(placement) = self.placement {
            put_option(out, PLACEMENT, &[placement as u8]);
        }
        if self.reports_not_kept {
            put_option(out, NOT_KEPT, &[]);
        }
        if !self.filter.is_empty() {
            // A server that does not know `.longhaulignore` sends what it would leave out.
            let is_optional = self.filter.is_only_ignore_files();
            let kind = if is_optional {
                FILTER
            } else {
                FILTER | CRITICAL
            };
            // It has no value that JSON cannot express.
            put_option(
                out,
                kind,
                &serde_json::to_vec(&self.filter).unwrap_or_default(),
            );
        }
        if !self.existing.is_default() {
            put_option(out, EXISTING, &[self.existing.flags()]);
        }
        if self.receipt {
            put_option(out, RECEIPT, &[]);
        }
        put_keep(out, self.keep, self.keep.changes_entries());
        if let Some(code) = self.compression.code() {
            put_option(out, COMPRESSION, &[code]);
        }
        if self.delta {
            put_option(out, DELTA, &[]);
        }
        if let Some(token) = &self.bearer {
            put_option(out, TOKEN, token.secret().as_bytes());
        }
        if self.in_place {
            put_option(out, IN_PLACE, &[]);
        }
        if self.packs {
            put_option(out, PACKS, &[]);
        }
        if self.late_sizes {
            put_option(out, LATE_SIZES, &[]);
        }
    }

    pub(super) fn decode(fields: &mut FieldReader) -> Result<Self, WireError> {
        if fields.array::<4>()? != MAGIC {
            return Err(WireError::Value("magic"));
        }
        let (oldest, newest) = (fields.u16()?, fields.u16()?);
        // LH-COPY-6: the fields so far are the same in all versions.
        if oldest > newest {
            return Err(WireError::Value("version range"));
        }
        if !(oldest..=newest).contains(&VERSION) {
            return Err(WireError::Version(oldest, newest));
        }
        let token = CopyToken(fields.array()?);
        let request = match fields.u8()? {
            1 => {
                let destination = fields.path()?;
                let (into, overwrite, fsync) = (fields.flag()?, fields.flag()?, fields.flag()?);
                let names = fields.list(|fields| {
                    let name = fields.bytes()?;
                    RelPath::from_bytes(&name)?;
                    if name.contains(&b'/') {
                        Err(WireError::Value("source name"))
                    } else {
                        Ok(name.to_vec())
                    }
                })?;
                CopyRequest::Push {
                    destination,
                    into,
                    overwrite,
                    fsync,
                    names,
                }
            }
            2 => CopyRequest::Pull {
                recursive: fields.flag()?,
                sources: fields.list(FieldReader::path)?,
            },
            _ => return Err(WireError::Value("request")),
        };
        let (mut resume, mut clear, mut offer) = (false, false, None);
        let (mut hard_links, mut single, mut portion) = (false, false, Portion::Whole);
        let (mut placement, mut reports_not_kept, mut receipt) = (None, false, false);
        let (mut compression, mut packs) = (Compression::None, false);
        let (mut delta, mut in_place, mut late_sizes) = (false, false, false);
        let (mut filter, mut existing) = (FilterRules::default(), ExistingPolicy::default());
        let (mut keep, mut bearer) = (Preservation::default(), None);
        decode_options(fields, MAX_HELLO_OPTION_BYTES, |kind, value| {
            match kind {
                RESUME => resume = true,
                OFFER => offer = Some(value.code(Compare::from_repr, "way to compare")?),
                CLEAR => clear = true,
                HARD_LINKS => hard_links = true,
                SINGLE => single = true,
                PART => {
                    let part = CopyPart::new(value.u32()?, value.u32()?);
                    portion = Portion::Part(part.map_err(|_| WireError::Value("part"))?);
                }
                // The two options exclude each other.
                REST if portion.part().is_some() => return Err(WireError::Value("part")),
                REST => portion = Portion::Rest,
                PLACEMENT => placement = Some(value.code(Placement::from_repr, "placement")?),
                NOT_KEPT => reports_not_kept = true,
                kind if kind & !CRITICAL == FILTER => filter = decode_filter(value)?,
                EXISTING => {
                    let policy = ExistingPolicy::from_flags(value.u8()?);
                    existing = policy.ok_or(WireError::Value("treatment of existing files"))?;
                }
                RECEIPT => receipt = true,
                DELTA => delta = true,
                PACKS => packs = true,
                IN_PLACE => in_place = true,
                LATE_SIZES => late_sizes = true,
                COMPRESSION => {
                    compression = value.code(Compression::from_code, "compression")?;
                }
                kind if kind & !CRITICAL == KEEP => keep = decode_keep(value)?,
                TOKEN => bearer = Some(decode_token(value)?),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(Self {
            token,
            request,
            resume,
            clear,
            offer,
            hard_links,
            single,
            portion,
            placement,
            reports_not_kept,
            filter,
            existing,
            receipt,
            compression,
            packs,
            delta,
            in_place,
            late_sizes,
            keep,
            bearer,
        })
    }

    /// Returns true if a copy of the same request would go where a lost one with this placement
    /// went. The next copy must not mistake a directory that the lost one created for one that its
    /// source goes into.
    pub(crate) fn is_placed(&self, placement: Option<Placement>) -> bool {
        match &self.request {
            CopyRequest::Push { into, names, .. } => {
                *into || names.len() > 1 || placement.is_some()
            }
            CopyRequest::Pull { .. } => true,
        }
    }

    /// Returns what the server cannot do, if it refused this HELLO in these words because it is of
    /// an earlier release.
    pub(crate) fn missing_capability(&self, refusal: &str) -> Option<&'static str> {
        let is = |error: WireError| refusal == error.to_string();
        let is_unknown = |kind: u16| is(WireError::UnknownOption(kind & !CRITICAL));
        let has_filter = !self.filter.is_empty();
        // Earlier releases also have a smaller limit on options.
        if has_filter && (is_unknown(FILTER) || is(WireError::Bound)) {
            return Some(
                "it is of an earlier release and cannot filter what it sends: upgrade it, or leave \
                 out --exclude and the other filters",
            );
        }
        if self.keep.changes_entries() && is_unknown(KEEP) {
            return Some(
                "it is of an earlier release and cannot treat symbolic links otherwise: upgrade \
                 it, or leave out --copy-links and --safe-links",
            );
        }
        if self.in_place && is_unknown(IN_PLACE) {
            return Some(
                "it is of an earlier release and cannot write in place: upgrade it, or leave out \
                 --inplace",
            );
        }
        (!self.existing.is_default() && is_unknown(EXISTING)).then_some(
            "it is of an earlier release and cannot leave files alone: upgrade it, or leave out \
             --update, --existing and --ignore-existing",
        )
    }

    /// Returns true if it is within the bound on HELLO. If not, fewer sources must be named in one
    /// copy.
    pub fn fits(&self) -> bool {
        let mut out = Vec::new();
        self.encode(&mut out);
        let count = match &self.request {
            CopyRequest::Push { names, .. } => names.len(),
            CopyRequest::Pull { sources, .. } => sources.len(),
        };
        // Streams may bring a token.
        out.len() + MAX_TOKEN_BYTES < MAX_HELLO_BYTES && count <= MAX_SOURCES && self.filter_fits()
    }

    /// Returns true if the filter is within its bound. If not, it needs fewer patterns.
    pub fn filter_fits(&self) -> bool {
        serde_json::to_vec(&self.filter).is_ok_and(|filter| filter.len() <= MAX_FILTER_BYTES)
    }
}

/// Decodes a token.
fn decode_token(value: &mut FieldReader) -> Result<BearerToken, WireError> {
    let bytes = std::mem::take(&mut value.0);
    let text = std::str::from_utf8(&bytes).map_err(|_| WireError::Value("token"))?;
    match BearerToken::new(text) {
        Ok(token) if token.secret() == text => Ok(token),
        _ => Err(WireError::Value("token")),
    }
}

/// Decodes a filter. One with a rule that this release does not know is invalid.
fn decode_filter(value: &mut FieldReader) -> Result<FilterRules, WireError> {
    let bytes = std::mem::take(&mut value.0);
    serde_json::from_slice(&bytes).map_err(|_| WireError::Value("filter"))
}

impl FieldReader {
    fn list<T>(
        &mut self,
        item: impl Fn(&mut FieldReader) -> Result<T, WireError>,
    ) -> Result<Vec<T>, WireError> {
        let count = self.u32()? as usize;
        if count == 0 || count > MAX_SOURCES {
            return Err(WireError::Bound);
        }
        // The list grows as items are read, so a count alone allocates nothing.
        let mut list = Vec::new();
        for _ in 0..count {
            list.push(item(self)?);
        }
        Ok(list)
    }
}
