//! LuCI's compiled translations (`.lmo`). A router's LuCI reads all files `*.LANGUAGE.lmo` in [`DIRECTORY`].
//!
//! Texts come first, each filled up with zeros to a multiple of four bytes. The index follows: for each text, sorted,
//! the hash of the message, the number of its forms, and the text's offset and length. The last word is the index's
//! offset. All words are big endian. Hash 0 has the formula of plural forms.

use crate::packages::po::Catalog;
use std::collections::BTreeMap;
use thiserror::Error;

/// Where LuCI looks for translations.
pub const DIRECTORY: &str = "usr/lib/lua/luci/i18n";

/// Number of bytes of an entry of the index.
const ENTRY: usize = 16;

/// Why translations cannot be written or read.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum LmoError {
    /// LuCI could not tell two messages apart.
    #[error("{0:?}: another message has the same hash; change its words")]
    Collision(String),
    /// A file is not what LuCI expects.
    #[error("the file of translations is damaged: {0}")]
    Damaged(&'static str),
}

/// The key of a message without plural forms, or of one of its plural forms.
fn key(id: &str, form: Option<usize>) -> String {
    match form {
        Some(form) => format!("{id}\u{2}{form}"),
        None => id.to_owned(),
    }
}

/// Compiles a translation file. Texts that equal their message are left out: LuCI shows the message.
///
/// # Errors
/// When two messages have the same hash.
pub fn write(catalog: &Catalog) -> Result<Vec<u8>, LmoError> {
    let mut texts = Vec::new();
    let mut index = BTreeMap::new();
    let mut add = |hash: u32, forms: usize, text: &str| {
        let entry = [forms, texts.len(), text.len()];
        texts.extend_from_slice(text.as_bytes());
        texts.resize(texts.len().next_multiple_of(4), 0);
        index.insert(hash, entry).is_none()
    };
    if !catalog.plural_forms.is_empty() {
        add(0, 0, &catalog.plural_forms);
    }
    for message in &catalog.messages {
        for (form, text) in message.texts.iter().enumerate() {
            let key = key(&message.id, message.plural.as_ref().map(|_| form));
            let hash = hash(key.as_bytes());
            if hash != self::hash(text.as_bytes()) && !add(hash, message.texts.len(), text) {
                return Err(LmoError::Collision(message.id.clone()));
            }
        }
    }
    let end = texts.len();
    let index = index
        .into_iter()
        .flat_map(|(hash, [forms, offset, length])| {
            [hash, word(forms), word(offset), word(length)]
        });
    texts.extend(index.chain([word(end)]).flat_map(u32::to_be_bytes));
    Ok(texts)
}

/// A number of the file. Files of translations are small.
fn word(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// Translations as LuCI sees them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lmo(BTreeMap<u32, String>);

impl Lmo {
    /// Reads a compiled file.
    ///
    /// # Errors
    /// When LuCI could not find each of its texts.
    pub fn read(bytes: &[u8]) -> Result<Self, LmoError> {
        let (head, end) = bytes
            .split_last_chunk()
            .ok_or(LmoError::Damaged("it is too short"))?;
        let end = u32::from_be_bytes(*end) as usize;
        let (texts, index) = head
            .split_at_checked(end)
            .ok_or(LmoError::Damaged("its index"))?;
        if index.len() % ENTRY != 0 {
            return Err(LmoError::Damaged("its index"));
        }
        let mut found = BTreeMap::new();
        for entry in index.chunks_exact(ENTRY) {
            let word = |at: usize| {
                let bytes = [entry[at], entry[at + 1], entry[at + 2], entry[at + 3]];
                u32::from_be_bytes(bytes)
            };
            let (hash, offset, length) = (word(0), word(8) as usize, word(12) as usize);
            // LuCI halves the index to find a hash.
            if found
                .last_key_value()
                .is_some_and(|(last, _)| *last >= hash)
            {
                return Err(LmoError::Damaged("its index is not sorted"));
            }
            let text = texts.get(offset..).and_then(|it| it.get(..length));
            let text = text.and_then(|it| std::str::from_utf8(it).ok());
            found.insert(hash, text.ok_or(LmoError::Damaged("a text"))?.to_owned());
        }
        Ok(Self(found))
    }

    /// The translation of a message, or of its plural form with this number.
    #[must_use]
    pub fn find(&self, id: &str, form: Option<usize>) -> Option<&str> {
        let hash = hash(key(id, form).as_bytes());
        self.0.get(&hash).map(String::as_str)
    }

    /// The formula that chooses a plural form.
    #[must_use]
    pub fn plural_forms(&self) -> Option<&str> {
        self.0.get(&0).map(String::as_str)
    }
}

/// LuCI's hash of a message: Paul Hsieh's "SuperFastHash", which begins with the length.
fn hash(text: &[u8]) -> u32 {
    let half = |at: usize| u32::from(u16::from_le_bytes([text[at], text[at + 1]]));
    let signed = |at: usize| i32::from(text[at].cast_signed()).cast_unsigned();
    let (whole, mut hash) = (text.len() & !3, word(text.len()));
    for at in (0..whole).step_by(4) {
        hash = hash.wrapping_add(half(at));
        hash = (hash << 16) ^ (half(at + 2) << 11) ^ hash;
        hash = hash.wrapping_add(hash >> 11);
    }
    match text.len() - whole {
        3 => {
            hash = hash.wrapping_add(half(whole));
            hash ^= hash << 16;
            hash ^= signed(whole + 2) << 18;
            hash = hash.wrapping_add(hash >> 11);
        }
        2 => {
            hash = hash.wrapping_add(half(whole));
            hash ^= hash << 11;
            hash = hash.wrapping_add(hash >> 17);
        }
        1 => {
            hash = hash.wrapping_add(signed(whole));
            hash ^= hash << 10;
            hash = hash.wrapping_add(hash >> 1);
        }
        _ => {}
    }
    for (left, right) in [(3, 5), (4, 17), (25, 6)] {
        hash ^= hash << left;
        hash = hash.wrapping_add(hash >> right);
    }
    hash
}
