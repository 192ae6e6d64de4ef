//! Both data planes, and the division of packets between them, in random situations: peers renew their keys, wishes
//! change, the kernel refuses steps.

use super::*;
use crypto::{Cipher, Digest};
use openvpn::data::format::Shape;
use openvpn::data::protocol::session_keys;
use openvpn::data::wire::Layout;
use openvpn::keys::KeyMaterial;
use openvpn::session::DataKeys;
use plane::fake::{Call, FakeDataPlane};
use plane::{DataPlane, Endpoint, LineId};
use proptest::prelude::*;
use std::collections::BTreeSet;

type Fake = FakeDataPlane<Packets>;

/// The kernel, as far as packets see it.
#[derive(Default)]
struct World {
    /// Packets with these key ids go to the kernel's data plane.
    steered: BTreeSet<u32>,
    /// Packets from the interface go to the kernel's data plane.
    redirected: bool,
    /// The kernel's data plane exists, and is up.
    made: bool,
    up: bool,
    /// A train may hold packets for both data planes.
    trains: bool,
    disables_gro: bool,
    /// The next call of this kind fails.
    fails: Option<Step>,
    has_failed: bool,
    notices: Vec<Notice>,
    gone: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Begin,
    ComeUp,
    /// More keys are steered than before.
    Steer,
    Redirect,
}

type Shared = Arc<Mutex<World>>;

fn world(shared: &Shared) -> MutexGuard<'_, World> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Side(Shared);

impl Side {
    fn step(&self, step: Step) -> Result<MutexGuard<'_, World>, String> {
        let mut world = world(&self.0);
        match world.fails.take_if(|it| *it == step) {
            Some(step) => {
                world.has_failed = true;
                Err(format!("{step:?} fails; set dataplane.kind=user"))
            }
            None => Ok(world),
        }
    }
}

impl KernelSide<Fake> for Side {
    fn set_sockets(&mut self, _: Option<&u16>) {}

    fn can_begin(&self) -> bool {
        true
    }

    fn disable_gro(&mut self, disable: bool) {
        world(&self.0).disables_gro = disable;
    }

    fn is_gro_disabled(&self) -> bool {
        let world = world(&self.0);
        world.disables_gro && !world.trains
    }

    fn begin(&mut self) -> Result<Box<Fake>, String> {
        let mut world = self.step(Step::Begin)?;
        assert!(!world.made && !world.redirected && world.steered.is_empty());
        world.made = true;
        Ok(Box::new(fake()))
    }

    fn come_up(&mut self) -> Result<(), String> {
        self.step(Step::ComeUp)?.up = true;
        Ok(())
    }

    fn steer(&mut self, key_ids: &[u8]) -> Result<(), String> {
        let steered: BTreeSet<u32> = key_ids.iter().map(|it| u32::from(*it)).collect();
        let grows = !steered.is_subset(&world(&self.0).steered);
        let mut world = match grows {
            true => self.step(Step::Steer)?,
            false => world(&self.0),
        };
        world.steered = steered;
        Ok(())
    }

    fn redirect_to_kernel(&mut self, to_kernel: bool) -> Result<(), String> {
        let mut world = self.step(Step::Redirect)?;
        assert_ne!(world.redirected, to_kernel);
        assert!(!to_kernel || world.up, "packets would be dropped");
        world.redirected = to_kernel;
        Ok(())
    }

    fn end(&mut self) {
        let mut world = world(&self.0);
        (world.made, world.up) = (false, false);
    }
}

struct Reports(Shared);

impl Control for Reports {
    fn datagram(&self, _: Line, _: &[u8]) -> bool {
        true
    }

    fn notify(&self, peer: PeerId, notice: Notice) {
        assert_eq!(peer, PEER);
        world(&self.0).notices.push(notice);
    }

    fn device_gone(&self) {
        world(&self.0).gone = true;
    }
}

fn fake() -> Fake {
    FakeDataPlane::new(Packets::Client { recursive: false }, "tun0", 1500)
}

