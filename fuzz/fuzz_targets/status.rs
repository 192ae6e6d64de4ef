//! Reads a tunnel's status: a document is accepted or rejected, and an accepted one is written with equal
//! meaning, whatever names it holds.
#![no_main]

use service::status::Status;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(status) = serde_json::from_slice::<Status>(data) else {
        return;
    };
    let written = serde_json::to_vec(&status).expect("a status is written");
    // A connection carries one document, which readers take line by line.
    assert!(!written.contains(&b'\n'));
    let again: Status = serde_json::from_slice(&written).expect("a written document can be read");
    assert_eq!(
        serde_json::to_vec(&again).expect("a status is written"),
        written
    );
});
