//! What is where: the page, what it asks for, the metrics.

use std::io;
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crypto::blake2s;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::answer::Answer;
use crate::attempts::Attempts;
use crate::document::Document;
use crate::gate::{Gate, Shown, shown};
use crate::http::{Head, Method};
use crate::link::{self, Change, Question};
use crate::metrics;
use crate::overview::Overview;
use crate::password::Password;
use crate::peers::{Page, Wanted};
use crate::sessions::Sessions;

/// The name of the cookie.
const COOKIE: &str = "millrace-monitor";

/// What a browser does with the cookie: no script reads it, and no other page has it sent.
const COOKIE_RULES: &str = "Path=/; HttpOnly; SameSite=Strict";

/// What the front is told when it is started.
#[derive(Clone, Default)]
pub struct Settings {
    /// Names that clients may use for this host, besides its addresses.
    pub names: Vec<String>,
    /// The password; without, everything may be seen and nothing changed.
    pub password: Option<Password>,
    /// What a program shows for the metrics.
    pub token: Option<Zeroizing<String>>,
    /// The host's name.
    pub host: String,
}

/// All of it.
pub struct Site {
    gate: Gate,
    settings: Settings,
    /// What is known.
    pub overview: Mutex<Overview>,
    link: Mutex<UnixStream>,
    sessions: Mutex<Sessions>,
    attempts: Mutex<Attempts>,
    /// One password is stretched at a time: that is all that a stranger can have this processor do.
    trying: Mutex<()>,
    /// A digest of the last `Authorization` that was good: programs show theirs every few seconds.
    good: Mutex<Option<[u8; 32]>>,
}

/// What a request to log in carries.
#[derive(Deserialize)]
struct Login {
    password: String,
}

