//! Links and QR codes of the app AmneziaVPN, and the documents in them.
#![no_main]

use config::amnezia::link;
use config::permissions::Permissions;
use config::wgquick;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    // A compressed document would be beyond the fuzzer; a plain one is a link, too.
    let plain = format!("vpn://{}", base64(text));
    for link in [text, &plain] {
        if let Ok(file) = link::read(link) {
            let _ = wgquick::parse(&file, "wg0.conf", Permissions::NONE);
        }
    }
    if let Some(link) = link::write(text, "phone") {
        assert!(link::is_link(&link) && link::read(&link).is_ok());
    }
});

fn base64(text: &str) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let letter = |bits: u32, shift: u32| char::from(LETTERS[(bits >> shift & 63) as usize]);
    let letters = text.as_bytes().chunks(3).flat_map(|bytes| {
        let at = |at: usize| u32::from(bytes.get(at).copied().unwrap_or_default());
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        let letters = [18, 12, 6, 0].map(|shift| letter(bits, shift));
        letters.into_iter().take(bytes.len() + 1)
    });
    letters.collect()
}
