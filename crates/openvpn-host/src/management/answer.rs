//! Questions to the user: names, passwords, and confirmations.

use zeroize::Zeroizing;

use super::words::Word;

/// Longest name or password, in bytes, as in stock's default build.
const ANSWER_MAX: usize = 127;

/// Input that a query requests.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum QueryKind {
    /// A name and a password. A static challenge adds its text, whether the answer is shown, and whether it is appended
    /// to the password.
    UserPassword {
        /// The challenge.
        challenge: Option<(String, bool, bool)>,
    },
    /// A private key's passphrase.
    Password,
}

/// A question to the user, whose answer repeats its `kind` (`Auth`, `Private Key`, `HTTP Proxy`, …).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Query {
    /// Purpose of the query, which the answer repeats.
    pub kind: String,
    /// Input that the query requests.
    pub question: QueryKind,
}

impl Query {
    /// Returns the line that asks the user.
    pub(crate) fn text(&self) -> String {
        let kind = &self.kind;
        match &self.question {
            QueryKind::UserPassword { challenge: None } => {
                format!(">PASSWORD:Need '{kind}' username/password")
            }
            QueryKind::UserPassword {
                challenge: Some((text, echo, concat)),
            } => {
                let flags = u8::from(*echo) | u8::from(*concat) << 1;
                format!(">PASSWORD:Need '{kind}' username/password SC:{flags},{text}")
            }
            QueryKind::Password => format!(">PASSWORD:Need '{kind}' password"),
        }
    }
}

/// Part of an answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Part {
    Username,
    Password,
}

impl Part {
    const fn name(self) -> &'static str {
        match self {
            Self::Username => "username",
            Self::Password => "password",
        }
    }

    const fn answers(self, question: &QueryKind) -> bool {
        matches!(
            (self, question),
            (
                Self::Username | Self::Password,
                QueryKind::UserPassword { .. }
            ) | (Self::Password, QueryKind::Password)
        )
    }
}

/// A question and the partial answer so far.
pub(crate) struct Asked {
    pub(crate) query: Query,
    username: Option<Zeroizing<String>>,
    second: Option<Zeroizing<String>>,
}

impl Asked {
    pub(crate) const fn new(query: Query) -> Self {
        Self {
            query,
            username: None,
            second: None,
        }
    }

    /// Takes the name and the password or text, once both have come.
    pub(crate) fn complete(&mut self) -> Option<(Zeroizing<String>, Zeroizing<String>)> {
        let named = matches!(self.query.question, QueryKind::UserPassword { .. });
        if self.second.is_none() || named && self.username.is_none() {
            return None;
        }
        Some((
            self.username.take().unwrap_or_default(),
            self.second.take()?,
        ))
    }
}

/// Error of an answer that no question asked for.
pub(crate) fn needless(what: &str) -> String {
    format!("no {what} is currently needed at this time")
}

/// Takes part of an answer. Returns the reply.
///
/// # Errors
/// No question asked for it, or it is too long.
pub(crate) fn take(
    asked: Option<&mut Asked>,
    part: Part,
    kind: &str,
    value: Word,
) -> Result<String, String> {
    let name = part.name();
    let Some(asked) = asked.filter(|asked| part.answers(&asked.query.question)) else {
        return Err(needless(name));
    };
    if asked.query.kind != kind {
        let wanted = &asked.query.kind;
        return Err(format!(
            "{name} of type '{kind}' entered, but we need one of type '{wanted}'"
        ));
    }
    if value.len() > ANSWER_MAX {
        return Err(format!(
            "{name} has more than {ANSWER_MAX} bytes; enter a shorter one"
        ));
    }
    match part {
        // An empty name counts as missing; an empty password may be intended.
        Part::Username => asked.username = Some(value).filter(|value| !value.is_empty()),
        Part::Password => asked.second = Some(value),
    }
    Ok(format!(
        "SUCCESS: '{kind}' {name} entered, but not yet verified"
    ))
}
