//! Selects the permitted ciphers among those that the lines name.

use super::Builder;
use crate::openvpn::draft::DEFAULT_CIPHERS;
use crate::openvpn::lexer::shown;
use crate::openvpn::{Cipher, Digest};

const INSECURE: &str = "needs --allow-insecure-ciphers: anybody on the way may come to read or \
    change packets; ask for AES-256-GCM instead";

const UNKNOWN: &str = "is not supported; use AES-256-GCM, CHACHA20-POLY1305 or AES-256-CBC";

impl Builder {
    /// Fills in the ciphers of the model.
    pub(super) fn settle_ciphers(&mut self) {
        let names = std::mem::take(&mut self.draft.ciphers);
        if let Some(list) = &names.list {
            self.settle_list(list);
        }
        let cipher = names.cipher.as_deref().and_then(Cipher::from_name);
        self.draft.data.cipher = cipher;
        let usable = cipher.filter(|&cipher| self.permitted(cipher) && self.protected(cipher));
        // With `compat-mode` below 2.5.0 OpenVPN also adds `cipher` to `data-ciphers`.
        let compat = names.compat.unwrap_or(u32::MAX);
        if let Some(cipher) = usable
            && compat < 20_500
            && !self.draft.data.ciphers.contains(&cipher)
        {
            self.draft.data.ciphers.push(cipher);
        }
        match &names.fallback {
            Some(name) => match Cipher::from_name(name) {
                Some(cipher) if self.permitted(cipher) => {
                    self.draft.data.fallback = Some(cipher);
                    self.draft.data.cipher = Some(cipher);
                }
                Some(_) => self.conflict("data-ciphers-fallback", format!("{name} {INSECURE}")),
                None => {
                    let reason = format!("{} {UNKNOWN}", shown(name));
                    self.conflict("data-ciphers-fallback", reason);
                }
            },
            None => self.draft.data.fallback = usable,
        }
        if let Some(name) = &names.cipher {
            self.judge_cipher(name, cipher, names.fallback.is_some());
        }
        if let Some(bits) = names.keysize {
            self.judge_keysize(bits);
        }
        self.judge_digest();
    }

    /// Checks whether the digest of `auth` suits the ciphers that use it.
    fn judge_digest(&mut self) {
        let digest = self.draft.data.auth;
        let mut beside = self
            .draft
            .data
            .ciphers
            .iter()
            .chain(&self.draft.data.fallback);
        let Some(cipher) = beside.find(|cipher| !cipher.is_aead()).copied() else {
            return;
        };
        if !self.protected(cipher) {
            let reason = format!(
                "{cipher} with `auth {digest}` {INSECURE}, or write for example `auth SHA256` at \
                 both ends"
            );
            self.conflict("auth", reason);
        } else if digest == Digest::None {
            self.note(
                "auth",
                "packets of ciphers that do not authenticate by themselves can be forged",
            );
        }
    }

    const fn permitted(&self, cipher: Cipher) -> bool {
        !cipher.is_insecure() || self.draft.data.allow_insecure
    }

    /// Whether the cipher is permitted with the digest of `auth`.
    const fn protected(&self, cipher: Cipher) -> bool {
        cipher.is_aead() || !self.draft.data.auth.is_insecure() || self.draft.data.allow_insecure
    }

    /// Reads `data-ciphers`: notes ciphers that are left out, and requires that one remains.
    fn settle_list(&mut self, list: &str) {
        let name = if self.has("data-ciphers") {
            "data-ciphers"
        } else {
            "ncp-ciphers"
        };
        let mut ciphers: Vec<Cipher> = Vec::new();
        let mut left_out: Vec<String> = Vec::new();
        for token in list.split(':').filter(|token| !token.is_empty()) {
            let bare = token.strip_prefix('?').unwrap_or(token);
            let named = match bare {
                "DEFAULT" => DEFAULT_CIPHERS.to_vec(),
                _ => Cipher::from_name(bare).into_iter().collect(),
            };
            if named.is_empty() {
                left_out.push(format!("{} {UNKNOWN}", shown(bare)));
            }
            for cipher in named {
                if !self.permitted(cipher) {
                    left_out.push(format!("{cipher} {INSECURE}"));
                } else if !ciphers.contains(&cipher) {
                    ciphers.push(cipher);
                }
            }
        }
        match (ciphers.is_empty(), left_out.first()) {
            (true, Some(reason)) => self.conflict(name, reason.clone()),
            (true, None) => self.conflict(name, "names no cipher"),
            (false, Some(reason)) => self.note(name, format!("without {reason}")),
            (false, None) => {}
        }
        if !ciphers.is_empty() {
            self.draft.data.ciphers = ciphers;
        }
    }

    fn judge_cipher(&mut self, name: &str, cipher: Option<Cipher>, has_fallback: bool) {
        let Some(cipher) = cipher else {
            let reason = format!(
                "{} {UNKNOWN}; what the server negotiates is used, as in OpenVPN 2.6",
                shown(name)
            );
            return self.ignored("cipher", reason);
        };
        if self.draft.data.ciphers.contains(&cipher) {
            return;
        }
        if !self.permitted(cipher) {
            let reason = format!(
                "what the server negotiates is used, as in OpenVPN 2.6; {cipher} itself {INSECURE}"
            );
            self.ignored("cipher", reason);
        } else if !self.protected(cipher) {
            let digest = self.draft.data.auth;
            let reason = format!(
                "what the server negotiates is used, as in OpenVPN 2.6; {cipher} with `auth \
                 {digest}` {INSECURE}"
            );
            self.ignored("cipher", reason);
        } else if has_fallback {
            self.ignored(
                "cipher",
                "`data-ciphers` and `data-ciphers-fallback` say which are used",
            );
        } else {
            self.note(
                "cipher",
                "used with a server that negotiates nothing, as `data-ciphers-fallback` says",
            );
        }
    }

    /// Checks `keysize` against the fallback cipher.
    fn judge_keysize(&mut self, bits: u32) {
        if self.draft.data.fallback == Some(Cipher::BlowfishCbc) && bits != 128 {
            let reason = "BF-CBC has keys of 128 bits here; remove the line at both ends";
            self.conflict("keysize", reason);
        } else {
            self.ignored("keysize", "every cipher has its own key size");
        }
    }
}
