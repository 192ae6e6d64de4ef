//! One end: an exchange, and a model of WireGuard around it.

use crypto::Key;
use crypto::mlkem::{CIPHERTEXT_LEN, DecapsulationKey, ENCAPSULATION_KEY_LEN, Refused};
use postquantum::{Computed, Effect, Exchange, Job, KeyId, Outcome, Session, Settings, Task};
use std::collections::HashMap;
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    Native,
    /// A companion sets the key of a kernel.
    Single,
    /// No exchange at all.
    Plain,
}

#[derive(Clone, Debug)]
pub(crate) enum Inside {
    Empty,
    User,
    Exchange(Vec<u8>),
}

#[derive(Clone, Debug)]
pub(crate) enum Packet {
    /// Message 1, named by its initiator.
    Initiation(u64),
    /// Message 2, its key in clear.
    Response(u64, Key),
    Data {
        session: u64,
        /// A receiver whose session has another key cannot open the packet.
        under: KeyId,
        base: bool,
        inside: Inside,
    },
}

/// A session. Each message 1 makes one at most.
#[derive(Clone, Copy, Debug)]
struct Keys {
    session: u64,
    under: KeyId,
    base: bool,
    initiator: bool,
    created: Instant,
    /// When message 1 was sent or answered.
    began: Instant,
}

#[derive(Debug)]
pub(crate) struct End {
    pub(crate) slot: Slot,
    pub(crate) require: bool,
    keys: ([u8; 32], [u8; 32]),
    exchange: Exchange,
    jobs: Vec<Job>,
    pub(crate) out: Vec<Packet>,
    current: Option<Keys>,
    previous: Option<Keys>,
    /// The responder's, not used yet.
    next: Option<Keys>,
    asked: Option<(u64, Instant)>,
    /// The last message 1 that came: older ones, and copies, are refused.
    seen: u64,
    wants: bool,
    unanswered: Option<Instant>,
    number: u64,
    /// The kernel's slot, and when it was set.
    held: Key,
    /// The kernel had a handshake that the companion has not seen.
    handshake: bool,
    looked: Option<Instant>,
    /// When the first and the last message of a handshake came that led to no session.
    stalls: Option<(Instant, Instant)>,
    /// A session has begun.
    pub(crate) began: bool,
}

fn exchange(keys: ([u8; 32], [u8; 32]), slot: Slot) -> Exchange {
    Exchange::new(Settings {
        own: keys.0,
        peer: keys.1,
        base: Key::ZERO,
        single_slot: slot == Slot::Single,
        room: 1372,
        pad: false,
    })
}

impl End {
    pub(crate) fn new(keys: ([u8; 32], [u8; 32]), slot: Slot, require: bool) -> Self {
        Self {
            slot,
            require,
            keys,
            exchange: exchange(keys, slot),
            jobs: Vec::new(),
            out: Vec::new(),
            current: None,
            previous: None,
            next: None,
            asked: None,
            seen: 0,
            wants: false,
            unanswered: None,
            number: u64::from(keys.0[0]) << 32,
            held: Key::ZERO,
            handshake: false,
            looked: None,
            stalls: None,
            began: false,
        }
    }

    /// Loses the memory: of the companion, or of the whole machine.
    pub(crate) fn restart(&mut self, power_cut: bool) {
        if self.slot == Slot::Single && !power_cut {
            self.exchange = exchange(self.keys, self.slot);
            self.exchange.resume(self.held.clone());
            self.jobs.clear();
            return;
        }
        let number = self.number + 1000;
        *self = Self::new(self.keys, self.slot, self.require);
        self.number = number;
    }

    pub(crate) fn is_protected(&self) -> bool {
        self.exchange.status().protected == Some(true)
    }

    fn carries_users(&self, keys: &Keys) -> bool {
        !(self.require && keys.base)
    }

