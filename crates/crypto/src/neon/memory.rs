//! Compares the effect of `memory_arm.S` on memory with plain Rust. In static programs these routines are `memcpy`,
//! `memmove`, `memset` and `memcmp`, and nothing else calls them. In tests with another C library they exist beside its
//! own.

use std::cmp::Ordering;

use proptest::prelude::*;

unsafe extern "C" {
    pub(crate) fn millrace_copy(to: *mut u8, from: *const u8, len: usize) -> *mut u8;
    pub(crate) fn millrace_move(to: *mut u8, from: *const u8, len: usize) -> *mut u8;
    pub(crate) fn millrace_fill(to: *mut u8, byte: i32, len: usize) -> *mut u8;
    pub(crate) fn millrace_compare(one: *const u8, other: *const u8, len: usize) -> i32;
}

/// A routine that copies or moves.
type Routine = unsafe extern "C" fn(*mut u8, *const u8, usize) -> *mut u8;

/// Bytes in a pattern that repeats only at long distances.
fn bytes(len: usize) -> Vec<u8> {
    (0..len as u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect()
}

/// Moves byte by byte, through a second memory.
fn moved(memory: &[u8], from: usize, to: usize, len: usize) -> Vec<u8> {
    let mut expected = memory.to_vec();
    for at in 0..len {
        expected[to + at] = memory[from + at];
    }
    expected
}

fn check(routine: Routine, memory: &[u8], from: usize, to: usize, len: usize) {
    let expected = moved(memory, from, to, len);
    let mut memory = memory.to_vec();
    assert!(from.max(to) + len <= memory.len());
    let start = memory.as_mut_ptr();
    // SAFETY: both places lie within the memory, as the lines above have checked.
    let returned = unsafe { routine(start.add(to), start.add(from), len) };
    assert_eq!(returned as usize, start as usize + to, "what it returns");
    assert!(memory == expected, "{len} bytes from {from} to {to}");
}

#[test]
fn every_length_is_copied_at_every_alignment() {
    let memory = bytes(700);
    for len in (0..140).chain([191, 192, 193, 255, 256, 257, 300]) {
        for at in 0..16 {
            check(millrace_copy, &memory, at, 340 + (at * 7) % 16, len);
            check(millrace_copy, &memory, 340 + at, (at * 7) % 16, len);
        }
    }
}

#[test]
fn every_length_is_moved_by_every_distance() {
    let memory = bytes(420);
    for len in (0..140).chain([191, 192, 193, 255, 256, 257]) {
        for distance in (0..68).chain([127, 128, 129]) {
            let start = (len + distance) % 5;
            check(millrace_move, &memory, start, start + distance, len);
            check(millrace_move, &memory, start + distance, start, len);
        }
    }
}

#[test]
fn every_length_is_filled_at_every_alignment() {
    let memory = bytes(400);
    for len in (0..140).chain([191, 192, 193, 255, 256, 257, 300]) {
        for at in 0..16 {
            let mut filled = memory.clone();
            let mut expected = memory.clone();
            expected[at..at + len].fill(0xa5);
            let to = filled[at..at + len].as_mut_ptr();
            // SAFETY: so many bytes may be written there.
            // Only the lowest byte of the number counts.
            let returned = unsafe { millrace_fill(to, 0x5ea5, len) };
            assert_eq!(returned, to, "what it returns");
            assert!(filled == expected, "{len} bytes at {at}");
        }
    }
}

#[test]
fn the_first_byte_that_differs_decides_whatever_is_behind_it() {
    let memory = bytes(200);
    let compare = |one: &[u8], other: &[u8], len| {
        assert!(one.len() >= len && other.len() >= len);
        // SAFETY: there are so many bytes at both places.
        unsafe { millrace_compare(one.as_ptr(), other.as_ptr(), len) }.cmp(&0)
    };
    for len in 0..70 {
        for at in 0..8 {
            let one = &memory[at..at + len];
            let mut padded = vec![0; (at * 3) % 8];
            padded.extend_from_slice(one);
            padded.push(one.len() as u8);
            let start = padded.len() - 1 - len;
            assert_eq!(compare(one, &padded[start..], len), Ordering::Equal);
            for first in 0..len {
                for (byte, last) in [(0, 255), (255, 0), (one[first] ^ 0x80, 1)] {
                    let mut other = padded.clone();
                    other[start + first] = byte;
                    // The bytes after the first difference compare the other way.
                    other[start + first + 1..start + len].fill(last);
                    let expected = one.cmp(&other[start..start + len]);
                    assert_eq!(
                        compare(one, &other[start..], len),
                        expected,
                        "{first} of {len}"
                    );
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn anything_is_moved_anywhere(from in 0..3000_usize, to in 0..3000_usize, len in 0..3000_usize) {
        check(millrace_move, &bytes(6000), from, to, len);
    }
}
