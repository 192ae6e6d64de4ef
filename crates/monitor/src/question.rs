//! Questions from the front to the process with privileges. A stranger's request may have taken over the front, so its
//! questions are checked as strictly as requests.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::http::{BODY_MAX, LONG_BODY_MAX};
use config::types::Secret;

/// A question from the front.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// Asks for what the front needs to start. Answer: a [`Begin`].
    Begin,
    /// Asks for the state of the tunnels and the guard.
    Sample,
    /// Saves this text of the day's rates.
    Keep(String),
    /// Asks whether this is the password. Answer: a [`Login`], or nothing.
    Login(Secret),
    /// Asks whether this token has a session; if so, prolongs it.
    Session(Secret),
    /// Ends this session.
    End(Secret),
    /// Asks whether this token came from an earlier login.
    Known(Secret),
    /// Asks about the servers at home, or changes them.
    AtHome {
        /// The asker's session, if there is a password.
        session: Option<Secret>,
        /// The question or the change.
        #[serde(flatten)]
        asked: AtHome,
    },
}

/// A request about servers at home, a file to import, or a rule for a device.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct AtHome {
    /// The method's name. [`AtHome::PEERS`] only reads.
    pub method: String,
    /// Arguments of the method.
    #[serde(default)]
    pub given: Value,
}

impl AtHome {
    /// The method that lists the servers and their clients.
    pub const PEERS: &str = "peers";

    /// Whether the arguments are absent, or a flat object of texts, numbers and switches that fits into a request.
    /// Nested values could be too deep for the other half to read.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        let is_flat = match &self.given {
            Value::Null => true,
            Value::Object(given) => given.values().all(|it| !it.is_array() && !it.is_object()),
            _ => false,
        };
        let most = match self.method.starts_with("import") {
            true => LONG_BODY_MAX,
            false => BODY_MAX,
        };
        is_flat && self.method.len() + self.given.to_string().len() <= most
    }
}

/// The answer to [`Question::Begin`].
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Begin {
    /// The text of the day's rates, saved before this start.
    pub day: String,
    /// Whether there is a password; with one, only sessions see anything.
    pub password: bool,
}

/// The tokens for a browser that has logged in.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Login {
    /// The token of the session.
    pub session: Secret,
    /// The token by which the browser is recognised the next time.
    pub known: Secret,
}

/// Why a question is refused.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Refused {
    /// No such session exists.
    Session,
    /// Changes need a password, and none is set.
    Open,
    /// Another reason, in words.
    Because(String),
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The second half reads arguments in a deeper place than the first, whose parser takes 128 levels.
    #[test]
    fn nested_arguments_are_refused_and_flat_ones_taken() {
        let asked = |given: Value| AtHome {
            method: "peer_add".to_owned(),
            given,
        };
        let deep: Value = serde_json::from_str(&format!("{}{}", "[".repeat(126), "]".repeat(126)))
            .expect("the parser takes that many levels");
        for wrong in [deep, json!([1]), json!("text"), json!({"lan": ["a"]})] {
            assert!(!asked(wrong.clone()).is_bounded(), "{wrong}");
        }
        let long = json!({"text": "x".repeat(BODY_MAX)});
        assert!(!asked(long.clone()).is_bounded());
        let file = |given| AtHome {
            method: "import_check".to_owned(),
            given,
        };
        assert!(file(long).is_bounded());
        assert!(!file(json!({"text": "x".repeat(LONG_BODY_MAX)})).is_bounded());
        for right in [Value::Null, json!({"name": "phone", "lan_only": true})] {
            assert!(asked(right.clone()).is_bounded(), "{right}");
        }
    }
}
