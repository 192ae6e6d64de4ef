//! The types that may stand in a report, and their JSON Schema.

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

/// A type that may stand in a report. It is implemented for numbers, fixed lists of words, versions and digests, and for
/// lists and objects of these. Never implement it for a type of free text.
pub(crate) trait Part: Serialize + DeserializeOwned {
    /// The type's JSON Schema.
    fn schema() -> Value;
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Part for $number {
            fn schema() -> Value {
                json!({ "type": "integer", "minimum": 0, "maximum": <$number>::MAX })
            }
        }
    )*};
}

numbers! { u16 u32 u64 }

impl<T: Part> Part for Option<T> {
    fn schema() -> Value {
        json!({ "anyOf": [T::schema(), { "type": "null" }] })
    }
}

impl<T: Part> Part for Vec<T> {
    fn schema() -> Value {
        json!({ "type": "array", "items": T::schema() })
    }
}

/// Defines an object of parts. Readers refuse unknown fields.
macro_rules! object {
    (
        #[doc = $about:literal]
        $name:ident { $(#[doc = $what:literal] $field:ident: $kind:ty,)* }
    ) => {
        #[doc = $about]
        #[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $(
                #[doc = concat!($what, ".")]
                pub $field: $kind,
            )*
        }

        impl $crate::part::Part for $name {
            fn schema() -> serde_json::Value {
                let mut properties = serde_json::Map::new();
                $(
                    let mut property = <$kind as $crate::part::Part>::schema();
                    property["description"] = $what.trim().into();
                    properties.insert(stringify!($field).to_owned(), property);
                )*
                serde_json::json!({
                    "type": "object",
                    "additionalProperties": false,
                    "required": [$(stringify!($field)),*],
                    "properties": properties,
                })
            }
        }
    };
}

pub(crate) use object;

/// A BLAKE2s-256 digest, in JSON as 64 hexadecimal digits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Digest([u8; 32]);

impl Digest {
    pub(crate) fn of(text: &[u8]) -> Self {
        Self(crypto::blake2s::hash(&[text]))
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&crypto::hex(&self.0))
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let mut digest = Self::default();
        for (byte, digits) in digest.0.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digits = str::from_utf8(digits).ok();
            *byte = digits
                .and_then(|it| u8::from_str_radix(it, 16).ok())
                .unwrap_or(0);
        }
        // Also refuses capital letters and a wrong length.
        match crypto::hex(&digest.0) == text {
            true => Ok(digest),
            false => Err(D::Error::custom("a digest has 64 hexadecimal digits")),
        }
    }
}

impl Part for Digest {
    fn schema() -> Value {
        json!({ "type": "string", "pattern": "^[0-9a-f]{64}$" })
    }
}
