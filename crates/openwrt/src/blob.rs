//! Values in ubus messages, in libubox's layout: attributes, and the typed values that `blobmsg` puts into them.
//!
//! An attribute is a 32-bit word, its data, and zeros up to a multiple of 4. The word, most significant byte first,
//! has 1 bit for "named", 7 bits for the id, and 24 bits for the length, word included. The data of a named attribute
//! begin with the name's length in 16 bits, the name, a zero, and zeros up to a multiple of 4.

/// Deepest nesting of tables and lists that the parser accepts.
pub const DEPTH_MAX: usize = 16;

/// Bytes of an attribute's head.
pub(crate) const HEAD: usize = 4;

const NAMED: u32 = 1 << 31;

const ARRAY: u8 = 1;
const TABLE: u8 = 2;
const STRING: u8 = 3;
const INT64: u8 = 4;
const INT32: u8 = 5;
const INT16: u8 = 6;
const INT8: u8 = 7;
const DOUBLE: u8 = 8;

/// The bytes are not valid attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed message of ubus")]
pub struct Malformed;

/// Value of a blobmsg attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Values in order.
    Array(Vec<Self>),
    /// Values with names.
    Table(Vec<(String, Self)>),
    /// A text. Bytes that are not UTF-8 are replaced on reading.
    Text(String),
    /// A number of 64 bits.
    Int64(u64),
    /// A number of 32 bits.
    Int32(u32),
    /// A number of 16 bits.
    Int16(u16),
    /// A number of 8 bits, also used as a boolean.
    Int8(u8),
    /// A number with a fraction.
    Double(f64),
    /// A value of an unknown type, or no value.
    Null,
}

impl Value {
    /// Makes a text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// Makes a boolean.
    #[must_use]
    pub fn flag(yes: bool) -> Self {
        Self::Int8(yes.into())
    }

    /// Returns a table's value by its name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Table(fields) => fields.iter().find(|it| it.0 == name).map(|it| &it.1),
            _ => None,
        }
    }

    /// Returns the text, if the value is one.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the whole number, if the value is one.
    #[must_use]
    pub fn as_number(&self) -> Option<u64> {
        match *self {
            Self::Int64(it) => Some(it),
            Self::Int32(it) => Some(it.into()),
            Self::Int16(it) => Some(it.into()),
            Self::Int8(it) => Some(it.into()),
            _ => None,
        }
    }

    /// Returns a list's values; empty for other types.
    #[must_use]
    pub fn items(&self) -> &[Self] {
        match self {
            Self::Array(items) => items,
            _ => &[],
        }
    }

    /// Returns a table's fields; empty for other types.
    #[must_use]
    pub fn fields(&self) -> &[(String, Self)] {
        match self {
            Self::Table(fields) => fields,
            _ => &[],
        }
    }

    fn id(&self) -> u8 {
        match self {
            Self::Null => 0,
            Self::Array(_) => ARRAY,
            Self::Table(_) => TABLE,
            Self::Text(_) => STRING,
            Self::Int64(_) => INT64,
            Self::Int32(_) => INT32,
            Self::Int16(_) => INT16,
            Self::Int8(_) => INT8,
            Self::Double(_) => DOUBLE,
        }
    }

    /// Appends the value with a name; values in a list have an empty name.
    fn write(&self, name: &str, out: &mut Vec<u8>) {
        attribute(self.id(), true, out, |out| {
            // No name used here is longer.
            let len = name.len().min(usize::from(u16::MAX));
            out.extend_from_slice(&(len as u16).to_be_bytes());
            out.extend_from_slice(&name.as_bytes()[..len]);
            out.push(0);
            // Padding counts from the start of the data, as the head has 4 bytes.
            pad(out, 2 + len + 1);
            match self {
                Self::Null => {}
                Self::Array(items) => items.iter().for_each(|it| it.write("", out)),
                Self::Table(fields) => fields.iter().for_each(|it| it.1.write(&it.0, out)),
                Self::Text(text) => {
                    // A reader would take a zero for the text's end.
                    let text = text.split('\0').next().unwrap_or_default();
                    out.extend_from_slice(text.as_bytes());
                    out.push(0);
                }
                Self::Int64(it) => out.extend_from_slice(&it.to_be_bytes()),
                Self::Int32(it) => out.extend_from_slice(&it.to_be_bytes()),
                Self::Int16(it) => out.extend_from_slice(&it.to_be_bytes()),
                Self::Int8(it) => out.push(*it),
                Self::Double(it) => out.extend_from_slice(&it.to_bits().to_be_bytes()),
            }
        });
    }

    fn read(attribute: &Attribute<'_>, depth: usize) -> Result<(String, Self), Malformed> {
        let (name, data) = attribute.name()?;
        let data_of = |len: usize| match data.len() == len {
            true => Ok(data),
            false => Err(Malformed),
        };
        let value = match attribute.id {
            ARRAY | TABLE if depth == DEPTH_MAX => return Err(Malformed),
            ARRAY => {
                let items = fields(data, depth + 1)?.into_iter().map(|it| it.1);
                Self::Array(items.collect())
            }
            TABLE => Self::Table(fields(data, depth + 1)?),
            STRING => Self::Text(text(data)?),
            INT64 => Self::Int64(u64::from_be_bytes(array(data_of(8)?)?)),
            INT32 => Self::Int32(u32::from_be_bytes(array(data_of(4)?)?)),
            INT16 => Self::Int16(u16::from_be_bytes(array(data_of(2)?)?)),
            INT8 => Self::Int8(*data_of(1)?.first().ok_or(Malformed)?),
            DOUBLE => Self::Double(f64::from_bits(u64::from_be_bytes(array(data_of(8)?)?))),
            _ => Self::Null,
        };
        Ok((name, value))
    }
}

