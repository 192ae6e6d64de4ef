//! Questions from the front to the process with privileges. The front reads requests of strangers, who may have it ask
//! anything: its questions are checked like theirs.

use serde::{Deserialize, Serialize};

use crate::secret::Secret;

/// A question of the front.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// The front's needs to begin: a [`Begin`].
    Begin,
    /// How everything stands.
    Sample,
    /// This is the text of the day now.
    Keep(String),
    /// Whether this is the password: a [`Login`], or nothing.
    Login(Secret),
    /// Whether this stands for a session, which then lives longer.
    Session(Secret),
    /// End this session.
    End(Secret),
    /// Whether this was given to a browser in which somebody has logged in.
    Known(Secret),
    /// The servers at home and their clients.
    Servers {
        /// The session in which it is asked, if there is a password.
        session: Option<Secret>,
    },
    /// Change a client.
    Change {
        /// The session in which it is asked.
        session: Secret,
        /// The change.
        change: Change,
    },
    /// Make a server at home.
    Server {
        /// The session in which it is asked.
        session: Secret,
        /// The server's settings.
        server: Server,
    },
}

/// A server at home that is to be made.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Server {
    /// OpenVPN and not WireGuard.
    pub openvpn: bool,
    /// Where clients call it; empty is the address of the line.
    pub endpoint: String,
    /// Networks at home; where there are none they are found.
    pub lan: Vec<String>,
    /// Networks of the clients, of IPv4 and IPv6, as a plan has told them.
    #[serde(default)]
    pub subnets: Option<[String; 2]>,
    /// Make it; otherwise it is only told what would be made.
    #[serde(default)]
    pub make: bool,
}

impl Server {
    /// Longest text, in bytes: names have 253 (RFC 1035), and a port may follow.
    const TEXT_MAX: usize = 260;

    /// Most networks at home.
    const LAN_MAX: usize = 16;

    /// Whether all texts have a length that they can have.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        let subnets = self.subnets.iter().flatten();
        let mut texts = subnets.chain(&self.lan).chain([&self.endpoint]);
        self.lan.len() <= Self::LAN_MAX && texts.all(|it| it.len() <= Self::TEXT_MAX)
    }
}

/// The front's needs to begin.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Begin {
    /// The text of the day that was kept before this start.
    pub day: String,
    /// There is a password: who has no session sees nothing.
    pub password: bool,
}

/// The tokens for a browser that has logged in.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Login {
    /// Stands for the session.
    pub session: Secret,
    /// By which the browser is known the next time.
    pub known: Secret,
}

/// Why something is not told or not done.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Refused {
    /// There is no such session.
    Session,
    /// Without a password nothing can be changed.
    Open,
    /// For this reason.
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
    /// Make it.
    Add {
        /// It sends only what goes to networks at home.
        #[serde(default)]
        lan_only: bool,
    },
    /// Keep it out.
    Revoke,
    /// Call it otherwise.
    Rename {
        /// The new name.
        to: String,
    },
}
