//! Tables of keys for files of `Key = Value` lines, and the values that several kinds of files share.

use std::fmt::Display;
use std::str::FromStr;

use zeroize::Zeroizing;

use crate::text::suggest;
use crate::types::{Key32, decimal};

/// An accepted value with a remark, which may be empty; or the fault of the value.
pub(crate) type Verdicted = Result<String, String>;

/// An accepted value without a remark.
pub(crate) const OK: Verdicted = Ok(String::new());

/// Values to write, which may be secret.
pub(crate) type Texts = Vec<Zeroizing<String>>;

/// A key of a section: how its value changes the model `T`, and how the model becomes text.
pub(crate) struct Key<T> {
    pub name: &'static str,
    pub set: fn(&mut T, &str) -> Verdicted,
    /// Returns the values to write; none for a default.
    pub show: fn(&T) -> Texts,
}

impl<T> Key<T> {
    /// A key that is read but never written back.
    pub(crate) const fn read(name: &'static str, set: fn(&mut T, &str) -> Verdicted) -> Self {
        let show = |_: &T| Vec::new();
        Self { name, set, show }
    }
}

/// The names of keys.
pub(crate) fn names<T>(keys: &[Key<T>]) -> Vec<&'static str> {
    keys.iter().map(|key| key.name).collect()
}

/// The key of this name, which may be written in any case.
pub(crate) fn find<'k, T>(keys: &'k [Key<T>], name: &str) -> Result<&'k Key<T>, String> {
    let found = keys.iter().find(|key| key.name.eq_ignore_ascii_case(name));
    found.ok_or_else(|| format!("unknown key; {}", suggest(name, &names(keys))))
}

/// Sets a key, which may be written in any case. Returns its usual spelling, and a remark.
pub(crate) fn set<T>(
    keys: &[Key<T>],
    model: &mut T,
    name: &str,
    value: &str,
) -> Result<(&'static str, String), String> {
    let key = find(keys, name)?;
    Ok((key.name, (key.set)(model, value)?))
}

/// Appends a line for each value that the model has, `before` in front.
pub(crate) fn write<T>(keys: &[Key<T>], model: &T, before: &str, out: &mut String) {
    for key in keys {
        write_texts(before, key.name, (key.show)(model), out);
    }
}

/// Appends a line for each text.
pub(crate) fn write_texts(before: &str, name: &str, texts: Texts, out: &mut String) {
    for text in texts {
        for part in [before, name, " = ", &text, "\n"] {
            out.push_str(part);
        }
    }
}

/// The texts of some values.
pub(crate) fn texts<T: Display>(values: impl IntoIterator<Item = T>) -> Texts {
    let values = values.into_iter();
    values.map(|it| Zeroizing::new(it.to_string())).collect()
}

/// The items, separated by commas; no text if there are none.
pub(crate) fn joined<T: ToString>(items: &[T]) -> Texts {
    let words: Vec<String> = items.iter().map(ToString::to_string).collect();
    texts(Some(words.join(", ")).filter(|it| !it.is_empty()))
}

/// Stores a value that was understood.
pub(crate) fn store<T>(slot: &mut T, value: Result<T, impl Into<String>>) -> Verdicted {
    *slot = value.map_err(Into::into)?;
    OK
}

/// Stores an optional value that was understood.
pub(crate) fn some<T>(slot: &mut Option<T>, value: Result<T, impl Into<String>>) -> Verdicted {
    store(slot, value.map(Some))
}

/// The value without white space, as `wg` reads it. It may be a key.
pub(crate) fn compact(value: &str) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::with_capacity(value.len()));
    text.extend(value.chars().filter(|c| !c.is_whitespace()));
    text
}

/// Parses a value; the error quotes it.
pub(crate) fn parsed<T: FromStr<Err: Display>>(text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|why| format!("`{}`: {why}", shown(text)))
}

/// Parses a WireGuard key in base64. `wg` accepts white space anywhere in it.
pub(crate) fn key(value: &str) -> Result<Key32, String> {
    Key32::from_base64(&compact(value)).map_err(|why| why.to_string())
}

/// Parses a key that two ends share.
pub(crate) fn shared_key(value: &str) -> Result<Key32, String> {
    match key(value)? {
        key if key.is_zero() => {
            Err("an all-zero key means \"no key\"; make one with `millrace genpsk`".to_owned())
        }
        key => Ok(key),
    }
}

/// Checks a name for logs and reports.
pub(crate) fn name(value: &str) -> Result<String, String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    match value.is_empty() || value.len() > NAME_MAX || !value.bytes().all(fits) {
        true => Err("must be at most 32 letters, digits, `-`, `_` and `.`".to_owned()),
        false => Ok(value.to_owned()),
    }
}

/// Longest name, in bytes.
const NAME_MAX: usize = 32;

/// Parses a decimal number of at most `max`.
pub(crate) fn up_to<T: TryFrom<u64>>(text: &str, max: u64) -> Option<T> {
    T::try_from(decimal(text).filter(|&n| n <= max)?).ok()
}

/// Parses the seconds between persistent keepalives: `n`, or `a-b` of AmneziaWG 3.0, which draws each time from a range;
/// here `a` counts.
#[must_use]
pub fn keepalive(text: &str) -> Option<u16> {
    let (lo, hi) = text.split_once('-').unwrap_or((text, text));
    let (lo, hi): (u16, u16) = (up_to(lo, u64::MAX)?, up_to(hi, u64::MAX)?);
    (lo == hi || (1..hi).contains(&lo)).then_some(lo)
}

/// Parses a decimal number, or a hexadecimal one after `0x`.
pub(crate) fn number(text: &str) -> Option<u32> {
    let value = match text.strip_prefix("0x") {
        Some(digits) if digits.bytes().all(|b| b.is_ascii_hexdigit()) => {
            u64::from_str_radix(digits, 16).ok()?
        }
        Some(_) => return None,
        None => decimal(text)?,
    };
    u32::try_from(value).ok()
}

/// Parses a rate, in bits a second.
pub(crate) fn rate(text: &str) -> Result<u64, String> {
    let rate = thousands(text).filter(|rate| (1..=1_000_000_000_000).contains(rate));
    rate.ok_or_else(|| {
        "must be bits per second, with `k`, `M` or `G` for thousands, at most 1000G".to_owned()
    })
}

/// Parses a number with an optional unit (powers of 1,000).
pub(crate) fn thousands(text: &str) -> Option<u64> {
    let (digits, unit) = match text.char_indices().next_back()? {
        (at, 'k') => (&text[..at], 1_000),
        (at, 'M') => (&text[..at], 1_000_000),
        (at, 'G') => (&text[..at], 1_000_000_000),
        _ => (text, 1),
    };
    decimal(digits)?.checked_mul(unit)
}

/// A word of the file, made fit to print: cut to 40 characters, without control characters.
pub(crate) fn shown(word: &str) -> String {
    let cut: String = word.chars().take(40).collect();
    crate::shown(&cut)
}
