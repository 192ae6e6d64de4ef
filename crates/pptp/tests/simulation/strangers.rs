//! The cost of strangers who can reach the port; clients must still connect.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use pptp::control::{CloseReason, Connection, Event, Role, Settings};
use pptp::mschap::Password;
use pptp::session::{
    Client, ClientSettings, ConnectionId, DownReason, Ends, LinkOutput, LoginError, Server,
    ServerOutput, ServerSettings,
};

use crate::world::{
    DOMAIN_USERS, OTHER_USER, PASSWORD, USER, accounts, client_settings, entropy, server_settings,
};

const ATTACKER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 66);
const CLIENT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const OTHER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 3);

/// The caller's end of a control connection to the server.
enum Caller {
    /// A caller that sends nothing.
    Silent,
    /// A control connection without data calls.
    Calls(Box<Connection>),
    Client(Box<Client>),
}

/// A server and its callers. The clock advances only while the test waits.
struct Street {
    now: Instant,
    server: Server,
    callers: Vec<(ConnectionId, Ipv4Addr, Caller)>,
    /// GRE packets in transit: whether to the server, the client's address, the packet.
    wire: VecDeque<(bool, Ipv4Addr, Vec<u8>)>,
    up: Vec<(Instant, Ipv4Addr)>,
    down: Vec<(Ipv4Addr, DownReason)>,
    closed: Vec<(ConnectionId, CloseReason)>,
}

impl Street {
    fn new(settings: ServerSettings) -> Self {
        Self {
            now: Instant::now(),
            server: Server::new(settings, accounts(), entropy(7)).unwrap(),
            callers: Vec::new(),
            wire: VecDeque::new(),
            up: Vec::new(),
            down: Vec::new(),
            closed: Vec::new(),
        }
    }

    fn call(&mut self, from: Ipv4Addr, caller: Caller) -> ConnectionId {
        let id = self.connect(from, caller);
        self.settle();
        id
    }

    fn connect(&mut self, from: Ipv4Addr, caller: Caller) -> ConnectionId {
        let mut out = Vec::new();
        let id = self.server.accept(Ends::from(from), self.now, &mut out);
        self.callers.push((id, from, caller));
        self.take(out);
        id
    }

    fn client(&mut self, from: Ipv4Addr, user: &str, password: &str) -> ConnectionId {
        let client = self.new_client(user, password);
        self.call(from, client)
    }

    fn new_client(&self, user: &str, password: &str) -> Caller {
        let mut settings = ClientSettings::new(user.into(), Password::new(password.into()));
        settings.common = client_settings().common;
        let seed = (self.callers.len() + self.closed.len()) as u64;
        let client = Client::new(settings, entropy(seed), self.now).unwrap();
        Caller::Client(Box::new(client))
    }

    /// Opens a connection that requests `count` calls and sends nothing else.
    fn calls(&mut self, from: Ipv4Addr, count: u16) -> ConnectionId {
        let settings = Settings {
            max_calls: u16::MAX,
            ..Settings::default()
        };
        let connection = Connection::new(Role::Client, settings, self.now);
        let id = self.call(from, Caller::Calls(Box::new(connection)));
        for call in 0..count {
            if let Some(connection) = self.connection(id) {
                let _ = connection.open_call(call, Instant::now());
            }
            self.settle();
        }
        id
    }

    fn connection(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        let caller = self.callers.iter_mut().find(|it| it.0 == id)?;
        match &mut caller.2 {
            Caller::Calls(connection) => Some(connection),
            _ => None,
        }
    }

    fn take(&mut self, out: Vec<ServerOutput>) {
        for output in out {
            match output {
                ServerOutput::Gre { to, packet } => {
                    self.wire.push_back((false, to.theirs, packet));
                }
                ServerOutput::Up { call, .. } => {
                    let from = self.server.client_of(call).unwrap();
                    self.up.push((self.now, from));
                }
                ServerOutput::Down { client, reason, .. } => self.down.push((client, reason)),
                ServerOutput::Closed { connection, reason } => {
                    self.closed.push((connection, reason));
                    self.server.forget(connection);
                    self.callers.retain(|it| it.0 != connection);
                }
                _ => {}
            }
        }
    }

    fn answer(&mut self, from: Ipv4Addr, answers: Vec<LinkOutput>) {
        for answer in answers {
            if let LinkOutput::Gre(packet) = answer {
                self.wire.push_back((true, from, packet));
            }
        }
    }

