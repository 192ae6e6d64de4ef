use super::*;
use crate::lines::Prober;
use zeroize::Zeroizing;

const FIRST: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const SECOND: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
const STRANGER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);

fn key(byte: u8) -> ProbeKey {
    ProbeKey::new(Zeroizing::new([byte; 32]))
}

struct Both {
    now: Instant,
    client: Prober,
    server: Addresses,
}

impl Both {
    fn new() -> Self {
        Self {
            now: Instant::now(),
            client: Prober::new(key(1), 10, 20),
            server: Addresses::new(key(1), key(2), 20, 10),
        }
    }

    /// Sends probes until the server's token no longer changes. Returns whether the address takes part.
    fn join(&mut self, line: u8, from: Ipv4Addr) -> bool {
        loop {
            let probe = self.client.probe(line, 0, 0b11).unwrap();
            let probed = self.server.probed(from.into(), &probe, self.now).unwrap();
            let answered = self.client.answered(&probed.answer, self.now).unwrap();
            assert_eq!((answered.line, answered.accepted), (line, probed.accepted));
            if !answered.again {
                return answered.accepted;
            }
        }
    }

    fn addresses(&self) -> Vec<Ipv4Addr> {
        self.server.all(self.now).map(|(_, ip, _)| ip).collect()
    }
}

#[test]
fn an_address_takes_part_once_it_has_shown_that_it_hears() {
    let mut ends = Both::new();
    let first = ends.client.probe(0, 0, 0b11).unwrap();
    let probed = ends.server.probed(FIRST.into(), &first, ends.now).unwrap();
    assert!(!probed.accepted);
    assert!(ends.addresses().is_empty());
    assert_eq!(probed.answer.len(), first.len(), "nothing is amplified");
    let answered = ends.client.answered(&probed.answer, ends.now).unwrap();
    assert!(answered.again && !answered.accepted);
    assert_eq!(ends.client.heard(), None);
    assert!(ends.join(0, FIRST));
    assert!(ends.join(1, SECOND));
    assert_eq!(ends.addresses(), [FIRST, SECOND]);
    assert_eq!(ends.server.used(ends.now), Some((0, FIRST.into())));
    assert_eq!(ends.client.heard(), Some(ends.now));
    assert_eq!(ends.server.heard(), Some(ends.now));
}

#[test]
fn a_probe_from_elsewhere_or_from_yesterday_gives_no_address() {
    let mut ends = Both::new();
    assert!(ends.join(0, FIRST));
    // An attacker intercepts the probe and sends it from another address before the server gets it.
    let caught = ends.client.probe(0, 0, 1).unwrap();
    let probed = ends
        .server
        .probed(STRANGER.into(), &caught, ends.now)
        .unwrap();
    assert!(!probed.accepted);
    assert!(
        ends.server
            .probed(FIRST.into(), &caught, ends.now)
            .unwrap()
            .accepted
    );
    for from in [FIRST, STRANGER] {
        let again = ends.server.probed(from.into(), &caught, ends.now);
        assert_eq!(again, Err(Refused::Replayed), "{from}");
    }
    let mut forged = ends.client.probe(0, 0, 1).unwrap();
    forged[20] ^= 1;
    let forged = ends.server.probed(FIRST.into(), &forged, ends.now);
    assert_eq!(forged, Err(Refused::Forged));
    // A probe is not accepted as an answer, nor an answer as a probe.
    let answer = probed.answer;
    assert_eq!(
        ends.server.probed(FIRST.into(), &answer, ends.now),
        Err(Refused::Forged)
    );
    assert_eq!(ends.client.answered(&caught, ends.now), None);
    assert_eq!(ends.addresses(), [FIRST]);
}

#[test]
fn an_answer_counts_once_and_only_if_it_was_asked_for() {
    let mut ends = Both::new();
    assert!(ends.join(0, FIRST));
    let probe = ends.client.probe(0, 0, 1).unwrap();
    let answer = ends
        .server
        .probed(FIRST.into(), &probe, ends.now)
        .unwrap()
        .answer;
    assert!(ends.client.answered(&answer, ends.now).is_some());
    assert_eq!(ends.client.answered(&answer, ends.now), None);
    assert_eq!(
        Prober::new(key(1), 10, 20).answered(&answer, ends.now),
        None
    );
    assert_eq!(
        Prober::new(key(1), 11, 20).answered(&answer, ends.now),
        None
    );
}

#[test]
fn there_are_few_addresses_and_silent_ones_are_forgotten() {
    let mut ends = Both::new();
    for line in 0..ADDRESSES_MAX as u8 {
        assert!(ends.join(line, Ipv4Addr::new(192, 0, 2, line)));
    }
    assert!(!ends.join(9, STRANGER));
    assert_eq!(ends.addresses().len(), ADDRESSES_MAX);
    // A line that moves to another address frees its old slot.
    assert!(ends.join(3, SECOND));
    assert_eq!(ends.addresses().len(), ADDRESSES_MAX);
    assert!(ends.addresses().contains(&SECOND));
    ends.now += ALIVE - Duration::from_secs(1);
    assert!(ends.join(0, FIRST));
    ends.now += Duration::from_secs(1);
    assert_eq!(ends.addresses(), [FIRST]);
    assert!(ends.join(9, STRANGER));
}

#[test]
fn the_newest_word_counts_for_which_lines_are_used() {
    let mut ends = Both::new();
    assert!(ends.join(0, FIRST) && ends.join(1, SECOND));
    let in_use = |ends: &Both| {
        let all = ends.server.in_use(ends.now);
        all.map(|(_, ends)| ends.theirs).collect::<Vec<_>>()
    };
    assert_eq!(in_use(&ends), [FIRST, SECOND]);
    let older = ends.client.probe(0, 0, 0b11).unwrap();
    let newer = ends.client.probe(1, 1, 0b10).unwrap();
    assert!(
        ends.server
            .probed(SECOND.into(), &newer, ends.now)
            .unwrap()
            .accepted
    );
    assert!(
        ends.server
            .probed(FIRST.into(), &older, ends.now)
            .unwrap()
            .accepted
    );
    assert_eq!(in_use(&ends), [SECOND]);
    assert_eq!(ends.server.used(ends.now), Some((1, SECOND.into())));
    // Two lines share one NAT.
    assert!(ends.join(2, SECOND));
    assert_eq!(ends.server.place_of(SECOND, ends.now), Some(1));
    assert_eq!(ends.addresses(), [FIRST, SECOND]);
}
