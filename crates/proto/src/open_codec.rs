//! Encoding of OPEN: the rules LH-OPEN-1 to LH-OPEN-17, and the signed part (LH-SIGN-1).

use std::ops::RangeInclusive;
use std::time::Duration;

use bytes::{BufMut, BytesMut};

use crate::{
    CircuitGrant, Delegation, Endpoint, MAX_OPEN_BYTES, MAX_PADDING_BYTES, MAX_PASSED_DEPOTS, Open,
    PublicKey, ResumeOffer, ResumeRequest, Route, ServiceName, SessionId, TraceContext, Transport,
    UnknownOption, VERSION, VersionRange,
    frame::{self, FrameError, FrameReader},
    text,
    tlv::{self, CRITICAL, FieldReader, FieldResult, MUTABLE, NUMBER},
};

/// Magic of an OPEN (LH-OPEN-1). Its first byte starts no text protocol and no TLS record.
const MAGIC: [u8; 4] = [0xf1, b'L', b'H', b'O'];
/// Domain separation: prevents the signature from being valid for any other message (LH-SIGN-1).
const SIGNATURE_CONTEXT: &[u8] = b"longhaul OPEN signature v1\0";
const MAX_PURPOSE_BYTES: usize = 64;
const MAX_CIRCUIT_BYTES: usize = 128;

// Option kinds, with the flags that each must carry (LH-OPEN-8).
const SESSION_ID: u16 = CRITICAL | 1;
const DESTINATION: u16 = CRITICAL | 2;
const ROUTE: u16 = CRITICAL | 3;
const CURSOR: u16 = CRITICAL | MUTABLE | 4;
const PASSED: u16 = CRITICAL | MUTABLE | 5;
const HOP_LIMIT: u16 = CRITICAL | MUTABLE | 6;
const SETUP_BUDGET: u16 = CRITICAL | MUTABLE | 7;
const SIZE: u16 = 8;
const PURPOSE: u16 = 9;
const CIRCUIT: u16 = 10;
const TRACE: u16 = MUTABLE | 11;
const PRINCIPAL: u16 = CRITICAL | 12;
const SIGNED_AT: u16 = CRITICAL | 13;
const SIGNATURE: u16 = CRITICAL | MUTABLE | 14;
const SERVICE: u16 = CRITICAL | 15;
const RATE: u16 = 16;
const DURATION: u16 = 17;
const ONWARD: u16 = CRITICAL | 18;
const GRANT: u16 = 19;
const PADDING: u16 = 20;
const TRANSPORTS: u16 = 21;
const RESUME_OFFER: u16 = 30;
const RESUME: u16 = 31;
/// Critical: a server that does not know it would use the delegate's own rights.
const DELEGATION: u16 = CRITICAL | 37;
/// Highest number of the options that are numbered without a gap.
const LAST_CONSECUTIVE: u16 = TRANSPORTS;

/// Returns true if this version knows the option with this number. An [`UnknownOption`] has another
/// one.
#[must_use]
pub const fn is_known_option(number: u16) -> bool {
    matches!(number, 1..=LAST_CONSECUTIVE | RESUME_OFFER | RESUME) || number == DELEGATION & NUMBER
}

/// Incremental decoder of an OPEN. Buffers at most [`MAX_OPEN_BYTES`] bytes, and never more than
/// have arrived.
#[derive(Debug, Clone)]
pub struct OpenDecoder {
    frame: FrameReader,
}

impl OpenDecoder {
    /// Creates a decoder at the start of a stream.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            frame: FrameReader::new(MAGIC, MAX_OPEN_BYTES, |[min, max]| {
                is_supported(VersionRange { min, max })
            }),
        }
    }

    /// Consumes the OPEN's bytes from `input`. Returns `None` if all of `input` was consumed and
    /// the OPEN is incomplete.
    ///
    /// Once complete, returns the OPEN and the number of bytes consumed of *this* input. The rest
    /// of the input is early data (LH-OPEN-12).
    ///
    /// # Errors
    /// An [`OpenError`] as soon as it is certain. The stream is then unusable.
    pub fn feed(&mut self, input: &[u8]) -> Result<Option<(Open, usize)>, OpenError> {
        let (used, frame) = self.frame.feed(input)?;
        let Some(frame) = frame else { return Ok(None) };
        Ok(Some((decode(&frame)?, used)))
    }

    /// Returns the number of bytes buffered of an incomplete OPEN.
    #[must_use]
    pub fn buffered_bytes(&self) -> usize {
        self.frame.buffered_bytes()
    }
}

