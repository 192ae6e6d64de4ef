//! MPPE: order, loss, and resets.

#![allow(clippy::unwrap_used)]

use pptp::mppe::{
    BEHIND, Decryptor, Encryptor, KeyLength, MAX_AHEAD, MasterKey, OpenError, ResetStyle, StartKey,
    Stateful, Stateless,
};

fn key(length: KeyLength) -> StartKey {
    MasterKey::new(&[7; 16], &[9; 24]).start_key(true, length)
}

/// A sender of consecutive packets in frame format.
struct Sender {
    encryptor: Encryptor,
    sent: u64,
}

impl Sender {
    fn new(length: KeyLength, stateless: bool) -> Self {
        Self {
            encryptor: Encryptor::new(key(length), stateless),
            sent: 0,
        }
    }

    fn next(&mut self) -> (u64, Vec<u8>) {
        let number = self.sent;
        self.sent += 1;
        let mut inner = plain(number);
        let header = self.encryptor.seal(&mut inner);
        (number, [&header, inner.as_slice()].concat())
    }

    fn skip(&mut self, count: u64) {
        for _ in 0..count {
            let _ = self.next();
        }
    }
}

fn plain(number: u64) -> Vec<u8> {
    [&[0x00, 0x21, 0x45, 0x00][..], &number.to_be_bytes()].concat()
}

fn open_stateless(
    receiver: &mut Stateless,
    (number, packet): &(u64, Vec<u8>),
) -> Result<(), OpenError> {
    let mut packet = packet.clone();
    receiver.open(*number, &mut packet)?;
    assert_eq!(packet[2..], plain(*number));
    Ok(())
}

fn open_stateful(
    receiver: &mut Stateful,
    (number, packet): &(u64, Vec<u8>),
) -> Result<(), OpenError> {
    let mut packet = packet.clone();
    receiver.open(&mut packet)?;
    assert_eq!(packet[2..], plain(*number));
    Ok(())
}

#[test]
fn the_first_packets_are_numbered_from_nought_and_marked_as_rfc_3078_has_it() {
    let mut stateless = Sender::new(KeyLength::Bits128, true);
    assert_eq!(stateless.next().1[..2], [0x90, 0]);
    assert_eq!(stateless.next().1[..2], [0x90, 1]);
    let mut stateful = Sender::new(KeyLength::Bits128, false);
    assert_eq!(stateful.next().1[..2], [0x10, 0]);
    stateful.skip(254);
    assert_eq!(
        stateful.next().1[..2],
        [0x90, 0xff],
        "a new key with each 256th"
    );
    assert_eq!(stateful.next().1[..2], [0x11, 0]);
}

#[test]
fn ten_thousand_packets_in_order() {
    for length in [KeyLength::Bits40, KeyLength::Bits56, KeyLength::Bits128] {
        for stateless in [true, false] {
            let mut sender = Sender::new(length, stateless);
            let mut receiver = Decryptor::new(key(length), stateless);
            for _ in 0..10_000 {
                let (number, mut packet) = sender.next();
                receiver.open(number, false, &mut packet).unwrap();
                assert_eq!(packet[2..], plain(number));
            }
        }
    }
}

#[test]
fn packets_with_keys_of_their_own_open_in_any_order_and_once() {
    let mut sender = Sender::new(KeyLength::Bits128, true);
    let packets: Vec<_> = (0..1000).map(|_| sender.next()).collect();
    let mut receiver = Stateless::new(key(KeyLength::Bits128));
    for packet in packets.iter().step_by(3) {
        assert_eq!(open_stateless(&mut receiver, packet), Ok(()), "{packet:?}");
    }
    for packet in packets.iter().rev() {
        let expected = if packet.0 % 3 == 0 {
            Err(OpenError::Duplicate)
        } else {
            Ok(())
        };
        assert_eq!(
            open_stateless(&mut receiver, packet),
            expected,
            "{packet:?}"
        );
    }
    for packet in &packets {
        assert_eq!(
            open_stateless(&mut receiver, packet),
            Err(OpenError::Duplicate)
        );
    }
}

