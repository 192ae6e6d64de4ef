//! A server's side of a login (RFC 1334, RFC 1994, RFC 2759), and its accounts.

use std::net::Ipv4Addr;
use std::time::Instant;

use plane::Guesses;
use subtle::ConstantTimeEq;

use crate::mppe::MasterKey;
use crate::mschap::{
    Failure, FailureCode, Password, Response, Success, authenticator_response, nt_password_hash,
    nt_response, user_without_domain,
};
use crate::ppp::{Auth, ChapPacket, PapPacket, challenge, verify_md5};
use crate::session::login::{REPEAT, Step};
use crate::session::output::LoginError;
use crate::session::settings::Entropy;

/// A login in progress or finished. A finished login repeats its answers to repeated requests.
pub(super) struct Authenticator {
    auth: Auth,
    name: String,
    id: u8,
    challenge: [u8; 16],
    until: Option<Instant>,
    repeat: Option<Instant>,
    /// The client's answer, and the time until which it waits, because other logins from its address were wrong.
    held: Option<(Instant, Vec<u8>)>,
    /// The final answer, kept for repetitions.
    verdict: Option<Vec<u8>>,
}

impl Authenticator {
    pub(super) fn new(auth: Auth, name: String, until: Instant, entropy: &Entropy) -> Self {
        let [id] = entropy.bytes();
        Self {
            auth,
            name,
            id,
            challenge: entropy.bytes(),
            until: Some(until),
            repeat: None,
            held: None,
            verdict: None,
        }
    }

    pub(super) const fn auth(&self) -> Auth {
        self.auth
    }

    /// The first message, if the server must send it.
    pub(super) fn start(&mut self, now: Instant) -> Option<Step> {
        (self.auth != Auth::Pap).then(|| {
            self.repeat = Some(now + REPEAT);
            Step::Send(challenge(self.id, &self.challenge, &self.name))
        })
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let held = self.held.as_ref().map(|(until, _)| *until);
        [self.until, self.repeat, held].into_iter().flatten().min()
    }

    pub(super) fn expire(&mut self, now: Instant, door: &mut Door<'_>) -> Option<Step> {
        if self.until.is_some_and(|until| now >= until) {
            self.until = None;
            self.repeat = None;
            self.held = None;
            return Some(Step::Failed(None, LoginError::TimeOut));
        }
        if let Some((_, answer)) = self.held.take_if(|(until, _)| now >= *until) {
            return self.receive(&answer, now, door);
        }
        self.repeat.filter(|&repeat| now >= repeat)?;
        self.start(now)
    }

    pub(super) fn receive(
        &mut self,
        information: &[u8],
        now: Instant,
        door: &mut Door<'_>,
    ) -> Option<Step> {
        // The account is the same with or without a domain before its name.
        let user = user_without_domain(self.user_of(information)?);
        if let Some(verdict) = &self.verdict {
            return Some(Step::Send(verdict.clone()));
        }
        if let Some(until) = door.shut_until(user, now) {
            self.held = Some((until, information.to_vec()));
            self.repeat = None;
            return None;
        }
        let step = self.judge(information, door.accounts)?;
        door.judged(user, matches!(step, Step::Done { .. }), now);
        Some(step)
    }

