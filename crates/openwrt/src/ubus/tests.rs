use super::*;
use proptest::prelude::*;

fn hello() -> Vec<u8> {
    Message::new(kind::HELLO, 0, 0x1234_5678).to_bytes()
}

fn sent(client: &mut Client) -> Vec<Message> {
    let mut decoder = Decoder::default();
    decoder.push(client.transmit());
    client.transmitted(usize::MAX);
    std::iter::from_fn(|| decoder.next().unwrap()).collect()
}

fn answer(client: &mut Client, messages: &[Message]) {
    for message in messages {
        client.receive(&message.to_bytes()).unwrap();
    }
}

fn status(number: u16, status: Status) -> Message {
    Message::new(kind::STATUS, number, 0).number(attr::STATUS, status.number())
}

#[test]
fn a_greeting_a_lookup_and_a_call_are_these_bytes() {
    #[rustfmt::skip]
    let greeting = [0, 0, 0, 0,  0x12, 0x34, 0x56, 0x78,  0, 0, 0, 4];
    assert_eq!(hello(), greeting);
    let mut client = Client::new();
    client
        .call("a.b", "go", vec![("on".to_owned(), Value::flag(true))])
        .unwrap();
    assert_eq!(client.transmit(), b"");
    // The bytes may arrive in any pieces.
    for byte in greeting {
        client.receive(&[byte]).unwrap();
    }
    assert_eq!(client.event(), Some(Event::Greeted));
    #[rustfmt::skip]
    let lookup = [
        0, 4, 0, 1,  0, 0, 0, 0,  0, 0, 0, 12,
        // Attribute 2, a path.
        2, 0, 0, 8,  b'a', b'.', b'b', 0,
    ];
    assert_eq!(client.transmit(), lookup);
    client.transmitted(lookup.len());
    let found = Message::new(kind::DATA, 1, 0).number(attr::OBJECT, 0xcafe_0001);
    answer(&mut client, &[found, status(1, Status::Ok)]);
    #[rustfmt::skip]
    let invoke = [
        0, 5, 0, 2,  0xca, 0xfe, 0, 1,  0, 0, 0, 40,
        3, 0, 0, 8,  0xca, 0xfe, 0, 1,
        4, 0, 0, 7,  b'g', b'o', 0, 0,
        // The arguments: one, named, of 8 bits.
        7, 0, 0, 20,  0x87, 0, 0, 13,  0, 2, b'o', b'n',  0, 0, 0, 0,  1, 0, 0, 0,
    ];
    assert_eq!(client.transmit(), invoke);
    client.transmitted(invoke.len());
    let result = [("up".to_owned(), Value::flag(true))];
    let data = Message::new(kind::DATA, 2, 0xcafe_0001).data(&result);
    answer(&mut client, &[data, status(2, Status::Ok)]);
    assert_eq!(
        client.event(),
        Some(Event::Ended {
            call: 1,
            status: Status::Ok,
            data: Value::Table(result.to_vec())
        })
    );
    assert_eq!(client.event(), None);
}

#[test]
fn calls_are_made_one_after_the_other_and_late_answers_do_not_count() {
    let mut client = Client::new();
    client.receive(&hello()).unwrap();
    client.event();
    let first = client.call("x", "m", Vec::new()).unwrap();
    let second = client.call("y", "m", Vec::new()).unwrap();
    let lookups = sent(&mut client);
    assert_eq!(lookups.len(), 1);
    let number = lookups[0].number;
    // A status for another request.
    answer(&mut client, &[status(number.wrapping_sub(1), Status::Ok)]);
    assert_eq!(client.event(), None);
    answer(&mut client, &[status(number, Status::NotFound)]);
    let ended = |call, status| {
        let data = Value::Null;
        Some(Event::Ended { call, status, data })
    };
    assert_eq!(client.event(), ended(first, Status::NotFound));
    let lookup = sent(&mut client).remove(0);
    assert_eq!(lookup.text_of(attr::OBJECT_PATH).as_deref(), Some("y"));
    // A look-up that finds nothing may still end with status 0.
    answer(&mut client, &[status(lookup.number, Status::Ok)]);
    assert_eq!(client.event(), ended(second, Status::NotFound));
    for _ in 0..CALLS_MAX {
        assert!(client.call("x", "m", Vec::new()).is_some());
    }
    assert_eq!(client.call("x", "m", Vec::new()), None);
}

#[test]
fn what_cannot_be_read_ends_the_connection() {
    for bytes in [
        // Wrong version, too long, shorter than its own head.
        &[1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 4][..],
        &[0, 0, 0, 0, 0, 0, 0, 1, 0, 0xff, 0xff, 0xff],
        &[0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 3],
    ] {
        assert_eq!(Client::new().receive(bytes), Err(Malformed), "{bytes:?}");
    }
    assert_eq!(Status::of(6), Status::PermissionDenied);
    assert_eq!(
        (Status::of(77), Status::of(77).number()),
        (Status::Other(77), 77)
    );
}

proptest! {
    #[test]
    fn no_bytes_do_harm(bytes in prop::collection::vec(any::<u8>(), 0..300), calls in 0..3_usize) {
        let mut client = Client::new();
        client.receive(&hello()).unwrap();
        for _ in 0..calls {
            client.call("a", "b", Vec::new());
        }
        let _ = client.receive(&bytes);
        // A nearly valid answer to the first request, with random content.
        let mut client = Client::new();
        client.receive(&hello()).unwrap();
        client.call("a", "b", Vec::new());
        let body = bytes.clone();
        for kind in [kind::DATA, kind::STATUS] {
            let message = Message { kind, number: 1, peer: 0, body: body.clone() };
            let _ = client.receive(&message.to_bytes());
        }
        while client.event().is_some() {}
    }
}
