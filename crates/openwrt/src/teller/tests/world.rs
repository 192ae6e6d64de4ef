//! A teller, ubus and netifd on a simulated clock.

use super::*;
use std::collections::BTreeSet;

/// Steps in one schedule.
const STEPS: usize = 40;

/// Time without trouble after which everything must be settled.
const CALM: Duration = Duration::from_secs(60);

/// xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }
}

/// A message in transit, with its connection.
#[derive(Debug)]
enum Travels {
    Greeting(u64),
    Call(u64, Vec<(String, Value)>),
    Answer(u64, Status, Value),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Netifd {
    Setup,
    Up,
    Teardown,
}

pub(super) struct World {
    seed: u64,
    random: Random,
    now: Instant,
    teller: Teller,
    /// Current state of the tunnel; `None` while its link is lost.
    wanted: Option<Update>,
    last: Update,
    netifd: Netifd,
    /// Routes that netifd has set.
    has: BTreeSet<String>,
    /// netifd's name servers: one that is added twice is listed twice.
    dns: Vec<String>,
    /// Errors in netifd's list.
    errors: Vec<Fault>,
    /// Faults of the tunnel at present, one for each source.
    faults: BTreeSet<&'static str>,
    shielded: bool,
    /// Process to which the device belongs.
    device: u64,
    process: u64,
    taken: u64,
    /// How often netifd was expected to take the device.
    expected: u64,
    /// Time at which ubus is available again.
    ubus_back: Option<Instant>,
    connection: u64,
    connected: bool,
    travelling: Vec<(Instant, Travels)>,
    calls: u64,
    /// Events that may each cause calls.
    happened: u64,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let now = Instant::now();
        let last = update(&[1, 2, 3]);
        Self {
            seed,
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            now,
            teller: Teller::new("office", now),
            wanted: Some(last.clone()),
            last,
            netifd: Netifd::Setup,
            has: BTreeSet::new(),
            dns: Vec::new(),
            errors: Vec::new(),
            faults: BTreeSet::new(),
            shielded: false,
            device: 0,
            process: 1,
            taken: 0,
            expected: 1,
            ubus_back: None,
            connection: 0,
            connected: false,
            travelling: Vec::new(),
            calls: 0,
            happened: 1,
        }
    }

    pub(super) fn run(mut self) {
        self.handle(Event::Up(self.last.clone()));
        for _ in 0..STEPS {
            let pause = Duration::from_millis(self.random.below(3000));
            self.pass(pause);
            self.trouble();
        }
        // A stopped interface comes back.
        if self.netifd == Netifd::Teardown {
            self.start_process();
        }
        self.pass(CALM);
        if self.teller.is_stale() {
            match self.netifd {
                Netifd::Up => {
                    self.expected += 1;
                    self.handle(Event::Anew);
                }
                _ => self.start_process(),
            }
            self.pass(CALM);
        }
        let seed = self.seed;
        let mut errors: Vec<&str> = self.errors.iter().map(|it| it.words.as_str()).collect();
        errors.sort_unstable();
        let faults: Vec<&str> = self.faults.iter().copied().collect();
        assert_eq!(errors, faults, "{seed}");
        assert!(!self.shielded && !self.teller.is_stale(), "{seed}");
        assert!(self.teller.is_done(), "{seed}: {:?}", self.teller);
        match &self.wanted {
            Some(wanted) => {
                assert_eq!(self.netifd, Netifd::Up, "{seed}");
                let wanted = wanted.to_arguments("office");
                assert_eq!(self.has, routes(&wanted), "{seed}");
                assert_eq!(self.dns, name_servers(&wanted), "{seed}");
            }
            None => assert!(
                self.netifd != Netifd::Up && self.has.is_empty() && self.dns.is_empty(),
                "{seed}"
            ),
        }
        assert!(
            self.taken <= self.expected,
            "{seed}: {} {}",
            self.taken,
            self.expected
        );
        assert!(
            self.calls <= 4 * self.happened + 40,
            "{seed}: {}",
            self.calls
        );
    }