fn lock<T>(it: &Mutex<T>) -> MutexGuard<'_, T> {
    it.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Site {
    /// With what is known so far, and the way to the process that has privileges.
    #[must_use]
    pub fn new(settings: Settings, overview: Overview, link: UnixStream) -> Self {
        Self {
            gate: Gate::new(&settings.names),
            settings,
            overview: Mutex::new(overview),
            link: Mutex::new(link),
            sessions: Mutex::default(),
            attempts: Mutex::new(Attempts::new(Instant::now())),
            trying: Mutex::default(),
            good: Mutex::default(),
        }
    }

    /// Asks the process that has privileges.
    ///
    /// # Errors
    /// It is gone.
    pub fn ask<T: DeserializeOwned>(&self, question: &Question) -> io::Result<T> {
        link::ask(&mut *lock(&self.link), question)
    }

    /// The answer to a request from an address.
    pub fn answer(&self, head: &Head, body: &[u8], address: IpAddr) -> Answer {
        if let Err(refusal) = self.gate.check(head) {
            let (status, words) = refusal.words();
            return Answer::error(status, words);
        }
        let now = Instant::now();
        match (head.method, head.path.as_str()) {
            (Method::Get, "/") => return Answer::page(),
            (Method::Post, "/api/login") => return self.login(body, address, now),
            (Method::Get, "/metrics") => return self.metrics(head, address, now),
            _ => {}
        }
        let session = head
            .cookie(COOKIE)
            .is_some_and(|it| lock(&self.sessions).has(it, now));
        if self.settings.password.is_some() && !session {
            return Answer::error(401, "log in");
        }
        match (head.method, head.path.as_str()) {
            (Method::Post, "/api/logout") => {
                lock(&self.sessions).end(head.cookie(COOKIE).unwrap_or_default());
                let gone = format!("{COOKIE}=; Max-Age=0; {COOKIE_RULES}");
                Answer::json(&json!({})).with("Set-Cookie", &gone)
            }
            (Method::Get, "/api/state") => self.state(head, session, now),
            (Method::Get, "/api/day") => Answer::json(lock(&self.overview).day.means()),
            (Method::Get, "/api/peers") => self.peers(&Wanted::new(head)),
            (Method::Get, "/api/servers") => self.servers(),
            (Method::Post, "/api/clients") => self.change(body),
            _ => Answer::error(404, "there is nothing here"),
        }
    }

    /// Tries a password.
    fn try_password(&self, text: &str, address: IpAddr, now: Instant) -> Result<(), Answer> {
        let Some(password) = &self.settings.password else {
            return Err(Answer::error(409, "there is no password to log in by"));
        };
        if let Err(wait) = lock(&self.attempts).begin(address, now) {
            let seconds = wait.as_secs() + 1;
            let words = format!("too many tries: again in {seconds} s");
            return Err(Answer::error(429, &words).with("Retry-After", &seconds.to_string()));
        }
        let is_it = {
            let _one = lock(&self.trying);
            password.is(text)
        };
        if is_it {
            lock(&self.attempts).forgive(address);
            return Ok(());
        }
        log::warn!("wrong password from {address}");
        Err(Answer::error(403, "that is not the password"))
    }

    fn login(&self, body: &[u8], address: IpAddr, now: Instant) -> Answer {
        let Ok(login) = serde_json::from_slice::<Login>(body) else {
            return Answer::error(400, "not understood");
        };
        let password = Zeroizing::new(login.password);
        match self.try_password(&password, address, now) {
            Ok(()) => {
                let token = lock(&self.sessions).begin(now);
                let cookie = format!("{COOKIE}={token}; {COOKIE_RULES}");
                Answer::json(&json!({})).with("Set-Cookie", &cookie)
            }
            Err(refused) => refused,
        }
    }

    fn metrics(&self, head: &Head, address: IpAddr, now: Instant) -> Answer {
        if self.settings.password.is_some()
            && let Err(refused) = self.may_read_metrics(head, address, now)
        {
            return refused;
        }
        Answer::of(
            metrics::KIND,
            metrics::text(&lock(&self.overview)).into_bytes(),
        )
    }

    fn may_read_metrics(&self, head: &Head, address: IpAddr, now: Instant) -> Result<(), Answer> {
        let digest = |text: &str| blake2s::hash(&[text.as_bytes()]);
        let session = head
            .cookie(COOKIE)
            .is_some_and(|it| lock(&self.sessions).has(it, now));
        match shown(head) {
            _ if session => Ok(()),
            Some(Shown::Token(token)) => {
                let wanted = self.settings.token.as_ref();
                // Digests of equal length are compared, so that the time tells nothing about the token.
                match wanted.is_some_and(|it| crypto::equal(&digest(it), &digest(&token))) {
                    true => Ok(()),
                    false => Err(Answer::error(403, "that is not the token")),
                }
            }
            Some(Shown::Password(password)) => {
                let digest = digest(&password);
                if lock(&self.good).is_some_and(|it| crypto::equal(&it, &digest)) {
                    return Ok(());
                }
                self.try_password(&password, address, now)?;
                *lock(&self.good) = Some(digest);
                Ok(())
            }
            None => Err(Answer::error(401, "the password or a token is needed")
                .with("WWW-Authenticate", "Basic realm=\"Millrace\"")),
        }
    }

    fn state(&self, head: &Head, session: bool, now: Instant) -> Answer {
        let number = |name| head.query(name).and_then(|it| it.parse().ok()).unwrap_or(0);
        let mut overview = lock(&self.overview);
        overview.ask(now);
        let host = &self.settings.host;
        Answer::json(&Document::new(
            &overview,
            host,
            session,
            number("since"),
            number("event"),
        ))
    }

    fn peers(&self, wanted: &Wanted) -> Answer {
        let overview = lock(&self.overview);
        let mut tunnels = overview.sample.tunnels.iter();
        match tunnels.find(|it| it.interface == wanted.tunnel) {
            Some(status) => Answer::json(&Page::new(status, wanted)),
            None => Answer::error(404, "no such tunnel is up"),
        }
    }

    fn servers(&self) -> Answer {
        match self.ask::<Value>(&Question::Servers) {
            Ok(servers) => Answer::json(&json!({
                "servers": servers,
                "change": self.settings.password.is_some(),
            })),
            Err(_) => gone(),
        }
    }

    fn change(&self, body: &[u8]) -> Answer {
        if self.settings.password.is_none() {
            return Answer::error(403, "clients can be changed here once a password is set");
        }
        let Ok(change) = serde_json::from_slice::<Change>(body) else {
            return Answer::error(400, "not understood");
        };
        match self.ask::<Result<Value, String>>(&Question::Change(change)) {
            Ok(Ok(said)) => Answer::json(&said),
            Ok(Err(why)) => Answer::error(409, &why),
            Err(_) => gone(),
        }
    }
}

fn gone() -> Answer {
    Answer::error(503, "this server is about to end")
}