/// Keys with this number, told apart from all others by `serial`.
fn keys(key_id: u8, serial: u8, layout: Layout) -> SessionKeys<Material> {
    let bytes = KeyMaterial {
        cipher: [serial; 64],
        hmac: [serial; 64],
    };
    let keys = Box::new(DataKeys {
        key_id,
        cipher: Cipher::Aes256Gcm,
        auth: Digest::Sha256,
        layout,
        send: bytes.clone(),
        receive: bytes,
    });
    let material = Material {
        keys,
        shape: Shape::default(),
        allow_insecure: false,
    };
    session_keys(PEER, material, Instant::now())
}

const LAYOUT: Layout = Layout::V2 { peer_id: 3 };

/// A tunnel, with a session as control has it: at most three keys, the newest last.
struct Tunnel {
    moving: MovableTunnel<Fake, Side>,
    world: Shared,
    wish: Arc<Wish>,
    keys: Vec<(u8, u8)>,
    sealing: Option<u8>,
    serial: u8,
    key_id: u8,
}

impl Tunnel {
    fn new() -> Self {
        Self::by(Wish::new(false, "at first"))
    }

    fn by(wish: Wish) -> Self {
        let shared = Shared::default();
        let wish = Arc::new(wish);
        let control = Arc::new(Reports(Arc::clone(&shared)));
        let side = Side(Arc::clone(&shared));
        let moving = MovableTunnel::new(Box::new(fake()), side, Arc::clone(&wish), control);
        moving.open_line(LineId::FIRST, 1194).unwrap();
        moving.add_peer(PEER, Moving::Stay);
        moving.set_line(PEER, line(1));
        Self {
            moving,
            world: shared,
            wish,
            keys: Vec::new(),
            sealing: None,
            serial: 0,
            key_id: 0,
        }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        world(&self.world)
    }

    /// Installs the next keys. Returns whether a data plane took them.
    fn install(&mut self, layout: Layout) -> bool {
        while self.keys.len() > 2 {
            let (oldest, _) = self.keys[0];
            if self.sealing == Some(oldest) {
                self.seal();
            }
            self.remove();
        }
        self.serial += 1;
        let added = self
            .moving
            .add_keys(PEER, keys(self.key_id, self.serial, layout));
        if added.is_ok() {
            self.keys.push((self.key_id, self.serial));
        }
        self.key_id = self.key_id % 7 + 1;
        added.is_ok()
    }

    /// Seals with the newest keys.
    fn seal(&mut self) {
        if let Some((newest, _)) = self.keys.last() {
            self.sealing = Some(*newest);
            self.moving.send_with(PEER, u32::from(*newest));
        }
    }

    /// Removes the oldest keys, unless they seal.
    fn remove(&mut self) {
        if self
            .keys
            .first()
            .is_some_and(|(it, _)| self.sealing != Some(*it))
        {
            let (oldest, _) = self.keys.remove(0);
            self.moving.remove_keys(PEER, u32::from(oldest));
        }
    }

    fn renew(&mut self) {
        assert!(self.install(LAYOUT));
        self.seal();
    }

    /// The serial number of this session's keys in each data plane.
    fn in_planes(&self, session: u32) -> [Option<u8>; 2] {
        let state = self.moving.state();
        let serial = |keys: &SessionKeys<Material>| keys.material.keys.send.cipher[0];
        let kernel = state.kernel.as_ref();
        [
            self.moving.user.with_keys(PEER, session, serial),
            kernel.and_then(|it| it.with_keys(PEER, session, serial)),
        ]
    }

    fn is_in_kernel(&self) -> bool {
        self.wish.is_in_kernel()
    }

