//! PEM (RFC 7468, and RFC 1421 for the headers of encrypted keys), as people keep it: with text
//! around the blocks, with Windows' line ends, several blocks in a file.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

/// A PEM block.
pub(crate) struct Block {
    /// The word after `BEGIN`.
    pub(crate) label: String,
    /// The value of the header `DEK-Info: ` of an encrypted key.
    pub(crate) encryption: Option<String>,
    /// Decoded content of the block.
    pub(crate) content: Zeroizing<Vec<u8>>,
}

/// Reads all blocks of a file and skips text outside them. The error tells the fault.
pub(crate) fn blocks(bytes: &[u8]) -> Result<Vec<Block>, String> {
    let mut blocks = Vec::new();
    let mut open: Option<(String, Option<String>, Zeroizing<Vec<u8>>)> = None;
    for (number, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        match &mut open {
            None => {
                if let Some(label) = marker(line, b"-----BEGIN ") {
                    // Grown to its size at once: growing later would leave copies of a key behind.
                    open = Some((label, None, Zeroizing::new(Vec::with_capacity(bytes.len()))));
                }
            }
            Some((label, encryption, text)) => {
                if marker(line, b"-----END ").is_some_and(|end| end == *label) {
                    let content = STANDARD.decode(&text[..]).map_err(|_| {
                        format!(
                            "the block '{label}' that ends in line {} is damaged",
                            number + 1
                        )
                    })?;
                    blocks.push(Block {
                        label: std::mem::take(label),
                        encryption: encryption.take(),
                        content: Zeroizing::new(content),
                    });
                    open = None;
                } else if let Some(colon) = line.iter().position(|&byte| byte == b':') {
                    let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
                    if name.eq_ignore_ascii_case(b"DEK-Info") {
                        *encryption = Some(String::from_utf8_lossy(value).into_owned());
                    }
                } else {
                    text.extend_from_slice(line);
                }
            }
        }
    }
    match open {
        Some((label, ..)) => Err(format!("the block '{label}' has no end")),
        None => Ok(blocks),
    }
}

/// The contents of the blocks with one of these labels; or the whole file, if it is not PEM.
pub(crate) fn blocks_or_der(bytes: &[u8], labels: &[&str]) -> Result<Vec<Vec<u8>>, String> {
    if bytes.first() == Some(&crate::der::SEQUENCE) {
        return Ok(vec![bytes.to_vec()]);
    }
    let found: Vec<_> = blocks(bytes)?
        .into_iter()
        .filter(|block| labels.contains(&block.label.as_str()))
        .map(|block| block.content.to_vec())
        .collect();
    if found.is_empty() {
        return Err(format!("there is no '-----BEGIN {}-----' in it", labels[0]));
    }
    Ok(found)
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

/// The label of a line that begins a block or ends one.
fn marker(line: &[u8], start: &[u8]) -> Option<String> {
    let label = line.strip_prefix(start)?.strip_suffix(b"-----")?;
    Some(String::from_utf8_lossy(label).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_between_text() {
        let file = b"Bag Attributes: x\r\n-----BEGIN A B-----\r\nAQI\r\nD\r\n-----END A B-----\r\n\
            text\n  -----BEGIN C-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nBA==\n-----END C-----";
        let blocks = blocks(file).expect("blocks");
        assert_eq!(blocks.len(), 2);
        assert_eq!(
            (blocks[0].label.as_str(), &blocks[0].content[..]),
            ("A B", &[1, 2, 3][..])
        );
        assert_eq!(blocks[1].encryption.as_deref(), Some("AES-128-CBC,00"));
        assert_eq!(&blocks[1].content[..], [4]);
    }

    #[test]
    fn damage_is_named() {
        assert!(
            blocks(b"-----BEGIN A-----\nA").is_err_and(|error| error.contains("'A' has no end"))
        );
        let bad = blocks(b"-----BEGIN A-----\n%\n-----END A-----").err();
        assert!(bad.is_some_and(|error| error.contains("line 3")));
        assert!(blocks_or_der(b"hello", &["X"]).is_err());
        assert_eq!(blocks_or_der(&[0x30, 0], &["X"]), Ok(vec![vec![0x30, 0]]));
    }
}
