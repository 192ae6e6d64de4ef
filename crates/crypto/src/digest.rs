//! The digests and their names.

/// The hash inside an HMAC. This is the only list of digests; names are OpenSSL's, which OpenVPN uses in its files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Digest {
    /// none: no authentication. Insecure.
    None,
    /// MD5. Unbroken as an HMAC, but no choice for a new setup.
    Md5,
    /// SHA1. Unbroken as an HMAC.
    #[default]
    Sha1,
    /// SHA224.
    Sha224,
    /// SHA256.
    Sha256,
    /// SHA384.
    Sha384,
    /// SHA512.
    Sha512,
    /// SHA512-256: SHA-512 with other initial values, cut to 256 bits.
    Sha512_256,
    /// SHA3-256.
    Sha3_256,
    /// SHA3-384.
    Sha3_384,
    /// SHA3-512.
    Sha3_512,
    /// BLAKE2s256.
    Blake2s256,
    /// BLAKE2b512.
    Blake2b512,
    /// RIPEMD160.
    Ripemd160,
}

impl Digest {
    /// All digests.
    pub const ALL: [Self; 14] = [
        Self::None,
        Self::Md5,
        Self::Sha1,
        Self::Sha224,
        Self::Sha256,
        Self::Sha384,
        Self::Sha512,
        Self::Sha512_256,
        Self::Sha3_256,
        Self::Sha3_384,
        Self::Sha3_512,
        Self::Blake2s256,
        Self::Blake2b512,
        Self::Ripemd160,
    ];

    /// The digest called `name`, in upper or lower case, or in OpenSSL's other spellings (`RSA-SHA256`, `SHA2-256`,
    /// `SHA-256`). `[null-digest]` means none, as in OpenVPN's option strings.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let upper = name.to_ascii_uppercase().replace('/', "-");
        let bare = upper.strip_prefix("RSA-").unwrap_or(&upper);
        let bare = bare.strip_prefix("SSL3-").unwrap_or(bare);
        let sized = ["SHA2-", "SHA-2-", "SHA-"]
            .iter()
            .find_map(|prefix| bare.strip_prefix(prefix));
        let plain = match sized {
            Some(size) => format!("SHA{size}"),
            None => bare.to_owned(),
        };
        let plain = match plain.as_str() {
            "[NULL-DIGEST]" => "none",
            "RIPEMD" | "RMD160" | "RIPEMD-160" => "RIPEMD160",
            "BLAKE2S-256" => "BLAKE2s256",
            "BLAKE2B-512" => "BLAKE2b512",
            plain => plain,
        };
        Self::ALL
            .into_iter()
            .find(|digest| digest.name().eq_ignore_ascii_case(plain))
    }

    /// The name in files, on the wire and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Md5 => "MD5",
            Self::Sha1 => "SHA1",
            Self::Sha224 => "SHA224",
            Self::Sha256 => "SHA256",
            Self::Sha384 => "SHA384",
            Self::Sha512 => "SHA512",
            Self::Sha512_256 => "SHA512-256",
            Self::Sha3_256 => "SHA3-256",
            Self::Sha3_384 => "SHA3-384",
            Self::Sha3_512 => "SHA3-512",
            Self::Blake2s256 => "BLAKE2s256",
            Self::Blake2b512 => "BLAKE2b512",
            Self::Ripemd160 => "RIPEMD160",
        }
    }

    /// Bytes of the hash, which is also the length of the HMAC and of its key: 16 to 64, 0 for none.
    #[must_use]
    pub const fn len(self) -> usize {
        match self {
            Self::None => 0,
            Self::Md5 => 16,
            Self::Sha1 | Self::Ripemd160 => 20,
            Self::Sha224 => 28,
            Self::Sha256 | Self::Sha512_256 | Self::Sha3_256 | Self::Blake2s256 => 32,
            Self::Sha384 | Self::Sha3_384 => 48,
            Self::Sha512 | Self::Sha3_512 | Self::Blake2b512 => 64,
        }
    }

    /// Whether this is [`None`](Self::None).
    #[must_use]
    pub const fn is_empty(self) -> bool {
        matches!(self, Self::None)
    }

    /// Whether a cipher that does not authenticate may use this digest only if the user requests it explicitly.
    #[must_use]
    pub const fn is_insecure(self) -> bool {
        matches!(self, Self::Md5 | Self::None)
    }
}

impl core::fmt::Display for Digest {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_both_ways_in_any_case() {
        for digest in Digest::ALL {
            assert_eq!(Digest::from_name(digest.name()), Some(digest));
            assert_eq!(
                Digest::from_name(&digest.name().to_lowercase()),
                Some(digest)
            );
        }
        for (name, digest) in [
            ("SHA-256", Digest::Sha256),
            ("SHA-2-224", Digest::Sha224),
            ("SHA-1", Digest::Sha1),
            ("ssl3-md5", Digest::Md5),
            ("rsa-sha256", Digest::Sha256),
            ("RSA-SHA512/256", Digest::Sha512_256),
            ("SHA2-512/256", Digest::Sha512_256),
            ("RIPEMD", Digest::Ripemd160),
            ("BLAKE2S-256", Digest::Blake2s256),
            ("[null-digest]", Digest::None),
        ] {
            assert_eq!(Digest::from_name(name), Some(digest), "{name}");
        }
        assert_eq!(Digest::from_name("whirlpool"), None);
    }
}
