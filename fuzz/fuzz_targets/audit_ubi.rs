//! UBI: headers of eraseblocks, the table of volumes, and what lies in them.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| audit::unpack::fuzzing::ubi(bytes));
