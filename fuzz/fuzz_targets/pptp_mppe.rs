//! Encrypted packets, with a key each and as one stream.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pptp::fuzz::mppe(bytes));
