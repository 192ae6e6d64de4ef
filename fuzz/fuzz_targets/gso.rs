//! A packet behind a `virtio_net_hdr`, as a kernel or a vendor's variant of it hands it over.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| engine::fuzzing::gso(data));
