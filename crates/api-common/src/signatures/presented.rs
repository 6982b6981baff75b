//! Signature that a request presents (RFC 9421, section 4).

use longhaul_proto::PublicKey;
use sfv::{BareItem, DictSerializer, Dictionary, InnerList, KeyRef, ListEntry, Parser};

use super::message::combined_field;
use super::{Message, Purpose, SignatureError};

/// Maximum size of `Signature-Input` and of `Signature`, in bytes.
const MAX_FIELD_BYTES: usize = 4096;
/// Maximum number of covered components.
const MAX_COMPONENTS: usize = 32;
/// Maximum length of a nonce, in bytes.
const MAX_NONCE_BYTES: usize = 128;
/// Name of the algorithm (section 3.3.6).
const ALGORITHM: &str = "ed25519";
/// Label under which parameters are serialized temporarily.
const TEMPORARY_LABEL: &str = "any";

/// Parsed signature that is not verified yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Presented {
    /// Key that is claimed to have signed, as `lhk1:...`.
    pub key: PublicKey,
    /// Time of signing, in seconds since 1970.
    pub created: u64,
    /// Time of expiry, in seconds since 1970.
    pub expires: u64,
    /// Nonce, unique among the key's signatures.
    pub nonce: String,
    components: Vec<String>,
    /// Parameters as they are signed.
    parameters: String,
    signature: [u8; 64],
}

impl Presented {
    /// Parses a request's signature for `purpose`.
    ///
    /// # Errors
    /// The request has no such signature or several, or it is malformed.
    pub fn read(message: &Message<'_>, purpose: Purpose) -> Result<Self, SignatureError> {
        let missing = SignatureError::Missing(purpose.tag());
        let field = |name| -> Result<Dictionary, SignatureError> {
            let text = combined_field(message.headers(), name)?.unwrap_or_default();
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
        let signature = signature.ok_or(SignatureError::Malformed("the signature is missing"))?;
        Self::from_signature_input(list, signature)
    }

    fn from_signature_input(list: &InnerList, signature: &[u8]) -> Result<Self, SignatureError> {
        let malformed = SignatureError::Malformed;
        let signature = signature
            .try_into()
            .map_err(|_| malformed("the signature does not have 64 bytes"))?;
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

    /// Returns true if the signature covers that component.
    #[must_use]
    pub fn covers(&self, component: &str) -> bool {
        self.components.iter().any(|covered| covered == component)
    }

    /// Verifies that the key signed this request.
    ///
    /// # Errors
    /// The signature is invalid, or covers a component that is not supported or not present.
    pub fn verify(&self, message: &Message<'_>) -> Result<(), SignatureError> {
        let base = message.signature_base(&self.components, &self.parameters)?;
        match self.key.verify(base.as_bytes(), &self.signature) {
            true => Ok(()),
            false => Err(SignatureError::Wrong(self.key.to_string())),
        }
    }
}

/// Returns a parameter that is a string.
fn text<'a>(list: &'a InnerList, name: &str) -> Option<&'a str> {
    list.params
        .get(name)?
        .as_string()
        .map(sfv::StringRef::as_str)
}

/// Returns the names of covered components. Components with parameters (parts of fields, or of
/// other messages) are not supported.
fn components(list: &InnerList) -> Result<Vec<String>, SignatureError> {
    if list.items.len() > MAX_COMPONENTS {
        return Err(SignatureError::Malformed("it covers too many components"));
    }
    let mut names: Vec<String> = Vec::new();
    for item in &list.items {
        let name = item.bare_item.as_string();
        let name = name.ok_or(SignatureError::Malformed(
            "it covers a component without a name",
        ))?;
        if !item.params.is_empty() {
            return Err(SignatureError::Component(format!(
                "{} with parameters",
                name.as_str()
            )));
        }
        if names.iter().any(|earlier| earlier == name.as_str()) {
            return Err(SignatureError::Malformed("it covers a component twice"));
        }
        names.push(name.as_str().to_owned());
    }
    Ok(names)
}

/// Serializes a list of components and its parameters as they are signed, in the order in which
/// they came (section 2.3).
pub(super) fn parameters(list: &InnerList) -> Result<String, SignatureError> {
    let malformed = |_| SignatureError::Malformed("its parameters");
    let label = KeyRef::from_str(TEMPORARY_LABEL).map_err(malformed)?;
    let mut whole = DictSerializer::new();
    let mut inner = whole.inner_list(label);
    inner.items(&list.items);
    inner.finish().parameters(&list.params);
    let whole = whole.finish().unwrap_or_default();
    let parameters = whole
        .strip_prefix(TEMPORARY_LABEL)
        .and_then(|rest| rest.strip_prefix('='));
    parameters
        .map(str::to_owned)
        .ok_or(SignatureError::Malformed("its parameters"))
}
