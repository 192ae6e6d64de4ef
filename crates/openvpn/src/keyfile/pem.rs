//! The PEM armour of the tls-crypt-v2 keys: base64 between a BEGIN and an END line (RFC 7468).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use super::KeyFileError;

/// The bytes in the first block of this name. `most` bounds what is decoded.
pub(super) fn decode(
    text: &str,
    name: &'static str,
    most: usize,
) -> Result<Zeroizing<Vec<u8>>, KeyFileError> {
    let mut lines = text.lines().map(str::trim);
    let begin = |line: &str| armoured(line, "BEGIN") == Some(name);
    if !lines.any(begin) {
        return Err(KeyFileError::NoBegin { expected: name });
    }
    // Four characters are three bytes; what is longer is not collected.
    let longest = most.div_ceil(3) * 4;
    let mut body = Zeroizing::new(String::with_capacity(longest));
    for line in lines {
        if armoured(line, "END") == Some(name) {
            let bytes = STANDARD
                .decode(body.as_bytes())
                .map_err(|_| KeyFileError::Base64)?;
            return Ok(Zeroizing::new(bytes));
        }
        for piece in line.split_whitespace() {
            if body.len() + piece.len() > longest {
                return Err(KeyFileError::Base64);
            }
            body.push_str(piece);
        }
    }
    Err(KeyFileError::NoEnd { expected: name })
}

/// The text of a block of this name, 64 characters to the line.
pub(crate) fn encode(bytes: &[u8], name: &str) -> Zeroizing<String> {
    let length = bytes.len().div_ceil(3) * 4;
    let mut body = Zeroizing::new(vec![0; length]);
    // The buffer is as long as the text.
    let written = STANDARD.encode_slice(bytes, &mut body).unwrap_or(0);
    let mut text = Zeroizing::new(String::with_capacity(
        length + length / 64 + 2 * name.len() + 64,
    ));
    text.push_str("-----BEGIN ");
    text.push_str(name);
    text.push_str("-----\n");
    for line in body[..written].chunks(64) {
        text.extend(line.iter().copied().map(char::from));
        text.push('\n');
    }
    text.push_str("-----END ");
    text.push_str(name);
    text.push_str("-----\n");
    text
}

/// The label of an armour line of this kind.
fn armoured<'a>(line: &'a str, kind: &str) -> Option<&'a str> {
    line.strip_prefix("-----")?
        .strip_prefix(kind)?
        .strip_prefix(' ')?
        .strip_suffix("-----")
}
