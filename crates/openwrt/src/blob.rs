//! The values that messages of ubus carry, as libubox lays them out: attributes, and what `blobmsg` makes of them.
//!
//! An attribute is a word of 32 bits, most significant byte first (1 bit: it has a name, 7 bits: its id, 24 bits: its
//! length with this word), what it holds, and zeros up to a multiple of 4. With a name, what it holds begins with the
//! name's length in 16 bits, the name and a zero, and zeros up to a multiple of 4.

/// Deepest nesting of tables and lists that is read.
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

/// Bytes that are no attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed message of ubus")]
pub struct Malformed;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Values in order.
    Array(Vec<Self>),
    /// Values with names.
    Table(Vec<(String, Self)>),
    /// A text. What is no UTF-8 is replaced on reading.
    Text(String),
    /// Of 64 bits.
    Int64(u64),
    /// Of 32 bits.
    Int32(u32),
    /// Of 16 bits.
    Int16(u16),
    /// Of 8 bits, which is also yes or no.
    Int8(u8),
    /// A number with a fraction.
    Double(f64),
    /// Of a type that is not known, and nothing.
    Null,
}

impl Value {
    /// A text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// Yes or no.
    #[must_use]
    pub fn flag(yes: bool) -> Self {
        Self::Int8(yes.into())
    }

    /// A value of a table by its name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Table(fields) => fields.iter().find(|it| it.0 == name).map(|it| &it.1),
            _ => None,
        }
    }

    /// The text that it is.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The whole number that it is.
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

    /// The values of a list; of everything else none.
    #[must_use]
    pub fn items(&self) -> &[Self] {
        match self {
            Self::Array(items) => items,
            _ => &[],
        }
    }

    /// The fields of a table; anything else has none.
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

    /// Appends it with a name, which is empty in a list.
    fn write(&self, name: &str, out: &mut Vec<u8>) {
        attribute(self.id(), true, out, |out| {
            // Longer names are none of ours.
            let len = name.len().min(usize::from(u16::MAX));
            out.extend_from_slice(&(len as u16).to_be_bytes());
            out.extend_from_slice(&name.as_bytes()[..len]);
            out.push(0);
            // The head of 4 bytes keeps what follows where it would be without it.
            pad(out, 2 + len + 1);
            match self {
                Self::Null => {}
                Self::Array(items) => items.iter().for_each(|it| it.write("", out)),
                Self::Table(fields) => fields.iter().for_each(|it| it.1.write(&it.0, out)),
                Self::Text(text) => {
                    // A zero would end it for the reader.
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

/// Writes the fields of a table, without a head of their own: as messages carry them.
#[must_use]
pub fn to_bytes(fields: &[(String, Value)]) -> Vec<u8> {
    let mut out = Vec::new();
    fields.iter().for_each(|it| it.1.write(&it.0, &mut out));
    out
}

/// Reads what [`to_bytes`] writes.
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

/// A text up to the zero that must end it.
pub(crate) fn text(bytes: &[u8]) -> Result<String, Malformed> {
    let end = bytes.iter().position(|it| *it == 0).ok_or(Malformed)?;
    Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
}

/// A number of 32 bits.
pub(crate) fn number(bytes: &[u8]) -> Result<u32, Malformed> {
    Ok(u32::from_be_bytes(array(bytes)?))
}

/// Appends an attribute that holds what `content` appends.
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
    // Messages are bounded far below 24 bits.
    let head = (u32::from(id) << 24) | (len as u32 & 0x00ff_ffff) | if named { NAMED } else { 0 };
    out[begin..begin + HEAD].copy_from_slice(&head.to_be_bytes());
    pad(out, len);
}

fn pad(out: &mut Vec<u8>, len: usize) {
    out.resize(out.len() + len.next_multiple_of(4) - len, 0);
}

/// An attribute as it is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attribute<'a> {
    pub(crate) id: u8,
    named: bool,
    pub(crate) data: &'a [u8],
}

impl<'a> Attribute<'a> {
    /// Reads one, and what is behind it.
    pub(crate) fn read(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Malformed> {
        let head = u32::from_be_bytes(array(bytes.get(..HEAD).ok_or(Malformed)?)?);
        let len = (head & 0x00ff_ffff) as usize;
        let data = bytes.get(HEAD..len).ok_or(Malformed)?;
        // The last one may be without its zeros.
        let rest = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        let id = (head >> 24) as u8 & 0x7f;
        let named = head & NAMED != 0;
        Ok((Self { id, named, data }, rest))
    }

    /// Its name, and what is behind that.
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

/// The attributes that bytes hold, up to the first that is malformed.
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
