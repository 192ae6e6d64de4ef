//! Client side of HTTP CONNECT (RFC 9110, section 9.3.6), without I/O.

use config::openvpn::{HttpAuth, HttpProxy};
use thiserror::Error;

use super::dial::ProxyLogin;
use super::digest;

/// Largest answer of a proxy in bytes, up to the end of its header.
pub(crate) const ANSWER_MAX: usize = 16 << 10;

/// Error while opening a tunnel through an HTTP proxy.
#[derive(Debug, Error, Eq, PartialEq)]
#[non_exhaustive]
pub enum HttpError {
    /// The answer is not HTTP.
    #[error("its answer is not HTTP; is this the proxy's port?")]
    NotHttp,
    /// The header is too long.
    #[error("its answer has more than {ANSWER_MAX} bytes of header")]
    TooLong,
    /// The proxy answered with a failure.
    #[error("{status} {reason}")]
    Status {
        /// The status code.
        status: u16,
        /// The reason phrase.
        reason: String,
    },
    /// The proxy wants a name and password.
    #[error(
        "it requires a user name and password (407); give http-proxy a file with them, or auto"
    )]
    NoLogin,
    /// The proxy rejected the name and password.
    #[error("it rejects the user name and password (407)")]
    BadLogin,
    /// The proxy offers no supported method.
    #[error(
        "it offers only {0}; Millrace supports basic and digest (MD5), but not NTLM, which is broken by design"
    )]
    NoScheme(String),
    /// `auto-nct` is set and the proxy wants the password in clear text.
    #[error("it requires the password in clear, which auto-nct forbids; use auto to permit it")]
    ClearText,
    /// The configuration contains bytes that would break a header line.
    #[error("a name or header in the configuration has control characters")]
    Unprintable,
}

/// Answer of a proxy.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Answer {
    pub(crate) status: u16,
    pub(crate) reason: String,
    /// Values of `Proxy-Authenticate`.
    pub(crate) challenges: Vec<String>,
}

/// Next step after an answer.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Verdict {
    /// The tunnel is open.
    Open,
    /// Connect to the proxy again with this authorization.
    Authorize(String),
}

/// Formats the destination as `host:port`, with brackets around an IPv6 address.
pub(crate) fn authority(host: &str, port: u16) -> String {
    if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// Builds the request; `authorization` is the value of `Proxy-Authorization`.
pub(crate) fn request(
    proxy: &HttpProxy,
    authority: &str,
    authorization: Option<&str>,
) -> Result<Vec<u8>, HttpError> {
    let mut lines = vec![format!("CONNECT {authority} HTTP/{}", proxy.version)];
    let given = |name: &str| {
        let same = |(header, value): &(String, Option<String>)| {
            let header = match value {
                Some(_) => header.as_str(),
                None => header.split(':').next().unwrap_or_default(),
            };
            header.trim().eq_ignore_ascii_case(name)
        };
        proxy.headers.iter().any(same)
    };
    if !given("Host") {
        lines.push(format!("Host: {authority}"));
    }
    if let Some(agent) = &proxy.user_agent
        && !given("User-Agent")
    {
        lines.push(format!("User-Agent: {agent}"));
    }
    for (name, value) in &proxy.headers {
        lines.push(match value {
            Some(value) => format!("{name}: {value}"),
            None => name.clone(),
        });
    }
    if let Some(value) = authorization {
        lines.push(format!("Proxy-Authorization: {value}"));
    }
    if lines.iter().any(|line| line.chars().any(char::is_control)) {
        return Err(HttpError::Unprintable);
    }
    lines.push(String::new());
    lines.push(String::new());
    Ok(lines.join("\r\n").into_bytes())
}

/// Returns the authorization to show before the proxy asks.
pub(crate) fn first_authorization(auth: HttpAuth, login: Option<&ProxyLogin>) -> Option<String> {
    // `auto` waits for the proxy's challenge, so that no password goes out in clear text unasked.
    (auth == HttpAuth::Basic)
        .then_some(login)
        .flatten()
        .map(basic)
}

fn basic(login: &ProxyLogin) -> String {
    use base64::Engine as _;
    let pair = zeroize::Zeroizing::new(format!("{}:{}", login.name, *login.password));
    let encoded = base64::engine::general_purpose::STANDARD.encode(pair.as_bytes());
    format!("Basic {encoded}")
}

/// Collects an answer. Bytes after its header come from the server.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    bytes: Vec<u8>,
}

impl Reader {
    /// Takes bytes up to the end of the header. Returns how many it took, and the answer once complete.
    pub(crate) fn feed(&mut self, input: &[u8]) -> Result<(usize, Option<Answer>), HttpError> {
        for (index, &byte) in input.iter().enumerate() {
            self.bytes.push(byte);
            if self.bytes.ends_with(b"\r\n\r\n") || self.bytes.ends_with(b"\n\n") {
                return Ok((index + 1, Some(parse(&self.bytes)?)));
            }
            if self.bytes.len() >= ANSWER_MAX {
                return Err(HttpError::TooLong);
            }
        }
        Ok((input.len(), None))
    }
}

