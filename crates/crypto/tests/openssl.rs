//! AES-CBC with an HMAC in batches: OpenSSL can decrypt it, and any flipped bit makes a datagram invalid.

use std::io::Write as _;
use std::process::{Command, Stdio};

use crypto::{Backend, Batch, Cipher, Digest, Packet, PacketCbc, PacketCipher};

const HEADER: [u8; 4] = [0x48, 0, 0, 1];
const IV: usize = 16;

fn keys() -> [[u8; 64]; 2] {
    [
        core::array::from_fn(|at| (at * 5 + 1) as u8),
        core::array::from_fn(|at| (at * 3 + 7) as u8),
    ]
}

/// Returns the cipher on each backend that the machine supports.
fn each_backend(cipher: Cipher, digest: Digest) -> Vec<(Backend, PacketCbc)> {
    let [key, mac_key] = keys();
    let on = |backend| {
        let channel = PacketCbc::new(Some(backend), (cipher, &key), (digest, &mac_key));
        channel.map(|channel| (backend, channel))
    };
    let all: Vec<_> = Backend::ALL.into_iter().filter_map(on).collect();
    assert!(all.iter().any(|(backend, _)| *backend == Backend::Portable));
    all
}

fn payload(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + number * 13) as u8).collect()
}

/// Seals payloads of these lengths as one batch and returns the datagrams.
fn sealed(cipher: &dyn PacketCipher, lens: &[usize]) -> Vec<Vec<u8>> {
    let mut memory = Vec::new();
    let mut packets = Vec::new();
    let mut places = Vec::new();
    for (number, &len) in lens.iter().enumerate() {
        let from = memory.len();
        memory.extend_from_slice(&HEADER);
        memory.resize(memory.len() + cipher.head(), 0xee);
        packets.push(Packet {
            start: memory.len() as u32,
            len: len as u32,
            counter: number as u64 + 1,
            authentic: false,
        });
        memory.extend(payload(number, len));
        memory.resize(memory.len() + cipher.tail(len), 0xee);
        places.push(from..memory.len());
    }
    cipher.seal(&mut Batch {
        memory: &mut memory,
        packets: &mut packets,
    });
    places.into_iter().map(|at| memory[at].to_vec()).collect()
}

/// Opens datagrams as one batch and returns which of them are authentic.
fn opened(cipher: &dyn PacketCipher, datagrams: &[Vec<u8>]) -> Vec<bool> {
    let mut memory = datagrams.concat();
    let mut at = 0;
    let mut packets: Vec<_> = datagrams
        .iter()
        .map(|datagram| {
            at += datagram.len();
            Packet {
                start: (at - datagram.len() + HEADER.len()) as u32,
                len: (datagram.len() - HEADER.len()) as u32,
                ..Packet::default()
            }
        })
        .collect();
    cipher.open(&mut Batch {
        memory: &mut memory,
        packets: &mut packets,
    });
    packets.iter().map(|packet| packet.authentic).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Runs `openssl` on `input` and returns its output.
fn openssl(arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let mut child = Command::new("openssl")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it was there a moment ago");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(input).expect("openssl reads it all");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "openssl {arguments:?}");
    output.stdout
}

#[test]
fn openssl_reads_what_each_backend_seals() {
    if lab::require(Command::new("openssl").arg("version").output()).is_none() {
        return;
    }
    let [key, mac_key] = keys();
    for (cipher, name, digest, digest_name) in [
        (Cipher::Aes128Cbc, "-aes-128-cbc", Digest::Sha1, "-sha1"),
        (Cipher::Aes192Cbc, "-aes-192-cbc", Digest::Sha512, "-sha512"),
        (Cipher::Aes256Cbc, "-aes-256-cbc", Digest::Sha256, "-sha256"),
    ] {
        for (backend, channel) in each_backend(cipher, digest) {
            let lens = [1408, 0, 1, 64, 11, 12, 700, 1400, 2000];
            for (number, datagram) in sealed(&channel, &lens).iter().enumerate() {
                let (mac, covered) = datagram[HEADER.len()..].split_at(digest.len());
                let (iv, text) = covered.split_at(IV);
                let shown = hex(&key[..cipher.key_len()]);
                let plain = openssl(&["enc", "-d", name, "-K", &shown, "-iv", &hex(iv)], text);
                let mut expected = (number as u32 + 1).to_be_bytes().to_vec();
                expected.extend(payload(number, lens[number]));
                assert_eq!(plain, expected, "{name} {backend} {number}");

                let key = format!("hexkey:{}", hex(&mac_key[..digest.len()]));
                let arguments = [
                    "dgst",
                    digest_name,
                    "-mac",
                    "HMAC",
                    "-macopt",
                    &key,
                    "-binary",
                ];
                assert_eq!(
                    openssl(&arguments, covered),
                    mac,
                    "{digest_name} {backend} {number}"
                );
            }
        }
    }
}

#[test]
fn no_bit_of_a_datagram_may_be_turned() {
    for (cipher, digest) in [
        (Cipher::Aes256Cbc, Digest::Sha1),
        (Cipher::Aes128Cbc, Digest::Sha256),
        (Cipher::Aes192Cbc, Digest::Sha512),
        (Cipher::None, Digest::Sha1),
        (Cipher::BlowfishCbc, Digest::Sha1),
    ] {
        for (backend, channel) in each_backend(cipher, digest) {
            let datagrams = sealed(&channel, &[75, 30, 75, 200, 75, 0, 1, 75, 75]);
            let genuine = vec![true; datagrams.len()];
            assert_eq!(opened(&channel, &datagrams), genuine);
            let turned = 4;
            for bit in HEADER.len() * 8..datagrams[turned].len() * 8 {
                let mut datagrams = datagrams.clone();
                datagrams[turned][bit / 8] ^= 1 << (bit % 8);
                let mut expected = genuine.clone();
                expected[turned] = false;
                let authentic = opened(&channel, &datagrams);
                assert_eq!(authentic, expected, "{cipher} {backend} bit {bit}");
            }
        }
    }
}