    /// The user's name in a client's answer.
    fn user_of<'i>(&self, information: &'i [u8]) -> Option<&'i [u8]> {
        match self.auth {
            Auth::Pap => match PapPacket::parse(information)? {
                PapPacket::Request { user, .. } => Some(user),
                _ => None,
            },
            Auth::ChapMd5 | Auth::MsChapV2 => match ChapPacket::parse(information)? {
                ChapPacket::Response { id, name, .. } if id == self.id => Some(name),
                _ => None,
            },
        }
    }

    fn judge(&mut self, information: &[u8], accounts: &dyn Accounts) -> Option<Step> {
        let (good, user, key, answer) = match self.auth {
            Auth::Pap => {
                let PapPacket::Request { id, user, password } = PapPacket::parse(information)?
                else {
                    return None;
                };
                let (user, known, secret) = account(user, accounts);
                let good = known & bool::from(secret.as_str().as_bytes().ct_eq(password));
                let answer = if good {
                    PapPacket::Ack { id }.to_vec()
                } else {
                    let message = b"Access denied";
                    PapPacket::Nak { id, message }.to_vec()
                };
                (good, user, None, answer)
            }
            Auth::ChapMd5 | Auth::MsChapV2 => {
                let ChapPacket::Response { id, value, name } = ChapPacket::parse(information)?
                else {
                    return None;
                };
                let (user, known, secret) = account(name, accounts);
                if self.auth == Auth::ChapMd5 {
                    let good = known & verify_md5(id, secret.as_str(), &self.challenge, value);
                    let message = if good {
                        "Access granted"
                    } else {
                        "Access denied"
                    };
                    (good, user, None, chap_verdict(id, good, message))
                } else {
                    let (good, key, message) = self.check_ms(value, name, &secret);
                    let good = known && good;
                    let message = if good {
                        message
                    } else {
                        denied(self.challenge)
                    };
                    (good, user, key, chap_verdict(id, good, &message))
                }
            }
        };
        self.until = None;
        self.repeat = None;
        self.held = None;
        self.verdict = Some(answer.clone());
        Some(if good {
            Step::Done {
                answer: Some(answer),
                user: Some(user),
                key,
            }
        } else {
            Step::Failed(Some(answer), LoginError::Denied)
        })
    }

    /// Checks a response; if it is correct, returns the key and the success message.
    fn check_ms(
        &self,
        value: &[u8],
        name: &[u8],
        secret: &Password,
    ) -> (bool, Option<MasterKey>, String) {
        let Some(response) = Response::parse(value) else {
            return (false, None, String::new());
        };
        let user = user_without_domain(name);
        let hash = nt_password_hash(secret.as_str());
        let peer = &response.peer_challenge;
        let expected = nt_response(&self.challenge, peer, user, &hash);
        let good = bool::from(expected.ct_eq(&response.nt_response));
        let proof = authenticator_response(&hash, &expected, peer, &self.challenge, user);
        let key = MasterKey::new(&hash, &expected);
        (good, Some(key), Success { proof }.to_text())
    }
}

/// The user's name, whether the user exists, and the password. An unknown user gets a password that takes as long to
/// check.
fn account(name: &[u8], accounts: &dyn Accounts) -> (String, bool, Password) {
    let name = String::from_utf8_lossy(name).into_owned();
    // An unknown domain does not lead to a refusal.
    let bare = name.rsplit('\\').next().unwrap_or(&name);
    let password = accounts.password(&name).or_else(|| accounts.password(bare));
    match password {
        Some(password) => (name, true, password),
        None => (name, false, Password::new("no such user".into())),
    }
}

fn denied(challenge: [u8; 16]) -> String {
    Failure {
        code: FailureCode::AuthenticationFailure,
        retry: false,
        challenge: Some(challenge),
    }
    .to_text()
}

fn chap_verdict(id: u8, good: bool, message: &str) -> Vec<u8> {
    let message = message.as_bytes();
    if good {
        ChapPacket::Success { id, message }.to_vec()
    } else {
        ChapPacket::Failure { id, message }.to_vec()
    }
}

impl core::fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Authenticator({})", self.auth)
    }
}

/// The users of a server.
pub trait Accounts: Send {
    /// The password of a user, by the name that the client sent; `None` for an unknown user. A name may have a domain
    /// before it (`DOMAIN\user`).
    fn password(&self, user: &str) -> Option<Password>;
}

/// A list of users for small servers and for tests.
impl Accounts for Vec<(String, Password)> {
    fn password(&self, user: &str) -> Option<Password> {
        let found = self.iter().find(|(name, _)| name == user);
        found.map(|(_, password)| password.clone())
    }
}

/// A client's accounts: none.
impl Accounts for () {
    fn password(&self, _user: &str) -> Option<Password> {
        None
    }
}

/// Everything a server needs to judge one client's login.
pub(super) struct Door<'a> {
    pub(super) accounts: &'a dyn Accounts,
    pub(super) guesses: &'a mut Guesses<Ipv4Addr>,
    /// Address of the client.
    pub(super) source: Ipv4Addr,
}

impl Door<'_> {
    /// The time until which logins as this user must wait, because of wrong passwords.
    fn shut_until(&self, user: &[u8], now: Instant) -> Option<Instant> {
        self.guesses.shut_until(self.source, user, now)
    }

    /// Records the result of a login.
    fn judged(&mut self, user: &[u8], good: bool, now: Instant) {
        if good {
            self.guesses.right(self.source, user);
        } else {
            self.guesses.wrong(self.source, user, now);
        }
    }
}
