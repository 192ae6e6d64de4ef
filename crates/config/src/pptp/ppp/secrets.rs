//! `chap-secrets`: each line has a client's name, a server's name, a password, and addresses.

use zeroize::Zeroizing;

use super::words::{Fault, Word, words};

/// A line of `chap-secrets`.
#[derive(Clone, Debug)]
pub(super) struct Secret {
    pub(super) client: String,
    pub(super) server: String,
    pub(super) password: Zeroizing<String>,
    /// The first address that the client may have, as written; `None` if there is none.
    address: Option<String>,
    pub(super) line: usize,
}

/// Parses the lines. A line with fewer than three words has no password and is skipped, as pppd does.
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
    /// Whether the line is for a server of this name, or for any server if the name is unknown.
    pub(super) fn is_for(&self, server: Option<&str>) -> bool {
        self.server == "*" || server.is_none_or(|server| self.server == server)
    }

    /// Whether the line names this server rather than `*`: pppd prefers such a line.
    pub(super) fn names(&self, server: Option<&str>) -> bool {
        server.is_some() && self.server != "*"
    }

    /// Why no client can log in with this line: without addresses it is for calls of this host, `-` shuts a client out,
    /// and `!` is not supported.
    pub(super) fn shut(&self) -> Option<&'static str> {
        match self.address.as_deref() {
            Some(it) if it.starts_with('!') => Some(
                "addresses that a user may not have (!) are not read; write `*` behind the secret",
            ),
            Some(it) if !it.starts_with('-') => None,
            _ => Some("pppd gives this user no address; write `*` behind the secret"),
        }
    }

    /// Whether the line restricts the client's addresses.
    pub(super) fn has_address(&self) -> bool {
        self.address.as_deref().is_some_and(|it| it != "*")
    }

    /// Why the line's password cannot be used.
    pub(super) fn fault(&self) -> Option<&'static str> {
        match self.password.as_str() {
            "" => Some("the password is empty"),
            it if it.starts_with('@') => Some("passwords in files of their own (@) are not read"),
            _ => None,
        }
    }
}

/// A client's password. A line that names both client and server is preferred to one with `*`.
///
/// # Errors
/// The password is missing, unusable or ambiguous.
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