fn parse(bytes: &[u8]) -> Result<Answer, HttpError> {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.lines();
    let mut words = lines.next().unwrap_or_default().splitn(3, ' ');
    let version = words.next().unwrap_or_default();
    let status = words.next().unwrap_or_default().parse();
    let (true, Ok(status)) = (version.starts_with("HTTP/1."), status) else {
        return Err(HttpError::NotHttp);
    };
    let challenges = lines
        .filter_map(|line| line.split_once(':'))
        .filter(|(name, _)| name.trim().eq_ignore_ascii_case("Proxy-Authenticate"))
        .map(|(_, value)| value.trim().to_owned())
        .collect();
    let reason = words.next().unwrap_or_default().trim();
    Ok(Answer {
        status,
        // A stranger's text goes to the log.
        reason: reason
            .chars()
            .filter(|c| !c.is_control())
            .take(128)
            .collect(),
        challenges,
    })
}

/// Decides on an answer. `shown` is the request's authorization.
pub(crate) fn judge(
    answer: &Answer,
    auth: HttpAuth,
    login: Option<&ProxyLogin>,
    authority: &str,
    shown: Option<&str>,
) -> Result<Verdict, HttpError> {
    match answer.status {
        200..=299 => return Ok(Verdict::Open),
        407 => {}
        status => {
            return Err(HttpError::Status {
                status,
                reason: answer.reason.clone(),
            });
        }
    }
    let login = login.ok_or(HttpError::NoLogin)?;
    let scheme = |name: &str| {
        let begins = |value: &&String| {
            let word = value.split_ascii_whitespace().next().unwrap_or_default();
            word.eq_ignore_ascii_case(name)
        };
        answer.challenges.iter().find(begins)
    };
    // A nonce may expire between two requests; a password does not.
    let stale = scheme("Digest").is_some_and(|value| digest::is_stale(value));
    if shown.is_some_and(|shown| shown.starts_with("Basic") || !stale) && !upgrades(shown, answer) {
        return Err(HttpError::BadLogin);
    }
    let digest = scheme("Digest").and_then(|value| digest::Challenge::parse(value));
    if let (Some(challenge), true) = (digest, auth != HttpAuth::Basic || scheme("Basic").is_none())
    {
        let mut cnonce = [0; 16];
        crypto::random(&mut cnonce);
        let cnonce = crypto::hex(&cnonce);
        return Ok(Verdict::Authorize(
            challenge.answer(login, "CONNECT", authority, &cnonce),
        ));
    }
    if scheme("Basic").is_some() {
        if auth == HttpAuth::AutoNoClearText {
            return Err(HttpError::ClearText);
        }
        return Ok(Verdict::Authorize(basic(login)));
    }
    let names = answer.challenges.iter().filter_map(|value| {
        let word = value.split_ascii_whitespace().next()?;
        Some(
            word.chars()
                .filter(char::is_ascii_alphanumeric)
                .take(16)
                .collect(),
        )
    });
    let names: Vec<String> = names.take(8).collect();
    Err(HttpError::NoScheme(if names.is_empty() {
        "no authentication method".to_owned()
    } else {
        names.join(", ")
    }))
}

/// Whether the configured `basic` was sent and the proxy accepts only digests.
fn upgrades(shown: Option<&str>, answer: &Answer) -> bool {
    let basic = |value: &String| value.to_ascii_lowercase().starts_with("basic");
    shown.is_some_and(|shown| shown.starts_with("Basic"))
        && !answer.challenges.is_empty()
        && !answer.challenges.iter().any(basic)
}

#[cfg(test)]
mod tests {
    use zeroize::Zeroizing;

    use super::*;

    fn proxy() -> HttpProxy {
        HttpProxy {
            host: "proxy.example".to_owned(),
            port: 3128,
            auth: HttpAuth::Auto,
            credentials: None,
            version: "1.1".to_owned(),
            user_agent: Some("Mill".to_owned()),
            headers: vec![
                ("X-Key".to_owned(), Some("1".to_owned())),
                ("X-Whole: 2".to_owned(), None),
            ],
        }
    }

    fn login() -> ProxyLogin {
        ProxyLogin {
            name: "Aladdin".to_owned(),
            password: Zeroizing::new("open sesame".to_owned()),
        }
    }

    fn answer(text: &str) -> Answer {
        let mut reader = Reader::default();
        let (taken, answer) = reader.feed(text.as_bytes()).unwrap();
        assert_eq!(taken, text.len());
        answer.unwrap()
    }

