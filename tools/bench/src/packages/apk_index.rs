//! `packages.adb`, apk's index of a directory, and its signature.
//!
//! OpenWrt signs indexes, not packages: the index contains the SHA-256 of each package's ADB.

use crate::packages::adb::{Block, Container, INDEX, Reader, Writer};
use crate::packages::apk::{self, ApkError, Info, Limited, info};
use crate::packages::hash;
use crate::packages::key::{KeyError, P256, p256_holds};
use thiserror::Error;

/// The index's file name.
pub const NAME: &str = "packages.adb";
/// apk-tools' identifier for SHA-512.
const SHA512: u8 = 4;
/// Bytes of a key's identifier. The head before it holds the signature version (0) and the digest.
const KEY_NUMBER: usize = 16;
const HEAD: usize = 2 + KEY_NUMBER;

/// Why an index cannot be made or trusted.
#[derive(Debug, Error)]
pub enum IndexError {
    /// A package, or a value in it, is invalid.
    #[error("{0}")]
    Apk(#[from] ApkError),
    /// The key cannot be used.
    #[error("{0}")]
    Key(#[from] KeyError),
    /// The index has no valid signature of the given key.
    #[error("packages.adb: the index is not signed with this key")]
    Signature,
}

/// Writes the index of packages, signed if a key is given.
///
/// # Errors
/// When a package is invalid, or the key cannot sign.
pub fn write(packages: &[&[u8]], key: Option<&P256>) -> Result<Vec<u8>, IndexError> {
    let mut infos = Vec::new();
    for bytes in packages {
        infos.push(Info {
            identity: apk::identity(bytes)?.to_vec(),
            file_size: bytes.len() as u64,
            ..apk::read(bytes)?.info
        });
    }
    infos.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    let mut writer = Writer::default();
    let words: Result<Vec<u32>, ApkError> = infos
        .iter()
        .map(|it| info::write(&mut writer, it))
        .collect();
    let description = writer.blob(b"Millrace");
    let words = writer.array(&words?);
    let root = writer.object(&[description, words]);
    let payload = writer.finish(root);
    let payload = payload.ok_or(ApkError::Content("the index is too large"))?;
    let mut container = Container::new(INDEX, &payload);
    if let Some(key) = key {
        let head = head(key.point());
        let signature = key.sign(&signed(&head, &payload))?;
        container.add(&Block::Signature(&[&head[..], &signature].concat()));
    }
    Ok(container.write().map_err(ApkError::from)?)
}

/// Reads an index. If a key's point is given, the index must have a valid signature of that key.
///
/// # Errors
/// When the index is invalid, or lacks that signature.
pub fn read(bytes: &[u8], point: Option<&[u8]>) -> Result<Vec<Info>, IndexError> {
    let container = Container::read(bytes, INDEX).map_err(ApkError::from)?;
    let (payload, blocks) = container.blocks().map_err(ApkError::from)?;
    if let Some(point) = point {
        let expected = head(point);
        let holds = blocks.iter().any(|block| match block {
            Block::Signature(bytes) => bytes
                .strip_prefix(&expected)
                .is_some_and(|it| p256_holds(point, it, &signed(&expected, payload))),
            Block::Data(_) => false,
        });
        if !holds {
            return Err(IndexError::Signature);
        }
    }
    let read = || {
        let reader = Reader::new(payload)?;
        let root = reader.object(reader.root())?;
        let words = reader.array(Reader::slot(&root, 2))?;
        let mut limited = Limited::new(reader);
        words
            .into_iter()
            .map(|it| info::read(&mut limited, it))
            .collect::<Result<Vec<Info>, ApkError>>()
    };
    Ok(read()?)
}

/// The head of a signature: version, digest, and the key's identifier, which is the first half of a digest of its
/// point.
fn head(point: &[u8]) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[1] = SHA512;
    head[2..].copy_from_slice(&hash::sha512(point)[..KEY_NUMBER]);
    head
}

/// The bytes that a signature covers.
fn signed(head: &[u8; HEAD], payload: &[u8]) -> Vec<u8> {
    [&INDEX[..], head, &hash::sha512(payload)].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packages::apk::Apk;
    use crate::packages::compress;
    use crate::packages::key::{Keys, new_p256};

    fn packages() -> Vec<Vec<u8>> {
        let package = |name: &str| {
            let mut package = Apk::default();
            package.info.name = name.to_owned();
            package.info.version = "1-r1".to_owned();
            apk::write(&package).unwrap()
        };
        vec![package("b"), package("a")]
    }

    fn index(key: Option<&P256>) -> Vec<u8> {
        let packages = packages();
        let packages: Vec<&[u8]> = packages.iter().map(Vec::as_slice).collect();
        write(&packages, key).unwrap()
    }

    #[test]
    fn packages_are_listed_by_name_with_the_digest_of_their_adb() {
        let bytes = index(None);
        assert_eq!(bytes, index(None));
        let infos = read(&bytes, None).unwrap();
        let names: Vec<&str> = infos.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(infos[1].identity, apk::identity(&packages()[0]).unwrap());
        assert_eq!(infos[1].file_size, packages()[0].len() as u64);
    }

    #[test]
    fn the_bytes_are_those_of_before() {
        // The compressed bytes may change with the deflate crate; the content must not.
        let plain = compress::inflate(&index(None)[4..]).unwrap();
        assert_eq!(
            hash::hex(&plain),
            "4144422e696e6478ec00000000000000dc0000e0016104312d723120dc3752baf0326e17a937cce7ae13ced6ea9d1ed3\
             3accf24bd6b27200d045e6e40e000000080000800a0000800f0000800000000000000000000000000000000000000000\
             0000000000000000000000100100001087000010016220159178c592c63a384036f762984a53d4391f14e2d007410bf3\
             a83e24d343e638000e000000680000800a0000806a000080000000000000000000000000000000000000000000000000\
             00000000000000100100001089000010084d696c6c7261636500000003000000300000e08c0000e003000000c4000080\
             d00000d000000000"
        );
    }

    #[test]
    fn a_signature_holds_for_its_key_and_its_bytes_only() {
        let mut keys = Keys::default();
        keys.parse(&new_p256().unwrap()).unwrap();
        let key = keys.p256.unwrap();
        let bytes = index(Some(&key));
        assert_eq!(read(&bytes, Some(key.point())).unwrap().len(), 2);
        let mut other = key.point().to_vec();
        other[40] ^= 1;
        assert!(matches!(
            read(&bytes, Some(&other)),
            Err(IndexError::Signature)
        ));
        assert!(matches!(
            read(&index(None), Some(key.point())),
            Err(IndexError::Signature)
        ));
        let mut plain = compress::inflate(&bytes[4..]).unwrap();
        let at = plain.windows(4).position(|it| it == b"1-r1").unwrap();
        plain[at] = b'2';
        assert!(matches!(
            read(&plain, Some(key.point())),
            Err(IndexError::Signature)
        ));
    }
}