    pub(crate) fn user_packet(&mut self, now: Instant) {
        let usable = |keys: &&Keys| now < keys.created + SECOND * 180;
        match self.current.filter(|keys| usable(&keys)) {
            Some(keys) if self.carries_users(&keys) => {
                self.send(keys, Inside::User);
                self.unanswered.get_or_insert(now);
                if keys.initiator && now > keys.created + SECOND * 120 {
                    self.initiate(now);
                }
            }
            Some(_) => {
                let mut out = Vec::new();
                self.exchange.wanted(now, &mut out);
                self.carry_out(out, now);
            }
            None => self.initiate(now),
        }
    }

    fn send(&mut self, keys: Keys, inside: Inside) {
        self.out.push(Packet::Data {
            session: keys.session,
            under: keys.under,
            base: keys.base,
            inside,
        });
    }

    fn initiate(&mut self, now: Instant) {
        self.wants = true;
        if self.asked.is_none_or(|(_, at)| now >= at + SECOND * 5) {
            self.number += 1;
            self.asked = Some((self.number, now));
            self.out.push(Packet::Initiation(self.number));
        }
    }

    fn carry_out(&mut self, effects: Vec<Effect>, now: Instant) {
        for effect in effects {
            match effect {
                Effect::Send(bytes) => {
                    if let Some(keys) = self.current.filter(|it| now < it.created + SECOND * 180) {
                        self.send(keys, Inside::Exchange(bytes));
                        self.unanswered.get_or_insert(now);
                    }
                }
                Effect::Compute(job) => self.jobs.push(job),
                Effect::Use(key) => {
                    assert_eq!(self.slot, Slot::Single);
                    (self.held, self.handshake) = (key, false);
                }
                Effect::Handshake => {
                    assert_eq!(self.slot, Slot::Native);
                    self.asked = None;
                    self.initiate(now);
                }
            }
        }
    }

    /// Takes a packet. Returns whether its keys are known, or message 2 was opened.
    pub(crate) fn receive(&mut self, packet: Packet, now: Instant) -> Option<bool> {
        match packet {
            Packet::Initiation(session) if session <= self.seen => None,
            Packet::Initiation(session) => {
                self.seen = session;
                let (under, key) = match self.slot {
                    Slot::Native => {
                        let (under, key) = self.exchange.answer();
                        (under, key.clone())
                    }
                    _ => (KeyId::of(&self.held), self.held.clone()),
                };
                let base = under == self.exchange.base();
                self.stalls.get_or_insert((now, now)).1 = now;
                self.next = Some(Keys {
                    session,
                    under,
                    base,
                    initiator: false,
                    created: now,
                    began: now,
                });
                self.out.push(Packet::Response(session, key));
                None
            }
            Packet::Response(session, key) => {
                let asked = self.asked.filter(|(number, _)| *number == session);
                let (_, sent) = asked?;
                let under = match self.slot {
                    Slot::Native => self
                        .exchange
                        .candidates()
                        .find(|(_, it)| **it == key)
                        .map(|(id, _)| id),
                    _ => (self.held == key).then(|| KeyId::of(&key)),
                };
                let Some(under) = under else {
                    self.stalls.get_or_insert((now, now)).1 = now;
                    return Some(false);
                };
                // Each message 1 has one answer.
                self.asked = Some((0, now));
                self.wants = false;
                let base = under == self.exchange.base();
                let keys = Keys {
                    session,
                    under,
                    base,
                    initiator: true,
                    created: now,
                    began: sent,
                };
                self.begin(keys, now);
                self.send(keys, Inside::Empty);
                Some(true)
            }
            Packet::Data {
                session,
                under,
                inside,
                ..
            } => {
                let opens = |it: &Keys| it.session == session && it.under == under;
                if self.next.as_ref().is_some_and(opens)
                    && let Some(next) = self.next.take()
                {
                    self.wants = false;
                    self.begin(next, now);
                }
                let known = [self.current, self.previous].into_iter().flatten();
                let keys = known
                    .filter(|it| now < it.created + SECOND * 180)
                    .find(opens)?;
                self.unanswered = None;
                match inside {
                    Inside::User if !self.carries_users(&keys) => return None,
                    Inside::Exchange(bytes) if self.slot != Slot::Plain => {
                        let mut out = Vec::new();
                        self.exchange.received(&bytes, now, &mut out);
                        self.carry_out(out, now);
                    }
                    _ => {}
                }
                Some(true)
            }
        }
    }

