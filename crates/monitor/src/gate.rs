//! Decides which requests may be answered at all.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use crate::http::{Head, Method};

/// Why a request is refused before its path matters.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Refusal {
    /// `Host` is missing, or names another host: another page has pointed its own name here.
    Host,
    /// The request comes from another page.
    Origin,
    /// The request changes something, but has a content type that our page never sends.
    Type,
}

impl Refusal {
    /// The status and the words for an answer.
    #[must_use]
    pub const fn words(self) -> (u16, &'static str) {
        match self {
            Self::Host => (
                421,
                "this server is not known by that name: use its address, or start it with --name NAME",
            ),
            Self::Origin => (403, "refused: it was asked for by another page"),
            Self::Type => (415, "refused: not what the page sends"),
        }
    }
}

/// The names that this server is known by, besides its addresses.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    names: Vec<String>,
}

impl Gate {
    /// Makes a gate for these names.
    #[must_use]
    pub fn new(names: &[String]) -> Self {
        let names = names.iter().map(|it| it.to_ascii_lowercase());
        Self {
            names: names.collect(),
        }
    }

    /// Whether a request may be answered at all.
    ///
    /// # Errors
    /// The reason for the refusal.
    pub fn check(&self, head: &Head) -> Result<(), Refusal> {
        let host = head.host.as_deref().filter(|it| self.is_ours(it));
        let host = host.ok_or(Refusal::Host)?;
        // Only the browser itself can set this field: no script can.
        let site = head.fetch_site.as_deref();
        let from_elsewhere = matches!(site, Some("cross-site" | "same-site"));
        match head.method {
            // Other pages may link to ours, as the bare page shows no data.
            Method::Get if head.path == "/" => Ok(()),
            _ if from_elsewhere => Err(Refusal::Origin),
            Method::Get => Ok(()),
            Method::Post => {
                let is_same = match head.origin.as_deref() {
                    Some(origin) => is_of(origin, host),
                    None => site == Some("same-origin"),
                };
                if !is_same {
                    return Err(Refusal::Origin);
                }
                // A form on another page cannot send this type without asking first (CORS).
                let kind = head.content_type.as_deref().unwrap_or_default();
                match kind.split(';').next().map(str::trim) {
                    Some("application/json") => Ok(()),
                    _ => Err(Refusal::Type),
                }
            }
        }
    }

    /// Whether the request's host is this one. Any address is: DNS rebinding needs a name. So are the configured names.
    fn is_ours(&self, host: &str) -> bool {
        let name = match host.strip_prefix('[') {
            Some(rest) => {
                return rest
                    .split_once(']')
                    .is_some_and(|(it, port)| it.parse::<IpAddr>().is_ok() && is_port(port));
            }
            None => match host.split_once(':') {
                Some((name, port))
                    if !port.is_empty() && port.bytes().all(|it| it.is_ascii_digit()) =>
                {
                    name
                }
                Some(_) => return false,
                None => host,
            },
        };
        let name = name.to_ascii_lowercase();
        name.parse::<IpAddr>().is_ok() || name == "localhost" || self.names.contains(&name)
    }
}

/// Whether a text is empty or a port, as after an address in brackets.
fn is_port(text: &str) -> bool {
    match text.strip_prefix(':') {
        Some(port) => !port.is_empty() && port.bytes().all(|it| it.is_ascii_digit()),
        None => text.is_empty(),
    }
}

/// Whether an origin (RFC 6454) is this host's. A reverse proxy may have added TLS.
fn is_of(origin: &str, host: &str) -> bool {
    let rest = origin
        .strip_prefix("http://")
        .or_else(|| origin.strip_prefix("https://"));
    rest.is_some_and(|it| it.eq_ignore_ascii_case(host))
}

/// The credential that a program sends in place of a session.
#[derive(Debug, Eq, PartialEq)]
pub enum Shown {
    /// A shared token.
    Token(Zeroizing<String>),
    /// A password; the user name beside it is ignored.
    Password(Zeroizing<String>),
}