    /// Delivers all GRE packets in order, including the replies to them.
    fn deliver(&mut self) {
        while let Some((to_server, client, mut packet)) = self.wire.pop_front() {
            let (mut out, mut answers) = (Vec::new(), Vec::new());
            if to_server {
                self.server
                    .receive_gre(client, &mut packet, self.now, &mut out);
            } else {
                for (_, at, caller) in &mut self.callers {
                    if let Caller::Client(found) = caller
                        && *at == client
                    {
                        // The client recognises its own packets by the call ID.
                        found.receive_gre(&mut packet.clone(), self.now, &mut answers);
                    }
                }
            }
            self.answer(client, answers);
            self.take(out);
        }
    }

    /// Delivers control connection messages until there are none.
    fn settle(&mut self) {
        loop {
            self.deliver();
            let mut said = Vec::new();
            for (id, from, caller) in &mut self.callers {
                let bytes = match caller {
                    Caller::Silent => Vec::new(),
                    Caller::Calls(connection) => {
                        let bytes = connection.transmit().to_vec();
                        connection.transmitted(bytes.len());
                        bytes
                    }
                    Caller::Client(client) => {
                        let bytes = client.transmit().to_vec();
                        client.transmitted(bytes.len());
                        bytes
                    }
                };
                let answer = self.server.transmit(*id).to_vec();
                self.server.transmitted(*id, answer.len());
                if bytes.len() + answer.len() > 0 {
                    said.push((*id, *from, bytes, answer));
                }
            }
            if said.is_empty() {
                return;
            }
            for (id, from, bytes, answer) in said {
                let (mut out, mut answers) = (Vec::new(), Vec::new());
                self.server.receive_control(id, &bytes, self.now, &mut out);
                let caller = self.callers.iter_mut().find(|it| it.0 == id);
                match caller.map(|it| &mut it.2) {
                    Some(Caller::Client(client)) => {
                        client.receive_control(&answer, self.now, &mut answers);
                    }
                    Some(Caller::Calls(connection)) => {
                        connection.receive(&answer, self.now);
                        while let Some(event) = connection.poll_event() {
                            if let Event::CallUp { call_id, .. } = event {
                                assert!(call_id < u16::MAX);
                            }
                        }
                    }
                    _ => {}
                }
                self.answer(from, answers);
                self.take(out);
            }
        }
    }

    /// Lets time pass.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let clients = self.callers.iter().filter_map(|it| match &it.2 {
                Caller::Client(client) => client.deadline(),
                _ => None,
            });
            let next = clients.chain(self.server.deadline()).min();
            let Some(next) = next.filter(|next| *next <= end) else {
                break;
            };
            self.now = self.now.max(next);
            let mut out = Vec::new();
            self.server.expire(self.now, &mut out);
            self.take(out);
            let mut all = Vec::new();
            for (_, from, caller) in &mut self.callers {
                if let Caller::Client(client) = caller {
                    let mut answers = Vec::new();
                    client.expire(self.now, &mut answers);
                    all.push((*from, answers));
                }
            }
            for (from, answers) in all {
                self.answer(from, answers);
            }
            self.settle();
        }
        self.now = end;
    }

    /// Number of calls that the server has.
    fn calls_there(&self) -> usize {
        self.server.occupancy().0
    }

    fn free(&self) -> usize {
        self.server.occupancy().1
    }

    /// Returns whether a client at this address connects within five seconds.
    fn gets_in(&mut self, from: Ipv4Addr) -> bool {
        let before = self.up.len();
        self.client(from, USER, PASSWORD);
        self.pass(Duration::from_secs(5));
        self.up[before..].iter().any(|(_, it)| *it == from)
    }
}

#[test]
fn a_client_gets_in_and_out() {
    let mut street = Street::new(server_settings());
    assert!(street.gets_in(CLIENT));
    assert_eq!((street.calls_there(), street.free()), (1, 3));
    street.pass(Duration::from_secs(600));
    assert_eq!((street.calls_there(), street.free()), (1, 3), "it stays");
}

#[test]
fn calls_without_a_login_hold_no_address_and_are_few() {
    let mut street = Street::new(server_settings());
    for _ in 0..6 {
        street.calls(ATTACKER, 10);
    }
    assert_eq!((street.calls_there(), street.free()), (6, 4));
    assert!(street.gets_in(CLIENT));
    assert_eq!(street.free(), 3);
    street.pass(Duration::from_secs(120));
    assert_eq!((street.calls_there(), street.free()), (1, 3));
}

