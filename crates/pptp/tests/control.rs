//! The control connection: wire messages and states.

#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use pptp::control::{
    Answer, CallEnd, CloseReason, Connection, Disconnect, DisconnectResult, ErrorCode, Event,
    Message, OutgoingReply, OutgoingResult, PlainResult, Role, Settings, StopReason, Stream,
};

fn settings() -> Settings {
    Settings {
        name: "here".into(),
        ..Settings::default()
    }
}

/// Passes bytes both ways until neither end has more to send.
fn talk(client: &mut Connection, server: &mut Connection, now: Instant) {
    loop {
        let (up, down) = (client.transmit().to_vec(), server.transmit().to_vec());
        if up.is_empty() && down.is_empty() {
            return;
        }
        client.transmitted(up.len());
        server.transmitted(down.len());
        server.receive(&up, now);
        client.receive(&down, now);
    }
}

fn events(connection: &mut Connection) -> Vec<Event> {
    core::iter::from_fn(|| connection.poll_event()).collect()
}

/// Takes the messages that wait to be sent.
fn said(connection: &mut Connection) -> Vec<Message> {
    let bytes = connection.transmit().to_vec();
    connection.transmitted(bytes.len());
    let (mut stream, mut input) = (Stream::new(), bytes.as_slice());
    core::iter::from_fn(|| stream.next(&mut input))
        .map(Result::unwrap)
        .collect()
}

fn hear(connection: &mut Connection, message: Message, now: Instant) {
    let mut bytes = Vec::new();
    message.write(&mut bytes);
    connection.receive(&bytes, now);
}

fn established(now: Instant) -> (Connection, Connection) {
    let mut client = Connection::new(Role::Client, settings(), now);
    let mut server = Connection::new(Role::Server, settings(), now);
    talk(&mut client, &mut server, now);
    assert!(
        matches!(events(&mut client)[..], [Event::Established(host)] if host.name.printable() == "here")
    );
    assert!(matches!(events(&mut server)[..], [Event::Established(_)]));
    (client, server)
}

fn call(client: &mut Connection, server: &mut Connection, ids: (u16, u16), now: Instant) {
    assert!(client.open_call(ids.0, now));
    talk(client, server, now);
    assert!(
        matches!(events(server)[..], [Event::CallRequested { peer_call_id }] if peer_call_id == ids.0)
    );
    assert!(server.answer_call(ids.0, Answer::Accept { call_id: ids.1 }));
    talk(client, server, now);
    assert!(matches!(
        events(client)[..],
        [Event::CallUp { call_id, peer_call_id, .. }] if (call_id, peer_call_id) == ids
    ));
}

#[test]
fn the_first_message_as_on_the_wire() {
    let mut client = Connection::new(Role::Client, settings(), Instant::now());
    let bytes = client.transmit().to_vec();
    assert_eq!(bytes.len(), 156);
    let head = [
        0, 156, 0, 1, 0x1a, 0x2b, 0x3c, 0x4d, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 3, 0, 0,
        0, 1,
    ];
    assert_eq!(bytes[..28], head);
    assert_eq!(&bytes[28..33], b"here\0");
    assert!(matches!(said(&mut client)[..], [Message::StartRequest(_)]));
}

#[test]
fn a_request_for_a_call_as_on_the_wire() {
    let now = Instant::now();
    let (mut client, _) = established(now);
    assert!(client.open_call(0x1234, now));
    let bytes = client.transmit();
    assert_eq!(bytes.len(), 168);
    let head = [
        0, 168, 0, 1, 0x1a, 0x2b, 0x3c, 0x4d, 0, 7, 0, 0, 0x12, 0x34, 0, 1, 0, 0, 0x09, 0x60, 0x3b,
        0x9a, 0xca, 0, 0, 0, 0, 3, 0, 0, 0, 3, 0, 64, 0, 0, 0, 0, 0, 0,
    ];
    assert_eq!(bytes[..40], head);
}

#[test]
fn several_calls_of_one_connection_open_and_end_by_themselves() {
    let now = Instant::now();
    let (mut client, mut server) = established(now);
    // Call ID 0 is valid: pptpd begins with it.
    for ids in [(7, 0), (8, 1), (9, 2)] {
        call(&mut client, &mut server, ids, now);
    }
    assert!(!client.open_call(8, now), "the ID is taken");
    client.set_link_info(9);
    client.clear_call(8, now);
    talk(&mut client, &mut server, now);
    let end = CallEnd::Cleared;
    assert!(matches!(
        events(&mut server)[..],
        [Event::CallDown { call_id: 1, end: found }] if found == end
    ));
    let end = CallEnd::Local;
    assert_eq!(events(&mut client), [Event::CallDown { call_id: 8, end }]);
    server.clear_call(0, now);
    talk(&mut client, &mut server, now);
    let end = CallEnd::Disconnected {
        result: DisconnectResult::AdminShutdown,
        error: ErrorCode::None,
    };
    assert_eq!(events(&mut client), [Event::CallDown { call_id: 7, end }]);
    assert!(client.is_established() && server.is_established());
}

