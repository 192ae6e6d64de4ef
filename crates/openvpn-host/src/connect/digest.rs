//! Digest authentication (RFC 2617, RFC 7616) with MD5, as proxies require.

use md5::{Digest as _, Md5};

use super::dial::ProxyLogin;

/// Maximum number of parameters read from a challenge.
const PARAMETERS_MAX: usize = 16;

/// Digest challenge of a proxy.
#[derive(Debug, Default, Eq, PartialEq)]
pub(crate) struct Challenge {
    realm: String,
    nonce: String,
    opaque: Option<String>,
    /// The proxy supports `qop=auth`.
    qop_auth: bool,
    /// The algorithm is `MD5-sess`.
    session: bool,
}

/// Whether the last answer was correct but its nonce too old.
pub(crate) fn is_stale(value: &str) -> bool {
    parameters(value)
        .iter()
        .any(|(name, value)| name == "stale" && value.eq_ignore_ascii_case("true"))
}

impl Challenge {
    /// Parses `Proxy-Authenticate`; `None` if this client cannot answer it.
    pub(crate) fn parse(value: &str) -> Option<Self> {
        let mut challenge = Self::default();
        let mut nonce = None;
        for (name, value) in parameters(value) {
            match &*name {
                "realm" => challenge.realm = value,
                "nonce" => nonce = Some(value),
                "opaque" => challenge.opaque = Some(value),
                "qop" => {
                    let auth = value.split(',').any(|word| word.trim() == "auth");
                    if !auth {
                        return None;
                    }
                    challenge.qop_auth = true;
                }
                "algorithm" if value.eq_ignore_ascii_case("MD5") => {}
                "algorithm" if value.eq_ignore_ascii_case("MD5-sess") => challenge.session = true,
                "algorithm" => return None,
                _ => {}
            }
        }
        challenge.nonce = nonce?;
        Some(challenge)
    }

    /// Returns `Proxy-Authorization` for the first request with this nonce.
    pub(crate) fn answer(
        &self,
        login: &ProxyLogin,
        method: &str,
        uri: &str,
        cnonce: &str,
    ) -> String {
        let Self { realm, nonce, .. } = self;
        let mut a1 = hash(&[&login.name, realm, &login.password]);
        if self.session {
            a1 = hash(&[&a1, nonce, cnonce]);
        }
        let a2 = hash(&[method, uri]);
        let response = if self.qop_auth {
            hash(&[&a1, nonce, "00000001", cnonce, "auth", &a2])
        } else {
            hash(&[&a1, nonce, &a2])
        };
        let name = login.name.replace('\\', "\\\\").replace('"', "\\\"");
        let mut text = format!(
            "Digest username=\"{name}\", realm=\"{realm}\", nonce=\"{nonce}\", uri=\"{uri}\", \
             response=\"{response}\""
        );
        if self.session {
            text.push_str(", algorithm=MD5-sess");
        }
        if self.qop_auth || self.session {
            text.push_str(&format!(", cnonce=\"{cnonce}\""));
        }
        if self.qop_auth {
            text.push_str(", qop=auth, nc=00000001");
        }
        if let Some(opaque) = &self.opaque {
            text.push_str(&format!(", opaque=\"{opaque}\""));
        }
        text
    }
}

/// Returns the MD5 of the parts joined by colons, in hexadecimal.
fn hash(parts: &[&str]) -> String {
    let mut md5 = Md5::new();
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            md5.update(b":");
        }
        md5.update(part.as_bytes());
    }
    crypto::hex(&md5.finalize())
}

/// Parses `name=value` and `name="value"`, separated by commas, after the first word. Names become lower case; values
/// keep their backslashes because they are sent back.
fn parameters(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let (_, mut rest) = text.split_once(' ').unwrap_or_default();
    while found.len() < PARAMETERS_MAX {
        let Some((name, after)) = rest.split_once('=') else {
            break;
        };
        let after = after.trim_start();
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => match end_of_quote(quoted) {
                Some(end) => (&quoted[..end], &quoted[end + 1..]),
                None => break,
            },
            None => after.split_at(after.find(',').unwrap_or(after.len())),
        };
        let name = name.trim_matches(|c: char| c == ',' || c.is_whitespace());
        found.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        rest = after;
    }
    found
}

fn end_of_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.char_indices().find_map(|(index, c)| {
        let end = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        end.then_some(index)
    })
}

#[cfg(test)]
mod tests {
    use zeroize::Zeroizing;

    use super::*;

    /// The example in RFC 2617, section 3.5.
    #[test]
    fn the_standards_example() {
        let challenge = Challenge::parse(
            "Digest realm=\"testrealm@host.com\", qop=\"auth,auth-int\", \
             nonce=\"dcd98b7102dd2f0e8b11d0f600bfb0c093\", \
             opaque=\"5ccc069c403ebaf9f0171e9517f40e41\"",
        );
        let login = ProxyLogin {
            name: "Mufasa".to_owned(),
            password: Zeroizing::new("Circle Of Life".to_owned()),
        };
        let answer = challenge
            .unwrap()
            .answer(&login, "GET", "/dir/index.html", "0a4f113b");
        assert!(
            answer.contains("response=\"6629fae49393a05397450978507c4ef1\""),
            "{answer}"
        );
        assert!(answer.contains("qop=auth, nc=00000001, opaque=\"5ccc"));
    }

    #[test]
    fn what_cannot_be_answered_is_not() {
        assert_eq!(Challenge::parse("Digest realm=\"a\""), None);
        assert_eq!(
            Challenge::parse("Digest nonce=\"a\", algorithm=SHA-256"),
            None
        );
        assert_eq!(Challenge::parse("Digest nonce=a, qop=\"auth-int\""), None);
        assert_eq!(Challenge::parse("Digest nonce=\"a"), None);
        assert!(is_stale("Digest nonce=\"a\", stale=TRUE"));
    }

    #[test]
    fn quotes_may_hold_anything() {
        let found = parameters(r#"Digest Realm="a, b=\"c\"", nonce=x , opaque="""#);
        let expected = [("realm", r#"a, b=\"c\""#), ("nonce", "x"), ("opaque", "")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(found, expected);
    }
}