#[test]
fn a_connection_that_asks_for_call_after_call_is_closed() {
    let mut street = Street::new(server_settings());
    let id = street.calls(ATTACKER, 0);
    for call in 0..10_000 {
        let now = street.now;
        if let Some(connection) = street.connection(id) {
            let _ = connection.open_call(call, now);
        }
        street.settle();
        if let Some(connection) = street.connection(id) {
            connection.clear_call(call, now);
        }
        street.settle();
    }
    assert_eq!(street.closed, [(id, CloseReason::TooManyCalls)]);
    assert!(street.down.len() <= 17, "{}", street.down.len());
    assert_eq!((street.calls_there(), street.free()), (0, 4));
}

#[test]
fn idle_connections_lock_nobody_out_wherever_they_come_from() {
    for sources in [1, 2, 64, 500] {
        let mut street = Street::new(server_settings());
        for at in 0..500_u32 {
            let from = Ipv4Addr::from(u32::from(ATTACKER) - at % sources);
            street.call(from, Caller::Silent);
        }
        assert!(street.callers.len() <= 64);
        assert_eq!(street.server.turned_away(), 436);
        assert!(street.gets_in(CLIENT), "{sources} sources");
        assert!(street.gets_in(ATTACKER), "beside them");
    }
}

/// An attacker reconnects again and again while a client needs a while for its login.
#[test]
fn newer_connections_of_others_do_not_push_a_login_out() {
    let mut street = Street::new(server_settings());
    for _ in 0..100 {
        street.call(ATTACKER, Caller::Silent);
    }
    street.client(CLIENT, USER, PASSWORD);
    for _ in 0..1000 {
        street.call(ATTACKER, Caller::Silent);
        street.pass(Duration::from_millis(1));
    }
    assert!(street.up.iter().any(|(_, from)| *from == CLIENT));
}

#[test]
fn connections_without_a_login_are_closed_in_time() {
    let mut street = Street::new(server_settings());
    let silent = street.call(ATTACKER, Caller::Silent);
    let established = street.calls(ATTACKER, 0);
    let calling = street.calls(ATTACKER, 1);
    street.client(CLIENT, USER, PASSWORD);
    street.pass(Duration::from_secs(61));
    let closed: Vec<_> = street.closed.iter().map(|it| it.0).collect();
    assert_eq!(closed[0], silent);
    assert!(closed.contains(&established) && closed.contains(&calling));
    assert_eq!((street.calls_there(), street.callers.len()), (1, 1));
}

#[test]
fn wrong_passwords_are_judged_more_and_more_slowly() {
    for domains in [false, true] {
        guess(domains);
    }
}

/// Guesses passwords of one account, each perhaps with another domain in front of the name.
fn guess(domains: bool) {
    let mut street = Street::new(server_settings());
    let mut number = 0;
    let start = street.now;
    let denied = |street: &Street| {
        let of = |it: &&(Ipv4Addr, DownReason)| it.1 == DownReason::Login(LoginError::Denied);
        street.down.iter().filter(of).count()
    };
    // Sixteen callers at a time; each calls again at once.
    while street.now < start + Duration::from_secs(300) {
        let there = street.callers.iter().filter(|it| it.1 == ATTACKER).count();
        for _ in there..16 {
            number += 1;
            let user = match domains {
                true => format!("D{number}\\{USER}"),
                false => USER.to_owned(),
            };
            street.client(ATTACKER, &user, "a guess");
        }
        street.pass(Duration::from_millis(100));
        // Refused clients hang up.
        let gone = street.callers.iter().filter(|it| match &it.2 {
            Caller::Client(client) => client.is_finished(),
            _ => false,
        });
        let gone: Vec<ConnectionId> = gone.map(|it| it.0).collect();
        for id in gone {
            let mut out = Vec::new();
            street.server.control_ended(id, street.now, &mut out);
            street.take(out);
            street.callers.retain(|it| it.0 != id);
        }
    }
    assert!((5..40).contains(&denied(&street)), "{}", denied(&street));
    assert!(street.gets_in(CLIENT), "from elsewhere");
}

#[test]
fn another_user_behind_the_same_nat_waits_for_a_moment_only() {
    let mut street = Street::new(server_settings());
    for _ in 0..10 {
        street.client(ATTACKER, "guessed", "a guess");
        street.pass(Duration::from_secs(20));
        street.callers.clear();
    }
    street.client(ATTACKER, "guessed", "a guess");
    street.pass(Duration::from_millis(500));
    assert!(street.gets_in(ATTACKER));
}