#[test]
fn calls_beyond_the_most_are_refused_with_a_reason() {
    let now = Instant::now();
    let few = Settings {
        max_calls: 1,
        ..settings()
    };
    let mut client = Connection::new(Role::Client, settings(), now);
    let mut server = Connection::new(Role::Server, few, now);
    talk(&mut client, &mut server, now);
    let _ = (events(&mut client), events(&mut server));
    call(&mut client, &mut server, (1, 1), now);
    assert!(client.open_call(2, now));
    talk(&mut client, &mut server, now);
    let end = CallEnd::Refused {
        result: OutgoingResult::GeneralError,
        error: ErrorCode::NoResource,
    };
    assert_eq!(events(&mut client), [Event::CallDown { call_id: 2, end }]);
    assert_eq!(
        end.to_string(),
        "the server refuses the call: general error (not enough resources now)"
    );
}

#[test]
fn a_request_to_end_a_call_may_cross_the_reply_that_opens_it() {
    let now = Instant::now();
    let (mut client, mut server) = established(now);
    assert!(client.open_call(1, now));
    let _ = said(&mut client);
    client.clear_call(1, now);
    let reply = OutgoingReply {
        call_id: 5,
        peer_call_id: 1,
        result: OutgoingResult::Connected,
        error: ErrorCode::None,
        window: 64,
    };
    hear(&mut client, Message::OutgoingCallReply(reply), now);
    assert_eq!(events(&mut client), []);
    let notify = Disconnect {
        call_id: 5,
        result: DisconnectResult::Request,
        error: ErrorCode::None,
    };
    hear(&mut client, Message::CallDisconnectNotify(notify), now);
    let end = CallEnd::Local;
    assert_eq!(events(&mut client), [Event::CallDown { call_id: 1, end }]);
    talk(&mut client, &mut server, now);
    assert!(client.is_established());
}

#[test]
fn a_call_that_is_never_answered_is_given_up_and_so_is_what_comes_after_that() {
    let now = Instant::now();
    let (mut client, mut server) = established(now);
    assert!(client.open_call(1, now));
    talk(&mut client, &mut server, now);
    let later = client.deadline().unwrap();
    client.expire(later);
    let end = CallEnd::TimeOut;
    assert_eq!(events(&mut client), [Event::CallDown { call_id: 1, end }]);
    assert!(said(&mut client).contains(&Message::CallClearRequest { call_id: 1 }));
    assert!(server.answer_call(1, Answer::Accept { call_id: 2 }));
    talk(&mut client, &mut server, later);
    let ended = events(&mut server);
    assert!(
        ended.contains(&Event::CallDown {
            call_id: 2,
            end: CallEnd::Cleared
        }),
        "{ended:?}"
    );
}

#[test]
fn silence_is_asked_about_and_then_ends_the_connection() {
    let now = Instant::now();
    let (mut client, mut server) = established(now);
    call(&mut client, &mut server, (1, 1), now);
    let asked = now + Duration::from_secs(60);
    assert_eq!(client.deadline(), Some(asked));
    client.expire(asked - Duration::from_secs(1));
    assert!(client.transmit().is_empty(), "too early");
    client.expire(asked);
    talk(&mut client, &mut server, asked);
    let again = asked + Duration::from_secs(60);
    assert_eq!(client.deadline(), Some(again), "the answer came");
    client.expire(again);
    assert!(matches!(
        said(&mut client)[..],
        [Message::EchoRequest { identifier: 2 }]
    ));
    client.expire(again + Duration::from_secs(60));
    let end = CallEnd::ConnectionClosed;
    assert_eq!(
        events(&mut client),
        [
            Event::CallDown { call_id: 1, end },
            Event::Closed(CloseReason::EchoTimeOut)
        ]
    );
    assert_eq!(client.deadline(), None);
}

#[test]
fn both_ends_may_stop_at_once() {
    let now = Instant::now();
    let (mut client, mut server) = established(now);
    client.stop(StopReason::None, now);
    server.stop(StopReason::LocalShutdown, now);
    talk(&mut client, &mut server, now);
    assert!(client.is_closed() && server.is_closed());
    assert_eq!(
        events(&mut client),
        [Event::Closed(CloseReason::Stopped(
            StopReason::LocalShutdown
        ))]
    );
}