    fn begin(&mut self, keys: Keys, now: Instant) {
        self.began = true;
        self.previous = self.current.replace(keys);
        self.unanswered = None;
        match self.slot {
            Slot::Native => {
                let session = Session {
                    initiator: keys.initiator,
                    under: keys.under,
                    began: keys.began,
                };
                let mut out = Vec::new();
                self.exchange.session(session, now, &mut out);
                self.carry_out(out, now);
            }
            _ => (self.handshake, self.stalls) = (true, None),
        }
    }

    /// Timers, jobs, and the companion's look at its kernel.
    pub(crate) fn step(&mut self, now: Instant, slow: bool, cipher: &mut Cipher) {
        if self.wants && self.asked.is_some_and(|(_, at)| now >= at + SECOND * 5) {
            self.initiate(now);
        }
        if self.unanswered.is_some_and(|at| now >= at + SECOND * 15) {
            self.unanswered = None;
            self.initiate(now);
        }
        if self.slot == Slot::Plain {
            return;
        }
        let mut out = Vec::new();
        if self.exchange.next_deadline().is_some_and(|at| at <= now) {
            self.exchange.expired(now, &mut out);
        }
        if !slow {
            for job in std::mem::take(&mut self.jobs) {
                self.exchange.computed(cipher.run(job), now, &mut out);
            }
        }
        if self.slot == Slot::Single && self.looked.is_none_or(|at| now >= at + SECOND) {
            self.looked = Some(now);
            if std::mem::take(&mut self.handshake) {
                // A companion cannot see under which key it was: the answer may have left before the key was set.
                let under = self.exchange.slot();
                let session = Session {
                    initiator: true,
                    under,
                    began: now,
                };
                self.exchange.session(session, now, &mut out);
            }
            let over = |it: &mut (Instant, Instant)| now >= it.0 + SECOND * 10;
            if let Some((first, last)) = self.stalls.take_if(over)
                && last >= first + SECOND * 4
            {
                self.exchange.stalled(&mut out);
            }
        }
        self.carry_out(out, now);
    }
}

/// ML-KEM with a few real key pairs, used over and over: keys need not differ here, exchanges do.
#[derive(Default)]
pub(crate) struct Cipher {
    secrets: HashMap<Vec<u8>, Key>,
    number: u64,
}

impl Cipher {
    fn run(&mut self, job: Job) -> Outcome {
        thread_local! {
            static PAIR: Box<[u8; ENCAPSULATION_KEY_LEN]> = DecapsulationKey::generate().unwrap().1;
        }
        let result = match job.task {
            Task::Generate => {
                let (private, _) = DecapsulationKey::generate().unwrap();
                Ok(Computed::Generated(private, PAIR.with(Box::clone)))
            }
            Task::Encapsulate(_) => {
                self.number += 1;
                let mut ciphertext = Box::new([0; CIPHERTEXT_LEN]);
                ciphertext[..8].copy_from_slice(&self.number.to_le_bytes());
                let mut secret = [7; 32];
                secret[..8].copy_from_slice(&self.number.to_le_bytes());
                self.secrets.insert(ciphertext.to_vec(), Key::from(secret));
                Ok(Computed::Encapsulated(ciphertext, Key::from(secret)))
            }
            Task::Decapsulate(_, ciphertext) => {
                let secret = self.secrets.get(&ciphertext[..]).cloned();
                secret.map(Computed::Decapsulated).ok_or(Refused)
            }
        };
        Outcome { id: job.id, result }
    }
}