impl Default for OpenDecoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Open {
    /// Appends the encoded OPEN to `out`.
    ///
    /// # Errors
    /// An [`OpenError`] when it breaks a rule; `out` is then unchanged.
    pub fn encode(&self, out: &mut BytesMut) -> Result<(), OpenError> {
        if !is_supported(self.versions) {
            return Err(OpenError::Version(self.versions));
        }
        self.check()?;
        let mut body = BytesMut::with_capacity(512);
        self.put_options(&mut body, true);
        frame::write_frame(
            out,
            MAGIC,
            [self.versions.min, self.versions.max],
            MAX_OPEN_BYTES,
            &body,
        )
        .map_err(OpenError::Length)
    }

    /// Returns the size of the encoded OPEN, in bytes.
    pub(crate) fn encoded_bytes(&self) -> usize {
        let mut body = BytesMut::with_capacity(512);
        self.put_options(&mut body, true);
        frame::HEADER_BYTES + body.len()
    }

    /// Returns the signed part (LH-SIGN-1): the context, the version range, and every option that
    /// depots may not change.
    pub(crate) fn signed_bytes(&self) -> BytesMut {
        let mut out = BytesMut::with_capacity(512);
        out.put_slice(SIGNATURE_CONTEXT);
        out.put_slice(&[self.versions.min, self.versions.max]);
        self.put_options(&mut out, false);
        out
    }

    /// Appends the options in ascending order (LH-OPEN-6). `check` ensures that the unknown numbers
    /// ascend, and that none is among the consecutive ones.
    fn put_options(&self, out: &mut BytesMut, mutable: bool) {
        let unknown = |numbers: RangeInclusive<u16>| {
            let options = self.unknown.iter();
            options.filter(move |option| numbers.contains(&(option.kind & NUMBER)))
        };
        let mut put = |kind: u16, value: &dyn Fn(&mut BytesMut)| {
            if mutable || kind & MUTABLE == 0 {
                tlv::put_option(out, kind, value);
            }
        };
        put(SESSION_ID, &|out| out.put_slice(self.session_id.as_bytes()));
        put(DESTINATION, &|out| self.destination.encode(out));
        put(ROUTE, &|out| self.route.encode(out));
        put(CURSOR, &|out| out.put_u8(self.cursor));
        put(PASSED, &|out| {
            self.passed
                .iter()
                .for_each(|depot| out.put_slice(depot.as_bytes()))
        });
        put(HOP_LIMIT, &|out| out.put_u8(self.hop_limit));
        put(SETUP_BUDGET, &|out| {
            out.put_u32(whole_ms(self.setup_budget))
        });
        if let Some(size) = self.size {
            put(SIZE, &|out| out.put_u64(size));
        }
        if let Some(purpose) = &self.purpose {
            put(PURPOSE, &|out| out.put_slice(purpose.as_bytes()));
        }
        if let Some(circuit) = &self.circuit {
            put(CIRCUIT, &|out| out.put_slice(circuit));
        }
        if let Some(trace) = &self.trace {
            put(TRACE, &|out| {
                out.put_slice(&trace.trace_id);
                out.put_slice(&trace.parent_id);
                out.put_u8(trace.flags);
            });
        }
        put(PRINCIPAL, &|out| out.put_slice(self.principal.as_bytes()));
        put(SIGNED_AT, &|out| out.put_u64(self.signed_at_unix_ms));
        put(SIGNATURE, &|out| out.put_slice(&self.signature));
        put(SERVICE, &|out| {
            out.put_slice(self.service.as_str().as_bytes())
        });
        if let Some(rate) = self.rate {
            put(RATE, &|out| out.put_u64(rate));
        }
        if let Some(duration) = self.duration {
            put(DURATION, &|out| out.put_u64(duration));
        }
        if let Some(onward) = &self.onward {
            put(ONWARD, &|out| onward.encode(out));
        }
        if let Some(grant) = &self.grant {
            put(GRANT, &|out| grant.put(out));
        }
        if let Some(padding) = self.padding {
            put(PADDING, &|out| out.put_u16(padding));
        }
        if self.transports().any(|transport| transport.is_some()) {
            put(TRANSPORTS, &|out| {
                self.transports().for_each(|transport| {
                    out.put_u8(transport.map_or(0, |transport| transport as u8))
                });
            });
        }
        for option in unknown(0..=RESUME_OFFER) {
            put(option.kind, &|out| out.put_slice(&option.value));
        }
        if let Some(offer) = &self.resume_offer {
            put(RESUME_OFFER, &|out| offer.encode(out));
        }
        if let Some(request) = &self.resume {
            put(RESUME, &|out| request.encode(out));
        }
        for option in unknown(RESUME..=DELEGATION & NUMBER) {
            put(option.kind, &|out| out.put_slice(&option.value));
        }
        if let Some(delegation) = &self.delegation {
            put(DELEGATION, &|out| delegation.put(out));
        }
        for option in unknown((DELEGATION & NUMBER) + 1..=NUMBER) {
            put(option.kind, &|out| out.put_slice(&option.value));
        }
    }

