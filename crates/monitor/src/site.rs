//! The paths of the site: the page, its requests, the metrics.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crypto::blake2s;
use host::strangers;
use log::Level;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::answer::Answer;
use crate::document::Document;
use crate::gate::{Gate, Shown, shown};
use crate::help;
use crate::http::{COOKIE, HOME, Head, Method};
use crate::link::Link;
use crate::metrics;
use crate::overview::Overview;
use crate::peers::{Page, Wanted};
use crate::question::{self, AtHome, Question, Refused};
use crate::tries::{Asker, Turns};
use config::types::Secret;
use plane::{SourceNetwork, lock};

/// The start of the paths of help.
const HELP: &str = "/help/";

/// Attributes of the session cookie: scripts cannot read it, and other pages cannot cause it to be sent.
const COOKIE_RULES: &str = "Path=/; HttpOnly; SameSite=Strict";

/// The name of the cookie that recognises a browser in which somebody has logged in. It grants nothing.
const KNOWN: &str = "millrace-known";

/// Attributes of that cookie: browsers send it only to log in, for a year.
const KNOWN_RULES: &str = "Path=/api/login; Max-Age=31536000; HttpOnly; SameSite=Strict";

/// The front's settings.
#[derive(Clone, Default)]
pub struct Settings {
    /// Names that clients may use for this host, besides its addresses.
    pub names: Vec<String>,
    /// The token that a program sends for the metrics.
    pub token: Option<Zeroizing<String>>,
    /// The host's name.
    pub host: String,
}

/// State shared by the server's connections.
pub struct Site {
    gate: Gate,
    settings: Settings,
    /// State of the host and its tunnels.
    pub overview: Mutex<Overview>,
    link: Link,
    /// Whether there is a password; without one, everything may be seen and nothing changed.
    password: bool,
    turns: Turns,
    /// Digests of the last valid credentials of programs, with their addresses: programs send theirs every few seconds.
    good: Mutex<VecDeque<(IpAddr, [u8; 32])>>,
}

/// Maximum number of credentials that are remembered.
const PROGRAMS: usize = 8;

/// The body of a request to log in.
#[derive(Deserialize)]
struct Login {
    password: Secret,
}

impl Site {
    /// Takes the first data, the link to the process with privileges, and whether there is a password.
    #[must_use]
    pub fn new(settings: Settings, overview: Overview, link: Link, password: bool) -> Self {
        Self {
            gate: Gate::new(&settings.names),
            settings,
            overview: Mutex::new(overview),
            link,
            password,
            turns: Turns::new(Instant::now()),
            good: Mutex::default(),
        }
    }

    /// Asks the process with privileges.
    ///
    /// # Errors
    /// The process with privileges is gone.
    pub fn ask<T: DeserializeOwned>(&self, question: &Question) -> io::Result<T> {
        self.link.ask(question)
    }

    /// Whether a request from this page has a valid session.
    pub fn has_session(&self, head: &Head) -> bool {
        self.gate.check(head).is_ok() && self.session(head).is_some()
    }

    /// Answers a request from an address.
    pub fn answer(&self, head: &Head, body: &[u8], from: IpAddr) -> Answer {
        if let Err(refusal) = self.gate.check(head) {
            let (status, words) = refusal.words();
            return Answer::error(status, words);
        }
        let (now, network) = (Instant::now(), SourceNetwork::of(from));
        match (head.method, head.path.as_str()) {
            (Method::Get, "/") => return Answer::page(),
            (Method::Post, "/api/login") => return self.login(head, body, network, now),
            (Method::Get, "/metrics") => return self.metrics(head, from, now),
            _ => {}
        }
        let session = self.session(head);
        if self.password && session.is_none() {
            return Answer::error(401, "log in");
        }
        let is_session = session.is_some();
        let answer = match (head.method, head.path.as_str()) {
            (Method::Post, "/api/logout") => self.logout(session),
            (Method::Get, "/api/state") => self.state(head, is_session, now),
            (Method::Get, "/api/day") => Answer::json(lock(&self.overview).day.means()),
            (Method::Get, "/api/peers") => self.peers(&Wanted::new(head)),
            (Method::Post, HOME) => self.at_home(body, session),
            (Method::Get, path) if path.starts_with(HELP) => {
                match help::page(&path[HELP.len()..]) {
                    Some(text) => Answer::help(text),
                    None => Answer::error(404, "no such help"),
                }
            }
            _ => Answer::error(404, "no such page"),
        };
        answer.of_session(is_session)
    }

    /// The request's session, if it has a valid one.
    fn session(&self, head: &Head) -> Option<Secret> {
        let session = Secret::from(head.cookie(COOKIE)?);
        let has = self.ask(&Question::Session(session.clone()));
        has.unwrap_or(false).then_some(session)
    }

