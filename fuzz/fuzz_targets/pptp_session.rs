//! Packets of GRE for a client and a server whose call has just come up.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pptp::fuzz::session(bytes));
