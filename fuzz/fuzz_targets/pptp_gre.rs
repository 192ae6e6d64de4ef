//! Packets of enhanced GRE, one after the other.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pptp::fuzz::gre(bytes));
