//! Peer info and option strings of a peer.
#![no_main]

use openvpn::negotiate::{CipherList, PeerInfo, cipher, occ};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let info = PeerInfo::parse(text);
    let written = info.emit();
    assert_eq!(PeerInfo::parse(&written), info);
    for (name, value) in info.iter() {
        assert!(!name.is_empty() && !name.contains('='));
        assert!(!value.contains(['\n', '\0']));
    }
    let first = text.lines().next().unwrap_or_default();
    let own = occ::value(first, "cipher");
    let list = CipherList::default();
    if let Ok(chosen) = cipher::choose_as_server(&list, None, &info, own) {
        assert!(list.contains(chosen));
    }
    let _ = occ::differences("V4,dev-type tun,auth SHA1,key-method 2,tls-client", first);
    if let Ok(list) = CipherList::parse(first) {
        assert_eq!(CipherList::parse(&list.to_string()), Ok(list));
    }
});
