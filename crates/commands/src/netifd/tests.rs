//! Random changes of a configuration, with the state machine of a real interface. Peers that a change does not concern
//! keep their keys, addresses and waiting packets.

use crate::up::wireguard::{device_of, difference};
use config::tunnel::{Peer, Tunnel};
use config::types::{AllowedIp, Key32};
use openwrt::network::{Network, Source};
use openwrt::uci::Package;
use plane::Now;
use plane::PeerId;
use plane::fake::{Call, FakeDataPlane};
use service::wireguard::fixture::FakeHost;
use service::wireguard::{Cx, Event, Machine};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use wireguard::WireGuard;

const PEERS: u64 = 6;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }

    fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }
}

/// One peer's entries in the configuration.
#[derive(Clone, Default)]
struct Said {
    there: bool,
    disabled: bool,
    wrong: bool,
    ranges: BTreeSet<u64>,
    endpoint: u64,
    keepalive: u64,
    preshared: u64,
}

fn key(number: u64) -> String {
    let mut bytes = [7; 32];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    Key32::new(bytes).to_base64().to_string()
}

fn text(port: u64, all: &[Said]) -> String {
    let mut text = format!(
        "config interface office\n option proto millrace\n option private_key {}\n option listen_port {port}\n",
        key(999)
    );
    for (number, said) in (0..).zip(all).filter(|it| it.1.there) {
        text += "config millrace_office\n";
        let public = if said.wrong {
            "short".to_owned()
        } else {
            key(number)
        };
        text += &format!(
            " option public_key {public}\n option endpoint_host 192.0.2.{}\n",
            said.endpoint
        );
        text += &format!(" option disabled {}\n", u8::from(said.disabled));
        for range in &said.ranges {
            text += &format!(" list allowed_ips 10.{number}.{range}.0/24\n");
        }
        if said.keepalive != 0 {
            text += &format!(" option persistent_keepalive {}\n", said.keepalive);
        }
        if said.preshared != 0 {
            text += &format!(" option preshared_key {}\n", key(100 + said.preshared));
        }
    }
    text
}

fn tunnel(text: &str) -> Tunnel {
    let package = Package::parse(text).unwrap();
    match Network::read(&package, "office").unwrap().source {
        Source::Options { tunnel, .. } => *tunnel,
        Source::File(_) => panic!("a file"),
    }
}

/// An interface and its data plane.
struct World {
    machine: Machine,
    plane: Arc<FakeDataPlane<WireGuard>>,
    host: FakeHost,
}

impl World {
    fn new(seed: u64) -> Self {
        let plane = Arc::new(FakeDataPlane::new(WireGuard::new(), "wg0", 1420));
        Self {
            machine: Machine::new(Now::read(), seed),
            host: FakeHost::new(plane.clone()),
            plane,
        }
    }

    /// Calls the machine, and returns the calls that its data plane got.
    fn with(&mut self, call: impl FnOnce(&mut Machine, &mut Cx<'_>)) -> Vec<Call> {
        let mut cx = Cx::new(Now::read(), &*self.plane, &mut self.host);
        call(&mut self.machine, &mut cx);
        assert_eq!(self.plane.astray(), []);
        self.plane.take_calls()
    }

    fn handle(&mut self, event: Event) -> Vec<Call> {
        self.with(|machine, cx| machine.handle(event, cx))
    }

    /// Applies another configuration, as the tunnel's owner does.
    fn reload(&mut self, old: &Tunnel, new: &Tunnel) -> Vec<Call> {
        let (_, running) = self.machine.state(&*self.plane);
        let running: Vec<Key32> = running.into_iter().map(|it| it.public_key).collect();
        let set = difference(old, new, &running);
        let mut calls = self.with(|machine, cx| machine.configure(&set, cx).unwrap());
        for peer in &new.peers {
            let before = find(old, &peer.public_key).map(|it| &it.endpoint);
            let endpoint = peer.endpoint.clone();
            if let Some(endpoint) = endpoint.filter(|_| before != Some(&peer.endpoint)) {
                let public_key = peer.public_key.clone();
                calls.extend(self.handle(Event::SetEndpoint {
                    public_key,
                    endpoint,
                }));
            }
        }
        calls
    }

    /// Whether the data plane routes exactly these ranges to a peer.
    fn routes(&self, of: &Peer) -> bool {
        let own = |id: &PeerId| self.machine.public_key_of(*id) == Some(&of.public_key);
        let id = self.plane.peers().into_iter().find(own);
        let wanted = of.allowed_ips.iter();
        let wanted: BTreeSet<_> = wanted
            .map(|it: &AllowedIp| (it.addr(), it.prefix()))
            .collect();
        id.is_some_and(|id| self.plane.ranges(id) == wanted)
    }
}

fn find<'t>(tunnel: &'t Tunnel, key: &Key32) -> Option<&'t Peer> {
    tunnel.peers.iter().find(|it| &it.public_key == key)
}

/// The peer whose keys, address or waiting packets a call removes.
fn disturbed(call: &Call) -> Option<PeerId> {
    match call {
        Call::RemovePeer(id)
        | Call::SetLine(id, _)
        | Call::ForgetSource(id)
        | Call::StopSending(id)
        | Call::RemoveKeys(id, _)
        | Call::DropStaged(id) => Some(*id),
        _ => None,
    }
}

fn change(random: &mut Random, all: &mut [Said]) {
    for _ in 0..=random.below(2) {
        let at = random.below(PEERS) as usize;
        let said = &mut all[at];
        match random.below(7) {
            0 => said.there = !said.there,
            1 => said.disabled = !said.disabled,
            2 => said.wrong = !said.wrong,
            3 => {
                let range = random.below(4);
                if !said.ranges.remove(&range) {
                    said.ranges.insert(range);
                }
            }
            4 => said.endpoint = 1 + random.below(200),
            5 => said.keepalive = random.below(3) * 10,
            _ => said.preshared = random.below(3),
        }
    }
}

#[test]
fn two_hundred_random_schedules_of_reloads_disturb_no_peer_that_they_are_not_about() {
    for seed in 0..200_u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut all = vec![Said::default(); PEERS as usize];
        for said in &mut all {
            said.there = !random.one_in(4);
            said.endpoint = 1 + random.below(200);
            said.ranges = (0..random.below(4)).collect();
        }
        let mut world = World::new(seed);
        world.handle(Event::Start);
        world.handle(Event::Link {
            up: true,
            mtu: 1420,
        });
        let mut old = tunnel(&text(51820, &all));
        let set = device_of(&old);
        world.with(|machine, cx| machine.configure(&set, cx).unwrap());
        for step in 0..12 {
            // Includes some `renew`s without a change.
            if !random.one_in(4) {
                change(&mut random, &mut all);
            }
            let new = tunnel(&text(51820, &all));
            let ids = world.plane.peers().into_iter();
            let ids: BTreeMap<PeerId, Key32> = ids
                .filter_map(|id| Some((id, world.machine.public_key_of(id)?.clone())))
                .collect();
            let calls = world.reload(&old, &new);
            for id in calls.iter().filter_map(disturbed) {
                let Some(key) = ids.get(&id) else { continue };
                let same = find(&old, key) == find(&new, key);
                assert!(!same, "{seed}, {step}: {:?}", key.to_base64());
            }
            assert_eq!(world.plane.peers().len(), new.peers.len());
            for peer in &new.peers {
                assert!(world.routes(peer), "{seed}, {step}");
            }
            old = new;
        }
    }
}
