//! Fuzz target for a proxy's answers.

use super::dial::ProxyLogin;
use super::http::{self, Reader, Verdict};
use super::socks::{Progress, Socks};
use config::openvpn::{HttpAuth, HttpProxy};

/// Maximum number of messages from a SOCKS proxy in one conversation.
const MESSAGES: usize = 5;

/// Maximum number of bytes requested at once: a name with its port.
const ASKED: usize = 257;

/// Feeds an HTTP or SOCKS proxy's answers in pieces. The proxy's bytes may enter the next request only as header
/// values.
pub fn proxy(bytes: &[u8]) {
    let Some((&form, bytes)) = bytes.split_first() else {
        return;
    };
    let login = ProxyLogin {
        name: "name".to_owned(),
        password: "password".to_owned().into(),
    };
    let login = (form & 1 != 0).then_some(&login);
    match form & 0x80 {
        0 => http(form, login, bytes),
        _ => socks(login, bytes),
    }
}

fn http(form: u8, login: Option<&ProxyLogin>, bytes: &[u8]) {
    let auth = match form >> 1 & 3 {
        0 => HttpAuth::Basic,
        1 => HttpAuth::AutoNoClearText,
        _ => HttpAuth::Auto,
    };
    let proxy = HttpProxy {
        host: "proxy.example".to_owned(),
        port: 3128,
        auth,
        credentials: None,
        version: "1.1".to_owned(),
        user_agent: None,
        headers: Vec::new(),
    };
    let mut shown = http::first_authorization(auth, login);
    let mut rest = bytes;
    // Each answer belongs to a new connection, with the authorization that the last one requested.
    for _ in 0..4 {
        let mut reader = Reader::default();
        let mut found = None;
        while found.is_none() && !rest.is_empty() {
            let piece = &rest[..rest.len().min(usize::from(form >> 3) * 16 + 1)];
            let Ok((taken, answer)) = reader.feed(piece) else {
                return;
            };
            assert!(
                (1..=piece.len()).contains(&taken),
                "bytes behind the answer are not the proxy's"
            );
            rest = &rest[taken..];
            found = answer;
        }
        let Some(answer) = found else { return };
        let verdict = http::judge(&answer, auth, login, "a.example:1194", shown.as_deref());
        let Ok(Verdict::Authorize(value)) = verdict else {
            return;
        };
        assert!(login.is_some(), "a login that is not there is shown");
        let basic = value.starts_with("Basic ");
        assert!(
            !basic || auth != HttpAuth::AutoNoClearText,
            "a password in clear"
        );
        if let Ok(request) = http::request(&proxy, "a.example:1194", Some(&value)) {
            let ends = request.windows(2).filter(|it| it == b"\r\n").count();
            let lines = request.split(|it| *it == b'\n').count();
            assert_eq!(
                (ends, lines),
                (4, 5),
                "CONNECT, Host, Proxy-Authorization, and an empty one"
            );
        }
        shown = Some(value);
    }
}

fn socks(login: Option<&ProxyLogin>, bytes: &[u8]) {
    let Ok(mut socks) = Socks::new("a.example", 1194, login) else {
        return;
    };
    let mut progress = socks.begin();
    let mut rest = bytes;
    for _ in 0..MESSAGES {
        let (Progress::Read(wanted) | Progress::Send(_, wanted)) = progress else {
            return;
        };
        assert!((1..=ASKED).contains(&wanted));
        let Some((answer, behind)) = rest.split_at_checked(wanted) else {
            return;
        };
        rest = behind;
        match socks.feed(answer) {
            Ok(next) => progress = next,
            Err(_) => return,
        }
    }
    assert_eq!(progress, Progress::Done, "a conversation without an end");
}