    /// Every packet of the peer and of the host is opened and sealed by the data plane that gets it, and by one only.
    fn check(&self) {
        for session in 0..8 {
            let known = self.keys.iter().find(|(it, _)| u32::from(*it) == session);
            let [user, kernel] = self.in_planes(session);
            assert!(user.is_none() || kernel.is_none(), "keys never move");
            let steered = self.world().steered.contains(&session);
            assert_eq!(steered, kernel.is_some(), "a packet comes to its keys");
            assert_eq!(
                user.or(kernel),
                known.map(|(_, serial)| *serial),
                "{session}"
            );
        }
        let world = self.world();
        assert!(!world.gone);
        let state = self.moving.state();
        assert_eq!(world.redirected, state.is_redirected);
        assert!(
            world.steered.is_empty() || world.disables_gro,
            "a train mixes packets"
        );
        let Some(sealing) = self.sealing.map(u32::from) else {
            return;
        };
        if state.seals_in_kernel() != world.redirected {
            assert!(world.has_failed, "packets go to the keys");
            return;
        }
        let sealer = match world.redirected {
            true => state.kernel.as_ref().unwrap().sealing(PEER),
            false => self.moving.user.sealing(PEER),
        };
        assert_eq!(sealer, Some(sealing));
    }
}

fn line(last: u8) -> Line {
    Line::udp(Endpoint::new(([192, 0, 2, last], 1194).into()))
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Install,
    Seal,
    Remove,
    Wish(bool),
    Look,
    Trains(bool),
    Fail(Step),
}

fn act() -> impl Strategy<Value = Act> {
    let step = prop::sample::select(vec![Step::Begin, Step::ComeUp, Step::Steer, Step::Redirect]);
    prop_oneof![
        4 => Just(Act::Install),
        4 => Just(Act::Seal),
        2 => Just(Act::Remove),
        3 => any::<bool>().prop_map(Act::Wish),
        2 => Just(Act::Look),
        1 => any::<bool>().prop_map(Act::Trains),
        1 => step.prop_map(Act::Fail),
    ]
}

proptest! {
    #[test]
    fn each_packet_meets_its_keys_once(acts in prop::collection::vec(act(), 1..80)) {
        let mut tunnel = Tunnel::new();
        tunnel.renew();
        for act in acts {
            match act {
                Act::Install => {
                    // Keys that never sealed make room for the next ones.
                    prop_assert!(tunnel.install(LAYOUT), "the session goes on");
                }
                Act::Seal => tunnel.seal(),
                Act::Remove => tunnel.remove(),
                Act::Wish(kernel) => tunnel.wish.set(kernel, "asked for"),
                Act::Look => {
                    tunnel.moving.peer(PEER).unwrap();
                }
                Act::Trains(trains) => tunnel.world().trains = trains,
                // A failure to redirect packets back is checked below.
                Act::Fail(Step::Redirect) if tunnel.world().redirected => {}
                Act::Fail(step) => tunnel.world().fails = Some(step),
            }
            if tunnel.world().redirected {
                tunnel.world().fails = None;
            }
            tunnel.check();
        }
        // The tunnel still moves to each data plane that is wished for.
        tunnel.world().fails = None;
        tunnel.world().trains = false;
        for kernel in [true, false, true] {
            tunnel.wish.set(kernel, "asked for");
            tunnel.moving.peer(PEER).unwrap();
            tunnel.renew();
            tunnel.check();
            prop_assert_eq!(tunnel.is_in_kernel(), kernel);
        }
        tunnel.moving.remove_peer(PEER);
        prop_assert!(!tunnel.world().made && !tunnel.world().redirected);
    }
}

/// Wishes until the next keys; returns the notices meanwhile.
fn wish(tunnel: &Tunnel, kernel: bool) -> Vec<Notice> {
    tunnel.wish.set(kernel, "asked for");
    tunnel.moving.peer(PEER).unwrap();
    std::mem::take(&mut tunnel.world().notices)
}

