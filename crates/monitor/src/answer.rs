//! Answers to HTTP requests.

use std::io::Write as _;

use serde::Serialize;
use serde_json::json;

use crate::page::{PAGE, POLICY};

/// An answer to a request.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Answer {
    /// The status (RFC 9110, section 15).
    pub status: u16,
    /// Further header fields, each ending with CRLF.
    fields: String,
    body: Vec<u8>,
    /// Whether the answer goes to a logged-in browser.
    session: bool,
}

/// Header fields of every answer: no caching, no guessing of types, and no other page may frame or read the answer.
const FIELDS: &str = "Connection: close\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\
    Referrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\nCross-Origin-Opener-Policy: same-origin\r\n\
    X-Frame-Options: DENY\r\n";

impl Answer {
    /// The answer with the page.
    #[must_use]
    pub fn page() -> Self {
        Self {
            status: 200,
            fields: format!(
                "Content-Type: text/html; charset=utf-8\r\nContent-Encoding: gzip\r\nContent-Security-Policy: {POLICY}\r\n"
            ),
            body: PAGE.to_vec(),
            session: false,
        }
    }

    /// An answer with a JSON document.
    #[must_use]
    pub fn json(value: &impl Serialize) -> Self {
        match serde_json::to_vec(value) {
            Ok(body) => Self::of("application/json", body),
            // Serialising cannot fail, as all map keys are text.
            Err(_) => Self::error(500, "the answer cannot be written"),
        }
    }

    /// An answer with a body of the content type `kind`.
    #[must_use]
    pub fn of(kind: &str, body: Vec<u8>) -> Self {
        Self {
            status: 200,
            fields: format!(
                "Content-Type: {kind}\r\nContent-Security-Policy: default-src 'none'; frame-ancestors 'none'\r\n"
            ),
            body,
            session: false,
        }
    }

    /// An answer with a text, compressed by gzip.
    #[must_use]
    pub fn help(text: &[u8]) -> Self {
        let answer = Self::of("text/plain; charset=utf-8", text.to_vec());
        answer.with("Content-Encoding", "gzip")
    }

    /// An error answer, with the reason in words.
    #[must_use]
    pub fn error(status: u16, why: &str) -> Self {
        let mut answer = Self::json(&json!({"error": why}));
        answer.status = status;
        answer
    }

    /// Adds a header field.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.fields += &format!("{name}: {value}\r\n");
        self
    }

    /// Sets whether the answer is for a user who has logged in.
    #[must_use]
    pub const fn of_session(mut self, session: bool) -> Self {
        self.session = session;
        self
    }

    /// Whether the answer goes to a logged-in browser.
    #[must_use]
    pub const fn is_of_session(&self) -> bool {
        self.session
    }

    /// The body of the answer.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// The further header fields, as they are sent.
    #[must_use]
    pub fn fields(&self) -> &str {
        &self.fields
    }

    /// The bytes to send.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.body.len() + 1024);
        // Writing to memory does not fail.
        let _ = write!(
            out,
            "HTTP/1.1 {} {}\r\n{FIELDS}{}Content-Length: {}\r\n\r\n",
            self.status,
            phrase(self.status),
            self.fields,
            self.body.len()
        );
        out.extend_from_slice(&self.body);
        out
    }
}

const fn phrase(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        421 => "Misdirected Request",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        _ => "Error",
    }
}
