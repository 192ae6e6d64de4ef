//! Squashfs 3.x and 4.0: superblocks, tables, directories, files.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| audit::unpack::fuzzing::squashfs(bytes));
