//! Random changes of a configuration, with the state machine of a real interface. Peers that a change does not concern
//! keep their keys, addresses and waiting packets.

use crate::up::wireguard::{device_of, difference};
use config::tunnel::{Peer, Tunnel};
use config::types::{AllowedIp, Key32};
use openwrt::network::{Network, Source};
use openwrt::uci::Package;
use plane::{PeerId, RouteChange};
use service::now::Now;
use service::wireguard::{Effect, Event, Machine, PlaneRequest};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

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

/// An interface, and the requests that its data plane got.
struct World {
    machine: Machine,
    peers: BTreeSet<PeerId>,
    routes: BTreeMap<(IpAddr, u8), PeerId>,
}

impl World {
    fn handle(&mut self, event: Event) -> Vec<PlaneRequest> {
        let mut requests = Vec::new();
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            let mut effects = Vec::new();
            let known = self.peers.clone();
            let view = |id: PeerId| known.contains(&id).then(plane::PeerState::default);
            self.machine.handle(event, Now::read(), &view, &mut effects);
            for effect in effects {
                match effect {
                    Effect::Bind { port, .. } => events.push(Event::Bound(Ok(port))),
                    Effect::Mark(_) => events.push(Event::Marked(Ok(()))),
                    Effect::Answer { result, .. } => result.unwrap(),
                    Effect::Plane(request) => {
                        self.told(&request);
                        requests.push(request);
                    }
                    _ => {}
                }
            }
        }
        requests
    }

    fn told(&mut self, request: &PlaneRequest) {
        match request {
            PlaneRequest::AddPeer(id, _) => assert!(self.peers.insert(*id)),
            PlaneRequest::RemovePeer(id) => {
                assert!(self.peers.remove(id));
                self.routes.retain(|_, peer| peer != id);
            }
            // All changes at once, as in the data plane.
            PlaneRequest::ChangeRoutes(changes) => {
                for change in changes {
                    match *change {
                        RouteChange::Add { address, len, peer } => {
                            self.routes.insert((address, len), peer);
                        }
                        RouteChange::Remove { address, len, .. } => {
                            self.routes.remove(&(address, len));
                        }
                    }
                }
            }
            _ => {}
        }
    }

    /// Applies another configuration, as the tunnel's owner does.
    fn reload(&mut self, old: &Tunnel, new: &Tunnel) -> Vec<PlaneRequest> {
        let known = self.peers.clone();
        let view = |id: PeerId| known.contains(&id).then(plane::PeerState::default);
        let (_, running) = self.machine.state(&view);
        let running: Vec<Key32> = running.into_iter().map(|it| it.public_key).collect();
        let set = difference(old, new, &running);
        let mut requests = self.handle(Event::Configure { client: 0, set });
        for peer in &new.peers {
            let before = find(old, &peer.public_key).map(|it| &it.endpoint);
            let endpoint = peer.endpoint.clone();
            if let Some(endpoint) = endpoint.filter(|_| before != Some(&peer.endpoint)) {
                let public_key = peer.public_key.clone();
                requests.extend(self.handle(Event::SetEndpoint {
                    public_key,
                    endpoint,
                }));
            }
        }
        requests
    }

    /// The ranges that the data plane routes to a peer.
    fn ranges(&self, of: &Peer) -> BTreeSet<(IpAddr, u8)> {
        let own = |id: &PeerId| self.machine.public_key_of(*id) == Some(&of.public_key);
        let routes = self.routes.iter().filter(|it| own(it.1));
        routes.map(|it| *it.0).collect()
    }
}

fn find<'t>(tunnel: &'t Tunnel, key: &Key32) -> Option<&'t Peer> {
    tunnel.peers.iter().find(|it| &it.public_key == key)
}

/// The peer whose keys, address or waiting packets a request removes.
fn disturbed(request: &PlaneRequest) -> Option<PeerId> {
    match request {
        PlaneRequest::RemovePeer(id)
        | PlaneRequest::SetLine(id, _)
        | PlaneRequest::ForgetSource(id)
        | PlaneRequest::StopSending(id)
        | PlaneRequest::RemoveKeys(id, _)
        | PlaneRequest::DropStaged(id) => Some(*id),
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
        let mut world = World {
            machine: Machine::new(Now::read(), seed),
            peers: BTreeSet::new(),
            routes: BTreeMap::new(),
        };
        world.handle(Event::Start);
        world.handle(Event::Link {
            up: true,
            mtu: 1420,
        });
        let mut old = tunnel(&text(51820, &all));
        let set = device_of(&old);
        world.handle(Event::Configure { client: 0, set });
        for step in 0..12 {
            // Includes some `renew`s without a change.
            if !random.one_in(4) {
                change(&mut random, &mut all);
            }
            let new = tunnel(&text(51820, &all));
            let ids: BTreeMap<PeerId, Key32> = world
                .peers
                .iter()
                .filter_map(|id| Some((*id, world.machine.public_key_of(*id)?.clone())))
                .collect();
            let requests = world.reload(&old, &new);
            for id in requests.iter().filter_map(disturbed) {
                let Some(key) = ids.get(&id) else { continue };
                let same = find(&old, key) == find(&new, key);
                assert!(!same, "{seed}, {step}: {:?}", key.to_base64());
            }
            assert_eq!(world.peers.len(), new.peers.len(), "{seed}, {step}");
            for peer in &new.peers {
                let ranges = peer.allowed_ips.iter();
                let ranges: BTreeSet<_> = ranges
                    .map(|it: &AllowedIp| (it.addr(), it.prefix()))
                    .collect();
                assert_eq!(world.ranges(peer), ranges, "{seed}, {step}");
            }
            old = new;
        }
    }
}
