//! `chap-secrets`: a client's name, a server's, a password, and addresses, in each line.

use zeroize::Zeroizing;

use super::words::{Fault, Word, words};

/// A line.
#[derive(Clone, Debug)]
pub(super) struct Secret {
    pub(super) client: String,
    pub(super) server: String,
    pub(super) password: Zeroizing<String>,
    /// The first of the addresses that the client may have, as it is written; `None` if there is none.
    address: Option<String>,
    pub(super) line: usize,
}

/// The lines of a text. One with less than three words has no password, and is passed over, as pppd does.
pub(super) fn secrets(text: &str) -> Result<Vec<Secret>, Fault> {
    let mut lines: Vec<Vec<Word>> = Vec::new();
    for word in words(text)? {
        match lines.last_mut() {
            Some(line) if !word.first => line.push(word),
            _ => lines.push(vec![word]),
        }
    }
    let secret = |line: Vec<Word>| {
        let [client, server, password, rest @ ..] = &line[..] else {
            return None;
        };
        Some(Secret {
            client: client.text.to_string(),
            server: server.text.to_string(),
            password: password.text.clone(),
            address: rest.first().map(|it| it.text.to_string()),
            line: client.line,
        })
    };
    Ok(lines.into_iter().filter_map(secret).collect())
}

impl Secret {
    /// Whether it is for a server of this name; of any, if that is not known.
    pub(super) fn is_for(&self, server: Option<&str>) -> bool {
        self.server == "*" || server.is_none_or(|server| self.server == server)
    }

    /// Whether it names this server: of a client's lines pppd takes such a one first.
    pub(super) fn names(&self, server: Option<&str>) -> bool {
        server.is_some() && self.server != "*"
    }

    /// Why pppd lets no client in by it: a line without addresses is for calls of this host, and `-` shuts a client out.
    pub(super) fn shut(&self) -> Option<&'static str> {
        match self.address.as_deref() {
            Some(it) if it.starts_with('!') => Some(
                "addresses that a user may not have (!) are not read; write `*` behind the secret",
            ),
            Some(it) if !it.starts_with('-') => None,
            _ => Some("pppd gives this user no address; write `*` behind the secret"),
        }
    }

    /// Whether the client may have certain addresses only.
    pub(super) fn has_address(&self) -> bool {
        self.address.as_deref().is_some_and(|it| it != "*")
    }

    /// Why its password cannot be used.
    pub(super) fn fault(&self) -> Option<&'static str> {
        match self.password.as_str() {
            "" => Some("the password is empty"),
            it if it.starts_with('@') => Some("passwords in files of their own (@) are not read"),
            _ => None,
        }
    }
}

/// A client's password: of the lines for it and the server, that which names both rather than one with `*`.
///
/// # Errors
/// There is none, it cannot be used, or there are several.
pub(super) fn password(
    secrets: &[Secret],
    client: &str,
    server: Option<&str>,
) -> Result<Zeroizing<String>, String> {
    let fits = |it: &&Secret| (it.client == client || it.client == "*") && it.is_for(server);
    let rank = |it: &Secret| (it.client != "*", it.names(server));
    let best = secrets.iter().filter(fits).map(rank).max();
    let mut found = secrets
        .iter()
        .filter(fits)
        .filter(|it| Some(rank(it)) == best);
    let first = found
        .next()
        .ok_or("it has no line for this client and server")?;
    if found.any(|other| other.password != first.password) {
        return Err(
            "it has several lines for this client: name the server's with remotename".into(),
        );
    }
    match first.fault() {
        Some(fault) => Err(format!("line {}: {fault}", first.line)),
        None => Ok(first.password.clone()),
    }
}
