//! The digests by their OpenVPN names.

/// The hash inside an HMAC: `auth` and `tls-auth`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Digest {
    /// MD5. As an HMAC unbroken, and still nothing to begin with.
    Md5,
    /// SHA1: OpenVPN's default. As an HMAC unbroken.
    Sha1,
    /// SHA224.
    Sha224,
    /// SHA256.
    Sha256,
    /// SHA384.
    Sha384,
    /// SHA512.
    Sha512,
    /// none: no authentication. Insecure.
    None,
}

impl Digest {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Sha512,
        Self::Sha384,
        Self::Sha256,
        Self::Sha224,
        Self::Sha1,
        Self::Md5,
        Self::None,
    ];

    /// The digest that OpenVPN, in `auth`, calls `name`, in whatever case. The names with a dash and with `RSA-` are
    /// OpenSSL's, which OpenVPN takes too.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let upper = name.to_ascii_uppercase();
        let bare = upper.strip_prefix("RSA-").unwrap_or(&upper);
        if bare == "[NULL-DIGEST]" {
            return Some(Self::None);
        }
        Self::ALL.into_iter().find(|digest| {
            let own = digest.name().to_ascii_uppercase();
            bare == own || bare == own.replacen("SHA", "SHA-", 1)
        })
    }

    /// OpenVPN's name for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Md5 => "MD5",
            Self::Sha1 => "SHA1",
            Self::Sha224 => "SHA224",
            Self::Sha256 => "SHA256",
            Self::Sha384 => "SHA384",
            Self::Sha512 => "SHA512",
            Self::None => "none",
        }
    }

    /// Bytes of hash, which is the HMAC's length and that of its key: 16 to 64, 0 for none.
    #[must_use]
    pub const fn len(self) -> usize {
        match self {
            Self::Md5 => 16,
            Self::Sha1 => 20,
            Self::Sha224 => 28,
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
            Self::None => 0,
        }
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        matches!(self, Self::None)
    }

    /// Whether it must be asked for explicitly.
    #[must_use]
    pub const fn is_legacy(self) -> bool {
        matches!(self, Self::Md5 | Self::None)
    }
}

impl core::fmt::Display for Digest {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
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
        assert_eq!(Digest::from_name("SHA-256"), Some(Digest::Sha256));
        assert_eq!(Digest::from_name("RSA-SHA512"), Some(Digest::Sha512));
        assert_eq!(Digest::from_name("whirlpool"), None);
    }
}
