//! Invariants after each event, and at the end.

use super::data_plane::DataPlane;
use super::jobs::Jobs;
use crate::openvpn::server::machine::client::Step;
use crate::openvpn::server::machine::{Machine, peer};
use openvpn::data::protocol::session as session_of;
use openvpn::server::ClientId;
use plane::DataPlane as _;
use plane::fake::Call;
use std::collections::{BTreeSet, HashSet};

pub(super) fn check(machine: &Machine<'_>, data_plane: &DataPlane, jobs: &Jobs) {
    // Sessions, clients and the data plane's peers must be the same set.
    let sessions: HashSet<_> = machine.listener.clients().collect();
    let clients: HashSet<_> = machine.clients.keys().copied().collect();
    let peers = data_plane.peers.keys().map(|id| ClientId(id.0));
    let peers: HashSet<_> = peers.collect();
    assert_eq!(sessions, clients, "a session is a client");
    assert_eq!(clients, peers, "a client is a peer of the data plane");

    // Connected clients must be in the status, with their routes and keys.
    for (id, client) in &machine.clients {
        let session = machine.listener.session(*id).unwrap();
        let is_up = session.is_up();
        let (peer, id_there) = (&data_plane.peers[&peer(*id)], peer(*id));
        let fake = &data_plane.fake;
        // The machine must check key usage, to renew keys in time.
        if let Some(key_id) = session.newest_keys() {
            assert!(
                fake.sessions(id_there)
                    .contains(&session_of(id_there, key_id)),
                "{id:?} has not its newest keys"
            );
        }
        if client.step != Step::In {
            assert!(!is_up, "{id:?} is up and not in the status");
            assert!(peer.routes.is_empty() && fake.sealing(id_there).is_none());
            continue;
        }
        let wanted: BTreeSet<_> = client.networks.iter().copied().collect();
        assert_eq!(peer.routes, wanted, "{id:?} has other routes");
        let line = fake.peer(id_there).and_then(|it| it.line);
        // At most until the next round.
        assert!(
            line.is_some_and(|it| it.endpoint.addr == client.from.address) || client.moved,
            "{id:?} is elsewhere"
        );
        // A disconnected client stays until it acknowledges that.
        if is_up {
            assert!(fake.sealing(id_there).is_some(), "{id:?} gets no packets");
        }
    }
    for (network, owner) in &data_plane.routes {
        let peer = &data_plane.peers[owner];
        assert!(peer.routes.contains(network), "a route to no client");
    }

    // Each lease must belong to one client, and none may be lost.
    let mut places = HashSet::new();
    for client in machine.clients.values() {
        if let Some(lease) = client.lease {
            assert!(places.insert(lease.place), "two clients have a place");
        }
    }
    let in_use = machine.pool.as_ref().map_or(0, |pool| pool.in_use());
    assert_eq!(in_use, places.len(), "a place is in use of no client");

    // Every job must belong to a present client or be a notification.
    let wanted: BTreeSet<_> = machine.jobs.keys().copied().collect();
    let running: BTreeSet<_> = jobs.running.difference(&jobs.told).copied().collect();
    assert_eq!(
        wanted, running,
        "jobs that nothing waits for, or that do not run"
    );
    assert!(machine.jobs.values().all(|key| machine.is_there(*key)));
    let deferred = machine.clients.values().filter_map(|it| it.deferred);
    let deferred: BTreeSet<_> = deferred.map(|it| it.job()).collect();
    assert_eq!(
        deferred,
        jobs.files(),
        "files of scripts that nothing waits for"
    );
    let astray = data_plane.fake.astray();
    let closed = |call: &Call| matches!(call, Call::CloseLine(_));
    assert!(astray.iter().all(closed), "{astray:?}");
}

/// Asserts that a server that ended left no state behind.
pub(super) fn nothing_is_left(machine: &Machine<'_>, data_plane: &DataPlane, jobs: &Jobs) {
    check(machine, data_plane, jobs);
    assert!(machine.clients.is_empty() && machine.jobs.is_empty());
    assert!(
        data_plane.peers.is_empty(),
        "keys are left in the data plane"
    );
    assert!(data_plane.routes.is_empty());
    assert_eq!(jobs.running, jobs.told, "a job of a client goes on");
}
