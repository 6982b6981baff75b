//! Details of a hop, as the depot that dialled it reports them (LH-STATUS-11).

use std::time::Duration;

use bytes::BufMut;

use crate::{
    Transport,
    tlv::{FieldReader, FieldResult},
};

/// Maximum length of a congestion control's name, in bytes (`TCP_CA_NAME_MAX` of Linux).
const MAX_CONGESTION_BYTES: usize = 16;

/// Details of a dialled connection, at the moment at which it was established.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HopDetails {
    /// Transport of the connection.
    pub transport: Transport,
    /// Round trip, in whole microseconds on the wire; `None` if it was not measured.
    pub round_trip: Option<Duration>,
    /// Congestion control of the dialling end, 1 to 16 visible ASCII characters; `None` if it is
    /// not known.
    pub congestion: Option<String>,
}

impl HopDetails {
    /// Appends the details as on the wire. A name that is too long or not visible is left out.
    pub(crate) fn encode(&self, out: &mut impl BufMut) {
        out.put_u8(self.transport as u8);
        let micros = self.round_trip.map_or(0, |time| time.as_micros());
        out.put_u32(u32::try_from(micros).unwrap_or(u32::MAX));
        let name = self.congestion.as_deref().unwrap_or_default();
        if is_congestion_name(name.as_bytes()) {
            out.put_slice(name.as_bytes());
        }
    }

    pub(crate) fn decode(reader: &mut FieldReader<'_>) -> FieldResult<Self> {
        let transport = Transport::from_repr(reader.u8()?).ok_or("an unknown transport")?;
        let micros = reader.u32()?;
        let name = reader.bytes(reader.0.len())?;
        let congestion = match name {
            [] => None,
            name if is_congestion_name(name) => Some(String::from_utf8_lossy(name).into_owned()),
            _ => return Err("an invalid name of a congestion control"),
        };
        Ok(Self {
            transport,
            round_trip: (micros > 0).then(|| Duration::from_micros(micros.into())),
            congestion,
        })
    }
}

fn is_congestion_name(name: &[u8]) -> bool {
    (1..=MAX_CONGESTION_BYTES).contains(&name.len()) && name.iter().all(u8::is_ascii_graphic)
}