/// Reads `Authorization` (RFC 6750, RFC 7617).
#[must_use]
pub fn shown(head: &Head) -> Option<Shown> {
    let (scheme, value) = head.authorization.as_deref()?.split_once(' ')?;
    let value = value.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(Shown::Token(Zeroizing::new(value.to_owned())));
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = Zeroizing::new(STANDARD.decode(value).ok()?);
    let (_, password) = std::str::from_utf8(&decoded).ok()?.split_once(':')?;
    Some(Shown::Password(Zeroizing::new(password.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Head {
        let text = format!("{text}\r\n\r\n");
        Head::parse(text.as_bytes()).unwrap().unwrap().0
    }

    fn check(text: &str) -> Result<(), Refusal> {
        Gate::new(&["Router.lan".to_owned()]).check(&head(text))
    }

    #[test]
    fn names_that_lead_here_from_elsewhere_are_refused() {
        for host in [
            "127.0.0.1",
            "127.0.0.1:80",
            "[::1]:8470",
            "[fd00::1]",
            "localhost:1",
            "ROUTER.lan:80",
            "192.168.1.1",
        ] {
            assert_eq!(
                check(&format!("GET / HTTP/1.1\r\nHost: {host}")),
                Ok(()),
                "{host}"
            );
        }
        for host in [
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil",
            "",
            "[::1",
            "[x]",
            "127.0.0.1:x",
            "::1",
            "[::1]evil",
            "a@127.0.0.1",
            "127.0.0.1:",
        ] {
            assert_eq!(
                check(&format!("GET / HTTP/1.1\r\nHost: {host}")),
                Err(Refusal::Host),
                "{host}"
            );
        }
        assert_eq!(check("GET / HTTP/1.1"), Err(Refusal::Host));
    }

    #[test]
    fn what_changes_something_comes_from_our_own_page() {
        let post = |fields: &str| {
            check(&format!(
                "POST /api/login HTTP/1.1\r\nHost: 10.0.0.1:8470\r\n{fields}"
            ))
        };
        let json = "Content-Type: application/json";
        for (fields, wanted) in [
            (format!("Origin: http://10.0.0.1:8470\r\n{json}"), Ok(())),
            (
                format!("Origin: https://10.0.0.1:8470\r\n{json}; charset=utf-8"),
                Ok(()),
            ),
            (format!("Sec-Fetch-Site: same-origin\r\n{json}"), Ok(())),
            (json.to_owned(), Err(Refusal::Origin)),
            (
                format!("Origin: http://10.0.0.1\r\n{json}"),
                Err(Refusal::Origin),
            ),
            (
                format!("Origin: http://evil.example\r\n{json}"),
                Err(Refusal::Origin),
            ),
            (format!("Origin: null\r\n{json}"), Err(Refusal::Origin)),
            (
                format!("Origin: http://10.0.0.1:8470\r\nSec-Fetch-Site: cross-site\r\n{json}"),
                Err(Refusal::Origin),
            ),
            (
                "Origin: http://10.0.0.1:8470\r\nContent-Type: text/plain".to_owned(),
                Err(Refusal::Type),
            ),
        ] {
            assert_eq!(post(&fields), wanted, "{fields}");
        }
    }

    #[test]
    fn other_pages_may_lead_to_the_page_and_read_nothing() {
        let get = |path: &str, site: &str| {
            check(&format!(
                "GET {path} HTTP/1.1\r\nHost: 10.0.0.1\r\nSec-Fetch-Site: {site}"
            ))
        };
        assert_eq!(get("/", "cross-site"), Ok(()));
        assert_eq!(get("/api/state", "cross-site"), Err(Refusal::Origin));
        assert_eq!(get("/metrics", "same-site"), Err(Refusal::Origin));
        assert_eq!(get("/api/state", "same-origin"), Ok(()));
        assert_eq!(get("/metrics", "none"), Ok(()));
    }

    #[test]
    fn tokens_and_passwords_are_read() {
        let shown = |value: &str| {
            shown(&head(&format!(
                "GET /metrics HTTP/1.1\r\nAuthorization: {value}"
            )))
        };
        let text = |it: &str| Zeroizing::new(it.to_owned());
        assert_eq!(shown("Bearer abc"), Some(Shown::Token(text("abc"))));
        assert_eq!(shown("basic YTpiOmM="), Some(Shown::Password(text("b:c"))));
        for value in ["Basic", "Basic !", "Basic YQ==", "Digest x", ""] {
            assert_eq!(shown(value), None, "{value}");
        }
    }
}
