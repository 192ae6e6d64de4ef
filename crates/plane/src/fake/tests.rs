//! Promises of the fake to tests of control.

use super::*;
use crate::{
    CipherName, Class, DataPlane as _, Endpoint, Formats, KeyError, KeyLimits, Moving,
    ReplayWindow, RouteChange, Transports, Wire,
};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use std::time::Instant;
use zeroize::ZeroizeOnDrop;

/// A protocol whose keys are one byte; 0 is refused.
struct Toy;

struct ToyKey(u8);

impl ZeroizeOnDrop for ToyKey {}

struct Clear;

impl crate::Format for Clear {
    fn head(&self) -> usize {
        0
    }
    fn tail(&self, _: usize) -> usize {
        0
    }
    fn seal(&self, _: &mut crate::Batch<'_>) {}
    fn open(&self, _: &mut crate::Batch<'_>) {}
    fn reveal(&self, _: &mut [u8], _: &mut crate::Packet) -> crate::Payload {
        crate::Payload::Inner
    }
}

impl Wire for Toy {
    const HEAD_MAX: usize = 0;
    const TAIL_MAX: usize = 0;
    const STAGES: bool = false;
    const ECN: bool = false;
    type Window = ReplayWindow;
    type Reader = ();
    fn classify(&self, (): &(), _: &[u8]) -> Class {
        Class::Control
    }
    fn loops(&self, _: &[u8], _: SocketAddr, _: u32, _: &Endpoint) -> bool {
        false
    }
}

impl Protocol for Toy {
    type Keys = ToyKey;
    type Error = io::Error;
    fn formats(&self, keys: &ToyKey) -> Result<Formats, io::Error> {
        if keys.0 == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(Formats {
            seal: Arc::new(Clear),
            open: Arc::new(Clear),
            cipher: CipherName {
                cipher: "none",
                backend: "none",
            },
        })
    }
}

const PEER: PeerId = PeerId(3);

fn keys(session: u32, material: u8) -> SessionKeys<ToyKey> {
    let limits = KeyLimits {
        expires: Instant::now() + Duration::from_secs(60),
        messages_max: 100,
        refresh_at: None,
        refresh_messages: 50,
    };
    SessionKeys {
        session,
        remote: 7,
        material: ToyKey(material),
        receive: limits,
        send: limits,
        confirm: false,
    }
}

fn route(last: u8) -> RouteChange {
    RouteChange::Add {
        address: [10, 0, 0, last].into(),
        len: 32,
        peer: PEER,
    }
}

#[test]
fn a_peer_that_is_removed_leaves_nothing_behind() {
    let fake = FakeDataPlane::new(Toy, "tun0", 1500);
    // Used as an object: control may choose its data plane when it starts.
    let plane: &dyn Transports<Protocol = Toy, Sockets = u16, Connection = SocketAddr> = &fake;
    plane.open_line(LineId::FIRST, 1194).unwrap();
    assert!(plane.add_peer(PEER, Moving::Tell));
    assert!(!plane.add_peer(PEER, Moving::Tell));
    let line = Line::udp(Endpoint::new(([192, 0, 2, 1], 1194).into()));
    plane.set_line(PEER, line);
    plane.add_keys(PEER, keys(24, 9)).unwrap();
    plane.send_with(PEER, 24);
    plane.change_routes(&[route(1), route(2)]);
    assert_eq!(fake.sealing(PEER), Some(24));
    assert_eq!(fake.route([10, 0, 0, 2].into()), Some(PEER));
    assert_eq!(fake.with_keys(PEER, 24, |keys| keys.material.0), Some(9));
    assert_eq!(plane.peer(PEER).unwrap().line, Some(line));
    plane.remove_peer(PEER);
    assert_eq!(fake.route([10, 0, 0, 2].into()), None);
    assert_eq!(fake.sessions(PEER), []);
    assert_eq!(plane.peer(PEER), None);
}

#[test]
fn a_session_is_one_peers_and_new_keys_of_it_seal_when_control_says_so() {
    let fake = FakeDataPlane::new(Toy, "tun0", 1500);
    assert!(fake.add_peer(PEER, Moving::Stay) && fake.add_peer(PeerId(4), Moving::Stay));
    fake.add_keys(PEER, keys(24, 9)).unwrap();
    fake.send_with(PEER, 24);
    let other = fake.add_keys(PeerId(4), keys(24, 8));
    assert!(matches!(other, Err(KeyError::Taken(24))));
    assert_eq!(fake.sealing(PEER), Some(24));
    fake.add_keys(PEER, keys(24, 7)).unwrap();
    assert_eq!(fake.sealing(PEER), None);
}

#[test]
fn calls_out_of_order_are_astray() {
    let fake = FakeDataPlane::new(Toy, "tun0", 1500);
    assert!(matches!(
        fake.add_keys(PEER, keys(24, 9)),
        Err(KeyError::NoPeer(PEER))
    ));
    assert!(fake.add_peer(PEER, Moving::Stay));
    fake.send_with(PEER, 24);
    assert_eq!(fake.astray()[1..], [Call::SendWith(PEER, 24)]);
    let refused = fake.add_keys(PEER, keys(24, 0));
    assert!(matches!(refused, Err(KeyError::Material(_))));
    assert_eq!(fake.sessions(PEER), []);
    assert_eq!(fake.take_calls().len(), 4);
    assert_eq!(
        fake.astray().len(),
        2,
        "refused calls do not count as astray"
    );
}
