//! Encrypted packets, each with its own key and as one stream.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pptp::fuzz::mppe(bytes));
