use proptest::prelude::*;

use super::*;

fn session(byte: u8) -> SessionId {
    SessionId::new([byte; 8]).unwrap()
}

#[test]
fn a_clients_reset() {
    let bytes = [
        &[0x38][..],
        &[1; 8],
        &[0],          // no acknowledgement, so no peer session either
        &[0, 0, 0, 0], // message 0
    ]
    .concat();
    let packet = ControlPacket::parse(&bytes).unwrap();
    assert_eq!(packet.opcode, Opcode::HardResetClientV2);
    assert_eq!((packet.key_id, packet.message_id), (0, Some(0)));
    assert_eq!(packet.peer_session, None);
    assert!(packet.acks.is_empty() && packet.payload.is_empty());
    assert_eq!(packet.emit(), bytes);
}

#[test]
fn an_acknowledgement_has_no_message() {
    let bytes = [
        &[5 << 3 | 2][..],
        &[1; 8],
        &[2, 0, 0, 0, 7, 0, 0, 0, 6],
        &[2; 8],
    ]
    .concat();
    let packet = ControlPacket::parse(&bytes).unwrap();
    assert_eq!(packet.acks.as_slice(), [7, 6]);
    assert_eq!(packet.peer_session, Some(session(2)));
    assert_eq!((packet.key_id, packet.message_id), (2, None));
    assert_eq!(packet.emit(), bytes);
}

#[test]
fn every_cut_is_an_error() {
    let packet = ControlPacket {
        opcode: Opcode::ControlV1,
        key_id: 0,
        session: session(1),
        acks: [3, 2, 1, 0].into_iter().collect(),
        peer_session: Some(session(2)),
        message_id: Some(1),
        payload: Vec::new(),
    };
    let bytes = packet.emit();
    for len in 0..bytes.len() {
        assert_eq!(
            ControlPacket::parse(&bytes[..len]),
            Err(PacketError::TooShort),
            "{len} bytes"
        );
    }
}

#[test]
fn nine_acknowledgements_are_refused_before_they_are_read() {
    let mut bytes = vec![0x20];
    bytes.extend([1; 8]);
    bytes.push(9);
    assert_eq!(
        ControlPacket::parse(&bytes),
        Err(PacketError::TooManyAcks(9))
    );
    bytes[9] = 255;
    assert_eq!(
        ControlPacket::parse(&bytes),
        Err(PacketError::TooManyAcks(255))
    );
}

/// OpenVPN before 2.7.6 began a session with any of these.
#[test]
fn a_reset_with_another_number_begins_nothing() {
    let reset = |first: u8, id: u32| {
        let bytes = [&[first][..], &[1; 8], &[0], &id.to_be_bytes()].concat();
        ControlPacket::parse(&bytes).unwrap().begins_session()
    };
    assert!(reset(7 << 3, 0));
    assert!(reset(10 << 3, 0));
    assert!(!reset(7 << 3, 1));
    assert!(!reset(7 << 3 | 1, 0));
    assert!(!reset(8 << 3, 0));
    assert!(!reset(4 << 3, 0));
}

#[test]
fn only_living_opcodes() {
    for number in 0..32 {
        let legal = (3..=11).contains(&number);
        assert_eq!(Opcode::from_u8(number).is_some(), legal, "{number}");
        if let Some(opcode) = Opcode::from_u8(number) {
            assert_eq!(opcode as u8, number);
        }
    }
    let data = [&[9 << 3][..], &[1; 30]].concat();
    assert_eq!(ControlPacket::parse(&data), Err(PacketError::Opcode(9)));
}

fn any_packet() -> impl Strategy<Value = ControlPacket> {
    (
        prop::sample::select(&[3_u8, 4, 5, 7, 8, 10, 11][..]),
        0..=7_u8,
        any::<([u8; 8], [u8; 8])>(),
        prop::collection::vec(any::<u32>(), 0..=8),
        any::<u32>(),
        prop::collection::vec(any::<u8>(), 0..100),
    )
        .prop_map(|(opcode, key_id, ids, acks, message_id, payload)| {
            let opcode = Opcode::from_u8(opcode).unwrap();
            let acks: AckList = acks.into_iter().collect();
            ControlPacket {
                opcode,
                key_id,
                session: SessionId::new(ids.0).unwrap_or_else(|| session(1)),
                peer_session: (!acks.is_empty())
                    .then(|| SessionId::new(ids.1).unwrap_or_else(|| session(2))),
                acks,
                message_id: (opcode != Opcode::AckV1).then_some(message_id),
                payload,
            }
        })
}

proptest! {
    #[test]
    fn what_is_emitted_is_parsed(packet in any_packet()) {
        let bytes = packet.emit();
        prop_assert_eq!(ControlPacket::parse(&bytes), Ok(packet));
    }

    #[test]
    fn what_is_parsed_is_emitted(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        if let Ok(packet) = ControlPacket::parse(&bytes) {
            prop_assert_eq!(packet.emit(), bytes);
        }
    }
}

#[test]
fn zero_is_no_session() {
    assert_eq!(SessionId::new([0; 8]), None);
    assert_eq!(SessionId::split_from(&[0; 9]), None);
    assert_eq!(SessionId::split_from(&[1; 7]), None);
}

#[test]
fn prints_as_hexadecimal() {
    let id = SessionId::new([0xa5, 0, 0, 0, 0, 0, 0, 0x0f]).unwrap();
    assert_eq!(id.to_string(), "a50000000000000f");
    assert_eq!(format!("{id:?}"), "SessionId(a50000000000000f)");
    assert_eq!(
        SessionId::split_from(&[&id.as_bytes()[..], b"rest"].concat()),
        Some((id, &b"rest"[..]))
    );
}

#[test]
fn random_ones_differ() {
    assert_ne!(SessionId::random(), SessionId::random());
}

const RESEND: EarlyNegotiation = EarlyNegotiation {
    resend_client_key: true,
};

#[test]
fn comes_back() {
    assert_eq!(RESEND.emit(), [0, 1, 0, 2, 0, 1]);
    for said in [RESEND, EarlyNegotiation::default()] {
        assert_eq!(EarlyNegotiation::parse(&said.emit()), Ok(said));
    }
}

#[test]
fn the_unknown_is_skipped_and_the_damaged_refused() {
    let unknown = [0, 9, 0, 3, 1, 2, 3, 0, 1, 0, 2, 0xff, 0xff];
    assert_eq!(EarlyNegotiation::parse(&unknown), Ok(RESEND));
    for cut in [1, 2, 3, 4, 5, 6, 8, 10, 11, 12] {
        assert!(EarlyNegotiation::parse(&unknown[..cut]).is_err(), "{cut}");
    }
    assert!(EarlyNegotiation::parse(&[0, 1, 0, 3, 0, 1, 0]).is_err());
    assert!(EarlyNegotiation::parse(&[0, 9, 0xff, 0xff]).is_err());
}