    /// Returns the required transport of each position of the route (LH-OPEN-17).
    fn transports(&self) -> impl Iterator<Item = Option<Transport>> {
        let hops = self.route.hops().iter().map(|hop| hop.transport);
        hops.chain([self.destination_transport])
    }

    /// Checks the rules that the type system does not enforce (LH-OPEN-6 to LH-OPEN-10, LH-OPEN-14,
    /// LH-ROUTE-1, LH-ROUTE-4).
    fn check(&self) -> Result<(), OpenError> {
        let invalid = |option, why| Err(OpenError::Invalid { option, why });
        let endpoints = self.route.hops().iter().map(|hop| &hop.endpoint);
        if let Some(why) = endpoints
            .chain([&self.destination])
            .chain(&self.onward)
            .find_map(|endpoint| endpoint.check().err())
        {
            return invalid("an endpoint", why);
        }
        if usize::from(self.cursor) > self.route.hops().len() + 1 {
            return invalid("cursor", "a position beyond the destination");
        }
        if self.passed.len() > MAX_PASSED_DEPOTS {
            return invalid("depots passed", "more depots than may be passed");
        }
        if let Some(why) = self
            .purpose
            .as_deref()
            .and_then(|purpose| check_purpose(purpose).err())
        {
            return invalid("purpose", why);
        }
        if let Some(why) = self
            .circuit
            .as_deref()
            .and_then(|circuit| check_circuit(circuit).err())
        {
            return invalid("circuit", why);
        }
        if [self.rate, self.duration].contains(&Some(0)) {
            return invalid("rate or duration", "an empty wish");
        }
        if let Some(why) = self.grant.as_ref().and_then(|grant| grant.validate().err()) {
            return invalid("grant", why);
        }
        if self
            .padding
            .is_some_and(|padding| !(1..=MAX_PADDING_BYTES).contains(&padding))
        {
            return invalid("padding", "not 1 to 16384 bytes");
        }
        match (&self.onward, self.service == ServiceName::TCP) {
            (Some(_), true) | (None, false) => {}
            (Some(_), false) => {
                return invalid("onward", "a server for another service than `tcp`");
            }
            (None, true) => {
                return Err(OpenError::Missing(
                    "onward endpoint, which the service `tcp` needs",
                ));
            }
        }
        if let Some(why) = self.resume_offer.and_then(|offer| offer.check().err()) {
            return invalid("offer to resume", why);
        }
        if let Some(why) = self.resume.as_ref().and_then(|resume| resume.check().err()) {
            return invalid("request to resume", why);
        }
        if let Some(delegation) = &self.delegation {
            if let Err(why) = delegation.validate() {
                return invalid("delegation", why);
            }
            if self.service != ServiceName::COPY {
                return invalid(
                    "delegation",
                    "it belongs to the service `copy`, and to no other",
                );
            }
        }
        if self.resume.is_some() != (self.service == ServiceName::RESUME) {
            return invalid(
                "request to resume",
                "it belongs to the service `resume`, and to no other",
            );
        }
        let mut previous = LAST_CONSECUTIVE;
        for option in &self.unknown {
            let number = option.kind & NUMBER;
            if option.kind & CRITICAL != 0 || number <= previous || is_known_option(number) {
                return invalid(
                    "unknown options",
                    "options critical, out of order or repeated",
                );
            }
            previous = number;
        }
        Ok(())
    }
}

