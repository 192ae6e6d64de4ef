//! Authentication of a client: the question to the daemon, and its answer. Questions beyond the password: the static
//! challenge, which the client's file asks, and the dynamic one, which the server asks by refusing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use super::key_state::Authorisation;
use super::machine::{Phase, Session};
use super::output::{AuthId, AuthRequest, CloseReason, Decision, Output, TokenState};
use super::server::ServerSide;
use super::token::{Checked, TokenKeeper, TokenSession};
use crate::key_method::{KeyMethod, Login};
use crate::message::{AuthFailed, AuthFailedKind, Message};
use crate::negotiate::{IvProto, PeerInfo};
use crate::role::Role;

impl Session {
    pub(super) fn take_client_record(
        &mut self,
        now: Instant,
        out: &mut Vec<Output>,
    ) -> Result<(), CloseReason> {
        let (wall, certificate) = (self.wall(now), self.certificate().cloned());
        let renegotiation = self.agreed.is_some();
        let Some(record) = &mut self.primary.peer else {
            return Ok(());
        };
        // Takes the password out of the record, so that no copy stays after the answer.
        let login = core::mem::replace(&mut record.login, Login::Absent);
        let (peer_info, options) = (record.peer_info.clone(), record.options.clone());
        let Some(source) = self.primary.source.clone() else {
            return Ok(());
        };
        let window = self.settings().hand_window;
        let Some(server) = self.server_side() else {
            return Ok(());
        };
        if !renegotiation {
            server.peer_info = Arc::new(PeerInfo::parse(&peer_info));
            let proto = server.peer_info.proto();
            if proto.has(IvProto::NCP_P2P) {
                log::warn!(
                    "the client has neither --client nor --pull: it will not take the cipher that it is told"
                );
            }
            server.push_wanted = proto.has(IvProto::REQUEST_PUSH);
        }
        let answer = KeyMethod {
            source,
            options: server.settings.common.occ.local(Role::Server),
            login: Login::Absent,
            peer_info: String::new(),
        };
        server.asked += 1;
        let id = AuthId(server.asked);
        server.answer_by = Some(now + window);
        let too_long = matches!(login, Login::TooLong);
        let login = login_of(&login);
        let checked = match (&server.settings.tokens, &login) {
            (Some(tokens), Some((user, password))) => tokens.check(user, password, wall),
            _ => Checked {
                state: TokenState::Initial,
                session: None,
            },
        };
        let refusal = if too_long {
            Some(AuthFailed::because("Username or password is too long"))
        } else {
            refusal(server, login.as_ref(), checked)
        };
        self.primary.authorisation = Authorisation::Asked(id);
        self.primary.write_record(&answer)?;
        if let Some(refusal) = refusal {
            return self.refuse(refusal, now);
        }
        let Some(server) = self.server_side() else {
            return Ok(());
        };
        let (username, password) = login.unwrap_or_default();
        server.username.get_or_insert_with(|| username.clone());
        if checked.state == TokenState::Authenticated {
            server.token = checked.session;
        }
        out.push(Output::Authenticate(Box::new(AuthRequest {
            id,
            username,
            password,
            certificate,
            peer_info: Arc::clone(&server.peer_info),
            options,
            renegotiation,
            token: checked.state,
        })));
        Ok(())
    }

    /// Takes the daemon's answer. An answer to a closed question does nothing.
    pub fn authenticated(
        &mut self,
        id: AuthId,
        decision: Decision,
        now: Instant,
        out: &mut Vec<Output>,
    ) {
        let open = self.primary.authorisation == Authorisation::Asked(id);
        if !open || !matches!(self.phase, Phase::Starting | Phase::Up) {
            return;
        }
        if let Some(server) = self.server_side() {
            server.answer_by = None;
        }
        let outcome = match decision {
            Decision::Accept => {
                self.primary.authorisation = Authorisation::Granted;
                self.go_on(now, out)
            }
            Decision::Reject(failed) => self.refuse(failed, now),
        };
        if let Err(reason) = outcome {
            self.fail(reason, now, out);
        }
        self.run(now, out);
    }

    /// Asks the client to wait this long, as the daemon's answer depends on another service.
    pub fn authentication_pending(
        &mut self,
        timeout: Duration,
        now: Instant,
        out: &mut Vec<Output>,
    ) {
        let knows_words = self
            .peer_info()
            .is_some_and(|it| it.proto().has(IvProto::AUTH_PENDING_KW));
        if let Some(server) = self.server_side()
            && server.answer_by.is_some()
        {
            server.answer_by = Some(now + timeout);
        }
        let timeout = knows_words.then_some(timeout);
        self.send_message(&Message::AuthPending { timeout }, now, out);
    }
}

/// User name and password as text; `None` if there are none.
fn login_of(login: &Login) -> Option<(String, Zeroizing<String>)> {
    match login {
        Login::Given(given) => Some((
            String::from_utf8_lossy(&given.username).into_owned(),
            Zeroizing::new(String::from_utf8_lossy(&given.password).into_owned()),
        )),
        Login::Absent | Login::TooLong => None,
    }
}

/// Why a login is refused without asking the daemon.
fn refusal(
    server: &ServerSide,
    login: Option<&(String, Zeroizing<String>)>,
    checked: Checked,
) -> Option<AuthFailed> {
    let expired = AuthFailed {
        kind: AuthFailedKind::Session,
        reason: "token expired".to_owned(),
    };
    let username = login.map_or("", |it| &it.0);
    if server.username.as_deref().is_some_and(|it| it != username) {
        return Some(AuthFailed::because("the user name has changed"));
    }
    let password = login.map_or("", |it| &it.1);
    if server.settings.tokens.is_some() && TokenKeeper::is_token(password) {
        let same = |it: TokenSession| server.token.is_none_or(|known| known == it);
        match checked {
            Checked {
                state: TokenState::Expired,
                ..
            } => return Some(expired),
            Checked {
                session: Some(session),
                ..
            } if same(session) => {}
            _ => return Some(AuthFailed::default()),
        }
    }
    None
}

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
    /// Reads the reason of a refusal. `None` if it is not a challenge.
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
