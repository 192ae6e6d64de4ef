use super::*;
use crate::update::Route;

mod world;

use world::World;

fn route(last: u8) -> Route {
    Route {
        target: [10, 50, last, 0].into(),
        prefix: 24,
        gateway: None,
        metric: None,
        table: None,
        unreachable: false,
    }
}

fn update(routes: &[u8]) -> Update {
    Update {
        device: "mr-office".to_owned(),
        addresses: vec![([10, 8, 0, 2].into(), 32, None)],
        routes: routes.iter().map(|last| route(*last)).collect(),
        dns: routes
            .iter()
            .map(|last| [10, 50, *last, 53].into())
            .collect(),
        ..Update::default()
    }
}

/// A teller, with the effects that it requested.
struct Told {
    teller: Teller,
    now: Instant,
}

impl Told {
    fn new() -> Self {
        let now = Instant::now();
        let teller = Teller::new("office", now);
        Self { teller, now }
    }

    fn connected() -> Self {
        let mut told = Self::new();
        assert_eq!(told.handle(Event::Deadline), [Effect::Connect]);
        assert_eq!(told.handle(Event::Connected), []);
        told
    }

    fn handle(&mut self, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.teller.handle(event, self.now, &mut effects);
        effects
    }

    /// Moves the clock to the deadline and handles it.
    fn expire(&mut self) -> Vec<Effect> {
        self.now = self.teller.deadline().unwrap();
        self.handle(Event::Deadline)
    }
}

const OK: Event = answer(Status::Ok);

const fn answer(status: Status) -> Event {
    Event::Answered(status, Value::Null)
}

fn fault(words: &str) -> Fault {
    Fault {
        code: "CONFIG_FAULT".to_owned(),
        words: words.to_owned(),
    }
}

/// netifd's answer with these errors in its list.
fn listed(faults: &[&str]) -> Event {
    let field = |name: &str, value| (name.to_owned(), value);
    let error = |words: &&str| {
        Value::Table(vec![
            field("subsystem", Value::text("millrace")),
            field("code", Value::text("CONFIG_FAULT")),
            field("data", Value::Array(vec![Value::text(*words)])),
        ])
    };
    let list = Value::Array(faults.iter().map(error).collect());
    Event::Answered(Status::Ok, Value::Table(vec![field("errors", list)]))
}

fn calls(effects: &[Effect]) -> Vec<Vec<(String, Value)>> {
    let call = |it: &Effect| match it {
        Effect::Call(arguments) => Some(arguments.clone()),
        _ => None,
    };
    effects.iter().filter_map(call).collect()
}

/// netifd may believe up an interface whose program has not told it anything.
#[test]
fn a_state_of_before_is_given_up_only_until_there_is_one_of_this_program() {
    let mut told = Told::connected();
    assert_eq!(told.handle(Event::Lost), []);
    assert_eq!(calls(&told.handle(Event::GiveUp)), [update::lost("office")]);
    assert_eq!(told.handle(OK), [Effect::Set, Effect::Ask]);
    assert_eq!(told.handle(listed(&[])), []);
    let up = told.handle(Event::Up(update(&[1])));
    assert_eq!(calls(&up), [update(&[1]).to_arguments("office")]);
    told.handle(OK);
    told.handle(listed(&[]));
    assert_eq!(told.handle(Event::GiveUp), []);
    assert_eq!(told.teller.set(), Some(&update(&[1])));
}

#[test]
fn the_last_state_is_told_once_and_whole() {
    let mut told = Told::connected();
    let first = told.handle(Event::Up(update(&[1])));
    assert_eq!(calls(&first), [update(&[1]).to_arguments("office")]);
    // A new state waits for the answer, and only the latest state is sent.
    assert_eq!(told.handle(Event::Up(update(&[2]))), []);
    assert_eq!(told.handle(Event::Up(update(&[3]))), []);
    let next = told.handle(OK);
    assert_eq!(calls(&next), [update(&[3]).to_arguments("office")]);
    // netifd has cleared its list, or not: it may have been up before.
    assert_eq!(told.handle(OK), [Effect::Set, Effect::Ask]);
    assert_eq!(told.teller.set(), Some(&update(&[3])));
    assert_eq!(told.handle(listed(&[])), []);
    assert!(told.teller.is_done());
    assert_eq!(told.handle(Event::Up(update(&[3]))), []);
    assert_eq!(calls(&told.handle(Event::Lost)), [update::lost("office")]);
    assert_eq!(told.teller.deadline(), Some(told.now + ANSWER));
}

#[test]
fn what_netifd_does_not_take_while_it_ends_the_interface_is_not_said() {
    let mut told = Told::connected();
    told.handle(Event::Up(update(&[1])));
    let refused = told.handle(answer(Status::PermissionDenied));
    assert_eq!(refused, []);
    assert_eq!(calls(&told.expire()).len(), 1);
    // Any other refusal is logged, once.
    let other = told.handle(answer(Status::NotFound));
    assert!(matches!(&other[..], [Effect::Log(log::Level::Warn, _)]));
    told.expire();
    assert_eq!(told.handle(answer(Status::NotFound)), []);
    assert_eq!(told.handle(Event::End), [Effect::Disconnect]);
    assert_eq!(told.handle(Event::Up(update(&[2]))), []);
    assert_eq!(told.teller.deadline(), None);
}