#[test]
fn clients_beyond_the_last_address_are_told() {
    let mut settings = server_settings();
    settings.pool.truncate(1);
    let mut street = Street::new(settings);
    // Both clients have called before either has logged in.
    for (from, user) in [(CLIENT, USER), (OTHER, OTHER_USER)] {
        let client = street.new_client(user, PASSWORD);
        street.connect(from, client);
    }
    street.settle();
    street.pass(Duration::from_secs(5));
    assert_eq!(street.up.len(), 1);
    assert_eq!(street.down.len(), 1);
    assert_eq!(street.down[0].1, DownReason::NoAddress);
    assert_eq!((street.calls_there(), street.free()), (1, 0));
    street.client(OTHER, OTHER_USER, PASSWORD);
    street.pass(Duration::from_secs(5));
    assert_eq!(street.up.len(), 1, "nor one that comes later");
}

/// The old call seems alive until its echoes fail. It is asked at once.
#[test]
fn a_client_that_returns_from_another_address_replaces_its_call() {
    let mut settings = server_settings();
    settings.pool.truncate(2);
    let mut street = Street::new(settings);
    street.client(ATTACKER, OTHER_USER, PASSWORD);
    for (times, from) in (0..).zip([CLIENT, OTHER, CLIENT]) {
        let called = street.now;
        assert!(street.gets_in(from), "{from}");
        // Its packets from the wait are not lost: none has to be repeated.
        let (up, _) = street.up.last().unwrap();
        let waited = (*up - called).as_secs();
        assert_eq!(waited, if times > 0 { 2 } else { 0 }, "{from}");
        // The client vanishes.
        street.callers.retain(|it| it.1 == ATTACKER);
    }
    assert_eq!((street.calls_there(), street.free()), (2, 0));
    let replaced = |from| (from, DownReason::Replaced);
    assert_eq!(street.down, [replaced(CLIENT), replaced(OTHER)]);
}

/// Three devices of one account share two addresses. Each calls again when it is refused.
#[test]
fn devices_of_one_account_do_not_replace_each_other() {
    let mut settings = server_settings();
    settings.pool.truncate(2);
    let mut street = Street::new(settings);
    assert!(street.gets_in(CLIENT) && street.gets_in(OTHER));
    for _ in 0..10 {
        assert!(!street.gets_in(ATTACKER));
        // The first two are idle.
        street.pass(Duration::from_secs(20));
    }
    let refused = (ATTACKER, DownReason::NoAddress);
    assert_eq!(street.down, vec![refused; 10]);
    assert_eq!((street.calls_there(), street.free()), (2, 0));
}

#[test]
fn users_of_one_name_in_two_domains_have_accounts_of_their_own() {
    let mut settings = server_settings();
    settings.pool.truncate(2);
    let mut street = Street::new(settings);
    let [first, second] = DOMAIN_USERS;
    for (from, user, logins) in [(ATTACKER, first, 2), (CLIENT, second, 1)] {
        for _ in 0..logins {
            street.client(from, user, PASSWORD);
            street.pass(Duration::from_secs(5));
        }
    }
    assert_eq!(street.down, [(ATTACKER, DownReason::Replaced)]);
    // A domain before a user without one makes no other account.
    let mut settings = server_settings();
    settings.pool.truncate(2);
    let mut street = Street::new(settings);
    for domain in ["A", "B", "C"] {
        street.client(CLIENT, &format!("{domain}\\{USER}"), PASSWORD);
        street.pass(Duration::from_secs(5));
    }
    assert_eq!(street.down, [(CLIENT, DownReason::NoAddress)]);
}

#[test]
fn one_account_cannot_have_every_address() {
    let mut settings = server_settings();
    settings.pool.truncate(4);
    let mut street = Street::new(settings);
    for _ in 0..6 {
        street.client(ATTACKER, USER, PASSWORD);
        street.pass(Duration::from_secs(5));
    }
    assert_eq!((street.calls_there(), street.free()), (4, 0));
    // The third login is refused, as the attacker's last two were.
    for logins in 1..=3 {
        street.client(CLIENT, OTHER_USER, PASSWORD);
        street.pass(Duration::from_secs(5));
        let up = street.up.iter().filter(|(_, from)| *from == CLIENT).count();
        assert_eq!((street.calls_there(), up), (4, logins.min(2)));
    }
    let ended = |from, reason: DownReason| {
        let same = |it: &&(Ipv4Addr, DownReason)| it.0 == from && it.1 == reason;
        street.down.iter().filter(same).count()
    };
    let refused = |from| ended(from, DownReason::NoAddress);
    assert_eq!((refused(ATTACKER), refused(CLIENT)), (2, 1));
    assert_eq!(ended(ATTACKER, DownReason::Replaced), 2);
}