/// Reason why bytes are not an OPEN, or why a value cannot be encoded. [`rule`](OpenError::rule)
/// names the rule of `docs/protocol.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The peer speaks another protocol: check the port. In a log, a scanner or another program
    /// connected to the port.
    #[error("not a Longhaul request: the peer speaks another protocol")]
    Magic,
    /// The protocol versions do not overlap: one side needs an upgrade.
    #[error("no common protocol version: the OPEN has version {0}, this end speaks {VERSION}")]
    Version(VersionRange),
    /// The frame is too long or too short.
    #[error(
        "an OPEN of {0} bytes: its length must be between that of its header and \
        {MAX_OPEN_BYTES} bytes"
    )]
    Length(usize),
    /// The frame was damaged in transit.
    #[error("the OPEN was corrupted on the way: its checksum does not match")]
    Crc,
    /// The options do not fill the frame, or are out of order or repeated. The client is faulty.
    #[error("malformed options in the OPEN: {0}")]
    Malformed(&'static str),
    /// The OPEN has a critical option unknown here: upgrade this end, or omit the option.
    #[error("the OPEN carries critical option {0}, which this release does not know")]
    UnknownCritical(u16),
    /// A mandatory option is missing. The client is faulty.
    #[error("the OPEN has no {0}")]
    Missing(&'static str),
    /// An option's value or flags break a rule. The client is faulty, or a name or path is too long
    /// for a request.
    #[error("the OPEN's {option}: {why}")]
    Invalid {
        /// Name of the option.
        option: &'static str,
        /// Description of the fault.
        why: &'static str,
    },
}

impl OpenError {
    /// Returns the name of the rule that was broken.
    #[must_use]
    pub const fn rule(&self) -> &'static str {
        match self {
            Self::Magic => "LH-OPEN-1",
            Self::Version(_) => "LH-OPEN-2",
            Self::Length(_) => "LH-OPEN-3",
            Self::Crc => "LH-OPEN-4",
            Self::Malformed(_) => "LH-OPEN-5",
            Self::UnknownCritical(_) => "LH-OPEN-7",
            Self::Missing(_) => "LH-OPEN-9",
            Self::Invalid { .. } => "LH-OPEN-8",
        }
    }
}

impl From<FrameError> for OpenError {
    fn from(error: FrameError) -> Self {
        match error {
            FrameError::Magic => Self::Magic,
            FrameError::MessageBytes([min, max]) => Self::Version(VersionRange { min, max }),
            FrameError::Length(length) => Self::Length(length),
            FrameError::Crc => Self::Crc,
        }
    }
}

/// Options decoded so far; mandatory ones are checked at the end.
#[derive(Default)]
struct DecodedOptions {
    session_id: Option<SessionId>,
    service: Option<ServiceName>,
    destination: Option<Endpoint>,
    route: Option<Route>,
    cursor: Option<u8>,
    passed: Option<Vec<PublicKey>>,
    hop_limit: Option<u8>,
    setup_budget: Option<Duration>,
    size: Option<u64>,
    purpose: Option<String>,
    circuit: Option<Vec<u8>>,
    rate: Option<u64>,
    duration: Option<u64>,
    onward: Option<Endpoint>,
    grant: Option<Box<CircuitGrant>>,
    padding: Option<u16>,
    transports: Option<Vec<Option<Transport>>>,
    resume_offer: Option<ResumeOffer>,
    resume: Option<Box<ResumeRequest>>,
    delegation: Option<Box<Delegation>>,
    trace: Option<TraceContext>,
    principal: Option<PublicKey>,
    signed_at_unix_ms: Option<u64>,
    signature: Option<[u8; 64]>,
    unknown: Vec<UnknownOption>,
}

