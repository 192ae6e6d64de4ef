//! Credentials that a client shows to its server: a name with a password, or with a token in its place.

use super::super::secrets::Login;
use config::openvpn::OpenVpn;
use zeroize::Zeroizing;

/// The next credentials to show.
pub(super) enum Shown {
    /// This, or nothing.
    Known(Option<Login>),
    /// It has to be asked for.
    Ask,
}

/// Name, password and token, as long as they are kept.
#[derive(Default)]
pub(super) struct Logins {
    kept: Option<Login>,
    /// The last answer, until a server has got it: one that is good once may be shown to the next server if the first
    /// one is dead.
    unsent: Option<Login>,
    /// The token of the configuration (`auth-token`), until it was tried.
    first_token: Option<Zeroizing<String>>,
    /// A token of the server's, in the place of the password.
    token: Option<Login>,
    /// The name that was shown last, or that the server wants to see with its token.
    user: String,
    forget: bool,
}

impl Logins {
    pub(super) fn new(config: &OpenVpn) -> Self {
        let client = config.client();
        let token = client.and_then(|client| client.auth_token.as_ref());
        Self {
            first_token: token.map(|(_, token)| Zeroizing::new(token.expose().to_owned())),
            ..Self::default()
        }
    }

    /// The name that was shown last.
    pub(super) fn user(&self) -> &str {
        &self.user
    }

    /// Everything is forgotten before the next connection.
    pub(super) fn forget(&mut self) {
        self.forget = true;
    }

    /// The password is asked for again.
    pub(super) fn forget_password(&mut self) {
        (self.kept, self.unsent) = (None, None);
    }

    /// A server has got what was shown last.
    pub(super) fn sent(&mut self) {
        self.unsent = None;
    }

    /// Gives up the token. Whether there was one.
    pub(super) fn drop_token(&mut self) -> bool {
        self.token.take().is_some()
    }

    /// Keeps a token of the server's in the place of the password.
    pub(super) fn keep_token(&mut self, token: &str) {
        self.token = Some(Login {
            name: self.user.clone(),
            password: Zeroizing::new(token.to_owned()),
        });
    }

    /// The name that belongs to the token.
    pub(super) fn set_token_user(&mut self, user: &str) {
        user.clone_into(&mut self.user);
        if let Some(token) = &mut self.token {
            user.clone_into(&mut token.name);
        }
    }

    /// Returns the next credentials; a configured token goes first. `answer` is the user's latest answer.
    pub(super) fn next(&mut self, config: &OpenVpn, answer: Option<Login>) -> Shown {
        if std::mem::take(&mut self.forget) {
            (self.kept, self.unsent, self.token) = (None, None, None);
        }
        let Some(client) = config.client() else {
            return Shown::Known(None);
        };
        if answer.is_some() {
            // An answer to a challenge is good once.
            if !config.service.auth_nocache && client.static_challenge.is_none() {
                self.kept.clone_from(&answer);
            }
            self.unsent = answer;
        }
        let wanted = client.auth_user_pass.is_some();
        let own = [&self.token, &self.unsent, &self.kept];
        let own = own.into_iter().flatten().next().cloned();
        let own = own.filter(|_| wanted || self.token.is_some());
        let first_name = client
            .auth_token
            .as_ref()
            .and_then(|(user, _)| user.clone());
        if self.first_token.is_some() && first_name.is_none() && own.is_none() && wanted {
            return Shown::Ask;
        }
        let shown = match self.first_token.take() {
            Some(password) => {
                let name = first_name
                    .or_else(|| own.map(|login| login.name))
                    .unwrap_or_default();
                self.token = Some(Login { name, password });
                self.token.clone()
            }
            None if own.is_none() && wanted => return Shown::Ask,
            None => own,
        };
        if let Some(login) = &shown {
            self.user.clone_from(&login.name);
        }
        Shown::Known(shown)
    }
}