#[test]
fn as_many_packets_may_be_missing_as_the_count_can_tell_apart() {
    for lost in [1, 255, 256, 2047, 2048, 3000, MAX_AHEAD - 1] {
        let mut sender = Sender::new(KeyLength::Bits128, true);
        let mut receiver = Stateless::new(key(KeyLength::Bits128));
        for _ in 0..2 {
            assert_eq!(open_stateless(&mut receiver, &sender.next()), Ok(()));
            let first = sender.next();
            sender.skip(lost - 1);
            assert_eq!(
                open_stateless(&mut receiver, &sender.next()),
                Ok(()),
                "{lost}"
            );
            let late = open_stateless(&mut receiver, &first);
            let expected = if lost > BEHIND {
                Err(OpenError::Late)
            } else {
                Ok(())
            };
            assert_eq!(late, expected, "{lost}");
        }
    }
    let mut sender = Sender::new(KeyLength::Bits128, true);
    let mut receiver = Stateless::new(key(KeyLength::Bits128));
    assert_eq!(open_stateless(&mut receiver, &sender.next()), Ok(()));
    sender.skip(MAX_AHEAD);
    assert_eq!(
        open_stateless(&mut receiver, &sender.next()),
        Err(OpenError::TooFar)
    );
}

#[test]
fn frames_without_a_count_and_packets_without_a_number_do_not_upset_the_count() {
    let mut sender = Sender::new(KeyLength::Bits128, true);
    let mut receiver = Stateless::new(key(KeyLength::Bits128));
    let (mut unencrypted, mut unnumbered) = (0, 0);
    let open =
        |sender: &mut Sender, unencrypted: u64, unnumbered: u64, receiver: &mut Stateless| {
            let (number, mut packet) = sender.next();
            let found = receiver.open(number + unencrypted - unnumbered, &mut packet);
            assert_eq!(found, Ok(()), "{unencrypted} and {unnumbered}");
            assert_eq!(packet[2..], plain(number));
        };
    open(&mut sender, unencrypted, unnumbered, &mut receiver);
    // The echo requests of one night.
    for _ in 0..10_000 {
        unencrypted += 1;
        receiver.unencrypted();
    }
    open(&mut sender, unencrypted, unnumbered, &mut receiver);
    // These echo requests were lost.
    unencrypted += 2000;
    open(&mut sender, unencrypted, unnumbered, &mut receiver);
    // The sender's queue was repeatedly full between encryption and numbering.
    for _ in 0..5 {
        sender.skip(2000);
        unnumbered += 2000;
        open(&mut sender, unencrypted, unnumbered, &mut receiver);
    }
}

#[test]
fn memory_is_bounded_whatever_the_packets_say() {
    let mut receiver = Stateless::new(key(KeyLength::Bits128));
    let mut sender = Sender::new(KeyLength::Bits128, true);
    let _ = open_stateless(&mut receiver, &sender.next());
    let mut seed = 1_u64;
    for _ in 0..20_000 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let [a, b] = ((seed >> 40) as u16).to_be_bytes();
        let mut forged = [0x90 | a & 0x0f, b, 1, 2, 3, 4];
        let _ = receiver.open(seed >> 50, &mut forged);
        assert!(receiver.kept() as u64 <= BEHIND + MAX_AHEAD + 1);
    }
}

#[test]
fn a_forged_packet_does_not_take_a_key_away() {
    let mut sender = Sender::new(KeyLength::Bits128, true);
    let mut receiver = Stateless::new(key(KeyLength::Bits128));
    let first = sender.next();
    let second = sender.next();
    let mut forged = second.1.clone();
    forged[3] ^= 0xff;
    assert_eq!(
        receiver.open(second.0, &mut forged),
        Err(OpenError::Garbled)
    );
    assert_eq!(open_stateless(&mut receiver, &second), Ok(()));
    assert_eq!(open_stateless(&mut receiver, &first), Ok(()));
}

