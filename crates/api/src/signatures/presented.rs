//! The signature that a request presents (RFC 9421, section 4).

use longhaul_proto::PublicKey;
use sfv::{BareItem, DictSerializer, Dictionary, InnerList, KeyRef, ListEntry, Parser};

use super::message::combined;
use super::{Message, Purpose, SignatureError};

/// Most bytes of `Signature-Input`, and of `Signature`.
const MAX_FIELD_BYTES: usize = 4096;
/// Most parts of a request that are covered.
const MAX_COMPONENTS: usize = 32;
/// Most bytes of a nonce.
const MAX_NONCE_BYTES: usize = 128;
/// The name of the algorithm (section 3.3.6).
const ALGORITHM: &str = "ed25519";
/// What a signature is called while its parameters are written out.
const ANY: &str = "any";

/// A signature, as it came: not verified yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Presented {
    /// The key that is said to have signed, as `lhk1:...`.
    pub key: PublicKey,
    /// When, in seconds since 1970.
    pub created: u64,
    /// Until when it is good, in seconds since 1970.
    pub expires: u64,
    /// What tells it from others of that key.
    pub nonce: String,
    components: Vec<String>,
    /// As they are signed.
    parameters: String,
    signature: [u8; 64],
}

impl Presented {
    /// The one for `purpose` that a request has.
    ///
    /// # Errors
    /// It has none or several, or the one it has cannot be read.
    pub fn read(message: &Message<'_>, purpose: Purpose) -> Result<Self, SignatureError> {
        let missing = SignatureError::Missing(purpose.tag());
        let field = |name| -> Result<Dictionary, SignatureError> {
            let text = combined(message.headers(), name)?.unwrap_or_default();
            if text.len() > MAX_FIELD_BYTES {
                return Err(SignatureError::Malformed("too long"));
            }
            let read = Parser::new(&text).parse();
            read.map_err(|_| SignatureError::Malformed("not a dictionary of structured fields"))
        };
        let (inputs, signatures) = (field("signature-input")?, field("signature")?);
        let mut ours = inputs.iter().filter_map(|(label, entry)| match entry {
            ListEntry::InnerList(list) if text(list, "tag") == Some(purpose.tag()) => {
                Some((label, list))
            }
            _ => None,
        });
        let Some((label, list)) = ours.next() else {
            return Err(missing);
        };
        if ours.next().is_some() {
            return Err(SignatureError::Several(purpose.tag()));
        }
        let signature = match signatures.get(label) {
            Some(ListEntry::Item(item)) => item.bare_item.as_byte_sequence(),
            _ => None,
        };
        let signature = signature.ok_or(SignatureError::Malformed("no bytes of it"))?;
        Self::of(list, signature)
    }

    fn of(list: &InnerList, signature: &[u8]) -> Result<Self, SignatureError> {
        let malformed = SignatureError::Malformed;
        let signature = signature
            .try_into()
            .map_err(|_| malformed("not of 64 bytes"))?;
        if text(list, "alg").is_some_and(|alg| alg != ALGORITHM) {
            return Err(malformed("alg is not ed25519"));
        }
        let moment = |name| list.params.get(name).and_then(BareItem::as_integer);
        let moment = |name| moment(name).and_then(|at| u64::try_from(i64::from(at)).ok());
        let key = text(list, "keyid").and_then(|key| key.parse().ok());
        let nonce =
            text(list, "nonce").filter(|nonce| (1..=MAX_NONCE_BYTES).contains(&nonce.len()));
        Ok(Self {
            key: key.ok_or(malformed("keyid is not a key, lhk1:..."))?,
            created: moment("created").ok_or(malformed("no created"))?,
            expires: moment("expires").ok_or(malformed("no expires"))?,
            nonce: nonce
                .ok_or(malformed("no nonce of up to 128 characters"))?
                .to_owned(),
            components: components(list)?,
            parameters: parameters(list)?,
            signature,
        })
    }

    /// Whether it covers that part of the request.
    #[must_use]
    pub fn covers(&self, component: &str) -> bool {
        self.components.iter().any(|covered| covered == component)
    }

    /// Whether it is the key's, over this request.
    ///
    /// # Errors
    /// It is not, or covers what is not there or not understood here.
    pub fn verify(&self, message: &Message<'_>) -> Result<(), SignatureError> {
        let base = message.base(&self.components, &self.parameters)?;
        match self.key.verify(base.as_bytes(), &self.signature) {
            true => Ok(()),
            false => Err(SignatureError::Wrong(self.key.to_string())),
        }
    }
}

/// A parameter that is text.
fn text<'a>(list: &'a InnerList, name: &str) -> Option<&'a str> {
    list.params
        .get(name)?
        .as_string()
        .map(sfv::StringRef::as_str)
}

/// The names of what is covered. Those with parameters (parts of fields, of other messages) are not
/// understood here.
fn components(list: &InnerList) -> Result<Vec<String>, SignatureError> {
    if list.items.len() > MAX_COMPONENTS {
        return Err(SignatureError::Malformed("it covers too much"));
    }
    let mut names: Vec<String> = Vec::new();
    for item in &list.items {
        let name = item.bare_item.as_string();
        let name = name.ok_or(SignatureError::Malformed("it covers what has no name"))?;
        if !item.params.is_empty() {
            return Err(SignatureError::Component(format!(
                "{} with parameters",
                name.as_str()
            )));
        }
        if names.iter().any(|earlier| earlier == name.as_str()) {
            return Err(SignatureError::Malformed("it covers something twice"));
        }
        names.push(name.as_str().to_owned());
    }
    Ok(names)
}

/// A list of components and its parameters as they are signed: written out anew, in the order in
/// which they came (section 2.3).
pub(super) fn parameters(list: &InnerList) -> Result<String, SignatureError> {
    let malformed = |_| SignatureError::Malformed("its parameters");
    let label = KeyRef::from_str(ANY).map_err(malformed)?;
    let mut whole = DictSerializer::new();
    let mut inner = whole.inner_list(label);
    inner.items(&list.items);
    inner.finish().parameters(&list.params);
    let whole = whole.finish().unwrap_or_default();
    let parameters = whole
        .strip_prefix(ANY)
        .and_then(|rest| rest.strip_prefix('='));
    parameters
        .map(str::to_owned)
        .ok_or(SignatureError::Malformed("its parameters"))
}
