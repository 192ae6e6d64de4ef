//! Questions from the front to the process with privileges. A stranger's request may have taken over the front, so its
//! questions are checked as strictly as requests.

use serde::{Deserialize, Serialize};

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
    /// Asks for the servers at home and their clients.
    Servers {
        /// The asker's session, if there is a password.
        session: Option<Secret>,
    },
    /// Changes a client.
    Change {
        /// The asker's session.
        session: Secret,
        /// The change.
        change: Change,
    },
    /// Makes a server at home.
    Server {
        /// The asker's session.
        session: Secret,
        /// The server's settings.
        server: Server,
    },
}

/// Settings for a new server at home.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Server {
    /// Whether to make an OpenVPN server instead of a WireGuard one.
    pub openvpn: bool,
    /// The endpoint that clients call; empty for the address of the uplink.
    pub endpoint: String,
    /// Networks at home; if empty, the program finds them.
    pub lan: Vec<String>,
    /// Networks of the clients, for IPv4 and IPv6, as the plan showed them.
    #[serde(default)]
    pub subnets: Option<[String; 2]>,
    /// Whether to make the server; otherwise the answer only shows the plan.
    #[serde(default)]
    pub make: bool,
}

impl Server {
    /// Longest text, in bytes: names have 253 (RFC 1035), and a port may follow.
    const TEXT_MAX: usize = 260;

    /// Most networks at home.
    const LAN_MAX: usize = 16;

    /// Whether all texts have an allowed length.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        let subnets = self.subnets.iter().flatten();
        let mut texts = subnets.chain(&self.lan).chain([&self.endpoint]);
        self.lan.len() <= Self::LAN_MAX && texts.all(|it| it.len() <= Self::TEXT_MAX)
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

/// A change of a client of a server at home.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Change {
    /// The server's name.
    pub server: String,
    /// The client's name.
    pub name: String,
    /// The action.
    #[serde(flatten)]
    pub what: What,
}

/// The action on a client.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum What {
    /// Adds the client.
    Add {
        /// Whether only traffic to the networks at home uses the tunnel.
        #[serde(default)]
        lan_only: bool,
    },
    /// Revokes the client.
    Revoke,
    /// Renames the client.
    Rename {
        /// The new name.
        to: String,
    },
}
