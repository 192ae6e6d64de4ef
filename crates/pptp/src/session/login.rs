//! A client's login (RFC 1334, RFC 1994, RFC 2759).

use std::time::{Duration, Instant};

use subtle::ConstantTimeEq;

use crate::mppe::MasterKey;
use crate::mschap::{
    Failure, Password, Response, Success, authenticator_response, nt_password_hash, nt_response,
    user_without_domain,
};
use crate::ppp::{Auth, ChapPacket, PapPacket, md5_response, printable};
use crate::session::output::LoginError;
use crate::session::settings::Entropy;

/// Time between tries: the client repeats requests and responses, a server its challenge (RFC 1334, section 2.1; RFC
/// 1994, section 4.2).
pub(super) const REPEAT: Duration = Duration::from_secs(3);

/// The result of a received packet, at either end.
#[derive(Debug)]
pub(super) enum Step {
    /// Send this as a frame of the login's protocol.
    Send(Vec<u8>),
    /// The client has logged in.
    Done {
        /// A server's answer.
        answer: Option<Vec<u8>>,
        /// The user, at a server.
        user: Option<String>,
        /// The MPPE key, if the login gives one.
        key: Option<MasterKey>,
    },
    /// The login failed: a server's answer, if there is one, and the reason.
    Failed(Option<Vec<u8>>, LoginError),
}

/// An answer that was sent: its challenge, to detect repetitions, and the proof expected from the server.
struct Answer {
    id: u8,
    challenge: Vec<u8>,
    packet: Vec<u8>,
    proof: Option<([u8; 20], MasterKey)>,
}

/// A login in progress, or a successful one: servers may ask again.
pub(super) struct Login {
    auth: Auth,
    user: String,
    password: Password,
    until: Option<Instant>,
    repeat: Option<Instant>,
    answer: Option<Answer>,
}

impl Login {
    pub(super) fn new(auth: Auth, user: String, password: Password, until: Instant) -> Self {
        Self {
            auth,
            user,
            password,
            until: Some(until),
            repeat: None,
            answer: None,
        }
    }

    pub(super) const fn auth(&self) -> Auth {
        self.auth
    }

    /// The first message, if the client must send it.
    pub(super) fn start(&mut self, now: Instant) -> Option<Step> {
        (self.auth == Auth::Pap).then(|| {
            self.repeat = Some(now + REPEAT);
            Step::Send(self.pap_request())
        })
    }

    fn pap_request(&self) -> Vec<u8> {
        PapPacket::Request {
            id: 1,
            user: self.user.as_bytes(),
            password: self.password.as_str().as_bytes(),
        }
        .to_vec()
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        [self.until, self.repeat].into_iter().flatten().min()
    }

    pub(super) fn expire(&mut self, now: Instant) -> Option<Step> {
        if self.until.is_some_and(|until| now >= until) {
            return Some(self.failed(LoginError::TimeOut));
        }
        self.repeat.filter(|&repeat| now >= repeat)?;
        self.repeat = Some(now + REPEAT);
        let packet = match &self.answer {
            Some(answer) => answer.packet.clone(),
            None => self.pap_request(),
        };
        Some(Step::Send(packet))
    }

    fn done(&mut self) {
        self.until = None;
        self.repeat = None;
    }

    fn accepted(&mut self, key: Option<MasterKey>) -> Step {
        self.done();
        Step::Done {
            answer: None,
            user: None,
            key,
        }
    }

    fn failed(&mut self, error: LoginError) -> Step {
        self.done();
        Step::Failed(None, error)
    }

    pub(super) fn receive(
        &mut self,
        information: &[u8],
        now: Instant,
        entropy: &Entropy,
    ) -> Option<Step> {
        if self.auth == Auth::Pap {
            return self.receive_pap(information);
        }
        match ChapPacket::parse(information)? {
            ChapPacket::Challenge { id, value, .. } => {
                // A server may ask again later; then the client does not wait for a verdict.
                self.repeat = self.until.map(|_| now + REPEAT);
                self.challenged(id, value, entropy)
            }
            ChapPacket::Success { id, message } => {
                let answer = self.answer.as_ref().filter(|answer| answer.id == id)?;
                // A second success is a copy.
                self.until?;
                let key = match &answer.proof {
                    None => None,
                    Some((proof, key)) => {
                        let found = Success::parse(message).map(|success| success.proof);
                        if !found.is_some_and(|found| found.ct_eq(proof).into()) {
                            return Some(self.failed(LoginError::BadProof));
                        }
                        Some(key.clone())
                    }
                };
                Some(self.accepted(key))
            }
            ChapPacket::Failure { id, message } => {
                self.answer.as_ref().filter(|answer| answer.id == id)?;
                Some(self.failed(match self.auth {
                    Auth::MsChapV2 => LoginError::Refused(Failure::parse(message).code),
                    Auth::ChapMd5 | Auth::Pap => LoginError::Message(printable(message)),
                }))
            }
            ChapPacket::Response { .. } | ChapPacket::ChangePassword { .. } => None,
        }
    }

    fn receive_pap(&mut self, information: &[u8]) -> Option<Step> {
        let packet = PapPacket::parse(information)?;
        self.until?;
        match packet {
            PapPacket::Ack { id: 1 } => Some(self.accepted(None)),
            PapPacket::Nak { id: 1, message } => {
                Some(self.failed(LoginError::Message(printable(message))))
            }
            _ => None,
        }
    }

    fn challenged(&mut self, id: u8, challenge: &[u8], entropy: &Entropy) -> Option<Step> {
        if let Some(answer) = &self.answer
            && answer.id == id
            && answer.challenge == challenge
        {
            // The server might reject a different answer to the same challenge, so the first one is repeated.
            return Some(Step::Send(answer.packet.clone()));
        }
        let name = self.user.as_bytes();
        let (packet, proof) = if self.auth == Auth::MsChapV2 {
            let authenticator: &[u8; 16] = challenge.try_into().ok()?;
            let peer_challenge = entropy.bytes();
            let hash = nt_password_hash(self.password.as_str());
            let user = user_without_domain(name);
            let nt_response = nt_response(authenticator, &peer_challenge, user, &hash);
            let proof =
                authenticator_response(&hash, &nt_response, &peer_challenge, authenticator, user);
            let value = Response {
                peer_challenge,
                nt_response,
            }
            .to_bytes();
            let value = &value;
            let packet = ChapPacket::Response { id, value, name }.to_vec();
            (packet, Some((proof, MasterKey::new(&hash, &nt_response))))
        } else {
            let value = &md5_response(id, self.password.as_str(), challenge);
            (ChapPacket::Response { id, value, name }.to_vec(), None)
        };
        self.answer = Some(Answer {
            id,
            challenge: challenge.to_vec(),
            packet: packet.clone(),
            proof,
        });
        Some(Step::Send(packet))
    }
}

impl core::fmt::Debug for Login {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Login({}, {})", self.auth, self.user)
    }
}
