//! Heads of requests (RFC 9112): only the part of HTTP/1.1 that the page needs.

use std::fmt;

use thiserror::Error;

/// Longest head that is read, in bytes.
pub const HEAD_MAX: usize = 8 << 10;

/// Maximum number of fields that a head may have.
const FIELDS_MAX: usize = 64;

/// Longest body that is read, in bytes.
pub const BODY_MAX: usize = 4 << 10;

/// Longest body of a request with a tunnel's file. Only sessions may send one longer than [`BODY_MAX`].
pub const LONG_BODY_MAX: usize = 64 << 10;

/// The path of requests that change something, and of their long bodies.
pub const HOME: &str = "/api/home";

/// The name of the session cookie.
pub const COOKIE: &str = "millrace-monitor";

/// Longest target of a request, in bytes.
const TARGET_MAX: usize = 1 << 10;

/// The method of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Method {
    /// Reads something.
    Get,
    /// Changes something.
    Post,
}

/// Why a head is invalid. Each reason has its own status.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum Bad {
    /// The head is not HTTP, or contradicts itself.
    #[error("not understood")]
    Malformed,
    /// The method is neither GET nor POST.
    #[error("only GET and POST are supported")]
    Method,
    /// The head is longer than [`HEAD_MAX`].
    #[error("the request's head is too long")]
    Long,
    /// The body is longer than [`BODY_MAX`] or [`LONG_BODY_MAX`], or its length is not given.
    #[error("the request's body is too long")]
    Body,
}

impl Bad {
    /// The status of the answer.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::Malformed => 400,
            Self::Method => 405,
            Self::Long => 431,
            Self::Body => 413,
        }
    }
}

/// The head of a request, with the fields that matter here.
#[derive(Clone, Eq, PartialEq)]
pub struct Head {
    /// HTTP method.
    pub method: Method,
    /// The path, not decoded; begins with a slash.
    pub path: String,
    /// The text after the question mark, not decoded.
    pub query: String,
    /// Length of the body, in bytes.
    pub length: usize,
    /// `Host`.
    pub host: Option<String>,
    /// `Origin`.
    pub origin: Option<String>,
    /// `Sec-Fetch-Site`.
    pub fetch_site: Option<String>,
    /// `Cookie`.
    pub cookie: Option<String>,
    /// `Authorization`.
    pub authorization: Option<String>,
    /// `Content-Type`.
    pub content_type: Option<String>,
}

impl fmt::Debug for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Cookies and passwords are left out.
        f.debug_struct("Head")
            .field("method", &self.method)
            .field("path", &self.path)
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

impl Head {
    /// Reads a head, and its length; `None` while it is incomplete.
    ///
    /// # Errors
    /// The head is invalid or too long.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, Bad> {
        let within = &bytes[..bytes.len().min(HEAD_MAX)];
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut request = httparse::Request::new(&mut fields);
        let length = match request.parse(within) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) if bytes.len() >= HEAD_MAX => return Err(Bad::Long),
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(httparse::Error::TooManyHeaders) => return Err(Bad::Long),
            Err(_) => return Err(Bad::Malformed),
        };
        let method = match request.method {
            Some("GET") => Method::Get,
            Some("POST") => Method::Post,
            _ => return Err(Bad::Method),
        };
        let target = request.path.unwrap_or_default();
        if !target.starts_with('/') || target.len() > TARGET_MAX {
            return Err(Bad::Malformed);
        }
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut head = Self {
            method,
            path: path.to_owned(),
            query: query.to_owned(),
            length: 0,
            host: None,
            origin: None,
            fetch_site: None,
            cookie: None,
            authorization: None,
            content_type: None,
        };
        let mut said_length = None;
        for field in request.headers.iter() {
            head.take(field, &mut said_length)?;
        }
        if let Some(said) = said_length {
            // Only digits: neither a sign nor a list.
            let digits = !said.is_empty() && said.bytes().all(|it| it.is_ascii_digit());
            let parsed = said.parse().map_err(|_| Bad::Body);
            head.length = if digits {
                parsed?
            } else {
                return Err(Bad::Malformed);
            };
        }
        let may_be_long = head.path == HOME && head.cookie(COOKIE).is_some();
        if head.length > if may_be_long { LONG_BODY_MAX } else { BODY_MAX } {
            return Err(Bad::Body);
        }
        Ok(Some((head, length)))
    }

    /// Whether only a session may send this request, because of its length.
    #[must_use]
    pub const fn is_long(&self) -> bool {
        self.length > BODY_MAX
    }

    /// Stores a field. Fields that matter may come only once: a proxy in front of this server could have read the other
    /// one.
    fn take(
        &mut self,
        field: &httparse::Header<'_>,
        length: &mut Option<String>,
    ) -> Result<(), Bad> {
        let name = field.name.to_ascii_lowercase();
        let place = match name.as_str() {
            "host" => &mut self.host,
            "origin" => &mut self.origin,
            "sec-fetch-site" => &mut self.fetch_site,
            "cookie" => &mut self.cookie,
            "authorization" => &mut self.authorization,
            "content-type" => &mut self.content_type,
            "content-length" => length,
            "transfer-encoding" => return Err(Bad::Body),
            _ => return Ok(()),
        };
        let value = std::str::from_utf8(field.value).map_err(|_| Bad::Malformed)?;
        match place.replace(value.trim().to_owned()) {
            None => Ok(()),
            Some(_) => Err(Bad::Malformed),
        }
    }

    /// The value of a cookie.
    #[must_use]
    pub fn cookie(&self, name: &str) -> Option<&str> {
        let cookies = self.cookie.as_deref()?.split(';');
        let mut pairs = cookies.filter_map(|it| it.trim().split_once('='));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    /// A value of the query, decoded; `None` if it is missing or not UTF-8.
    #[must_use]
    pub fn query(&self, name: &str) -> Option<String> {
        let mut pairs = self.query.split('&').filter_map(|it| it.split_once('='));
        let (_, value) = pairs.find(|(key, _)| *key == name)?;
        decoded(value)
    }
}

