//! A stranger's first packet at a server with tls-crypt-v2. The stranger chooses every length in the
//! wrapped client key at its end.
//!
//! The input lists changes to a good packet: how much to cut off the end, how much of the input to append,
//! then pairs of a place and a byte.
#![no_main]

use openvpn::keyfile::v2::{ClientKey, MAX_WRAPPED_LEN, MIN_WRAPPED_LEN, Metadata, ServerKey};
use openvpn::packet::SessionId;
use openvpn::packet::{AckList, ControlPacket, Opcode};
use openvpn::wrap::{FirstPacket, WrapError, WrapSettings};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let server = ServerKey::new(&[0xa5; 128]);
    let settings = WrapSettings::tls_crypt_v2_server(&server, None);
    let _ = settings.open_first(data, 0);
    let Some((&[how, cut, append], changes)) = data.split_first_chunk() else {
        return;
    };
    let metadata = Metadata::user(&vec![how; usize::from(how) * 2]);
    let (Ok(client), Some(session)) = (
        ClientKey::generate(&server, &metadata),
        SessionId::new([1; 8]),
    ) else {
        return;
    };
    assert!((MIN_WRAPPED_LEN..=MAX_WRAPPED_LEN).contains(&client.wrapped().len()));
    let packet = ControlPacket {
        opcode: if how % 2 == 0 {
            Opcode::HardResetClientV3
        } else {
            Opcode::ControlWkcV1
        },
        key_id: 0,
        session,
        acks: AckList::new(),
        peer_session: None,
        message_id: Some(0),
        payload: vec![0; usize::from(cut)],
    };
    let good = WrapSettings::tls_crypt_v2_client(&client)
        .wrap()
        .seal(&packet, 1);
    let Ok(FirstPacket {
        wrap: mut session, ..
    }) = settings.open_first(&good, 0)
    else {
        panic!("the good packet is refused");
    };
    let mut bytes = good.clone();
    bytes.truncate(good.len().saturating_sub(usize::from(cut)));
    let (appended, changes) = changes.split_at(usize::from(append).min(changes.len()));
    bytes.extend_from_slice(appended);
    for change in changes.chunks_exact(3) {
        let at = usize::from(u16::from_be_bytes([change[0], change[1]]));
        // Places count from the end, where the lengths are.
        if let Some(at) = bytes.len().checked_sub(at + 1) {
            bytes[at] ^= change[2];
        }
    }
    match settings.open_first(&bytes, 0) {
        Ok(first) => {
            assert_eq!(bytes, good, "a forgery was taken");
            assert_eq!(first.metadata, Some(metadata));
            assert_eq!(first.packet, packet);
            assert_eq!(session.open(&bytes), Err(WrapError::Replay));
        }
        Err(_) => {
            assert_ne!(bytes, good);
            let _ = session.open(&bytes);
        }
    }
});