    /// Tries a password.
    fn try_password(
        &self,
        password: Secret,
        asker: Asker,
        network: SourceNetwork,
        now: Instant,
    ) -> Result<question::Login, Answer> {
        let mut login = None;
        let question = Question::Login(password);
        let looked = self.turns.take(asker, now, || {
            login = self.ask::<Option<question::Login>>(&question)?;
            Ok::<_, io::Error>(login.is_some())
        });
        match looked {
            Err(wait) => Err(too_often(wait)),
            Ok(Err(_)) => Err(gone()),
            Ok(Ok(_)) => login.ok_or_else(|| {
                let which = match asker {
                    Asker::Network(_) => "",
                    Asker::Known(_) => ", from a browser that has logged in before",
                };
                strangers::log(
                    Level::Warn,
                    format_args!("wrong password from {network}{which}"),
                );
                Answer::error(403, "wrong password")
            }),
        }
    }

    fn login(&self, head: &Head, body: &[u8], network: SourceNetwork, now: Instant) -> Answer {
        let Ok(login) = serde_json::from_slice::<Login>(body) else {
            return Answer::error(400, "not understood");
        };
        if !self.password {
            return Answer::error(409, "no password is set, so nobody can log in");
        }
        let asker = self.known(head).unwrap_or(Asker::Network(network));
        match self.try_password(login.password, asker, network, now) {
            Ok(login) => Answer::json(&json!({}))
                .with(
                    "Set-Cookie",
                    &format!("{COOKIE}={}; {COOKIE_RULES}", login.session.expose()),
                )
                .with(
                    "Set-Cookie",
                    &format!("{KNOWN}={}; {KNOWN_RULES}", login.known.expose()),
                )
                .of_session(true),
            Err(refused) => refused,
        }
    }

    /// The asking browser, if somebody has logged in with it before: guesses by others do not count against it.
    fn known(&self, head: &Head) -> Option<Asker> {
        let token = Secret::from(head.cookie(KNOWN)?);
        let digest = blake2s::hash(&[token.expose().as_bytes()]);
        let is_known = self.ask(&Question::Known(token)).unwrap_or(false);
        is_known.then_some(Asker::Known(digest))
    }

    fn logout(&self, session: Option<Secret>) -> Answer {
        if let Some(session) = session
            && self.ask::<()>(&Question::End(session)).is_err()
        {
            return gone();
        }
        let ended = format!("{COOKIE}=; Max-Age=0; {COOKIE_RULES}");
        Answer::json(&json!({})).with("Set-Cookie", &ended)
    }

    fn metrics(&self, head: &Head, from: IpAddr, now: Instant) -> Answer {
        if self.password
            && let Err(refused) = self.may_read_metrics(head, from, now)
        {
            return refused;
        }
        Answer::of(
            metrics::KIND,
            metrics::text(&lock(&self.overview)).into_bytes(),
        )
    }

    fn may_read_metrics(&self, head: &Head, from: IpAddr, now: Instant) -> Result<(), Answer> {
        let network = SourceNetwork::of(from);
        let digest = |text: &str| blake2s::hash(&[text.as_bytes()]);
        if self.session(head).is_some() {
            return Ok(());
        }
        let shown = shown(head).ok_or_else(|| {
            Answer::error(401, "log in, or send the token")
                .with("WWW-Authenticate", "Basic realm=\"Millrace\"")
        })?;
        let (Shown::Token(text) | Shown::Password(text)) = &shown;
        let seen = (from, digest(text));
        let equal = |it: &(IpAddr, [u8; 32])| it.0 == from && crypto::equal(&it.1, &seen.1);
        if lock(&self.good).iter().any(equal) {
            return Ok(());
        }
        let outcome = match &shown {
            Shown::Token(token) => {
                let wanted = self.settings.token.as_ref();
                // Equal-length digests are compared, so that the time reveals nothing about the token.
                let is = wanted.is_some_and(|it| crypto::equal(&digest(it), &digest(token)));
                self.try_token(is, network, now)
            }
            Shown::Password(password) => {
                let password = Secret::from(password.as_str());
                let login = self.try_password(password, Asker::Network(network), network, now);
                // A program needs no session.
                login.map(|login| drop(self.ask::<()>(&Question::End(login.session))))
            }
        };
        let mut good = lock(&self.good);
        match &outcome {
            Ok(()) => {
                good.truncate(PROGRAMS - 1);
                good.push_front(seen);
            }
            // A guesser may share its address with a program whose credentials are stored; they must not help it. Other
            // addresses keep theirs, as anyone in their network may be guessing.
            Err(_) => good.retain(|it| it.0 != from),
        }
        outcome
    }

