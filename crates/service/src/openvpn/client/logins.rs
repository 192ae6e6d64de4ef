//! Credentials that a client shows to its server: a name with a password or a token.

use config::openvpn::OpenVpn;
use openvpn_host::secrets::Login;
use zeroize::Zeroizing;

/// The next credentials to show.
pub(super) enum Shown {
    /// Show these credentials; `None` connects without any.
    Known(Option<Login>),
    /// Ask the user first.
    Ask,
}

/// Name, password and token, while they are kept.
#[derive(Default)]
pub(super) struct Logins {
    kept: Option<Login>,
    /// The user's last answer, until a server has received it. A one-time code that a dead server never got can go to
    /// the next one.
    unsent: Option<Login>,
    /// The configured token (`auth-token`), until it was tried.
    first_token: Option<Zeroizing<String>>,
    /// A token from the server, in place of the password.
    token: Option<Login>,
    /// The last name shown, or the name that the server wants with its token.
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

    /// The last name shown.
    pub(super) fn user(&self) -> &str {
        &self.user
    }

    /// Forgets all credentials before the next connection.
    pub(super) fn forget(&mut self) {
        self.forget = true;
    }

    /// Forgets the password, so that the user is asked again.
    pub(super) fn forget_password(&mut self) {
        (self.kept, self.unsent) = (None, None);
    }

    /// Records that a server has received the last credentials shown.
    pub(super) fn sent(&mut self) {
        self.unsent = None;
    }

    /// Drops the token. Returns whether there was one.
    pub(super) fn drop_token(&mut self) -> bool {
        self.token.take().is_some()
    }

    /// Keeps the server's token in place of the password.
    pub(super) fn keep_token(&mut self, token: &str) {
        self.token = Some(Login {
            name: self.user.clone(),
            password: Zeroizing::new(token.to_owned()),
        });
    }

    /// Sets the name that the server wants with its token.
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
            // An answer to a challenge works only once.
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
