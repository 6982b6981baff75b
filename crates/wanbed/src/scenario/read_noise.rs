//! Disturbances of a link besides loss: `jitter`, `reorder`, `aqm` with `ecn`, and `cross`.

use super::Located;
use super::fields::{ScenarioField, TableFields};
use super::quantity;
use crate::spec::{
    BitRate, CodelSpec, CrossSpec, DirectionSpec, JitterSpec, ReorderSpec, SpecError,
};

/// Value that turns one of these off, if the file or the link as a whole turns it on.
const NONE: &str = "none";

/// Fields that the scenario gives; `Some(None)` is "none".
#[derive(Debug, Clone, Default)]
pub(super) struct NoiseFields {
    jitter: Option<Option<JitterSpec>>,
    reorder: Option<Option<ReorderSpec>>,
    aqm: Option<Option<CodelSpec>>,
    ecn: Option<(ScenarioField, bool)>,
    cross: Option<Option<CrossSpec>>,
    /// A field that needs a queue, for errors.
    queue_user: Option<ScenarioField>,
}

impl NoiseFields {
    pub(super) fn read(fields: &mut TableFields) -> Located<Self> {
        let mut noise = Self::default();
        if let Some(field) = fields.optional("jitter") {
            noise.jitter = Some(jitter(&field)?);
        }
        if let Some(field) = fields.optional("reorder") {
            noise.reorder = Some(reorder(&field)?);
        }
        if let Some(field) = fields.optional("aqm") {
            noise.aqm = Some(aqm(&field)?);
            noise.queue_user = Some(field);
        }
        if let Some(field) = fields.optional("ecn") {
            let ecn = field.boolean()?;
            noise.ecn = Some((field, ecn));
        }
        if let Some(field) = fields.optional("cross") {
            noise.cross = Some(cross(&field)?);
            noise.queue_user = Some(field);
        }
        Ok(noise)
    }

    /// Takes missing fields from `both`.
    pub(super) fn with_defaults(self, both: &Self) -> Self {
        Self {
            jitter: self.jitter.or(both.jitter),
            reorder: self.reorder.or(both.reorder),
            aqm: self.aqm.or(both.aqm),
            ecn: self.ecn.or_else(|| both.ecn.clone()),
            cross: self.cross.or(both.cross),
            queue_user: self.queue_user.or_else(|| both.queue_user.clone()),
        }
    }

    /// Sets it in a direction whose rate is known.
    pub(super) fn apply_to(
        self,
        link: &ScenarioField,
        direction: &mut DirectionSpec,
    ) -> Located<()> {
        direction.jitter = self.jitter.flatten();
        direction.reorder = self.reorder.flatten();
        direction.aqm = self.aqm.flatten();
        direction.cross = self.cross.flatten();
        if direction.rate.is_none() && (direction.aqm.is_some() || direction.cross.is_some()) {
            let place = self.queue_user.as_ref().unwrap_or(link);
            return Err(place.wrong("a link without a rate has no queue: give it a rate"));
        }
        if let Some((place, true)) = self.ecn {
            if direction.aqm.is_none() {
                return Err(
                    place.wrong("what is marked is what an AQM would drop: add aqm = \"codel\"")
                );
            }
            direction.ecn = true;
        }
        Ok(())
    }
}

fn is_none(field: &ScenarioField) -> bool {
    field.text().is_ok_and(|text| text.trim() == NONE)
}

/// Converts the error of the specification's own check, with the field that it names.
fn checked<T>(
    field: &ScenarioField,
    spec: T,
    check: impl FnOnce(&T) -> Result<(), SpecError>,
) -> Located<Option<T>> {
    match check(&spec) {
        Ok(()) => Ok(Some(spec)),
        Err(SpecError {
            field: name,
            wanted,
        }) => Err(field.wrong(format!("{name} {wanted}"))),
    }
}

/// Reads `jitter = "1 ms"`, or `{ deviation = "1 ms", reorder = true }`.
fn jitter(field: &ScenarioField) -> Located<Option<JitterSpec>> {
    if is_none(field) {
        return Ok(None);
    }
    let spec = if field.is_table() {
        let mut fields = field.fields()?;
        let deviation = fields.required("deviation")?.quantity(quantity::duration)?;
        let reorder = fields
            .optional("reorder")
            .map(|field| field.boolean())
            .transpose()?
            .unwrap_or(false);
        fields.finish()?;
        JitterSpec { deviation, reorder }
    } else {
        JitterSpec {
            deviation: field.quantity(quantity::duration)?,
            reorder: false,
        }
    };
    if spec.deviation.is_zero() {
        return Ok(None);
    }
    checked(field, spec, JitterSpec::check)
}

/// Reads `reorder = { probability = "0.1%", by = "3 ms" }`.
fn reorder(field: &ScenarioField) -> Located<Option<ReorderSpec>> {
    if is_none(field) {
        return Ok(None);
    }
    let mut fields = field.fields()?;
    let spec = ReorderSpec {
        probability: fields.required("probability")?.probability()?,
        by: fields.required("by")?.quantity(quantity::duration)?,
    };
    fields.finish()?;
    if spec.probability == 0.0 {
        return Ok(None);
    }
    checked(field, spec, ReorderSpec::check)
}

/// Reads `aqm = "codel"`, or `{ kind = "codel", target = "5 ms", interval = "100 ms" }`.
fn aqm(field: &ScenarioField) -> Located<Option<CodelSpec>> {
    let known = |field: &ScenarioField| match field.text()?.trim() {
        "codel" => Ok(()),
        other => Err(field.wrong(format!(
            "{other:?} is not an AQM: write \"codel\" or \"none\""
        ))),
    };
    if is_none(field) {
        return Ok(None);
    }
    if !field.is_table() {
        known(field)?;
        return Ok(Some(CodelSpec::RFC_8289));
    }
    let mut fields = field.fields()?;
    known(&fields.required("kind")?)?;
    let mut time = |key| {
        fields
            .optional(key)
            .map(|field| field.quantity(quantity::duration))
            .transpose()
    };
    let spec = CodelSpec {
        target: time("target")?.unwrap_or(CodelSpec::RFC_8289.target),
        interval: time("interval")?.unwrap_or(CodelSpec::RFC_8289.interval),
    };
    fields.finish()?;
    checked(field, spec, CodelSpec::check)
}

/// Reads `cross = { rate = "100 Mbit/s", on = "200 ms", off = "800 ms" }`.
fn cross(field: &ScenarioField) -> Located<Option<CrossSpec>> {
    if is_none(field) {
        return Ok(None);
    }
    let mut fields = field.fields()?;
    let rate = fields.required("rate")?;
    let spec = CrossSpec {
        rate: rate
            .quantity(quantity::bit_rate)?
            .map(BitRate)
            .ok_or_else(|| rate.wrong("cross traffic has a rate in bit/s"))?,
        on: fields.required("on")?.quantity(quantity::duration)?,
        off: fields.required("off")?.quantity(quantity::duration)?,
    };
    fields.finish()?;
    checked(field, spec, CrossSpec::check)
}
