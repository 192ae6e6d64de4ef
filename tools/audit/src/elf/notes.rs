//! Reads the texts of a file: versions, build options, names of assembly, `.modinfo`.

use std::collections::BTreeSet;

use super::image::Image;

/// Maximum number of notes that are kept, and of those among them that name assembly: OpenSSL has a line for each of
/// its assembly files.
const MAX_NOTES: usize = 64;
const MAX_ASSEMBLY: usize = 44;
/// Bytes that are kept of one note.
const MAX_LENGTH: usize = 1024;
/// Maximum number of texts that are kept of `.modinfo`. A module has an alias for each device.
const MAX_MODINFO: usize = 1024;
/// Maximum number of occurrences of one word that are examined.
const MAX_LOOKS: usize = 512;

/// A word to search for, and the conditions on the text around it.
struct Word {
    text: &'static [u8],
    /// The text begins with the word.
    first: bool,
    /// A digit follows.
    version: bool,
}

const fn word(text: &'static str, first: bool, version: bool) -> Word {
    Word {
        text: text.as_bytes(),
        first,
        version,
    }
}

const ASSEMBLY: &[u8] = b"CRYPTOGAMS";

/// Words in order of worth: beyond the limit, notes of the last words are left out.
const WORDS: [Word; 20] = [
    word("OpenSSL ", false, true),
    word("LibreSSL ", false, true),
    word("BoringSSL", false, false),
    word("AWS-LC", false, false),
    word("compiler: ", true, false),
    word("built on: ", true, false),
    word("platform: ", true, false),
    word("options: ", true, false),
    word("OPENSSL_armcap", false, false),
    word("mbed TLS ", false, true),
    word("Mbed TLS ", false, true),
    word("wolfSSL ", false, true),
    word("GnuTLS ", false, true),
    word("OpenVPN ", true, true),
    word("WireGuard ", false, true),
    word("Linux version ", false, true),
    word("vermagic=", true, false),
    word("kernel_neon_begin", false, false),
    word("CONFIG_KERNEL_MODE_NEON", true, false),
    word("CRYPTOGAMS", false, false),
];

/// The notes of the whole file, whatever section or segment they are in.
pub(super) fn notes(bytes: &[u8]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let mut notes = Vec::new();
    for word in &WORDS {
        let limit = if word.text == ASSEMBLY {
            MAX_ASSEMBLY
        } else {
            8
        };
        let mut count = 0;
        for at in memchr::memmem::find_iter(bytes, word.text).take(MAX_LOOKS) {
            let (text, start) = around(bytes, at);
            let follows = bytes.get(at + word.text.len()).copied().unwrap_or(0);
            if word.first && start != at || word.version && !follows.is_ascii_digit() {
                continue;
            }
            if seen.insert(text) {
                notes.push(text.to_owned());
                count += 1;
            }
            if count == limit || notes.len() == MAX_NOTES {
                break;
            }
        }
    }
    notes
}

/// The printable text around the byte at `at`, and where it begins.
fn around(bytes: &[u8], at: usize) -> (&str, usize) {
    let printable = |byte: &u8| matches!(byte, b' '..=b'~' | b'\t');
    let floor = at.saturating_sub(MAX_LENGTH / 2);
    let start = bytes[floor..at]
        .iter()
        .rposition(|byte| !printable(byte))
        .map_or(floor, |last| floor + last + 1);
    let ceiling = bytes.len().min(start + MAX_LENGTH);
    let end = bytes[at..ceiling]
        .iter()
        .position(|byte| !printable(byte))
        .map_or(ceiling, |first| at + first);
    (
        std::str::from_utf8(&bytes[start..end]).unwrap_or_default(),
        start,
    )
}

/// `.modinfo`: texts of the form `key=value`.
pub(super) fn modinfo(image: &Image<'_>) -> Vec<(String, String)> {
    let section = image.section(".modinfo").unwrap_or_default();
    let pairs = section.split(|byte| *byte == 0).filter_map(|text| {
        let at = text
            .iter()
            .take(MAX_LENGTH)
            .position(|byte| *byte == b'=')?;
        let value = text.get(at + 1..)?;
        Some((super::image::text(&text[..at]), super::image::text(value)))
    });
    pairs.take(MAX_MODINFO).collect()
}