    fn trouble(&mut self) {
        self.happened += 1;
        match self.random.below(10) {
            // A changed configuration.
            0 | 1 => {
                let all = [1, 2, 3, 4, 5];
                let routes = all.into_iter().filter(|_| self.random.below(2) == 0);
                self.last = update(&routes.collect::<Vec<u8>>());
                if self.wanted.is_some() {
                    self.wanted = Some(self.last.clone());
                    self.handle(Event::Up(self.last.clone()));
                }
            }
            // `renew` without a change.
            2 => {
                if let Some(wanted) = self.wanted.clone() {
                    self.handle(Event::Up(wanted));
                }
            }
            // The link is lost or comes back.
            3 | 4 => match self.wanted.take() {
                Some(_) => self.handle(Event::Lost),
                None => {
                    self.wanted = Some(self.last.clone());
                    self.expected += 1;
                    self.handle(Event::Up(self.last.clone()));
                }
            },
            5 => {
                let pause = Duration::from_millis(self.random.below(8000));
                self.ubus_back = Some(self.now + pause);
                self.cut();
            }
            // netifd restarts, and its ubus objects are gone meanwhile. It then sets the interface up, and ends this
            // process sooner or later.
            6 => {
                self.netifd = Netifd::Setup;
                self.flush();
                self.errors.clear();
                self.device = 0;
                self.expected += 1;
                let pause = Duration::from_millis(self.random.below(500));
                self.pass(pause);
                self.start_process();
            }
            // A fault comes or is mended.
            8 => {
                let source = ["config", "uplink", "answer"][self.random.below(3) as usize];
                if !self.faults.remove(source) {
                    self.faults.insert(source);
                }
                self.tell_fault(source);
            }
            // Another program disturbs the device.
            9 => {
                self.expected += u64::from(self.wanted.is_some());
                self.handle(Event::Anew);
            }
            // The process dies, or `ifdown` and `ifup`.
            _ => {
                if self.random.below(2) == 0 {
                    self.netifd = Netifd::Teardown;
                    let pause = Duration::from_millis(self.random.below(2000));
                    self.pass(pause);
                }
                self.start_process();
            }
        }
    }

    fn tell_fault(&mut self, source: &'static str) {
        let list = self.faults.get(source).map(|it| fault(it));
        self.handle(Event::Faults(source, list.into_iter().collect()));
    }

    fn start_process(&mut self) {
        self.handle(Event::End);
        self.cut();
        self.netifd = Netifd::Setup;
        self.flush();
        self.errors.clear();
        self.process += 1;
        self.expected += 1;
        self.happened += 2;
        self.teller = Teller::new("office", self.now);
        self.handle(Event::Start);
        for source in self.faults.clone() {
            self.tell_fault(source);
        }
        if let Some(wanted) = self.wanted.clone() {
            self.handle(Event::Up(wanted));
        }
    }

    /// Ends the connection.
    fn cut(&mut self) {
        self.connection += 1;
        self.travelling.clear();
        if std::mem::take(&mut self.connected) {
            self.handle(Event::Disconnected);
        }
    }

    fn handle(&mut self, event: Event) {
        let mut effects = Vec::new();
        self.teller.handle(event, self.now, &mut effects);
        for effect in effects {
            match effect {
                Effect::Connect if self.ubus_back.is_some() => self.handle(Event::Disconnected),
                Effect::Connect => {
                    self.connected = true;
                    self.connection += 1;
                    self.send(Travels::Greeting(self.connection));
                }
                Effect::Disconnect => {
                    self.connected = false;
                    self.connection += 1;
                }
                Effect::Shield(wanted) => {
                    assert_ne!(self.shielded, wanted, "{}", self.seed);
                    self.shielded = wanted;
                }
                Effect::Set => {}
                Effect::Ask => self.call(Vec::new()),
                Effect::Call(arguments) => self.call(arguments),
                Effect::Log(..) => {}
            }
        }
    }

    /// Makes a call; without arguments, of `status`.
    fn call(&mut self, arguments: Vec<(String, Value)>) {
        let one = |it: &(Instant, Travels)| matches!(it.1, Travels::Call(..) | Travels::Answer(..));
        let under_way = self.travelling.iter().any(one);
        assert!(self.connected && !under_way, "{}", self.seed);
        self.calls += 1;
        self.send(Travels::Call(self.connection, arguments));
    }

