//! YAML in and out. The only user of `serde_yaml`, which is unmaintained; its successor is `serde-saphyr`.

use std::fmt;

use serde::de::{DeserializeOwned, DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::{Deserializer, Serialize};
use thiserror::Error;

/// Why a text could not be read or a value not be written.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}{}", at(.location))]
pub struct YamlError {
    /// The key path, if the parser knows it, and what is wrong.
    pub message: String,
    /// Line and column, both counted from 1, if the parser knows them.
    pub location: Option<(usize, usize)>,
}

fn at(location: &Option<(usize, usize)>) -> String {
    location
        .map(|(line, column)| format!(" at line {line} column {column}"))
        .unwrap_or_default()
}

/// Reads one YAML document.
///
/// # Errors
/// [`YamlError`] when the text is no YAML or does not fit the type.
pub fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, YamlError> {
    serde_yaml::from_str(text).map_err(|error| YamlError::from(&error))
}

/// Writes a value as one YAML document without a leading `---`.
///
/// # Errors
/// [`YamlError`] when the value has no YAML form (a map with keys that are no scalars).
pub fn to_string<T: Serialize>(value: &T) -> Result<String, YamlError> {
    serde_yaml::to_string(value).map_err(|error| YamlError::from(&error))
}

/// One step from a node of a document to a node below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Into the value of a key of a map.
    Key(String),
    /// Into an item of a list, counted from 0.
    Item(usize),
}

/// Where the node at the end of `path` stands: line and column, counted from 1.
#[must_use]
pub fn locate(text: &str, path: &[Step]) -> Option<(usize, usize)> {
    // serde_yaml keeps no places, but names one in each error: so provoke an error at that node.
    let document = serde_yaml::Deserializer::from_str(text);
    let error = Walk(path).deserialize(document).err()?;
    error.location().map(|l| (l.line(), l.column()))
}

/// Follows a path and refuses whatever stands at its end.
struct Walk<'p>(&'p [Step]);

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match self.0.first() {
            // Without content to refuse, any scalar, list or map is an error at its own place.
            None => deserializer.deserialize_unit_struct("", Refuse),
            Some(_) => deserializer.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a node on the way")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Some((Step::Key(wanted), rest)) = self.0.split_first() else {
            return Err(A::Error::invalid_type(Unexpected::Map, &self));
        };
        while let Some(key) = map.next_key::<String>()? {
            if key == *wanted {
                map.next_value_seed(Walk(rest))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let Some((Step::Item(wanted), rest)) = self.0.split_first() else {
            return Err(A::Error::invalid_type(Unexpected::Seq, &self));
        };
        for _ in 0..*wanted {
            seq.next_element::<IgnoredAny>()?;
        }
        seq.next_element_seed(Walk(rest))?;
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }
}

/// Accepts nothing.
struct Refuse;

impl Visitor<'_> for Refuse {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nothing")
    }
}

impl From<&serde_yaml::Error> for YamlError {
    fn from(error: &serde_yaml::Error) -> Self {
        let location = error.location().map(|l| (l.line(), l.column()));
        let text = error.to_string();
        let message = text.strip_suffix(&at(&location)).unwrap_or(&text).to_owned();
        Self { message, location }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_value_survives_the_way_out_and_in() {
        let value = BTreeMap::from([("a".to_owned(), vec![1, 2]), ("b".to_owned(), vec![])]);
        let text = to_string(&value).unwrap();
        assert_eq!(text, "a:\n- 1\n- 2\nb: []\n");
        assert_eq!(from_str::<BTreeMap<String, Vec<i32>>>(&text), Ok(value));
    }

    #[test]
    fn an_error_names_the_key_and_the_place_once() {
        let error = from_str::<BTreeMap<String, Vec<i32>>>("a:\n- 1\n- x\n").unwrap_err();
        assert_eq!(
            error.to_string(),
            "a[1]: invalid type: string \"x\", expected i32 at line 3 column 3"
        );
        assert_eq!(error.location, Some((3, 3)));
    }

    #[test]
    fn a_node_is_located_by_its_path() {
        let text = "a: 1\nb:\n  - c: x\n  - c: y\n    d: [1, 2]\n    e: {f: }\n";
        let key = |key: &str| Step::Key(key.to_owned());
        for (path, place) in [
            (vec![], Some((1, 1))),
            (vec![key("a")], Some((1, 4))),
            (vec![key("b")], Some((3, 3))),
            (vec![key("b"), Step::Item(1)], Some((4, 5))),
            (vec![key("b"), Step::Item(1), key("c")], Some((4, 8))),
            (vec![key("b"), Step::Item(1), key("d"), Step::Item(1)], Some((5, 12))),
            (vec![key("b"), Step::Item(7)], None),
            (vec![key("z")], None),
        ] {
            assert_eq!(locate(text, &path), place, "{path:?}");
        }
    }

    #[test]
    fn a_text_that_is_no_yaml_is_an_error_with_its_place() {
        let error = from_str::<BTreeMap<String, i32>>("a: [1\nb: 2\n").unwrap_err();
        assert!(error.location.is_some(), "{error}");
    }
}