fn decode(frame: &[u8]) -> Result<Open, OpenError> {
    let &[_, _, _, _, min, max, ..] = frame else {
        return Err(OpenError::Length(frame.len()));
    };
    let mut options = FieldReader(frame.get(frame::HEADER_BYTES..).unwrap_or_default());
    let mut found = DecodedOptions::default();
    let mut previous = None;
    while let Some((kind, mut value)) = options
        .next_option(&mut previous)
        .map_err(OpenError::Malformed)?
    {
        if is_known_option(kind & NUMBER) {
            let (option, read) = found.read_option(kind, &mut value);
            read.and_then(|()| value.expect_end())
                .map_err(|why| OpenError::Invalid { option, why })?;
        } else if kind & CRITICAL != 0 {
            return Err(OpenError::UnknownCritical(kind & NUMBER));
        } else if kind & NUMBER == 0 {
            return Err(OpenError::Malformed("option number 0"));
        } else {
            found.unknown.push(UnknownOption {
                kind,
                value: value.0.to_vec(),
            });
        }
    }
    found.into_open(VersionRange { min, max })
}

impl DecodedOptions {
    /// Reads a known option. Returns its name, and an error if its flags or value break a rule
    /// (LH-OPEN-8).
    fn read_option(
        &mut self,
        kind: u16,
        value: &mut FieldReader<'_>,
    ) -> (&'static str, FieldResult<()>) {
        match kind {
            SESSION_ID => (
                "session id",
                store(
                    &mut self.session_id,
                    value.array().map(SessionId::from_bytes),
                ),
            ),
            DESTINATION => (
                "destination",
                store(&mut self.destination, Endpoint::decode(value)),
            ),
            ROUTE => ("route", store(&mut self.route, Route::decode(value))),
            CURSOR => ("cursor", store(&mut self.cursor, value.u8())),
            PASSED => ("depots passed", store(&mut self.passed, read_passed(value))),
            HOP_LIMIT => ("hop limit", store(&mut self.hop_limit, value.u8())),
            SETUP_BUDGET => {
                let budget = value.u32().map(|ms| Duration::from_millis(ms.into()));
                ("set-up budget", store(&mut self.setup_budget, budget))
            }
            SIZE => ("size", store(&mut self.size, value.u64())),
            PURPOSE => ("purpose", store(&mut self.purpose, read_purpose(value))),
            CIRCUIT => ("circuit", store(&mut self.circuit, read_circuit(value))),
            TRACE => ("trace context", store(&mut self.trace, read_trace(value))),
            PRINCIPAL => (
                "principal",
                store(
                    &mut self.principal,
                    value.array().map(PublicKey::from_bytes),
                ),
            ),
            SIGNED_AT => (
                "time of signature",
                store(&mut self.signed_at_unix_ms, value.u64()),
            ),
            SIGNATURE => ("signature", store(&mut self.signature, value.array())),
            SERVICE => ("service", store(&mut self.service, read_service(value))),
            RATE => ("rate", store(&mut self.rate, value.u64())),
            DURATION => ("duration", store(&mut self.duration, value.u64())),
            ONWARD => ("onward", store(&mut self.onward, Endpoint::decode(value))),
            GRANT => (
                "grant",
                store(&mut self.grant, CircuitGrant::take(value).map(Box::new)),
            ),
            PADDING => ("padding", store(&mut self.padding, value.u16())),
            TRANSPORTS => (
                "transports",
                store(&mut self.transports, read_transports(value)),
            ),
            RESUME_OFFER => (
                "offer to resume",
                store(&mut self.resume_offer, ResumeOffer::decode(value)),
            ),
            RESUME => (
                "request to resume",
                store(&mut self.resume, ResumeRequest::decode(value).map(Box::new)),
            ),
            DELEGATION => (
                "delegation",
                store(&mut self.delegation, Delegation::take(value).map(Box::new)),
            ),
            _ => ("known options", Err("flags other than the option's own")),
        }
    }

