//! A `.conf` file of any origin. An accepted file must survive being written and read again.
#![no_main]

use std::path::Path;

use config::wgquick::parse_bytes;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let path = Path::new("fuzz.conf");
    let options = config::permissions::Permissions::new(false, data.len().is_multiple_of(2));
    let Ok(import) = parse_bytes(data, path, options) else {
        return;
    };
    for entry in &import.report.entries {
        let _ = import.report.describe(entry);
    }
    let usable = import.is_usable();
    let Ok((tunnel, _)) = import.into_tunnel() else {
        assert!(!usable, "a usable file must have a model");
        return;
    };
    let written = tunnel.to_conf();
    let Ok(again) = parse_bytes(written.as_bytes(), path, options) else {
        panic!("the written file is not text");
    };
    match again.into_tunnel() {
        Ok((again, _)) => assert_eq!(again, tunnel, "writing and reading changed the tunnel"),
        Err(error) => panic!("the written file is refused: {error}"),
    }
});