    /// Checks a token, which a network may try as often as a password.
    fn try_token(&self, is: bool, network: SourceNetwork, now: Instant) -> Result<(), Answer> {
        let looked = self
            .turns
            .take(Asker::Network(network), now, || Ok::<_, Infallible>(is));
        match looked {
            Err(wait) => Err(too_often(wait)),
            Ok(Ok(true)) => Ok(()),
            Ok(_) => {
                strangers::log(Level::Warn, format_args!("wrong token from {network}"));
                Err(Answer::error(403, "wrong token"))
            }
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
            None => Answer::error(404, "this tunnel is not up"),
        }
    }

    /// Passes a question about the servers at home on, or a change of them.
    fn at_home(&self, body: &[u8], session: Option<Secret>) -> Answer {
        let asked: Option<AtHome> = serde_json::from_slice(body).ok();
        let Some(asked) = asked.filter(AtHome::is_bounded) else {
            return Answer::error(400, "not understood");
        };
        let answer = self.ask::<Result<Value, Refused>>(&Question::AtHome { session, asked });
        match answer {
            Ok(Ok(value)) => Answer::json(&value),
            Ok(Err(Refused::Session)) => Answer::error(401, "log in"),
            Ok(Err(Refused::Open)) => {
                let words = "set a password first to make changes here";
                Answer::error(403, words)
            }
            Ok(Err(Refused::Because(why))) => Answer::error(409, &why),
            Err(_) => gone(),
        }
    }
}

fn too_often(wait: Duration) -> Answer {
    // Rounded up: an earlier try would be refused again.
    let seconds = wait.as_millis().div_ceil(1000).max(1);
    let words = format!("too many attempts; try again in {seconds} s");
    Answer::error(429, &words).with("Retry-After", &seconds.to_string())
}

fn gone() -> Answer {
    Answer::error(503, "this server is shutting down")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::day::Day;
    use std::os::unix::net::UnixStream;

    const TOKEN: &str = "a token of more than 16 characters";

    /// A site with a password, whose other process is gone.
    fn site() -> Site {
        let (link, _) = UnixStream::pair().unwrap();
        let settings = Settings {
            token: Some(Zeroizing::new(TOKEN.to_owned())),
            ..Settings::default()
        };
        let overview = Overview::new(Instant::now(), Day::from_text(""));
        Site::new(settings, overview, Link::new(link).unwrap(), true)
    }

    fn metrics(site: &Site, token: &str, from: impl Into<IpAddr>) -> u16 {
        let text = format!(
            "GET /metrics HTTP/1.1\r\nHost: 10.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n"
        );
        let (head, _) = Head::parse(text.as_bytes()).unwrap().unwrap();
        site.answer(&head, &[], from.into()).status
    }

    #[test]
    fn tokens_are_guessed_no_faster_than_passwords() {
        let (site, guesser, program) = (site(), [10, 0, 0, 1], [10, 0, 0, 2]);
        assert_eq!(metrics(&site, TOKEN, program), 200);
        let told: Vec<u16> = (0..100)
            .map(|it| metrics(&site, &format!("{it}"), guesser))
            .collect();
        let looked_at = told.iter().filter(|it| **it == 403).count();
        assert!((1..10).contains(&looked_at), "{told:?}");
        // Accepting the correct token now would confirm the guess.
        assert_eq!(metrics(&site, TOKEN, guesser), 429);
        assert_eq!(metrics(&site, TOKEN, program), 200);
        // Guesses from the program's own network are limited too.
        for guess in 0..100 {
            metrics(&site, &format!("{guess}"), program);
        }
        assert_eq!(metrics(&site, TOKEN, program), 429);
    }

    #[test]
    fn guesses_of_a_neighbour_keep_no_program_out() {
        let site = site();
        let [program, neighbour] = [1, 2].map(|it| [0xfd00, 0, 0, 0, 0, 0, 0, it]);
        assert_eq!(metrics(&site, TOKEN, program), 200);
        for _ in 0..10 {
            metrics(&site, "a guess", neighbour);
            assert_eq!(metrics(&site, TOKEN, program), 200);
        }
    }

    #[test]
    fn guesses_from_many_networks_fill_no_log() {
        use std::sync::atomic::{AtomicUsize, Ordering};

        static LINES: AtomicUsize = AtomicUsize::new(0);
        struct Counter;
        impl log::Log for Counter {
            fn enabled(&self, _: &log::Metadata<'_>) -> bool {
                true
            }
            fn log(&self, _: &log::Record<'_>) {
                LINES.fetch_add(1, Ordering::Relaxed);
            }
            fn flush(&self) {}
        }
        log::set_logger(&Counter).unwrap();
        log::set_max_level(log::LevelFilter::Warn);
        let site = site();
        let told = (0..=255).map(|it| metrics(&site, "guess", [10, 1, 0, it]));
        assert_eq!(told.filter(|it| *it == 403).count(), 256);
        let lines = LINES.load(Ordering::Relaxed);
        assert!((1..128).contains(&lines), "{lines}");
    }
}
