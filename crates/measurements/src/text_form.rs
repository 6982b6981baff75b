//! JSON forms of types from other crates.

/// A key in its text form.
pub mod key {
    use longhaul_proto::PublicKey;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub fn serialize<S: Serializer>(key: &PublicKey, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(key)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PublicKey, D::Error> {
        String::deserialize(from)?
            .parse()
            .map_err(de::Error::custom)
    }
}

/// A limit as a word.
pub mod limit {
    use drs::Limit;
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub fn serialize<S: Serializer>(limit: &Option<Limit>, to: S) -> Result<S::Ok, S::Error> {
        match limit {
            Some(limit) => to.serialize_str(limit.as_str()),
            None => to.serialize_none(),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Limit>, D::Error> {
        let word = Option::<String>::deserialize(from)?;
        let limit = word.map(|word| word.parse()).transpose();
        limit.map_err(de::Error::custom)
    }
}