/// Writes a table's fields without a head for the table, as messages carry them.
#[must_use]
pub fn to_bytes(fields: &[(String, Value)]) -> Vec<u8> {
    let mut out = Vec::new();
    fields.iter().for_each(|it| it.1.write(&it.0, &mut out));
    out
}

/// Reads the bytes that [`to_bytes`] writes.
///
/// # Errors
/// [`Malformed`].
pub fn from_bytes(bytes: &[u8]) -> Result<Vec<(String, Value)>, Malformed> {
    fields(bytes, 0)
}

fn fields(bytes: &[u8], depth: usize) -> Result<Vec<(String, Value)>, Malformed> {
    Attributes(bytes)
        .map(|it| Value::read(&it?, depth))
        .collect()
}

fn array<const N: usize>(bytes: &[u8]) -> Result<[u8; N], Malformed> {
    bytes.try_into().map_err(|_| Malformed)
}

/// Reads a text up to the zero that must end it.
pub(crate) fn text(bytes: &[u8]) -> Result<String, Malformed> {
    let end = bytes.iter().position(|it| *it == 0).ok_or(Malformed)?;
    Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
}

/// Reads a number of 32 bits.
pub(crate) fn number(bytes: &[u8]) -> Result<u32, Malformed> {
    Ok(u32::from_be_bytes(array(bytes)?))
}

/// Appends an attribute whose data `content` writes.
pub(crate) fn attribute(
    id: u8,
    named: bool,
    out: &mut Vec<u8>,
    content: impl FnOnce(&mut Vec<u8>),
) {
    let begin = out.len();
    out.extend_from_slice(&[0; HEAD]);
    content(out);
    let len = out.len() - begin;
    // Messages are far shorter than 24 bits allow.
    let head = (u32::from(id) << 24) | (len as u32 & 0x00ff_ffff) | if named { NAMED } else { 0 };
    out[begin..begin + HEAD].copy_from_slice(&head.to_be_bytes());
    pad(out, len);
}

fn pad(out: &mut Vec<u8>, len: usize) {
    out.resize(out.len() + len.next_multiple_of(4) - len, 0);
}

/// An attribute that is being read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attribute<'a> {
    pub(crate) id: u8,
    named: bool,
    pub(crate) data: &'a [u8],
}

impl<'a> Attribute<'a> {
    /// Reads one attribute, and returns the bytes behind it.
    pub(crate) fn read(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Malformed> {
        let head = u32::from_be_bytes(array(bytes.get(..HEAD).ok_or(Malformed)?)?);
        let len = (head & 0x00ff_ffff) as usize;
        let data = bytes.get(HEAD..len).ok_or(Malformed)?;
        // The last attribute may lack its padding.
        let rest = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        let id = (head >> 24) as u8 & 0x7f;
        let named = head & NAMED != 0;
        Ok((Self { id, named, data }, rest))
    }

    /// Reads the attribute's name, and returns the data behind it.
    fn name(&self) -> Result<(String, &'a [u8]), Malformed> {
        if !self.named {
            return Ok((String::new(), self.data));
        }
        let len = usize::from(u16::from_be_bytes(array(
            self.data.get(..2).ok_or(Malformed)?,
        )?));
        let name = self.data.get(2..2 + len).ok_or(Malformed)?;
        if self.data.get(2 + len) != Some(&0) {
            return Err(Malformed);
        }
        let name = String::from_utf8_lossy(name).into_owned();
        let data = self.data.get((2 + len + 1).next_multiple_of(4)..);
        Ok((name, data.unwrap_or_default()))
    }
}

/// Iterates over attributes, up to the first malformed one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attributes<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = Result<Attribute<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let read = Attribute::read(self.0);
        self.0 = read.as_ref().map(|it| it.1).unwrap_or_default();
        Some(read.map(|it| it.0))
    }
}

#[cfg(test)]
mod tests;
