use super::*;
use proptest::prelude::*;

const LEAST: u16 = 1280;
const MOST: u16 = 1420;

/// A path, a peer that may answer, and a clock.
struct World {
    probe: PathProbe,
    path: u16,
    answers: bool,
    /// The peer does not answer requests longer than this.
    longest_answered: u16,
    /// Fate of each coming probe, true if lost; once the list is used up, no probe is lost.
    losses: std::vec::IntoIter<bool>,
    now: Instant,
    mtu: u16,
    sent: usize,
}

impl World {
    fn new(path: u16, answers: bool, losses: Vec<bool>) -> Self {
        Self {
            probe: PathProbe::new(LEAST, MOST, 7),
            path,
            answers,
            longest_answered: u16::MAX,
            losses: losses.into_iter(),
            now: Instant::now(),
            mtu: MOST,
            sent: 0,
        }
    }

    fn perform(&mut self, effects: Vec<ProbeEffect>) {
        for effect in effects {
            match effect {
                ProbeEffect::Use(mtu) => self.mtu = mtu,
                ProbeEffect::Send { number, len } => {
                    assert!(len == SHORT || (LEAST..=MOST).contains(&len));
                    self.sent += 1;
                    let lost = self.losses.next().unwrap_or(false);
                    if self.answers && !lost && len <= self.path && len <= self.longest_answered {
                        let mut out = Vec::new();
                        self.probe.answered(number, self.now, &mut out);
                        self.perform(out);
                    }
                }
            }
        }
    }

    /// Traffic for some seconds.
    fn run(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now += Duration::from_secs(1);
            let mut out = Vec::new();
            self.probe.expire(self.now, &mut out);
            self.probe.traffic(self.now, &mut out);
            self.perform(out);
        }
    }

    /// Whether the MTU is the largest that passes once a peer has padded its packets.
    fn fits(&self) -> bool {
        let path = self.path.min(MOST);
        let padded = self.mtu.next_multiple_of(RESOLUTION);
        self.mtu + RESOLUTION > path && (padded <= path || self.mtu == MOST && path == MOST)
    }
}

#[test]
fn a_path_without_faults_costs_two_packets_and_an_idle_tunnel_none() {
    let mut world = World::new(1500, true, Vec::new());
    assert_eq!(world.probe.next_deadline(), None);
    world.run(60);
    assert_eq!((world.mtu, world.sent), (MOST, 2));
    assert_eq!(world.probe.next_deadline(), None);
}

#[test]
fn a_peer_that_answers_nothing_changes_nothing() {
    let mut world = World::new(1300, false, Vec::new());
    world.run(60);
    assert_eq!((world.mtu, world.sent), (MOST, 6));
    assert_eq!(world.probe.knowledge(), Knowledge::Silent);
}

/// A firewall drops long probes, which does not show the MTU of the path.
#[test]
fn a_peer_that_answers_short_probes_only_changes_nothing() {
    let mut world = World::new(1500, true, Vec::new());
    world.longest_answered = 500;
    world.run(120);
    assert_eq!(world.mtu, MOST);
    assert_eq!(world.probe.knowledge(), Knowledge::OnlyShort);
}

#[test]
fn what_this_host_refuses_is_too_long() {
    let (mut out, now) = (Vec::new(), Instant::now());
    let mut probe = PathProbe::new(LEAST, MOST, 0);
    probe.traffic(now, &mut out);
    probe.refused(1, now, &mut out);
    let ProbeEffect::Send { len, .. } = out[3] else {
        panic!("{out:?}")
    };
    assert!(len < MOST && len > LEAST);
}

proptest! {
    #[test]
    fn what_passes_is_found_whatever_it_is(path in 1200_u16..1600) {
        let mut world = World::new(path, true, Vec::new());
        world.run(90);
        if path >= LEAST {
            prop_assert!(world.fits(), "{} of {path}", world.mtu);
        } else {
            // No useful length passes.
            prop_assert_eq!(world.mtu, MOST);
            prop_assert_eq!(world.probe.knowledge(), Knowledge::OnlyShort);
        }
        prop_assert!(world.sent <= 40, "{}", world.sent);
    }

    #[test]
    fn losses_are_got_over_and_changes_are_followed(
        paths in prop::collection::vec(LEAST..1600, 1..4),
        losses in prop::collection::vec(prop::bool::weighted(0.3), 0..100),
    ) {
        let mut world = World::new(1500, true, losses);
        for path in paths {
            world.path = path;
            world.run(5000);
        }
        // By then no more probes are lost.
        world.run(1300);
        prop_assert!(world.fits(), "{} of {}", world.mtu, world.path);
    }

    #[test]
    fn nothing_that_a_peer_sends_is_believed_unless_it_was_asked(numbers in prop::collection::vec(any::<u64>(), 0..50)) {
        let (mut out, now) = (Vec::new(), Instant::now());
        let mut probe = PathProbe::new(LEAST, MOST, 1 << 40);
        probe.traffic(now, &mut out);
        for number in numbers.into_iter().filter(|it| it >> 1 != 1 << 39) {
            probe.answered(number, now, &mut out);
        }
        prop_assert_eq!(out.len(), 2);
    }
}