#[test]
fn compressed_and_unencrypted_packets_are_refused() {
    let mut stateless = Decryptor::new(key(KeyLength::Bits128), true);
    for (packet, error) in [
        (&mut [0xb0, 0, 1][..], OpenError::Compressed),
        (&mut [0x80, 0, 1], OpenError::NotEncrypted),
        (&mut [0x10, 0, 1], OpenError::NotFlushed),
        (&mut [0x90, 0], OpenError::Short),
        (&mut [], OpenError::Short),
    ] {
        assert_eq!(stateless.open(0, false, packet), Err(error));
    }
}

#[test]
fn a_stream_that_lost_packets_begins_anew_with_either_kind_of_sender() {
    for style in [ResetStyle::Change, ResetStyle::Keep] {
        // Losses before, at and after packets that change the key anyway.
        for before in [0, 1, 200, 254, 255, 256, 257, 4094, 4095, 4096] {
            for lost in [1, 2, 255, 256, 257, 600] {
                let mut sender = Sender::new(KeyLength::Bits128, false);
                let mut receiver = Stateful::new(key(KeyLength::Bits128));
                for _ in 0..before {
                    assert_eq!(open_stateful(&mut receiver, &sender.next()), Ok(()));
                }
                sender.skip(lost);
                let found = open_stateful(&mut receiver, &sender.next());
                // A packet that changes the key anyway also resynchronises, if it arrives.
                assert!(found == Err(OpenError::Lost) || found == Ok(()));
                sender.encryptor.reset(style);
                for _ in 0..600 {
                    let found = open_stateful(&mut receiver, &sender.next());
                    assert_eq!(found, Ok(()), "{style:?}, {before} and then {lost} lost");
                }
                assert!(!receiver.is_broken());
            }
        }
    }
}

#[test]
fn a_new_beginning_that_is_lost_does_not_end_the_stream() {
    let mut sender = Sender::new(KeyLength::Bits128, false);
    let mut receiver = Stateful::new(key(KeyLength::Bits128));
    assert_eq!(open_stateful(&mut receiver, &sender.next()), Ok(()));
    sender.skip(1);
    assert_eq!(
        open_stateful(&mut receiver, &sender.next()),
        Err(OpenError::Lost)
    );
    for _ in 0..3 {
        // Each of these packets changes the key and is lost.
        sender.encryptor.reset(ResetStyle::Change);
        sender.skip(1);
        assert_eq!(
            open_stateful(&mut receiver, &sender.next()),
            Err(OpenError::Waiting)
        );
    }
    sender.encryptor.reset(ResetStyle::Change);
    assert_eq!(open_stateful(&mut receiver, &sender.next()), Ok(()));
    assert_eq!(open_stateful(&mut receiver, &sender.next()), Ok(()));
}

#[test]
fn the_kind_of_sender_is_learnt() {
    let mut sender = Sender::new(KeyLength::Bits128, false);
    let mut receiver = Decryptor::new(key(KeyLength::Bits128), false);
    assert_eq!(
        receiver.style(),
        ResetStyle::Change,
        "Linux, until it shows that it is not"
    );
    let (number, mut packet) = sender.next();
    receiver.open(number, false, &mut packet).unwrap();
    sender.encryptor.reset(ResetStyle::Keep);
    let (number, mut packet) = sender.next();
    receiver.open(number, false, &mut packet).unwrap();
    assert_eq!(receiver.style(), ResetStyle::Keep);
}

#[test]
fn a_late_packet_does_not_break_a_stream() {
    let mut sender = Sender::new(KeyLength::Bits128, false);
    let mut receiver = Decryptor::new(key(KeyLength::Bits128), false);
    for late in [false, true, false] {
        let (number, mut packet) = if late {
            (0, vec![0x10, 0, 1, 2, 3])
        } else {
            sender.next()
        };
        let found = receiver.open(number, late, &mut packet);
        assert_eq!(found.is_err(), late);
    }
    assert!(!receiver.is_broken());
}
