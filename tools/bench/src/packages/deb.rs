//! Debian's packages: an `ar` archive of `debian-binary`, `control.tar.gz` and `data.tar.xz`, in this order (deb(5)).

use crate::packages::ipk::{self, Content, PackageError, VERSION};
use crate::packages::{compress, tar};
use std::io;

const MAGIC: &[u8] = b"!<arch>\n";
const HEADER: usize = 60;
const END: &[u8] = b"`\n";
const PARTS: [&str; 3] = ["debian-binary", "control.tar.gz", "data.tar.xz"];

/// Writes a package in which everything has the same date.
///
/// # Errors
/// Never in practice: writing to a vector does not fail.
pub fn write(content: &Content, date: u64) -> io::Result<Vec<u8>> {
    let control = compress::gzip(&tar::write(&content.control, date))?;
    let data = compress::xz(&tar::write(&content.data, date))?;
    let mut bytes = MAGIC.to_vec();
    for (name, part) in PARTS.iter().zip([VERSION, &control, &data]) {
        let size = part.len();
        let header = format!(
            "{name:<16}{date:<12}{:<6}{:<6}{:<8}{size:<10}",
            0, 0, "100644"
        );
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(END);
        bytes.extend_from_slice(part);
        if size % 2 == 1 {
            bytes.push(b'\n');
        }
    }
    Ok(bytes)
}

/// Reads a package.
///
/// # Errors
/// When the package is invalid, or this crate would not have written it.
pub fn read(bytes: &[u8]) -> Result<Content, PackageError> {
    let [version, control, data] = parts(bytes)?;
    if version != VERSION {
        return Err(PackageError::Parts);
    }
    let control = ipk::archive(PARTS[1], compress::gunzip(control))?;
    let data = ipk::archive(PARTS[2], compress::unxz(data))?;
    ipk::content(control, data)
}

/// The parts of the outer archive.
fn parts(bytes: &[u8]) -> Result<[&[u8]; 3], PackageError> {
    if !bytes.starts_with(MAGIC) {
        return Err(PackageError::Ar {
            at: 0,
            what: "no archive",
        });
    }
    let mut parts = [&[][..]; 3];
    let mut at = MAGIC.len();
    for (name, part) in PARTS.iter().zip(&mut parts) {
        let wrong = move |what| PackageError::Ar { at, what };
        let header = bytes.get(at..at + HEADER).ok_or_else(|| wrong("it ends"))?;
        let text = str::from_utf8(header).map_err(|_| wrong("no header"))?;
        if &header[58..] != END || !text.is_ascii() {
            return Err(wrong("no header"));
        }
        if text[..16].trim_end() != *name {
            return Err(PackageError::Parts);
        }
        if text[28..40].split_whitespace().collect::<Vec<_>>() != ["0", "0"] {
            return Err(wrong("the owner is not root"));
        }
        let size: usize = text[48..58]
            .trim_end()
            .parse()
            .map_err(|_| wrong("no size"))?;
        let begin = at + HEADER;
        let end = begin
            .checked_add(size)
            .ok_or_else(|| wrong("the size is beyond the end"))?;
        *part = bytes
            .get(begin..end)
            .ok_or_else(|| wrong("the size is beyond the end"))?;
        at = end;
        if size % 2 == 1 {
            if bytes.get(at) != Some(&b'\n') {
                return Err(wrong("no newline after an odd size"));
            }
            at += 1;
        }
    }
    if at != bytes.len() {
        return Err(PackageError::Ar {
            at,
            what: "trailing data after the last part",
        });
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packages::hash;
    use crate::packages::tree::tests::any_tree;
    use crate::packages::tree::{Entry, Tree};
    use proptest::prelude::*;

    fn content(data: Tree) -> Content {
        let mut control = Tree::default();
        control.file("control", 0o644, b"Package: a\n").unwrap();
        Content { control, data }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn what_is_written_is_read(data in any_tree()) {
            let content = content(data);
            let bytes = write(&content, 7).unwrap();
            prop_assert_eq!(&read(&bytes).unwrap(), &content);
            prop_assert_eq!(write(&content, 7).unwrap(), bytes);
        }

        #[test]
        fn damage_never_panics(at in any::<proptest::sample::Index>(), bits in 1_u8.., cut in any::<proptest::sample::Index>()) {
            let mut bytes = write(&content(Tree::default()), 7).unwrap();
            let index = at.index(bytes.len());
            bytes[index] ^= bits;
            let _ = read(&bytes);
            let _ = read(&bytes[..cut.index(bytes.len())]);
        }
    }

    #[test]
    fn the_bytes_are_those_of_before() {
        let mut data = Tree::default();
        data.file("usr/sbin/millrace", 0o755, b"program").unwrap();
        data.add("usr/sbin/openvpn", Entry::link("millrace"))
            .unwrap();
        let bytes = write(&content(data), 1_700_000_000).unwrap();
        let [version, control, data] = parts(&bytes).unwrap();
        let unpacked = [
            version,
            &compress::gunzip(control).unwrap(),
            &compress::unxz(data).unwrap(),
        ]
        .concat();
        let digest = |bytes: &[u8]| hash::hex(&hash::sha256(bytes));
        assert_eq!(
            digest(&unpacked),
            "bb72d4d15ecbc8d57e1b1b9773812643db6de3dac8f4551d6923aaa48d3675d2",
            "what is in the parts"
        );
        // Another release of the compression crates may change this digest; the digest above must stay.
        assert_eq!(
            digest(&bytes),
            "cd3a2664512692efba4114217ce7b64bf53fbeacd4b7fe4460f77f63fe1d5193",
            "the whole"
        );
    }

    #[test]
    fn headers_are_those_of_ar() {
        let bytes = write(&content(Tree::default()), 1_700_000_000).unwrap();
        let head = b"!<arch>\ndebian-binary   1700000000  0     0     100644  4         `\n2.0\ncontrol.tar.gz  1700000000  0     0     100644  ";
        assert_eq!(bytes[..head.len()], *head);
    }
}
