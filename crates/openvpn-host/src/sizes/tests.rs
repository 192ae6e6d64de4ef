use super::*;
use crate::tests::client;

fn shape_of(more: &str, framing: Framing, remote: &str) -> Result<Shape, NoRoom> {
    let config = client(&format!("auth-user-pass\n{more}"));
    let sealing = (Cipher::Aes256Gcm, Layout::V2 { peer_id: 0 });
    let remote = remote.parse().unwrap();
    shape(
        &config,
        &config.connections[0],
        sealing,
        framing,
        1500,
        remote,
    )
}

const V4: &str = "192.0.2.1:1194";
const V6: &str = "[2001:db8::1]:1194";

/// Each word is that of a server of version 2.3 to 2.6.
#[test]
fn pushed_compression_gives_the_framing_of_stock() {
    let compress = |word: Option<&str>| pushed(&Compression::Compress(word.map(str::to_owned)));
    assert_eq!(pushed(&Compression::CompLzo(None)), Framing::Lzo);
    assert_eq!(compress(Some("lzo")), Framing::Lzo);
    assert_eq!(compress(Some("stub-v2")), Framing::V2);
    assert_eq!(compress(Some("lz4-v2")), Framing::V2);
    assert_eq!(compress(Some("migrate")), Framing::None);
    assert_eq!(compress(Some("stub")), Framing::Swap);
    assert_eq!(compress(None), Framing::Swap);
}

#[test]
fn the_segment_size_leaves_room_for_all_headers() {
    let mss = |more: &str, framing, remote| shape_of(more, framing, remote).unwrap().mss;
    // 1400 less 28 bytes of UDP over IPv4, 24 of the cipher, 40 of the inner TCP and IP.
    let plain = mss("mssfix 1400 mtu", Framing::None, V4);
    assert_eq!(plain, 1400 - 28 - 24 - 40);
    assert_eq!(mss("mssfix 1400 mtu", Framing::None, V6), plain - 20);
    assert_eq!(mss("mssfix 1400 mtu", Framing::Lzo, V4), plain - 1);
    assert_eq!(mss("mssfix 0", Framing::None, V4), 0);
}

#[test]
fn fragments_are_for_datagrams_only() {
    let has = |more: &str| {
        shape_of(more, Framing::None, V4)
            .unwrap()
            .fragments
            .is_some()
    };
    assert!(has("fragment 1200"));
    assert!(!has(""));
}

#[test]
fn fragments_without_room_for_a_byte_are_refused() {
    let error = shape_of("fragment 68 mtu", Framing::None, V6)
        .err()
        .unwrap();
    assert_eq!(
        error.to_string(),
        "fragment 68: with this cipher no byte of a packet fits; set a larger size"
    );
}

#[test]
fn compressed_packets_are_unpacked_only_if_the_file_permits_it() {
    let most = |more: &str| shape_of(more, Framing::Lzo, V4).unwrap().unpacked_max;
    assert_eq!(most(""), 1500 + 64);
    assert_eq!(most("allow-compression no"), 0);
}