#[test]
fn a_wish_asks_for_new_keys_once() {
    let mut tunnel = Tunnel::new();
    tunnel.renew();
    assert_eq!(wish(&tunnel, true), [Notice::Refresh { index: 0 }]);
    assert_eq!(wish(&tunnel, true), [], "the handshake may take a while");
    tunnel.install(LAYOUT);
    assert!(
        !tunnel.is_in_kernel() && !tunnel.world().redirected,
        "the peer may not have them"
    );
    tunnel.seal();
    assert!(tunnel.is_in_kernel() && tunnel.world().redirected);
    assert_eq!(wish(&tunnel, true), []);
    tunnel.renew();
    assert_eq!(wish(&tunnel, false), [Notice::Refresh { index: 2 }]);
    tunnel.renew();
    assert!(!tunnel.is_in_kernel() && !tunnel.world().redirected);
    assert!(tunnel.world().made, "the peer may seal with the old keys");
    tunnel.remove();
    tunnel.remove();
    assert!(!tunnel.world().made);
    assert!(!tunnel.world().disables_gro, "trains again");
}

#[test]
fn what_the_kernel_cannot_do_stays_in_user_space_without_an_end() {
    for (reason, fails, layout) in [
        ("peer-id", None, Layout::V1),
        ("Begin", Some(Step::Begin), LAYOUT),
    ] {
        let mut tunnel = Tunnel::new();
        tunnel.renew();
        wish(&tunnel, true);
        tunnel.world().fails = fails;
        assert!(tunnel.install(layout));
        tunnel.seal();
        tunnel.check();
        let why = tunnel.wish.why();
        assert!(
            why.contains(reason) && !why.contains("set dataplane"),
            "{why}"
        );
        assert!(!tunnel.wish.is_for_kernel() && !tunnel.is_in_kernel());
        assert_eq!(wish(&tunnel, false), []);
        assert!(!tunnel.world().disables_gro, "trains again");
    }
    // A limit that comes later.
    let mut tunnel = Tunnel::new();
    tunnel.renew();
    wish(&tunnel, true);
    tunnel.renew();
    assert!(tunnel.is_in_kernel());
    tunnel.moving.set_rate(Some(1_000_000));
    tunnel.moving.peer(PEER).unwrap();
    assert!(
        tunnel
            .world()
            .notices
            .contains(&Notice::Refresh { index: 1 })
    );
    tunnel.renew();
    assert!(!tunnel.is_in_kernel());
    tunnel.check();
}

#[test]
fn a_format_that_the_kernel_lacks_ends_with_its_session() {
    let mut tunnel = Tunnel::new();
    for _ in 0..3 {
        tunnel.install(Layout::Epoch { peer_id: 3 });
        tunnel.seal();
        tunnel.check();
        wish(&tunnel, true);
    }
    assert_eq!(wish(&tunnel, true), [], "new keys would not help");
    assert!(tunnel.wish.is_for_kernel() && !tunnel.is_in_kernel());
    tunnel.moving.remove_peer(PEER);
    tunnel.moving.add_peer(PEER, Moving::Stay);
    tunnel.moving.set_line(PEER, line(1));
    tunnel.keys.clear();
    tunnel.renew();
    assert!(tunnel.is_in_kernel());
}

#[test]
fn keys_that_the_kernel_refuses_go_to_user_space() {
    for step in [Step::ComeUp, Step::Steer] {
        let mut tunnel = Tunnel::new();
        tunnel.renew();
        wish(&tunnel, true);
        tunnel.world().fails = Some(step);
        tunnel.renew();
        tunnel.check();
        assert!(!tunnel.wish.is_for_kernel() && !tunnel.is_in_kernel());
        assert!(!tunnel.world().made && !tunnel.world().disables_gro);
        // The next wish works.
        wish(&tunnel, true);
        tunnel.renew();
        assert!(tunnel.is_in_kernel());
        // The kernel keeps the keys that it has.
        tunnel.world().fails = Some(Step::Steer);
        tunnel.install(LAYOUT);
        tunnel.check();
        assert!(tunnel.is_in_kernel() && !tunnel.wish.is_for_kernel());
        tunnel.seal();
        tunnel.check();
        assert!(!tunnel.is_in_kernel());
    }
}

