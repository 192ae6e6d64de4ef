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

fn calls(effects: &[Effect]) -> Vec<Vec<(String, Value)>> {
    let call = |it: &Effect| match it {
        Effect::Call(arguments) => Some(arguments.clone()),
        _ => None,
    };
    effects.iter().filter_map(call).collect()
}

#[test]
fn the_last_state_is_told_once_and_whole() {
    let mut told = Told::connected();
    let first = told.handle(Event::Up(update(&[1])));
    assert_eq!(calls(&first), [update(&[1]).to_arguments("office")]);
    // A new state waits for the answer, and only the latest state is sent.
    assert_eq!(told.handle(Event::Up(update(&[2]))), []);
    assert_eq!(told.handle(Event::Up(update(&[3]))), []);
    let next = told.handle(Event::Answered(Status::Ok));
    assert_eq!(calls(&next), [update(&[3]).to_arguments("office")]);
    assert_eq!(told.handle(Event::Answered(Status::Ok)), []);
    assert!(told.teller.is_done());
    assert_eq!(told.handle(Event::Up(update(&[3]))), []);
    assert_eq!(calls(&told.handle(Event::Lost)), [update::lost("office")]);
    assert_eq!(told.teller.deadline(), Some(told.now + ANSWER));
}

#[test]
fn what_netifd_does_not_take_while_it_ends_the_interface_is_not_said() {
    let mut told = Told::connected();
    told.handle(Event::Up(update(&[1])));
    let refused = told.handle(Event::Answered(Status::PermissionDenied));
    assert_eq!(refused, []);
    assert_eq!(calls(&told.expire()).len(), 1);
    // Any other refusal is logged, once.
    let other = told.handle(Event::Answered(Status::NotFound));
    assert!(matches!(&other[..], [Effect::Log(log::Level::Warn, _)]));
    told.expire();
    assert_eq!(told.handle(Event::Answered(Status::NotFound)), []);
    assert_eq!(told.handle(Event::End), [Effect::Disconnect]);
    assert_eq!(told.handle(Event::Up(update(&[2]))), []);
    assert_eq!(told.teller.deadline(), None);
}

#[test]
fn an_update_that_makes_no_sense_is_told_again() {
    let mut told = Told::connected();
    told.handle(Event::Up(update(&[1])));
    told.handle(Event::Answered(Status::Ok));
    told.handle(Event::Up(update(&[2])));
    told.handle(Event::Answered(Status::InvalidArgument));
    assert_eq!(calls(&told.expire()), [update(&[2]).to_arguments("office")]);
}

#[test]
fn faults_come_first_and_survive_a_connection() {
    let mut told = Told::new();
    let fault = |words: &str| Fault {
        code: "CONFIG_FAULT",
        words: words.to_owned(),
    };
    for _ in 0..2 {
        told.handle(Event::Fault(fault("a")));
    }
    for number in 0..100 {
        told.handle(Event::Fault(fault(&number.to_string())));
    }
    assert!(told.teller.faults.len() <= FAULTS_MAX);
    told.handle(Event::Up(update(&[1])));
    told.handle(Event::Block);
    told.handle(Event::Deadline);
    let error = update::error("office", "CONFIG_FAULT", "a");
    let first = calls(&told.handle(Event::Connected));
    assert_eq!(first, std::slice::from_ref(&error));
    assert_eq!(told.handle(Event::Disconnected), []);
    assert_eq!(told.expire(), [Effect::Connect]);
    assert_eq!(calls(&told.handle(Event::Connected)), [error]);
    let mut said = Vec::new();
    for _ in 0..FAULTS_MAX + 2 {
        said = calls(&told.handle(Event::Answered(Status::Ok)));
        if said.is_empty() || said == [update(&[1]).to_arguments("office")] {
            break;
        }
    }
    assert_eq!(said, [update(&[1]).to_arguments("office")]);
    // A fault that netifd already has is not sent again.
    told.handle(Event::Answered(Status::Ok));
    assert_eq!(told.handle(Event::Fault(fault("a"))), []);
    assert_eq!(calls(&told.handle(Event::Fault(fault("b")))).len(), 1);
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
