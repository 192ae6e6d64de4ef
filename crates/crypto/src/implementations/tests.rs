//! Compares every candidate with the first of its table; and tests names of back ends and the list.

mod agreement;
mod common;
mod guards;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod openssl;
mod published;
#[cfg(target_arch = "x86_64")]
pub(crate) mod secrets;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod traces;

use super::*;
use crate::Digest;

/// Every length around the ends of blocks, in batches of all sizes.
#[test]
fn many_macs_at_once_are_the_same_as_one_by_one() {
    let memory: Vec<u8> = (0..20_000_u32)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8)
        .collect();
    for digest in Digest::ALL {
        let Some(key) = Hmac::new(digest, b"a key") else {
            continue;
        };
        for candidate in MACS {
            let Some(implementation) = (candidate.make)(&key) else {
                continue;
            };
            let mut lens: Vec<_> = (0..600).collect();
            // Long and short messages in turn, so that lanes end at different times.
            lens.extend((0..300).map(|at| if at % 7 == 0 { 9000 - at } else { at % 5 }));
            let messages: Vec<_> = lens
                .iter()
                .enumerate()
                .map(|(number, len)| number..number + len)
                .collect();
            for count in [64, 17, 5, 4, 1] {
                for messages in messages.chunks(count) {
                    let mut macs = vec![Mac::EMPTY; messages.len()];
                    implementation.sign_each(&memory, messages, &mut macs);
                    for (message, mac) in messages.iter().zip(macs) {
                        let alone = key.sign(&[&memory[message.clone()]]);
                        let name = candidate.name;
                        assert!(mac.equals(alone.as_bytes()), "{name} {digest} {message:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn names_go_both_ways() {
    for backend in Backend::ALL {
        assert_eq!(backend.to_string().parse(), Ok(backend));
    }
    let unknown = "fast".parse::<Backend>().unwrap_err();
    assert_eq!(
        unknown.to_string(),
        "fast is not a crypto back end; choose auto, portable, simd or accelerator"
    );
}

#[test]
fn holds_what_was_pushed() {
    let mut list = List::new();
    assert!(list.is_empty());
    (0..CHUNK).for_each(|number| list.push(number..number));
    assert_eq!(list.len(), CHUNK);
    assert!(list.iter().enumerate().all(|(at, item)| item.start == at));
}

#[test]
#[should_panic(expected = "index out of bounds")]
fn more_than_fit_are_a_fault() {
    let mut list = List::new();
    (0..=CHUNK).for_each(|number| list.push(number));
}