    #[test]
    fn the_request_has_every_header_once() {
        let expected = "CONNECT [2001:db8::1]:443 HTTP/1.1\r\nHost: [2001:db8::1]:443\r\n\
            User-Agent: Mill\r\nX-Key: 1\r\nX-Whole: 2\r\nProxy-Authorization: Basic x\r\n\r\n";
        let to = authority("2001:db8::1", 443);
        let bytes = request(&proxy(), &to, Some("Basic x")).unwrap();
        assert_eq!(String::from_utf8(bytes).unwrap(), expected);
        let mut own = proxy();
        own.headers = vec![("host: front.example".to_owned(), None)];
        let text = String::from_utf8(request(&own, "a:1", None).unwrap()).unwrap();
        assert_eq!(text.to_lowercase().matches("\nhost:").count(), 1);
        own.headers = vec![("X".to_owned(), Some("1\r\nY: 2".to_owned()))];
        assert_eq!(request(&own, "a:1", None), Err(HttpError::Unprintable));
    }

    #[test]
    fn bytes_behind_the_header_are_left() {
        let mut reader = Reader::default();
        let (taken, none) = reader.feed(b"HTTP/1.0 200 Connec").unwrap();
        assert_eq!((taken, none), (19, None));
        let (taken, answer) = reader.feed(b"tion established\r\n\r\n\x00\x0e").unwrap();
        assert_eq!((taken, answer.unwrap().status), (20, 200));
    }

    #[test]
    fn hostile_answers_are_bounded() {
        let mut reader = Reader::default();
        let endless = vec![b'a'; ANSWER_MAX + 1];
        assert_eq!(reader.feed(&endless), Err(HttpError::TooLong));
        let mut reader = Reader::default();
        assert_eq!(reader.feed(b"SSH-2.0-x\n\n"), Err(HttpError::NotHttp));
        let long = answer(&format!(
            "HTTP/1.1 403 {}\x1b[2J\r\n\r\n",
            "no ".repeat(200)
        ));
        assert!(long.reason.len() <= 128 && !long.reason.contains('\x1b'));
    }

    #[test]
    fn basic_is_shown_when_it_is_wanted_and_permitted() {
        let asks = answer("HTTP/1.1 407 x\r\nProxy-Authenticate: Basic realm=\"a\"\r\n\r\n");
        let ask = |auth, login, shown| judge(&asks, auth, login, "a:1", shown);
        let login = login();
        let basic = "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==";
        assert_eq!(
            ask(HttpAuth::Auto, Some(&login), None),
            Ok(Verdict::Authorize(basic.to_owned()))
        );
        assert_eq!(
            ask(HttpAuth::AutoNoClearText, Some(&login), None),
            Err(HttpError::ClearText)
        );
        assert_eq!(ask(HttpAuth::Auto, None, None), Err(HttpError::NoLogin));
        assert_eq!(
            ask(HttpAuth::Basic, Some(&login), Some(basic)),
            Err(HttpError::BadLogin)
        );
        assert_eq!(
            first_authorization(HttpAuth::Basic, Some(&login)).as_deref(),
            Some(basic)
        );
        assert_eq!(first_authorization(HttpAuth::Auto, Some(&login)), None);
    }

    #[test]
    fn digests_go_before_passwords_in_clear() {
        let asks = answer(
            "HTTP/1.1 407 x\r\nProxy-Authenticate: Basic realm=\"a\"\r\n\
             proxy-authenticate: Digest realm=\"a\", nonce=\"n\"\r\n\r\n",
        );
        let verdict = judge(&asks, HttpAuth::Auto, Some(&login()), "a:1", None).unwrap();
        assert!(matches!(verdict, Verdict::Authorize(text) if text.starts_with("Digest ")));
        let again = judge(
            &asks,
            HttpAuth::Auto,
            Some(&login()),
            "a:1",
            Some("Digest x"),
        );
        assert_eq!(again, Err(HttpError::BadLogin));
    }

    #[test]
    fn what_cannot_be_done_is_named() {
        let ntlm = answer("HTTP/1.1 407 x\r\nProxy-Authenticate: NTLM\r\n\r\n");
        let error = judge(&ntlm, HttpAuth::Auto, Some(&login()), "a:1", None).unwrap_err();
        assert_eq!(error, HttpError::NoScheme("NTLM".to_owned()));
        let forbidden = answer("HTTP/1.1 403 Forbidden\r\n\r\n");
        let error = judge(&forbidden, HttpAuth::Auto, None, "a:1", None).unwrap_err();
        assert_eq!(error.to_string(), "403 Forbidden");
        let open = answer("HTTP/1.1 200 OK\r\n\r\n");
        assert_eq!(
            judge(&open, HttpAuth::Auto, None, "a:1", None),
            Ok(Verdict::Open)
        );
    }
}
