//! Reads a tunnel's status: any document is read or refused, and one that was read is written with equal meaning,
//! whatever names are in it.
#![no_main]

use service::status::Status;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(status) = serde_json::from_slice::<Status>(data) else {
        return;
    };
    let written = serde_json::to_vec(&status).expect("a status is written");
    // One document a connection, and readers take it line by line.
    assert!(!written.contains(&b'\n'));
    let again: Status = serde_json::from_slice(&written).expect("what was written is read");
    assert_eq!(
        serde_json::to_vec(&again).expect("a status is written"),
        written
    );
});
