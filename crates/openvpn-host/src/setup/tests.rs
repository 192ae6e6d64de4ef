use super::*;
use crate::tests::{certificate, client, key_block};

#[cfg(feature = "server")]
use crate::tests::server;
#[cfg(feature = "server")]
use openvpn::packet::{AckList, ControlPacket, Opcode, SessionId};
#[cfg(feature = "server")]
use openvpn::wrap::WrapError;

/// The error of reading a client's files.
fn refused(more: &str) -> String {
    let config = client(&format!("auth-user-pass\n{more}"));
    let error = tls_settings(&config, None).unwrap_err();
    assert!(!wants_passphrase(&error), "{error}");
    error.to_string()
}

#[test]
fn a_file_that_cannot_be_used_is_named_with_the_remedy() {
    let own = certificate("p256/client.key").display().to_string();
    let missing = refused(&format!("cert /nowhere/a.crt\nkey {own}"));
    assert!(missing.starts_with("cert: /nowhere/a.crt: "), "{missing}");
    let empty = refused("crl-verify [inline]\n<crl-verify>\n \n</crl-verify>");
    let words = "crl-verify: the block is empty; fill it, or remove the directive";
    assert_eq!(empty, words);
    let directory = refused("crl-verify /nowhere/revoked dir");
    assert!(
        directory.starts_with("crl-verify: /nowhere/revoked: "),
        "{directory}"
    );
    let packed = refused("<pkcs12>\nnot base64!\n</pkcs12>");
    assert!(
        packed.starts_with("pkcs12: the inline block is not base64: "),
        "{packed}"
    );
    let binary = certificate("keys/pkcs8.der");
    let config = client(&format!("tls-crypt {}\nauth-user-pass", binary.display()));
    let error = wrap_settings(&config, &config.connections[0]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "tls-crypt: it is not a text file; is it the right one?"
    );
}

#[test]
fn an_encrypted_key_is_opened_by_its_passphrase_only() {
    use base64::Engine as _;
    let container = certificate("keys/new.p12");
    let bytes = std::fs::read(&container).unwrap();
    let inline = base64::engine::general_purpose::STANDARD.encode(bytes);
    let (half, rest) = inline.split_at(60);
    for more in [
        format!("pkcs12 {}", container.display()),
        format!("<pkcs12>\n{half}\n{rest}\n</pkcs12>"),
    ] {
        let config = client(&more);
        for passphrase in [None, Some(&b"wrong"[..])] {
            let error = tls_settings(&config, passphrase).unwrap_err();
            assert!(wants_passphrase(&error), "{error}");
        }
        tls_settings(&config, Some(b"millrace")).unwrap();
    }
}

#[cfg(feature = "server")]
fn reset(opcode: Opcode) -> ControlPacket {
    ControlPacket {
        opcode,
        key_id: 0,
        session: SessionId::new([1; 8]).unwrap(),
        acks: AckList::default(),
        peer_session: None,
        message_id: Some(0),
        payload: Vec::new(),
    }
}

#[cfg(feature = "server")]
fn wrap(config: &OpenVpn) -> WrapSettings {
    wrap_settings(config, &config.connections[0]).unwrap()
}

/// Whether a server takes a client's first packet, at this time in seconds since 1970.
#[cfg(feature = "server")]
fn admits(server: &OpenVpn, client: &OpenVpn, now: u64) -> Result<(), WrapError> {
    let opcode = match client.connections[0].wrap.tls_crypt_v2 {
        Some(_) => Opcode::HardResetClientV3,
        None => Opcode::HardResetClientV2,
    };
    let packet = wrap(client).wrap().seal(&reset(opcode), 7);
    wrap(server).open_first(&packet, now).map(drop)
}

#[cfg(feature = "server")]
#[test]
fn only_clients_with_the_servers_wrap_are_admitted() {
    let login = "auth-user-pass\n";
    let auth = key_block("tls-auth", "static.key");
    let crypt = key_block("tls-crypt", "static.key");
    let v2 = key_block("tls-crypt-v2", "v2-client.key");
    let clients = [
        client(&format!("{login}key-direction 1\n{auth}")),
        client(&format!("{login}{crypt}")),
        client(&format!("{login}{v2}")),
    ];
    let v2 = key_block("tls-crypt-v2", "v2-server.key");
    let servers = [
        server(&format!("key-direction 0\n{auth}")),
        server(&crypt),
        server(&v2),
    ];
    for (at, server) in servers.iter().enumerate() {
        for (from, client) in clients.iter().enumerate() {
            let admitted = admits(server, client, 0).is_ok();
            assert_eq!(admitted, at == from, "client {from} at server {at}");
        }
    }
    // A server of both admits old and new clients.
    let both = server(&format!("{crypt}{v2}"));
    let admitted = clients.each_ref().map(|it| admits(&both, it, 0).is_ok());
    assert_eq!(admitted, [false, true, true]);
}