#[test]
fn an_update_that_makes_no_sense_is_told_again() {
    let mut told = Told::connected();
    told.handle(Event::Up(update(&[1])));
    told.handle(OK);
    told.handle(listed(&[]));
    told.handle(Event::Up(update(&[2])));
    told.handle(answer(Status::InvalidArgument));
    assert_eq!(calls(&told.expire()), [update(&[2]).to_arguments("office")]);
}

#[test]
fn faults_follow_the_state_and_are_listed_once() {
    let mut told = Told::new();
    let error = |words: &str| update::error("office", "CONFIG_FAULT", words);
    let many: Vec<Fault> = (0..100).map(|it| fault(&it.to_string())).collect();
    told.handle(Event::Faults("many", many));
    told.handle(Event::Faults("config", vec![fault("a"), fault("b")]));
    told.handle(Event::Up(update(&[1])));
    told.handle(Event::Block);
    told.handle(Event::Deadline);
    let first = calls(&told.handle(Event::Connected));
    assert_eq!(first, [update::block_restart("office")]);
    let state = calls(&told.handle(OK));
    assert_eq!(state, [update(&[1]).to_arguments("office")]);
    assert_eq!(told.handle(OK), [Effect::Set, Effect::Ask]);
    // The list has one of them, from before this connection.
    let mut said = calls(&told.handle(listed(&["a"])));
    assert_eq!(said, [error("b")]);
    let mut all = Vec::new();
    while !said.is_empty() {
        all.append(&mut said);
        said = calls(&told.handle(OK));
    }
    assert_eq!(all.len(), 1 + FAULTS_MAX);
    assert!(told.teller.is_done() && !told.teller.is_stale());
    // Another source has the same fault. Only new faults are reported.
    assert_eq!(told.handle(Event::Faults("uplink", vec![fault("a")])), []);
    let both = vec![fault("b"), fault("c")];
    let said = calls(&told.handle(Event::Faults("config", both)));
    assert_eq!(said, [error("c")]);
    told.handle(OK);
    assert!(!told.teller.is_stale());
    told.handle(Event::Faults("uplink", Vec::new()));
    assert!(told.teller.is_stale());
}

#[test]
fn the_link_goes_down_and_up_behind_a_shield_to_clear_the_list() {
    let mut told = Told::connected();
    told.handle(Event::Up(update(&[1])));
    told.handle(Event::Faults("config", vec![fault("a"), fault("b")]));
    told.handle(OK);
    let said = calls(&told.handle(listed(&["a"])));
    assert_eq!(said, [update::error("office", "CONFIG_FAULT", "b")]);
    told.handle(OK);
    told.handle(Event::Faults("config", vec![fault("b")]));
    assert!(told.teller.is_stale() && told.teller.is_done());
    let down = [Effect::Shield(true), Effect::Call(update::lost("office"))];
    assert_eq!(told.handle(Event::Anew), down);
    let up = told.handle(OK);
    assert_eq!(calls(&up), [update(&[1]).to_arguments("office")]);
    assert_eq!((&up[0], told.teller.set()), (&Effect::Set, None));
    let set = told.handle(OK);
    assert_eq!(set, [Effect::Set, Effect::Shield(false), Effect::Ask]);
    assert_eq!(calls(&told.handle(listed(&[]))).len(), 1);
    told.handle(OK);
    assert!(told.teller.is_done() && !told.teller.is_stale());
    // A link that is lost meanwhile needs no shield, nor does a process that ends.
    told.handle(Event::Anew);
    assert_eq!(told.handle(Event::Lost), [Effect::Shield(false)]);
    assert_eq!(told.handle(OK), [Effect::Set]);
    assert_eq!(told.handle(Event::Anew), []);
    told.handle(Event::Up(update(&[1])));
    told.handle(OK);
    told.handle(Event::Anew);
    told.handle(listed(&[]));
    let end = [Effect::Shield(false), Effect::Disconnect];
    assert_eq!(told.handle(Event::End), end);
}

#[test]
fn what_does_not_answer_is_connected_to_anew() {
    let mut told = Told::connected();
    told.handle(Event::Up(update(&[1])));
    let late = told.expire();
    assert!(matches!(&late[..], [Effect::Log(..), Effect::Disconnect]));
    assert_eq!(told.expire(), [Effect::Connect]);
    // The connection to a daemon that does not greet is closed as well.
    assert_eq!(told.expire(), [Effect::Disconnect]);
    assert_eq!(told.expire(), [Effect::Connect]);
    assert_eq!(calls(&told.handle(Event::Connected)).len(), 1);
}

/// Reloads, lost links, renewals, crashes of the program, of netifd and of ubus, in any order and at any moment. In
/// the end netifd has the tunnel's state, took the device as rarely as possible, and got no superfluous message.
#[test]
fn four_hundred_random_schedules_end_as_they_should() {
    for seed in 0..400 {
        World::new(seed).run();
    }
}
