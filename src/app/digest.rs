//! Telling whether an object is as it should be, without keeping the object.
//!
//! A digest covers the *values of the fields that esfleet owns*: of a wanted object all of them, of a
//! live one those that `metadata.managedFields` lists for our manager. Somebody who changes one of
//! our fields takes it over, so it leaves our list and the digests differ; fields of others never
//! count. Both sides are reduced by the same rules (`canonical`) where the API server rewrites
//! what it is sent: quantities, defaults inside atomic lists, empty values that its types leave out.
//! What these rules miss costs one needless apply, not a loop: see [`crate::app::plan::Memo`].

mod canonical;
mod owned;

use std::fmt;

use serde_json::Value;

use super::ChildKind;
use canonical::Hasher;
pub(crate) use canonical::holds_amounts;

/// A digest of one object, in two parts, as the pod template can be in a state of its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest {
    /// Everything but the pod template and the fields that can never change.
    pub body: Part,
    /// `spec.template`; of kinds without one, the digest of nothing.
    pub template: Part,
}

/// The digest of a part of an object: 128-bit FNV-1a, the same in every build of esfleet.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Part([u8; 16]);

impl Part {
    /// Reads what `Display` wrote.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        u128::from_str_radix(text, 16).ok().map(|bits| Self(bits.to_be_bytes()))
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.body, self.template)
    }
}

/// The fields of a StatefulSet's `spec` that can never change; they are compared one by one instead.
pub(crate) const IMMUTABLE: [&str; 4] = ["podManagementPolicy", "selector", "serviceName", "volumeClaimTemplates"];

/// The digest of an object as esfleet would apply it.
#[must_use]
pub fn wanted_digest(kind: ChildKind, object: &Value) -> Digest {
    let mut rest = object.clone();
    strip_identity(&mut rest);
    in_parts(kind, rest)
}

/// The digest of what esfleet owns of a live object; none when esfleet never applied it.
#[must_use]
pub fn owned_digest(kind: ChildKind, object: &Value) -> Option<Digest> {
    owned::owned_values(object).map(|values| in_parts(kind, values))
}

fn in_parts(kind: ChildKind, mut object: Value) -> Digest {
    let mut body = Hasher::new();
    let mut template = Hasher::new();
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
        && kind == ChildKind::StatefulSet
    {
        if let Some(value) = spec.remove("template") {
            template.value("template", &value);
        }
        IMMUTABLE.iter().for_each(|field| drop(spec.remove(*field)));
    }
    body.value("", &object);
    Digest {
        body: body.finish(),
        template: template.finish(),
    }
}

/// The digest of any value, reduced by the same rules.
#[must_use]
pub fn value_digest(value: &Value) -> Part {
    let mut hasher = Hasher::new();
    hasher.value("", value);
    hasher.finish()
}

/// The digest of a text as it is: the same for ever, whatever becomes of the rules for values.
#[must_use]
pub fn text_digest(text: &str) -> Part {
    let mut hasher = Hasher::new();
    hasher.bytes(text.as_bytes());
    hasher.finish()
}

/// The digest of `spec.volumeClaimTemplates`, which the API server fills in where it is left open.
#[must_use]
pub fn claims_digest(templates: Option<&Value>) -> Part {
    let mut hasher = Hasher::new();
    hasher.value("volumeClaimTemplates", templates.unwrap_or(&Value::Null));
    hasher.finish()
}

/// Drops what says which object this is rather than how it should be: managedFields never lists it.
fn strip_identity(object: &mut Value) {
    let Some(object) = object.as_object_mut() else { return };
    object.remove("apiVersion");
    object.remove("kind");
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in ["name", "namespace", "uid", "resourceVersion"] {
            metadata.remove(field);
        }
    }
}

#[cfg(test)]
mod tests;