/// Decodes form-encoded text (URL Standard, section 5.1).
fn decoded(value: &str) -> Option<String> {
    let mut out = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        match byte {
            b'+' => out.push(b' '),
            b'%' => {
                let (digits, behind) = rest.split_at_checked(2)?;
                let digit = |it: u8| char::from(it).to_digit(16);
                let value = digit(digits[0])? * 16 + digit(digits[1])?;
                out.push(u8::try_from(value).ok()?);
                rest = behind;
            }
            _ => out.push(byte),
        }
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<Option<(Head, usize)>, Bad> {
        Head::parse(text.as_bytes())
    }

    #[test]
    fn a_head_is_read() {
        let text = "POST /api/x?a=1&find=a%2Bb+c HTTP/1.1\r\nHOST: router:8470\r\nOrigin: http://router:8470\r\n\
                    Content-Length: 12\r\ncookie: a=b; millrace-monitor=tok\r\n\r\nbody";
        let (head, length) = parse(text).unwrap().unwrap();
        assert_eq!(length, text.len() - 4);
        assert_eq!((head.method, head.path.as_str()), (Method::Post, "/api/x"));
        assert_eq!(head.length, 12);
        assert_eq!(head.host.as_deref(), Some("router:8470"));
        assert_eq!(head.cookie("millrace-monitor"), Some("tok"));
        assert_eq!(head.cookie("b"), None);
        assert_eq!(head.query("find").as_deref(), Some("a+b c"));
        assert_eq!(head.query("b"), None);
        assert!(!format!("{head:?}").contains("tok"));
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        let with = |fields: &str| parse(&format!("POST / HTTP/1.1\r\n{fields}\r\n\r\n"));
        for (fields, wanted) in [
            ("Host: a\r\nHost: b", Bad::Malformed),
            ("Content-Length: 1\r\nContent-Length: 1", Bad::Malformed),
            ("Content-Length: +1", Bad::Malformed),
            ("Content-Length: 1, 1", Bad::Malformed),
            ("Content-Length:", Bad::Malformed),
            ("Content-Length: 99999999999999999999999", Bad::Body),
            ("Content-Length: 4097", Bad::Body),
            ("Transfer-Encoding: chunked", Bad::Body),
            ("Cookie: a=\u{e9}\r\nCookie: b", Bad::Malformed),
        ] {
            assert_eq!(with(fields).unwrap_err(), wanted, "{fields}");
        }
        for (text, wanted) in [
            ("PUT / HTTP/1.1\r\n\r\n", Bad::Method),
            ("GET http://a/ HTTP/1.1\r\n\r\n", Bad::Malformed),
            ("GET * HTTP/1.1\r\n\r\n", Bad::Malformed),
            ("GET /\r\n\r\n", Bad::Malformed),
            ("GET / HTTP/2.0\r\n\r\n", Bad::Malformed),
            ("\x16\x03\x01 TLS", Bad::Malformed),
        ] {
            assert_eq!(parse(text).unwrap_err(), wanted, "{text:?}");
        }
    }

    #[test]
    fn only_a_request_with_a_cookie_has_a_long_body() {
        let with = |path: &str, cookie: &str, length: usize| {
            let text = format!(
                "POST {path} HTTP/1.1\r\nContent-Length: {length}\r\nCookie: {cookie}\r\n\r\n"
            );
            parse(&text).is_ok()
        };
        let session = "a=b; millrace-monitor=token";
        for (path, cookie, length, is) in [
            (HOME, session, LONG_BODY_MAX, true),
            (HOME, session, LONG_BODY_MAX + 1, false),
            (HOME, "a=b", BODY_MAX + 1, false),
            (HOME, "a=b", BODY_MAX, true),
            ("/api/login", session, BODY_MAX + 1, false),
        ] {
            assert_eq!(with(path, cookie, length), is, "{path} {cookie} {length}");
        }
    }

    #[test]
    fn a_head_that_does_not_end_is_too_long() {
        let text = format!("GET / HTTP/1.1\r\nA: {}", "a".repeat(HEAD_MAX));
        assert_eq!(parse(&text).unwrap_err(), Bad::Long);
        let text = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(65));
        assert_eq!(parse(&text).unwrap_err(), Bad::Long);
        assert_eq!(parse("GET / HTTP/1.1\r\nA: b\r\n"), Ok(None));
        assert_eq!(parse(""), Ok(None));
    }

    #[test]
    fn escapes_that_are_none_are_no_text() {
        for text in ["%", "%1", "%zz", "%ff", "%+1"] {
            assert_eq!(decoded(text), None, "{text}");
        }
        assert_eq!(decoded("%C3%a9+%25").as_deref(), Some("\u{e9} %"));
    }

    proptest! {
        /// Any bytes in any pieces are read without a panic, and a head is read the same when more bytes follow.
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..300), more in any::<[u8; 8]>()) {
            let first = Head::parse(&bytes);
            if let Ok(Some((head, length))) = first {
                prop_assert!(length <= bytes.len());
                let all = [&bytes[..], &more].concat();
                prop_assert_eq!(Head::parse(&all), Ok(Some((head, length))));
            }
        }

        #[test]
        fn what_a_form_encodes_is_decoded(text in "\\PC{0,40}") {
            let encoded: String = text.bytes().map(|it| format!("%{it:02X}")).collect();
            prop_assert_eq!(decoded(&encoded), Some(text));
        }
    }
}