#[test]
fn a_stop_that_is_not_confirmed_ends_all_the_same() {
    let now = Instant::now();
    let (mut client, _) = established(now);
    client.stop(StopReason::None, now);
    let _ = said(&mut client);
    client.expire(client.deadline().unwrap());
    assert_eq!(
        events(&mut client),
        [Event::Closed(CloseReason::StopTimeOut)]
    );
}

#[test]
fn a_server_of_another_version_or_protocol_is_named() {
    let now = Instant::now();
    let mut client = Connection::new(Role::Client, settings(), now);
    let [Message::StartRequest(mut host)] = said(&mut client)[..] else {
        panic!("a client begins");
    };
    host.version = 0x0200;
    let mut server = Connection::new(Role::Server, settings(), now);
    hear(&mut server, Message::StartRequest(host), now);
    let version = "the peer speaks version 0x0200 of PPTP, not 0x0100";
    assert!(
        matches!(events(&mut server)[..], [Event::Closed(reason)] if reason.to_string() == version)
    );
    let bytes = server.transmit().to_vec();
    client.receive(&bytes, now);
    assert!(matches!(
        events(&mut client)[..],
        [Event::Closed(CloseReason::Refused { .. })]
    ));

    let mut client = Connection::new(Role::Client, settings(), now);
    client.receive(b"SSH-2.0-OpenSSH_9.2\r\n", now);
    assert!(matches!(
        events(&mut client)[..],
        [Event::Closed(CloseReason::Framing(_))]
    ));
    let mut client = Connection::new(Role::Client, settings(), now);
    client.expire(client.deadline().unwrap());
    assert_eq!(
        events(&mut client),
        [Event::Closed(CloseReason::StartTimeOut)]
    );
}

#[test]
fn nobody_calls_a_client() {
    let now = Instant::now();
    let (mut client, mut server) = established(now);
    let mut caller = Connection::new(Role::Client, settings(), now);
    talk(
        &mut caller,
        &mut Connection::new(Role::Server, settings(), now),
        now,
    );
    assert!(caller.open_call(3, now));
    let request = said(&mut caller)[0];
    hear(&mut client, request, now);
    assert!(matches!(
        said(&mut client)[..],
        [Message::OutgoingCallReply(reply)] if reply.result == OutgoingResult::DoNotAccept
    ));
    assert!(!server.open_call(1, now), "servers do not call");
    assert!(!server.answer_call(1, Answer::Accept { call_id: 1 }));
}

#[test]
fn a_second_start_is_answered_and_changes_nothing() {
    let now = Instant::now();
    let (_, mut server) = established(now);
    let mut other = Connection::new(Role::Client, settings(), now);
    let request = said(&mut other)[0];
    hear(&mut server, request, now);
    let answer = said(&mut server);
    assert!(matches!(answer[..], [Message::StartReply { result, .. }] if result.code() == 3));
    assert!(server.is_established());
    assert_eq!(events(&mut server), []);
}

#[test]
fn a_peer_that_floods_and_does_not_read_is_cut_off() {
    let now = Instant::now();
    let (_, mut server) = established(now);
    let mut flood = Vec::new();
    for identifier in 0..5000 {
        Message::EchoRequest { identifier }.write(&mut flood);
    }
    server.receive(&flood, now);
    assert!(server.transmit().len() < 18_000);
    assert_eq!(
        events(&mut server),
        [Event::Closed(CloseReason::NotReading)]
    );
}

#[test]
fn a_peer_that_floods_and_does_not_read_may_still_ask_for_a_call() {
    let now = Instant::now();
    let refuse = Answer::Refuse {
        result: OutgoingResult::DoNotAccept,
        error: ErrorCode::None,
    };
    for answer in [Answer::Accept { call_id: 5 }, refuse] {
        let (_, mut server) = established(now);
        let mut flood = Vec::new();
        for identifier in 0..820 {
            Message::EchoRequest { identifier }.write(&mut flood);
        }
        server.receive(&flood, now);
        let request = Message::OutgoingCallRequest {
            call_id: 7,
            serial: 1,
            window: 64,
        };
        hear(&mut server, request, now);
        server.answer_call(7, answer);
        let events = events(&mut server);
        let closed = Event::Closed(CloseReason::NotReading);
        assert!(events.contains(&closed), "{events:?}");
    }
}

#[test]
fn messages_about_unknown_calls_are_ignored() {
    let now = Instant::now();
    let (_, mut server) = established(now);
    hear(&mut server, Message::CallClearRequest { call_id: 77 }, now);
    let reply = Message::EchoReply {
        identifier: 9,
        result: PlainResult::Ok,
        error: ErrorCode::None,
    };
    hear(&mut server, reply, now);
    assert_eq!(
        (events(&mut server), said(&mut server)),
        (Vec::new(), Vec::new())
    );
}