    fn send(&mut self, what: Travels) {
        let pause = Duration::from_micros(100 + self.random.below(50_000));
        self.travelling.push((self.now + pause, what));
    }

    /// Lets time pass and handles all that is due.
    fn pass(&mut self, pause: Duration) {
        let end = self.now + pause;
        loop {
            let deadline = self.teller.deadline();
            let arrival = self.travelling.iter().map(|it| it.0).min();
            let next = [deadline, arrival, self.ubus_back]
                .into_iter()
                .flatten()
                .min();
            let Some(next) = next.filter(|at| *at <= end) else {
                self.now = end;
                return;
            };
            self.now = self.now.max(next);
            if self.ubus_back.is_some_and(|at| at <= self.now) {
                self.ubus_back = None;
            }
            let arrived = |it: &(Instant, Travels)| it.0 <= self.now;
            if let Some(at) = self.travelling.iter().position(arrived) {
                let (_, what) = self.travelling.swap_remove(at);
                self.arrive(what);
            }
            if self.teller.deadline().is_some_and(|at| at <= self.now) {
                self.handle(Event::Deadline);
            }
        }
    }

    fn arrive(&mut self, what: Travels) {
        let (Travels::Greeting(of) | Travels::Call(of, _) | Travels::Answer(of, ..)) = &what;
        if *of != self.connection {
            return;
        }
        match what {
            Travels::Greeting(_) => self.handle(Event::Connected),
            Travels::Call(of, arguments) => {
                let (status, data) = match arguments.is_empty() {
                    true => {
                        let errors: Vec<&str> = self.errors.iter().map(|it| &*it.words).collect();
                        let Event::Answered(status, data) = listed(&errors) else {
                            unreachable!()
                        };
                        (status, data)
                    }
                    false => (self.notified(&arguments), Value::Null),
                };
                self.send(Travels::Answer(of, status, data));
            }
            Travels::Answer(_, status, data) => self.handle(Event::Answered(status, data)),
        }
    }

    /// netifd's side of `notify_proto`.
    fn notified(&mut self, arguments: &[(String, Value)]) -> Status {
        let all = Value::Table(arguments.to_vec());
        let number = |name: &str| all.field(name).and_then(Value::as_number);
        if number("action") == Some(3) {
            let error = all.field("error").map(Value::items).unwrap_or_default();
            self.errors.push(fault(error[1].as_text().unwrap()));
            return Status::Ok;
        }
        if self.netifd == Netifd::Teardown {
            return Status::PermissionDenied;
        }
        assert_eq!(number("action"), Some(0), "{}", self.seed);
        if number("link-up") == Some(0) {
            self.netifd = Netifd::Setup;
            self.flush();
            return Status::Ok;
        }
        let keep = number("keep") == Some(1) && self.netifd == Netifd::Up;
        if !keep && (self.device != self.process || self.netifd != Netifd::Up) {
            self.device = self.process;
            self.taken += 1;
        }
        // netifd clears its list when the interface comes up, and only then.
        if self.netifd != Netifd::Up {
            self.errors.clear();
        }
        self.netifd = Netifd::Up;
        // With `keep` netifd removes nothing.
        if !keep {
            self.flush();
        }
        self.has.extend(routes(arguments));
        self.dns.extend(name_servers(arguments));
        Status::Ok
    }

    /// netifd removes all its settings from the interface.
    fn flush(&mut self) {
        self.has.clear();
        self.dns.clear();
    }
}

fn name_servers(arguments: &[(String, Value)]) -> Vec<String> {
    let all = Value::Table(arguments.to_vec());
    let list = all.field("dns").map(Value::items).unwrap_or_default();
    let texts = list.iter().filter_map(Value::as_text);
    texts.map(str::to_owned).collect()
}

fn routes(arguments: &[(String, Value)]) -> BTreeSet<String> {
    let all = Value::Table(arguments.to_vec());
    let list = all.field("routes").map(Value::items).unwrap_or_default();
    let target = |it: &Value| {
        it.field("target")
            .and_then(Value::as_text)
            .map(str::to_owned)
    };
    list.iter().filter_map(target).collect()
}
