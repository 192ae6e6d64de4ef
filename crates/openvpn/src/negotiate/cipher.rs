//! Which data cipher both sides use.

pub use crypto::Cipher;

use super::PeerInfo;

/// Names in order of preference: `data-ciphers`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CipherList(Vec<Cipher>);

/// The fault of a list of ciphers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CipherListError {
    /// An unknown name without the `?` that lets it be missing.
    #[error(
        "data-ciphers: {0} is not supported here; leave it out, or write ?{0} to make it optional"
    )]
    Unknown(String),
    /// No cipher is left.
    #[error("data-ciphers: the list has no supported cipher; the usual list is {DEFAULT}")]
    Empty,
    /// The list is longer than stock peers accept.
    #[error("data-ciphers: the list is longer than the 127 characters that peers accept")]
    TooLong,
}

/// The value of `data-ciphers` if it is not set.
const DEFAULT: &str = "AES-256-GCM:AES-128-GCM:CHACHA20-POLY1305";

impl Default for CipherList {
    fn default() -> Self {
        Self(vec![
            Cipher::Aes256Gcm,
            Cipher::Aes128Gcm,
            Cipher::ChaCha20Poly1305,
        ])
    }
}

impl CipherList {
    /// Reads names between colons. `?NAME` may be unknown; `DEFAULT` stands for the default list.
    ///
    /// # Errors
    /// [`CipherListError`] names what to change.
    pub fn parse(text: &str) -> Result<Self, CipherListError> {
        let mut list = Vec::new();
        let mut add = |it| {
            if !list.contains(&it) {
                list.push(it);
            }
        };
        for word in text.split(':').filter(|it| !it.is_empty()) {
            let (optional, name) = match word.strip_prefix('?') {
                Some(name) => (true, name),
                None => (false, word),
            };
            match Cipher::from_name(name) {
                Some(cipher) => add(cipher),
                None if name == "DEFAULT" => Self::default().0.into_iter().for_each(&mut add),
                None if optional => {}
                None => return Err(CipherListError::Unknown(name.to_owned())),
            }
        }
        let list = Self(list);
        match list.to_string().len() {
            0 => Err(CipherListError::Empty),
            1..128 => Ok(list),
            _ => Err(CipherListError::TooLong),
        }
    }

    /// The list with only these, in this order.
    #[must_use]
    pub fn of(ciphers: &[Cipher]) -> Self {
        Self(ciphers.to_vec())
    }

    /// Whether the cipher is in the list.
    #[must_use]
    pub fn contains(&self, cipher: Cipher) -> bool {
        self.0.contains(&cipher)
    }

    /// The ciphers, the preferred one first.
    pub fn iter(&self) -> impl Iterator<Item = Cipher> + '_ {
        self.0.iter().copied()
    }

    /// Whether we may say `IV_NCP=2`: a peer that knows only this will push AES-128-GCM or AES-256-GCM.
    #[must_use]
    pub fn has_both_gcm(&self) -> bool {
        self.contains(Cipher::Aes128Gcm) && self.contains(Cipher::Aes256Gcm)
    }
}

impl core::fmt::Display for CipherList {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        for (at, cipher) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str(":")?;
            }
            f.write_str(cipher.name())?;
        }
        Ok(())
    }
}

/// Chooses the cipher for a client, as the server.
///
/// `occ` is the cipher of the client's option string. `fallback` is for clients that name no cipher at all.
///
/// # Errors
/// The reason, for people; the client is told that there is no shared cipher.
pub fn choose_as_server(
    list: &CipherList,
    fallback: Option<Cipher>,
    peer: &PeerInfo,
    occ: Option<&str>,
) -> Result<Cipher, String> {
    let theirs: Vec<&str> = match peer.ciphers() {
        Some(names) => names.split(':').collect(),
        None if peer.ncp() >= 2 => vec!["AES-256-GCM", "AES-128-GCM"],
        None => Vec::new(),
    };
    // A client that lists its ciphers may refuse the one in its option string.
    let occ_counts = peer.ciphers().is_none();
    let known = |cipher: &Cipher| {
        let name = cipher.name();
        theirs.iter().any(|it| it.eq_ignore_ascii_case(name))
            || (occ_counts && occ.is_some_and(|it| it.eq_ignore_ascii_case(name)))
    };
    if let Some(cipher) = list.iter().find(known) {
        return Ok(cipher);
    }
    match (theirs.is_empty(), occ) {
        (false, _) => Err(format!(
            "no shared cipher: the client accepts {}, this server {list}; add one of the client's to data-ciphers",
            theirs.join(":")
        )),
        (true, Some(occ)) => Err(format!(
            "no shared cipher: the client uses {occ}, this server accepts {list}; set data-ciphers {list}:{occ} to let it in"
        )),
        (true, None) => fallback.ok_or_else(|| {
            "the client does not say which cipher it uses; set data-ciphers-fallback to that cipher to let it \
             in".to_owned()
        }),
    }
}

