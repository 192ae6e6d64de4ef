//! Files damaged by chance or on purpose: the reader must return facts or an error.

use proptest::prelude::*;

use crate::compile::{A64, ARM, Bench, SHARED, SOURCE};

/// Small files of every form.
fn files() -> Vec<Vec<u8>> {
    let bench = Bench::new();
    let source = bench.source("one.c", SOURCE);
    let arm = bench.build(ARM, &format!("{SHARED} -O2"), &[&source]);
    let hashed = bench.build(
        ARM,
        &format!("{SHARED} -O2 -Wl,--hash-style=sysv"),
        &[&source],
    );
    let object = bench.build(ARM, "-c -O2", &[&source]);
    let a64 = bench.build(A64, &format!("{SHARED} -O2"), &[&source]);
    let mut files = Vec::new();
    for file in [arm, hashed, a64] {
        files.push(crate::without_sections(&file, false));
        files.push(file);
    }
    files.push(object);
    files
}

#[test]
fn no_change_of_bytes_makes_a_file_dangerous() {
    let files = files();
    let change = (
        any::<prop::sample::Index>(),
        prop_oneof![Just(0), Just(0xff), any::<u8>()],
    );
    let changes = prop::collection::vec(change, 1..24);
    // Half of the changes affect headers and tables, which matter most but are a small part of the file.
    let places = prop_oneof![Just(64_usize), Just(512), Just(usize::MAX)];
    let mut runner = proptest::test_runner::TestRunner::default();
    let strategy = (
        0..files.len(),
        changes,
        places,
        any::<prop::sample::Index>(),
        any::<bool>(),
    );
    let result = runner.run(&strategy, |(file, changes, place, end, cut)| {
        let mut bytes = files[file].clone();
        for (at, value) in changes {
            let at = at.index(bytes.len().min(place));
            bytes[at] = value;
        }
        if cut {
            bytes.truncate(end.index(bytes.len() + 1));
        }
        if let Ok(facts) = audit::elf::read(&bytes) {
            prop_assert!(facts.text <= bytes.len() as u64);
            prop_assert!(facts.counts.instructions <= facts.text / 2 + 1);
            prop_assert!(facts.notes.len() <= 64 && facts.neon.names.len() <= 10);
            prop_assert!(facts.neon.with_neon <= facts.neon.all);
        }
        Ok(())
    });
    result.unwrap();
}

#[test]
fn every_beginning_of_a_file_is_read_or_refused() {
    for file in files() {
        for end in (0..file.len()).step_by(7) {
            let _ = audit::elf::read(&file[..end]);
        }
    }
}