#[test]
fn a_tunnel_that_begins_in_the_kernel_moves_like_any_other() {
    for wished in [Wish::new(true, "measured"), Wish::required("set")] {
        let mut tunnel = Tunnel::by(wished);
        tunnel.renew();
        assert!(tunnel.is_in_kernel());
        for kernel in [false, true] {
            assert_eq!(wish(&tunnel, kernel).len(), 1);
            tunnel.renew();
            tunnel.check();
            assert_eq!(tunnel.is_in_kernel(), kernel);
        }
        // A feature of user space, even if the kernel is required.
        tunnel.moving.set_rate(Some(1_000_000));
        tunnel.renew();
        assert!(!tunnel.is_in_kernel());
    }
}

#[test]
fn a_required_kernel_is_not_replaced() {
    for step in [Step::Begin, Step::ComeUp, Step::Steer] {
        let mut tunnel = Tunnel::by(Wish::required("set"));
        for _ in 0..2 {
            tunnel.world().fails = Some(step);
            assert!(!tunnel.install(LAYOUT), "{step:?}: no keys in user space");
            assert!(!tunnel.world().made && tunnel.wish.is_for_kernel());
        }
        tunnel.renew();
        assert!(tunnel.is_in_kernel());
    }
    assert!(!Tunnel::by(Wish::required("set")).install(Layout::V1));
    let mut tunnel = Tunnel::by(Wish::required("set"));
    tunnel.world().fails = Some(Step::Redirect);
    tunnel.renew();
    assert_eq!(tunnel.world().notices, [Notice::Failed]);
    // Who asks for user space gets it.
    let mut tunnel = Tunnel::by(Wish::required("set"));
    tunnel.wish.set(false, "asked for");
    tunnel.renew();
    assert!(!tunnel.is_in_kernel());
}

/// The latest pings and allowed silence of a data plane, in seconds.
fn kept_alive(plane: &Fake) -> Option<(Option<u64>, Option<u64>)> {
    let seconds = |time: Option<Duration>| time.map(|it| it.as_secs());
    let calls = plane.take_calls().into_iter();
    let mut kept = calls.filter_map(|call| match call {
        Call::KeepAlive(_, ping, silence) => Some((seconds(ping), seconds(silence))),
        _ => None,
    });
    kept.next_back()
}

impl Tunnel {
    fn with_kernel<T>(&self, look: impl FnOnce(&Fake) -> T) -> T {
        look(self.moving.state().kernel.as_ref().unwrap())
    }

    /// When the peer was last alive.
    fn alive(&self) -> Option<Instant> {
        self.moving.peer(PEER).unwrap().times.last_received
    }
}

#[test]
fn the_kernel_watches_an_idle_peer() {
    let seconds = |it| Some(Duration::from_secs(it));
    let is_heard = |tunnel: &Tunnel, heard| {
        tunnel.with_kernel(|it| it.change_peer(PEER, |it| it.times.last_received = heard));
    };
    let mut tunnel = Tunnel::new();
    tunnel.renew();
    tunnel.moving.keep_alive(PEER, seconds(10), seconds(60));
    wish(&tunnel, true);
    tunnel.renew();
    let drain = DRAIN.as_secs();
    // The peer may still seal with the keys in user space.
    assert_eq!(
        tunnel.with_kernel(kept_alive),
        Some((Some(10), Some(60 + drain)))
    );
    // Pings move nothing but the kernel's own timer.
    let now = Instant::now();
    is_heard(&tunnel, Some(now));
    assert_eq!(tunnel.alive(), Some(now));
    // Packets of the kernel's keys show that the peer has moved, and so does time.
    let later = tunnel.moving.state().began.unwrap() + Duration::from_millis(1);
    tunnel.with_kernel(|it| it.change_peer(PEER, |it| it.heard = Some(later)));
    tunnel.alive();
    assert_eq!(tunnel.with_kernel(kept_alive), Some((Some(10), Some(60))));
    tunnel.with_kernel(|it| it.change_peer(PEER, |it| it.heard = None));
    tunnel.alive();
    assert_eq!(
        tunnel.with_kernel(kept_alive),
        Some((Some(10), Some(60 + drain)))
    );
    tunnel.moving.state().began = now.checked_sub(DRAIN);
    tunnel.alive();
    assert_eq!(tunnel.with_kernel(kept_alive), Some((Some(10), Some(60))));
    // The kernel has found the peer silent.
    is_heard(&tunnel, None);
    assert_eq!(tunnel.alive(), None);
    // Back in user space, the kernel hears a peer that still has its keys, and removes none.
    is_heard(&tunnel, Some(now));
    wish(&tunnel, false);
    tunnel.renew();
    assert_eq!(tunnel.with_kernel(kept_alive), Some((None, None)));
    assert_eq!(tunnel.alive(), Some(now));
    let long_ago = now.checked_sub(DRAIN);
    tunnel.wish.set(true, "the kernel's side stays");
    tunnel.moving.state().left = long_ago;
    assert_eq!(tunnel.alive(), None);
}