/// Chooses the cipher as the client: the pushed one, else that of the server's option string, else the fallback.
///
/// # Errors
/// The reason, for people.
pub fn choose_as_client(
    list: &CipherList,
    fallback: Option<Cipher>,
    pushed: Option<&str>,
    occ: Option<&str>,
) -> Result<Cipher, String> {
    let allowed = |name: &str| Cipher::from_name(name).filter(|it| list.contains(*it));
    match (pushed, occ) {
        (Some(name), _) => allowed(name).ok_or_else(|| {
            format!(
                "the server wants the cipher {name}, which is not in data-ciphers ({list}); \
                 set data-ciphers {list}:{name} to connect to it"
            )
        }),
        (None, Some(name)) => allowed(name).ok_or_else(|| {
            format!(
                "failed to negotiate a cipher: the server uses {name}, which is not in data-ciphers ({list}); \
                 set data-ciphers {list}:{name} to connect to it"
            )
        }),
        (None, None) => fallback.ok_or_else(|| {
            "the server does not say which cipher it uses; set data-ciphers-fallback to that cipher to connect to it"
                .to_owned()
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> CipherList {
        CipherList::parse(text).unwrap()
    }

    fn info(text: &str) -> PeerInfo {
        PeerInfo::parse(text)
    }

    #[test]
    fn lists_are_read() {
        assert_eq!(CipherList::default().to_string(), DEFAULT);
        assert_eq!(
            list("aes-256-cbc:DEFAULT:AES-256-GCM").to_string(),
            format!("AES-256-CBC:{DEFAULT}")
        );
        assert_eq!(list("?FOO-CBC:AES-128-GCM").to_string(), "AES-128-GCM");
        assert_eq!(
            CipherList::parse("FOO:AES-128-GCM"),
            Err(CipherListError::Unknown("FOO".to_owned()))
        );
        assert_eq!(CipherList::parse("?FOO"), Err(CipherListError::Empty));
        assert_eq!(CipherList::parse(""), Err(CipherListError::Empty));
        assert!(list("DEFAULT").has_both_gcm() && !list("AES-256-GCM").has_both_gcm());
    }

    #[test]
    fn the_server_chooses_by_its_own_order() {
        let choose = |ours: &str, peer: &str, occ| {
            choose_as_server(&list(ours), None, &info(peer), occ).ok()
        };
        let (gcm128, gcm256) = (Some(Cipher::Aes128Gcm), Some(Cipher::Aes256Gcm));
        assert_eq!(
            choose(
                "AES-128-GCM:AES-256-GCM",
                "IV_CIPHERS=AES-256-GCM:AES-128-GCM",
                None
            ),
            gcm128
        );
        // A client of version 2.4.
        assert_eq!(choose("DEFAULT", "IV_NCP=2", Some("BF-CBC")), gcm256);
        assert_eq!(
            choose("AES-256-CBC", "IV_NCP=2", Some("AES-256-CBC")),
            Some(Cipher::Aes256Cbc)
        );
        // A client of version 2.3 sends only its option string.
        assert_eq!(
            choose("DEFAULT:AES-256-CBC", "", Some("AES-256-CBC")),
            Some(Cipher::Aes256Cbc)
        );
        // Clients of version 2.5 and later keep to their list.
        assert_eq!(
            choose("AES-256-CBC", "IV_CIPHERS=AES-256-GCM", Some("AES-256-CBC")),
            None
        );
        assert_eq!(choose("DEFAULT", "", None), None);
        assert_eq!(
            choose_as_server(&list("DEFAULT"), Some(Cipher::BlowfishCbc), &info(""), None),
            Ok(Cipher::BlowfishCbc)
        );
        // The fallback is not for clients that name their ciphers.
        assert!(
            choose_as_server(
                &list("DEFAULT"),
                Some(Cipher::BlowfishCbc),
                &info(""),
                Some("BF-CBC")
            )
            .is_err()
        );
    }

    #[test]
    fn the_client_takes_only_what_it_allows() {
        let choose = |pushed, occ, fallback| {
            choose_as_client(&list("DEFAULT:AES-256-CBC"), fallback, pushed, occ)
        };
        assert_eq!(
            choose(Some("aes-128-gcm"), Some("BF-CBC"), None),
            Ok(Cipher::Aes128Gcm)
        );
        let refused = choose(Some("BF-CBC"), None, Some(Cipher::BlowfishCbc)).unwrap_err();
        assert!(refused.contains("data-ciphers"), "{refused}");
        assert!(choose(Some("none"), None, None).is_err());
        assert_eq!(
            choose(None, Some("AES-256-CBC"), None),
            Ok(Cipher::Aes256Cbc)
        );
        assert!(choose(None, Some("BF-CBC"), Some(Cipher::BlowfishCbc)).is_err());
        assert!(choose(None, None, None).is_err());
        assert_eq!(
            choose(None, None, Some(Cipher::Aes256Cbc)),
            Ok(Cipher::Aes256Cbc)
        );
    }
}
