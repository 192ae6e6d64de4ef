//! Asks for names and passwords: management clients, files, the terminal.

use super::host::ThisHost;
use crate::openvpn::client::event::{Event, Realm};
use config::openvpn::Prompted;
use openvpn_host::management::{Answer, Query, QueryKind};
use openvpn_host::secrets::{self, Login, SecretError};
use zeroize::Zeroizing;

impl ThisHost<'_> {
    /// Asks for the name and password for the server.
    pub(super) fn login_for_server(&mut self) -> Option<Event> {
        let client = self.context.config.client()?;
        let prompted = client.auth_user_pass.as_ref()?;
        let challenge = client.static_challenge.as_ref();
        let question = QueryKind::UserPassword {
            challenge: challenge.map(|c| (c.text.clone(), c.echo, c.concat)),
        };
        if matches!(prompted, Prompted::Ask)
            && self.ask_management_client(Realm::Server, "Auth", question)
        {
            return None;
        }
        let login = self.read_login(prompted);
        let login = login.map_err(|error| error.to_string());
        Some(Event::Login(Realm::Server, login))
    }

    fn read_login(&self, prompted: &Prompted) -> Result<Login, SecretError> {
        let config = &self.context.config;
        let mut login = secrets::login("auth-user-pass", "Auth", prompted, config)?;
        let client = config.client();
        if let Some(challenge) = client.and_then(|it| it.static_challenge.as_ref()) {
            let question = format!("CHALLENGE: {} ", challenge.text);
            let answer = secrets::ask(&question, challenge.echo).map_err(|error| {
                SecretError::NoTerminal {
                    what: "static-challenge",
                    error,
                }
            })?;
            login.password = if challenge.concat {
                Zeroizing::new(format!("{}{}", *login.password, *answer))
            } else {
                openvpn::session::static_response(&login.password, &answer)
            };
        }
        Ok(login)
    }

    /// Asks for the name and password for a proxy.
    pub(super) fn login_for_proxy(&mut self, prompted: &Prompted) -> Option<Event> {
        let question = QueryKind::UserPassword { challenge: None };
        if matches!(prompted, Prompted::Ask)
            && self.ask_management_client(Realm::Proxy, "HTTP Proxy", question)
        {
            return None;
        }
        let config = &self.context.config;
        let login = secrets::login("http-proxy", "HTTP Proxy", prompted, config);
        let login = login.map_err(|error| error.to_string());
        Some(Event::Login(Realm::Proxy, login))
    }

    /// Asks a management client if `management-query-passwords` is set. Returns whether it was asked.
    fn ask_management_client(&mut self, realm: Realm, kind: &str, question: QueryKind) -> bool {
        let port = self.context.config.service.management.as_ref();
        let query = Query {
            kind: kind.to_owned(),
            question,
        };
        let asked = port.is_some_and(|port| port.query_passwords)
            && self.context.monitoring.borrow_mut().ask(query);
        if asked {
            self.asked = Some(realm);
        }
        asked
    }

    /// Returns the login that a management client has answered.
    pub(super) fn answered(&mut self, answer: Answer) -> Option<Event> {
        let realm = self.asked.take()?;
        let login = Login {
            name: answer.username.to_string(),
            password: answer.text,
        };
        Some(Event::Login(realm, Ok(login)))
    }
}
