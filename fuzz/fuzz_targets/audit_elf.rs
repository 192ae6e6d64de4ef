//! ELF files: facts or an error, whatever the bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(facts) = audit::elf::read(bytes) {
        assert!(facts.text <= bytes.len() as u64);
        assert!(facts.counts.instructions <= facts.text / 2 + 1);
        assert!(facts.notes.len() <= 64 && facts.neon.names.len() <= 10);
        assert!(facts.neon.with_neon <= facts.neon.all);
    }
});