#[test]
fn a_session_that_begins_in_the_kernel_has_its_own_limit_at_once() {
    let mut tunnel = Tunnel::new();
    tunnel.wish.set(true, "asked for");
    tunnel.renew();
    let silence = Some(Duration::from_secs(60));
    tunnel.moving.keep_alive(PEER, None, silence);
    assert_eq!(tunnel.with_kernel(kept_alive), Some((None, Some(60))));
    tunnel.moving.keep_alive(PEER, None, None);
    assert_eq!(tunnel.with_kernel(kept_alive), Some((None, None)));
}

#[test]
fn a_rate_limit_refuses_the_kernel_before_and_after_the_wish() {
    let mut tunnel = Tunnel::new();
    tunnel.moving.set_rate(Some(1_000_000));
    for _ in 0..2 {
        tunnel.wish.set(true, "asked for");
        tunnel.renew();
        assert!(!tunnel.is_in_kernel() && !tunnel.wish.is_for_kernel());
        assert_eq!(wish(&tunnel, true), []);
        assert!(tunnel.wish.why().contains("shaper"));
        assert!(!tunnel.world().disables_gro);
    }
    tunnel.moving.set_rate(None);
    wish(&tunnel, true);
    tunnel.renew();
    assert!(tunnel.is_in_kernel());
}

#[test]
fn trains_come_again_when_the_kernel_is_not_used() {
    // A wish that is withdrawn, and a format for which it waits.
    for layout in [LAYOUT, Layout::Epoch { peer_id: 3 }] {
        let mut tunnel = Tunnel::new();
        tunnel.renew();
        wish(&tunnel, true);
        assert!(tunnel.world().disables_gro);
        if layout == LAYOUT {
            tunnel.wish.set(false, "withdrawn");
        }
        tunnel.install(layout);
        tunnel.moving.peer(PEER).unwrap();
        assert!(!tunnel.world().disables_gro);
    }
}

#[test]
fn a_socket_that_never_runs_empty_does_not_renew_for_ever() {
    let mut tunnel = Tunnel::new();
    tunnel.renew();
    tunnel.world().trains = true;
    assert_eq!(wish(&tunnel, true), [], "no renewal while trains wait");
    let mut asked = 0;
    while tunnel.wish.is_for_kernel() {
        tunnel.moving.state().ask_at = Some(Instant::now());
        asked += wish(&tunnel, true).len();
        tunnel.renew();
    }
    assert_eq!(asked, TRIES as usize);
    assert!(tunnel.wish.why().contains("never runs empty"));
    tunnel.world().trains = false;
    wish(&tunnel, true);
    tunnel.renew();
    assert!(tunnel.is_in_kernel());
}

