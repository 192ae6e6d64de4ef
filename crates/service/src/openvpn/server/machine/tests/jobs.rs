//! Scripts and password checks that answer at once, later or never.

use crate::openvpn::seeded::Random;
use crate::openvpn::server::machine::{Done, Job, JobId, Login, Polled};
use openvpn_host::scripts::auth_script::{PendingAuth, Verdict};
use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

/// Answer that a script writes to its files, and when.
struct Later {
    /// `None` for never.
    at: Option<Instant>,
    login: bool,
    good: bool,
}

#[derive(Default)]
pub(super) struct Jobs {
    /// Jobs that have not ended and were not cancelled.
    pub(super) running: BTreeSet<JobId>,
    /// Jobs in `running` that notify and belong to no client.
    pub(super) told: BTreeSet<JobId>,
    files: HashMap<JobId, Later>,
    pub(super) started: u64,
    /// Number of judged logins.
    pub(super) logins: u64,
    pub(super) all_wrong: bool,
    /// `client-connect` scripts write no settings.
    pub(super) plain: bool,
    /// A script asks each client for a code, and waits for the answer.
    pub(super) asks: bool,
    /// Answers of clients that a script has received.
    pub(super) responses: Vec<String>,
    /// Fixed duration of every job; random if `None`.
    pub(super) takes: Option<Duration>,
    /// Number of verdicts that came in a file; `orphaned` counts cancelled jobs that still ended.
    pub(super) late_verdicts: u64,
    pub(super) orphaned: u64,
}

impl Jobs {
    /// Starts a job, or refuses it. Returns its duration and result; `None` if it never ends.
    pub(super) fn start(
        &mut self,
        id: JobId,
        job: &Job,
        random: &mut Random,
        troubled: bool,
    ) -> Result<Option<(Duration, Done)>, String> {
        assert!(id.0 >= self.started, "no two jobs have one number");
        self.started = id.0 + 1;
        if troubled && random.percent(2) {
            return Err("4096 scripts or password checks wait already".to_owned());
        }
        self.running.insert(id);
        let most = Duration::from_secs(if troubled { 4 } else { 1 });
        let time = match self.takes {
            Some(time) => time,
            None => random.within(most),
        };
        let luck = if troubled { random.below(100) } else { 0 };
        let done = match (job, luck) {
            (Job::Login(..) | Job::Settings(..), 98..) => return Ok(None),
            (Job::Login(auth, _), luck) => {
                self.logins += 1;
                let verdict = match luck {
                    _ if self.all_wrong => Verdict::Refused(None),
                    _ if self.asks => Verdict::Deferred,
                    0..80 => Verdict::Accepted,
                    80..88 => Verdict::Refused(Some("not today".to_owned())),
                    _ => Verdict::Deferred,
                };
                Done::Login(
                    *auth,
                    Login {
                        certificate: true,
                        answer: Ok((verdict, self.asks.then(challenge))),
                    },
                )
            }
            (Job::Settings(..), _) if self.plain => Done::Settings(Ok(Some(String::new()))),
            (Job::Settings(..), 0..80) => Done::Settings(Ok(Some(settings(random)))),
            (Job::Settings(..), 80..88) => Done::Settings(Err("not today".to_owned())),
            (Job::Settings(..), _) => Done::Settings(Ok(None)),
            (Job::Tell(_), 90..) => {
                self.told.insert(id);
                Done::Told(Err("it failed".to_owned()))
            }
            (Job::Tell(_), _) => {
                self.told.insert(id);
                Done::Told(Ok(()))
            }
            (Job::Respond { auth, response, .. }, _) => {
                self.responses.push(response.clone());
                let told = match response.as_str() {
                    "broken" => Err("it failed".to_owned()),
                    _ => Ok(()),
                };
                Done::Responded(*auth, told)
            }
        };
        Ok(Some((time, done)))
    }

    /// Handles a job's end. An undecided answer appears in its files later, or never.
    pub(super) fn ended(&mut self, id: JobId, done: &Done, now: Instant, random: &mut Random) {
        self.orphaned += u64::from(!self.running.remove(&id));
        self.told.remove(&id);
        let login = match done {
            Done::Login(_, login) => matches!(login.answer, Ok((Verdict::Deferred, _))),
            Done::Settings(Ok(None)) => false,
            _ => return,
        };
        if !login && !matches!(done, Done::Settings(_)) {
            return;
        }
        let after = random.within(Duration::from_secs(50));
        let later = Later {
            at: (!random.percent(20)).then_some(now + after),
            login,
            good: random.percent(80),
        };
        self.files.insert(id, later);
    }

    pub(super) fn poll(&mut self, id: JobId, now: Instant) -> Option<Polled> {
        let later = self.files.get(&id)?;
        let said = later.at.is_some_and(|at| at <= now);
        self.late_verdicts += u64::from(said);
        Some(match (later.login, said, later.good) {
            (true, false, _) => Polled::Login(Verdict::Deferred),
            (true, true, true) => Polled::Login(Verdict::Accepted),
            (true, true, false) => Polled::Login(Verdict::Refused(None)),
            (false, false, _) => Polled::Settings(Ok(None)),
            (false, true, good) => {
                self.files.remove(&id);
                let settings = if good {
                    Ok(Some(String::new()))
                } else {
                    Err("no".to_owned())
                };
                Polled::Settings(settings)
            }
        })
    }

    pub(super) fn forget(&mut self, id: JobId) {
        self.files.remove(&id);
    }

    pub(super) fn files(&self) -> BTreeSet<JobId> {
        self.files.keys().copied().collect()
    }
}

/// Asks the client for a code.
fn challenge() -> PendingAuth {
    PendingAuth {
        timeout: 60,
        method: "crtext".to_owned(),
        extra: "CR_TEXT:E,R:the code".to_owned(),
    }
}

fn settings(random: &mut Random) -> String {
    match random.below(4) {
        0 => "push \"route 192.168.7.0 255.255.255.0\"\n".to_owned(),
        1 => format!("iroute 172.16.{}.0 255.255.255.0\n", random.below(250)),
        _ => String::new(),
    }
}