#[cfg(feature = "server")]
#[test]
fn client_keys_are_refused_after_their_days() {
    let client = client(&format!(
        "auth-user-pass\n{}",
        key_block("tls-crypt-v2", "v2-client.key")
    ));
    let key = key_block("tls-crypt-v2", "v2-server.key");
    let server = server(&format!("{key}tls-crypt-v2-max-age 30"));
    // The day on which the test data were made.
    let made = 20_777 * 86_400;
    admits(&server, &client, made + 29 * 86_400).unwrap();
    assert!(admits(&server, &client, made + 32 * 86_400).is_err());
}

#[test]
fn a_file_with_another_kind_of_key_is_refused() {
    let refused = |more: &str| {
        let config = client(&format!("auth-user-pass\n{more}"));
        let error = wrap_settings(&config, &config.connections[0]).unwrap_err();
        error.to_string()
    };
    let other = refused(&key_block("tls-crypt-v2", "v2-server.key"));
    assert!(other.starts_with("tls-crypt-v2: "), "{other}");
    let short = refused("<tls-crypt>\n-----BEGIN OpenVPN Static key V1-----\n00\n</tls-crypt>");
    assert!(short.starts_with("tls-crypt: "), "{short}");
}

#[cfg(feature = "server")]
fn tokens(secret: &str) -> Result<Zeroizing<[u8; 32]>, SetupError> {
    let config = server(&format!(
        "auth-user-pass-verify v via-env\nscript-security 3\nauth-gen-token\n{secret}"
    ));
    let token = config.server().unwrap().auth_token.clone().unwrap();
    token_secret(&config, &token)
}

#[cfg(feature = "server")]
#[test]
fn tokens_outlive_the_server_only_with_a_secret_of_the_file() {
    use base64::Engine as _;
    let bytes: Vec<u8> = (0..128).collect();
    let file = |bytes: &[u8]| {
        let text = base64::engine::general_purpose::STANDARD.encode(bytes);
        let (half, rest) = text.split_at(40);
        let block = "OpenVPN auth-token server key";
        format!(
            "<auth-gen-token-secret>\n-----BEGIN {block}-----\n{half}\n{rest}\n-----END {block}-----\n\
             </auth-gen-token-secret>"
        )
    };
    assert_eq!(tokens(&file(&bytes)).unwrap()[..], bytes[64..96]);
    let short = tokens(&file(&bytes[..95])).unwrap_err().to_string();
    assert_eq!(
        short,
        "auth-gen-token-secret: it is too short; make one with `--genkey auth-token FILE`"
    );
    assert_ne!(tokens("").unwrap(), tokens("").unwrap());
}

/// A reload that finds other keys or certificates must begin anew; the digest says whether it does.
#[cfg(feature = "server")]
#[test]
fn the_digest_changes_with_each_file_that_only_the_start_reads() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let names = ["ca", "cert", "key", "extra", "wrap", "v2", "token"];
    for name in names {
        std::fs::write(path(name), name).unwrap();
    }
    let [ca, cert, key, extra, wrap, v2, token] =
        names.map(|name| path(name).display().to_string());
    let config = crate::tests::config(&format!(
        "dev tun\ntopology subnet\nserver 10.8.0.0 255.255.255.0\ndh none\nca {ca}\ncert {cert}\nkey {key}\n\
         extra-certs {extra}\ntls-crypt {wrap}\ntls-crypt-v2 {v2}\nauth-user-pass-verify v via-env\n\
         script-security 3\nauth-gen-token\nauth-gen-token-secret {token}\n"
    ));
    let before = material(&config).unwrap();
    assert_eq!(material(&config), Some(before));
    // A reload replaces a renewed certificate while sessions go on.
    std::fs::write(path("cert"), "renewed").unwrap();
    assert_eq!(material(&config), Some(before));
    for name in names.into_iter().filter(|it| *it != "cert") {
        std::fs::write(path(name), "other").unwrap();
        assert_ne!(material(&config).unwrap(), before, "{name}");
        std::fs::remove_file(path(name)).unwrap();
        assert_eq!(material(&config), None, "{name}");
        std::fs::write(path(name), name).unwrap();
        assert_eq!(material(&config), Some(before), "{name}");
    }
    // A byte that moves from one file to the next is a change, too.
    std::fs::write(path("ca"), "cak").unwrap();
    std::fs::write(path("key"), "ey").unwrap();
    assert_ne!(material(&config).unwrap(), before);
}