#[test]
fn a_kernel_that_gets_no_packets_stops_its_pings() {
    let mut tunnel = Tunnel::new();
    tunnel.renew();
    let ping = Some(Duration::from_secs(10));
    tunnel.moving.keep_alive(PEER, ping, None);
    wish(&tunnel, true);
    tunnel.world().fails = Some(Step::Redirect);
    tunnel.renew();
    tunnel.check();
    assert!(!tunnel.is_in_kernel() && !tunnel.wish.is_for_kernel());
    assert_eq!(tunnel.with_kernel(kept_alive), Some((Some(10), None)));
    tunnel.renew();
    assert_eq!(tunnel.with_kernel(kept_alive), Some((None, None)));
    tunnel.moving.state().left = Instant::now().checked_sub(DRAIN);
    tunnel.moving.peer(PEER).unwrap();
    assert!(!tunnel.world().made);
}

#[test]
fn packets_that_cannot_be_led_back_end_the_interface() {
    let mut tunnel = Tunnel::new();
    tunnel.renew();
    wish(&tunnel, true);
    tunnel.renew();
    tunnel.world().fails = Some(Step::Redirect);
    tunnel.moving.remove_peer(PEER);
    assert!(tunnel.world().gone);
}

#[test]
fn figures_are_those_of_both() {
    let mut tunnel = Tunnel::new();
    tunnel.renew();
    let bytes = |plane: &Fake, bytes| {
        plane.change_peer(PEER, |it| (it.rx_bytes, it.tx_bytes) = (bytes, 2 * bytes));
    };
    let seen = |tunnel: &Tunnel| {
        let peer = tunnel.moving.peer(PEER).unwrap();
        (peer.rx_bytes, peer.tx_bytes)
    };
    bytes(&tunnel.moving.user, 5);
    wish(&tunnel, true);
    tunnel.renew();
    let heard = Instant::now();
    {
        let state = tunnel.moving.state();
        let kernel = state.kernel.as_ref().unwrap();
        bytes(kernel, 7);
        kernel.change_peer(PEER, |it| it.heard = Some(heard));
    }
    assert_eq!(seen(&tunnel), (12, 24));
    tunnel.with_kernel(|it| {
        it.set_statistics(Statistics {
            drops: vec![("kernel_inbound", 4)],
            ..Statistics::default()
        });
    });
    let peer = tunnel.moving.peer(PEER).unwrap();
    assert_eq!(peer.times.last_received, Some(heard));
    assert!(peer.times.last_sent >= Some(heard), "the kernel pings");
    wish(&tunnel, false);
    tunnel.renew();
    tunnel.remove();
    tunnel.remove();
    assert!(!tunnel.world().made);
    assert_eq!(seen(&tunnel), (12, 24), "and do not fall");
    assert_eq!(tunnel.moving.statistics().drops, [("kernel_inbound", 4)]);
    wish(&tunnel, true);
    tunnel.renew();
    assert_eq!(tunnel.moving.statistics().drops, [("kernel_inbound", 4)]);
}

#[test]
fn both_follow_the_peer_to_another_address() {
    let mut tunnel = Tunnel::new();
    tunnel.renew();
    wish(&tunnel, true);
    tunnel.renew();
    let lines = |tunnel: &Tunnel| {
        let state = tunnel.moving.state();
        let kernel = state.kernel.as_ref().unwrap().peer(PEER).unwrap();
        [tunnel.moving.user.peer(PEER).unwrap().line, kernel.line]
    };
    tunnel
        .moving
        .user
        .change_peer(PEER, |it| it.line = Some(line(2)));
    assert_eq!(tunnel.moving.peer(PEER).unwrap().line, Some(line(2)));
    assert_eq!(lines(&tunnel), [Some(line(2)); 2]);
    {
        let state = tunnel.moving.state();
        let kernel = state.kernel.as_ref().unwrap();
        kernel.change_peer(PEER, |it| it.line = Some(line(3)));
    }
    assert_eq!(tunnel.moving.peer(PEER).unwrap().line, Some(line(3)));
    assert_eq!(lines(&tunnel), [Some(line(3)); 2]);
}