    fn into_open(self, versions: VersionRange) -> Result<Open, OpenError> {
        let transports = self.transports.unwrap_or_default();
        let mut open = Open {
            versions,
            session_id: self.session_id.ok_or(OpenError::Missing("session id"))?,
            service: self.service.ok_or(OpenError::Missing("service"))?,
            destination: self.destination.ok_or(OpenError::Missing("destination"))?,
            route: self.route.ok_or(OpenError::Missing("route"))?,
            destination_transport: None,
            cursor: self.cursor.ok_or(OpenError::Missing("cursor"))?,
            passed: self
                .passed
                .ok_or(OpenError::Missing("list of depots passed"))?,
            hop_limit: self.hop_limit.ok_or(OpenError::Missing("hop limit"))?,
            setup_budget: self
                .setup_budget
                .ok_or(OpenError::Missing("set-up budget"))?,
            size: self.size,
            purpose: self.purpose,
            circuit: self.circuit,
            rate: self.rate,
            duration: self.duration,
            onward: self.onward,
            grant: self.grant,
            padding: self.padding,
            resume_offer: self.resume_offer,
            resume: self.resume,
            delegation: self.delegation,
            trace: self.trace,
            principal: self.principal.ok_or(OpenError::Missing("principal"))?,
            signed_at_unix_ms: self
                .signed_at_unix_ms
                .ok_or(OpenError::Missing("time of signature"))?,
            signature: self.signature.ok_or(OpenError::Missing("signature"))?,
            unknown: self.unknown,
        };
        if let Some((last, hops)) = transports.split_last() {
            if hops.len() != open.route.hops().len() {
                return Err(OpenError::Invalid {
                    option: "transports",
                    why: "not one for each hop and the destination",
                });
            }
            open.destination_transport = *last;
            open.route.set_transports(hops.iter().copied());
        }
        // Rules that involve several options, checked as before encoding.
        open.check()?;
        Ok(open)
    }
}

fn store<T>(slot: &mut Option<T>, value: FieldResult<T>) -> FieldResult<()> {
    *slot = Some(value?);
    Ok(())
}

/// Reads the transports (LH-OPEN-17). At least one is named, so that an OPEN has one encoding.
fn read_transports(value: &mut FieldReader<'_>) -> FieldResult<Vec<Option<Transport>>> {
    let mut transports = Vec::new();
    while !value.0.is_empty() {
        transports.push(match value.u8()? {
            0 => None,
            code => Some(Transport::from_repr(code).ok_or("an unknown transport")?),
        });
    }
    match transports.iter().any(Option::is_some) {
        true => Ok(transports),
        false => Err("no transport that is named"),
    }
}

fn read_passed(value: &mut FieldReader<'_>) -> FieldResult<Vec<PublicKey>> {
    let mut passed = Vec::new();
    while !value.0.is_empty() {
        passed.push(PublicKey::from_bytes(value.array()?));
    }
    Ok(passed)
}

fn read_service(value: &mut FieldReader<'_>) -> FieldResult<ServiceName> {
    let name = std::str::from_utf8(value.bytes(value.0.len())?).map_err(|_| "text not in UTF-8")?;
    name.parse()
        .map_err(|_| "a name of other than lower-case letters, digits and '-'")
}

fn read_purpose(value: &mut FieldReader<'_>) -> FieldResult<String> {
    let bytes = value.bytes(value.0.len())?;
    let purpose = std::str::from_utf8(bytes).map_err(|_| "text not in UTF-8")?;
    check_purpose(purpose)?;
    Ok(purpose.to_owned())
}

/// Checks that a purpose is safe to print: it goes to logs and terminals.
fn check_purpose(purpose: &str) -> FieldResult<()> {
    match purpose.len() {
        0 => Err("empty text"),
        1..=MAX_PURPOSE_BYTES if purpose.chars().all(text::is_printable) => Ok(()),
        1..=MAX_PURPOSE_BYTES => Err("unprintable characters"),
        _ => Err("text over 64 bytes"),
    }
}

fn read_circuit(value: &mut FieldReader<'_>) -> FieldResult<Vec<u8>> {
    let circuit = value.bytes(value.0.len())?;
    check_circuit(circuit)?;
    Ok(circuit.to_vec())
}

fn check_circuit(circuit: &[u8]) -> FieldResult<()> {
    if (1..=MAX_CIRCUIT_BYTES).contains(&circuit.len()) {
        Ok(())
    } else {
        Err("a name that is not 1 to 128 bytes long")
    }
}

fn read_trace(value: &mut FieldReader<'_>) -> FieldResult<TraceContext> {
    Ok(TraceContext {
        trace_id: value.array()?,
        parent_id: value.array()?,
        flags: value.u8()?,
    })
}

/// Returns true if the range includes the version of this crate (LH-OPEN-2).
fn is_supported(range: VersionRange) -> bool {
    range.min != 0 && (range.min..=range.max).contains(&VERSION)
}

/// Returns whole milliseconds as on the wire; the longest budget is some 49 days.
fn whole_ms(budget: Duration) -> u32 {
    u32::try_from(budget.as_millis()).unwrap_or(u32::MAX)
}
