//! Questions beyond the password: the static challenge, which the client's file asks, and the dynamic one, which the
//! server asks by refusing.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

/// The password and the answer to a `static-challenge`, as the server wants them in the place of the password.
#[must_use]
pub fn static_response(password: &str, response: &str) -> Zeroizing<String> {
    let mut text = Zeroizing::new("SCRV1:".to_owned());
    STANDARD.encode_string(password, &mut text);
    text.push(':');
    STANDARD.encode_string(response, &mut text);
    text
}

/// The server's reading of [`static_response`]: the password and the answer. `None` if the password is a plain one.
#[must_use]
pub fn parse_static_response(text: &str) -> Option<(Zeroizing<String>, Zeroizing<String>)> {
    let (password, response) = text.strip_prefix("SCRV1:")?.split_once(':')?;
    let read = |word: &str| {
        let bytes = STANDARD.decode(word).ok()?;
        String::from_utf8(bytes).ok().map(Zeroizing::new)
    };
    Some((read(password)?, read(response)?))
}

/// A dynamic challenge: the reason of a refusal that begins with `CRV1:`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DynamicChallenge {
    /// Whether to show what the user types.
    pub echo: bool,
    /// Whether an answer is wanted; otherwise the text is only to be read.
    pub response_required: bool,
    /// Identifies the question to the server.
    pub state: String,
    /// The user name to answer with.
    pub username: String,
    /// The question, for people.
    pub text: String,
}

impl DynamicChallenge {
    /// Reads the reason of a refusal. `None` if it is no challenge.
    #[must_use]
    pub fn parse(reason: &str) -> Option<Self> {
        let mut parts = reason.strip_prefix("CRV1:")?.splitn(4, ':');
        let (flags, state, user, text) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let flag = |it| flags.split(',').any(|flag| flag == it);
        Some(Self {
            echo: flag("E"),
            response_required: flag("R"),
            state: state.to_owned(),
            username: String::from_utf8(STANDARD.decode(user).ok()?).ok()?,
            text: text.to_owned(),
        })
    }

    /// The text to send in the place of the password.
    #[must_use]
    pub fn answer(&self, response: &str) -> Zeroizing<String> {
        Zeroizing::new(format!("CRV1::{}::{response}", self.state))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn static_challenges_go_both_ways() {
        let text = static_response("secret", "123:456");
        assert_eq!(&**text, "SCRV1:c2VjcmV0:MTIzOjQ1Ng==");
        let (password, response) = parse_static_response(&text).unwrap();
        assert_eq!((&**password, &**response), ("secret", "123:456"));
        assert_eq!(parse_static_response("secret"), None);
        assert_eq!(parse_static_response("SCRV1:%:%"), None);
    }

    #[test]
    fn dynamic_challenges_are_read() {
        let challenge = DynamicChallenge::parse("CRV1:R,E:id42:YW5u:Token: now").unwrap();
        assert!(challenge.echo && challenge.response_required);
        assert_eq!(challenge.username, "ann");
        assert_eq!(challenge.text, "Token: now");
        assert_eq!(&**challenge.answer("77"), "CRV1::id42::77");
        for bad in ["", "CRV1:", "CRV1:R:id", "CRV1:R:id:!:text", "no"] {
            assert_eq!(DynamicChallenge::parse(bad), None, "{bad}");
        }
    }
}
