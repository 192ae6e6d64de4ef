//! An OpenVPN configuration of any origin: a file, a command line, the settings of a client.
#![no_main]

use std::io;
use std::path::Path;

use config::openvpn::{Options, parse_arguments, parse_bytes, parse_client_settings};
use config::report::Verdict;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let options = Options {
        allow_insecure_ciphers: data.len().is_multiple_of(2),
        permissions: config::permissions::Permissions::new(
            data.len().is_multiple_of(5),
            data.len().is_multiple_of(3),
        ),
    };
    let mut no_files = |_: &Path| Err(io::ErrorKind::NotFound.into());
    let Ok(import) = parse_bytes(data, Path::new("fuzz.ovpn"), &mut no_files, options) else {
        return;
    };
    let usable = import.is_usable();
    match import.into_model() {
        Ok((model, report)) => {
            assert!(usable, "a model of an unusable file");
            assert!(!model.connections.is_empty());
            assert!(!model.data.ciphers.is_empty());
            let insecure = |cipher: &config::openvpn::Cipher| cipher.is_insecure();
            let permitted = model.data.allow_insecure;
            assert!(permitted || !model.data.ciphers.iter().any(insecure));
            assert!(permitted || !model.data.fallback.iter().any(insecure));
            for entry in &report.entries {
                let _ = report.describe(entry);
            }
        }
        Err(_) => assert!(!usable, "a usable file must have a model"),
    }
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let arguments: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    let _ = parse_arguments(&arguments, &mut no_files, options);
    let (settings, report) = parse_client_settings(text, "ccd", true);
    let changes = report.with(Verdict::Honoured).count();
    assert!(settings.push.len() <= changes && settings.iroutes.len() <= changes);
});
