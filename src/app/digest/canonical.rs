//! One form for values that mean the same to the API server.

use serde_json::{Map, Value};

use super::Part;
use crate::app::quantity;

/// FNV-1a with 128 bits over a value's canonical form. It guards against accidents, not attacks:
/// whoever can write an object can only mislead esfleet about that object.
pub(super) struct Hasher(u128);

impl Hasher {
    pub(super) fn new() -> Self {
        Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }

    pub(super) fn finish(self) -> Part {
        Part(self.0.to_be_bytes())
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
    }

    fn text(&mut self, tag: u8, text: &str) {
        self.bytes(&[tag]);
        self.bytes(&(text.len() as u64).to_be_bytes());
        self.bytes(text.as_bytes());
    }

    /// Adds the value that stands under `key`.
    pub(super) fn value(&mut self, key: &str, value: &Value) {
        if is_left_out(key, value) {
            return;
        }
        match value {
            Value::Null => {}
            Value::Bool(value) => self.bytes(&[b'b', u8::from(*value)]),
            Value::Number(number) => self.scalar(key, &number.to_string(), b'n'),
            Value::String(text) => self.scalar(key, text, b's'),
            Value::Array(items) => {
                self.bytes(b"[");
                items.iter().for_each(|item| self.item(key, item));
                self.bytes(b"]");
            }
            Value::Object(fields) => match filled(key, fields) {
                Some(fields) => self.fields(key, &fields),
                None => self.fields(key, fields),
            },
        }
    }

    fn item(&mut self, key: &str, item: &Value) {
        match item {
            Value::Object(fields) if key == "volumeClaimTemplates" => self.fields("", &claim(fields)),
            Value::Object(fields) => self.fields("", fields),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                self.text(b'i', &item.to_string());
            }
        }
    }

    fn fields(&mut self, key: &str, fields: &Map<String, Value>) {
        let amounts = holds_amounts(key);
        self.bytes(b"{");
        for (name, value) in fields {
            if is_left_out(name, value) {
                continue;
            }
            self.text(b'f', name);
            match value {
                Value::String(text) if amounts => self.amount(text),
                Value::Number(number) if amounts => self.amount(&number.to_string()),
                _ => self.value(name, value),
            }
        }
        self.bytes(b"}");
    }

    fn scalar(&mut self, key: &str, text: &str, tag: u8) {
        if matches!(key, "sizeLimit" | "divisor") {
            self.amount(text);
        } else {
            self.text(tag, text);
        }
    }

    fn amount(&mut self, text: &str) {
        match quantity::nanos(text) {
            Some(nanos) => self.text(b'q', &nanos.to_string()),
            None => self.text(b's', text),
        }
    }
}

/// Whether the fields under this key are quantities.
pub(crate) fn holds_amounts(key: &str) -> bool {
    matches!(key, "limits" | "overhead" | "requests")
}

/// Whether the API server's types leave this value out, so that it cannot be told from its absence.
fn is_left_out(key: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty() && key != "storageClassName",
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => {
            fields.is_empty()
                && matches!(
                    key,
                    "annotations" | "labels" | "limits" | "matchLabels" | "nodeSelector" | "overhead" | "requests"
                )
        }
        Value::Bool(value) => {
            !value
                && matches!(
                    key,
                    "hostIPC"
                        | "hostNetwork"
                        | "hostPID"
                        | "publishNotReadyAddresses"
                        | "readOnly"
                        | "stdin"
                        | "stdinOnce"
                        | "tty"
                )
        }
        Value::Number(number) => {
            number.as_i64() == Some(0)
                && matches!(
                    key,
                    "failureThreshold"
                        | "hostPort"
                        | "initialDelaySeconds"
                        | "minReadySeconds"
                        | "periodSeconds"
                        | "successThreshold"
                        | "timeoutSeconds"
                )
        }
    }
}

/// The fields with the defaults that the API server fills in inside atomic structures, where the
/// whole structure is ours; none when nothing is missing.
fn filled(key: &str, fields: &Map<String, Value>) -> Option<Map<String, Value>> {
    let (field, default) = match key {
        "fieldRef" => ("apiVersion", Value::from("v1")),
        "resourceFieldRef" => ("divisor", Value::from("0")),
        "serviceAccountToken" => ("expirationSeconds", Value::from(3600)),
        _ => return None,
    };
    if fields.contains_key(field) {
        return None;
    }
    let mut filled = fields.clone();
    filled.insert(field.to_owned(), default);
    Some(filled)
}

/// A volume claim template without what the API server adds to it.
fn claim(fields: &Map<String, Value>) -> Map<String, Value> {
    let mut claim = fields.clone();
    for field in ["apiVersion", "kind", "status"] {
        claim.remove(field);
    }
    if let Some(metadata) = claim.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("creationTimestamp");
    }
    if let Some(spec) = claim.get_mut("spec").and_then(Value::as_object_mut) {
        spec.entry("volumeMode").or_insert_with(|| Value::from("Filesystem"));
    }
    claim
}
