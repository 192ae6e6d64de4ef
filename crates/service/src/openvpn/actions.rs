//! Actions of `openvpn` that run instead of a tunnel.

use config::openvpn::{Action, Cipher, Digest, GenKey, KeyKind, Source};
use netio::netlink::{Family, Netlink};
use netio::tun::{Tun, TunOptions};
use openvpn::keyfile::{StaticKey, v2};
use std::error::Error;
use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use zeroize::Zeroizing;

use openvpn_host::timestamp::unix;

/// Runs the action, and returns the process's exit status. Stock OpenVPN exits with 1 after `--help`
/// and `--version`, and scripts expect it.
pub(super) fn run(action: &Action, arguments: &[String]) -> u8 {
    let done = match action {
        Action::Help => {
            host::terminal::line(HELP.trim());
            return 1;
        }
        Action::Version => {
            host::terminal::line(openvpn_host::monitored::title());
            host::terminal::line("library versions: rustls with AWS-LC; TLS 1.2 and 1.3");
            return 1;
        }
        Action::GenKey(wanted) => generate(wanted, arguments),
        Action::ShowCiphers => {
            show_ciphers();
            Ok(())
        }
        Action::ShowDigests => {
            for digest in Digest::ALL {
                host::terminal::line(digest);
            }
            Ok(())
        }
        Action::ShowTls => {
            host::terminal::line(SUITES.join("\n"));
            Ok(())
        }
        Action::ShowGroups => {
            host::terminal::line(GROUPS.join("\n"));
            Ok(())
        }
        Action::ShowGateway => show_gateway(),
        Action::MakeTun => device(arguments).and_then(make_tun),
        Action::RemoveTun => device(arguments).and_then(remove_tun),
    };
    match done {
        Ok(()) => 0,
        Err(error) => {
            host::terminal::line(format_args!("Options error: {error}"));
            1
        }
    }
}

const HELP: &str = "
millrace openvpn: OpenVPN's own command line

  --config FILE         read options from FILE; a file alone does the same
  --OPTION ARGUMENTS    any option of a file, with two dashes in front
  --allow-insecure-ciphers
                        permit BF-CBC, DES-CBC, DES-EDE3-CBC and `cipher none`,
                        which can be broken; only to reach old servers
  --reorder             put packets over UDP that overtook others back into
                        order; in files that stock reads, too:
                        `setenv opt reorder`

  --genkey [KIND] FILE  make a key: secret, tls-crypt-v2-server,
                        tls-crypt-v2-client (with --tls-crypt-v2 SERVERKEY),
                        auth-token
  --show-ciphers, --show-digests, --show-tls, --show-groups, --show-gateway
  --mktun, --rmtun      make or remove a lasting interface (--dev NAME)
  --version, --help

`millrace check FILE` tells for each line of a file whether it is honoured,
ignored (and why that does no harm) or refused (and what to do).
";

/// Cipher suites of rustls with AWS-LC, TLS 1.3 first.
const SUITES: [&str; 9] = [
    "TLS_AES_256_GCM_SHA384",
    "TLS_AES_128_GCM_SHA256",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS-ECDHE-ECDSA-WITH-AES-256-GCM-SHA384",
    "TLS-ECDHE-ECDSA-WITH-AES-128-GCM-SHA256",
    "TLS-ECDHE-ECDSA-WITH-CHACHA20-POLY1305-SHA256",
    "TLS-ECDHE-RSA-WITH-AES-256-GCM-SHA384",
    "TLS-ECDHE-RSA-WITH-AES-128-GCM-SHA256",
    "TLS-ECDHE-RSA-WITH-CHACHA20-POLY1305-SHA256",
];

/// Key-exchange groups of rustls with AWS-LC.
const GROUPS: [&str; 4] = ["X25519", "P-256", "P-384", "X25519MLKEM768"];

/// Returns the argument after an option.
fn value<'a>(arguments: &'a [String], option: &str) -> Option<&'a str> {
    let at = arguments.iter().position(|word| word == option)?;
    arguments.get(at + 1).map(String::as_str)
}

fn device(arguments: &[String]) -> Result<&str, Box<dyn Error>> {
    value(arguments, "--dev").ok_or_else(|| "--mktun and --rmtun need --dev NAME".into())
}

fn generate(wanted: &GenKey, arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let text = match wanted.kind {
        KeyKind::Static => StaticKey::generate()
            .ok_or("no random numbers from the system")?
            .to_text(),
        KeyKind::TlsCryptV2Server => v2::ServerKey::generate()?.to_text(),
        KeyKind::TlsCryptV2Client => {
            let Some(server) = value(arguments, "--tls-crypt-v2") else {
                return Err(
                    "--genkey tls-crypt-v2-client needs the server's key: --tls-crypt-v2 FILE"
                        .into(),
                );
            };
            let server = v2::ServerKey::parse(&read(server)?)?;
            let metadata = match &wanted.metadata {
                None => v2::Metadata::timestamp(unix(std::time::SystemTime::now())),
                Some(text) => {
                    use base64::Engine as _;
                    let bytes = base64::engine::general_purpose::STANDARD.decode(text)?;
                    v2::Metadata::user(&bytes)
                }
            };
            v2::ClientKey::generate(&server, &metadata)?.to_text()
        }
        KeyKind::AuthToken => {
            let mut secret = Zeroizing::new([0; 128]);
            crypto::random(&mut secret[..]);
            auth_token_text(&*secret)
        }
    };
    match &wanted.file {
        None => host::terminal::text(&*text),
        Some(path) => write_secret(path, &text)?,
    }
    Ok(())
}

fn read(path: &str) -> Result<Zeroizing<String>, Box<dyn Error>> {
    let bytes = Source::File(path.into()).load(None);
    let bytes = bytes.map_err(|error| format!("{path}: {error}"))?;
    Ok(Zeroizing::new(std::str::from_utf8(&bytes)?.to_owned()))
}

/// Returns an `auth-gen-token-secret` secret as a PEM block.
fn auth_token_text(secret: &[u8]) -> Zeroizing<String> {
    use base64::Engine as _;
    const LABEL: &str = "OpenVPN auth-token server key";
    let packed = Zeroizing::new(base64::engine::general_purpose::STANDARD.encode(secret));
    let mut text = Zeroizing::new(format!("-----BEGIN {LABEL}-----\n"));
    for line in packed.as_bytes().chunks(64) {
        // Lossless: Base64 is ASCII.
        text.push_str(&String::from_utf8_lossy(line));
        text.push('\n');
    }
    text.push_str(&format!("-----END {LABEL}-----\n"));
    text
}

fn write_secret(path: &Path, text: &str) -> Result<(), Box<dyn Error>> {
    let failed = |error| format!("{}: {error}", path.display());
    let mut options = File::options();
    options.write(true).create_new(true).mode(0o600);
    let mut file = match options.open(path) {
        // Existing special files such as /dev/stdout.
        Err(error) if error.kind() == ErrorKind::AlreadyExists && !path.is_file() => {
            File::options().write(true).open(path).map_err(failed)?
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let path = path.display();
            return Err(
                format!("{path} is there, and no key is overwritten; remove it first").into(),
            );
        }
        file => file.map_err(failed)?,
    };
    file.write_all(text.as_bytes())?;
    Ok(())
}

fn show_ciphers() {
    host::terminal::line(format_args!(
        "The following ciphers and cipher modes are available for use:\n"
    ));
    for cipher in Cipher::ALL.into_iter().filter(|c| !c.is_insecure()) {
        host::terminal::line(cipher);
    }
    host::terminal::line(format_args!(
        "\nThe following are insecure and need --allow-insecure-ciphers:\n"
    ));
    for cipher in Cipher::ALL.into_iter().filter(|c| c.is_insecure()) {
        host::terminal::line(cipher);
    }
}

fn show_gateway() -> Result<(), Box<dyn Error>> {
    let mut netlink = Netlink::open()?;
    for family in [Family::V4, Family::V6] {
        let routes = netlink.routes(None)?;
        let default = routes.iter().find(|r| {
            r.prefix == 0 && r.dst.is_ipv4() == (family == Family::V4) && r.via.is_some()
        });
        if let Some(route) = default {
            let device = route.dev.map(|dev| netlink.name_of(dev)).transpose()?;
            let via = route.via.map(|via| via.to_string()).unwrap_or_default();
            host::terminal::line(format_args!(
                "ROUTE_GATEWAY {via} IFACE={}",
                device.unwrap_or_default()
            ));
        }
    }
    Ok(())
}

fn make_tun(name: &str) -> Result<(), Box<dyn Error>> {
    let tun = Tun::create(name, TunOptions::PLAIN)?;
    tun.set_persistent(true)?;
    host::terminal::line("Persist state set to: ON");
    Ok(())
}

fn remove_tun(name: &str) -> Result<(), Box<dyn Error>> {
    // Checked first, because opening a missing name would create it.
    if !fs::exists(format!("/sys/class/net/{name}"))? {
        return Err(format!("there is no interface {name}").into());
    }
    let tun = Tun::create(name, TunOptions::PLAIN)?;
    tun.set_persistent(false)?;
    host::terminal::line("Persist state set to: OFF");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use openvpn::packet::{AckList, ControlPacket, Opcode, SessionId};
    use openvpn::wrap::WrapSettings;

    /// Opening a FIFO would block.
    #[test]
    fn a_key_is_read_from_regular_files_only() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo").display().to_string();
        nix::unistd::mkfifo(fifo.as_str(), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let error = read(&fifo).unwrap_err().to_string();
        assert!(error.contains("is not a regular file"), "{error}");
    }

    #[test]
    fn a_key_overwrites_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        write_secret(&path, "first").unwrap();
        let error = write_secret(&path, "second").unwrap_err().to_string();
        assert!(error.contains("no key is overwritten"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "first");
        write_secret(Path::new("/dev/null"), "third").unwrap();
    }

    /// The first packet of a client.
    fn reset() -> ControlPacket {
        ControlPacket {
            opcode: Opcode::HardResetClientV3,
            key_id: 0,
            session: SessionId::new([1; 8]).unwrap(),
            acks: AckList::default(),
            peer_session: None,
            message_id: Some(0),
            payload: Vec::new(),
        }
    }

    fn act(action: &Action, arguments: &[&str]) -> u8 {
        let arguments: Vec<String> = arguments.iter().map(|it| (*it).to_owned()).collect();
        run(action, &arguments)
    }

    #[test]
    fn a_key_of_a_client_belongs_to_its_servers_and_has_the_words_that_were_given() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let make = |kind, name: &str, metadata: Option<&str>, arguments: &[&str]| {
            let wanted = GenKey {
                kind,
                file: Some(path(name)),
                metadata: metadata.map(str::to_owned),
            };
            act(&Action::GenKey(wanted), arguments)
        };
        assert_eq!(make(KeyKind::TlsCryptV2Server, "server", None, &[]), 0);
        let server = path("server").display().to_string();
        let of_server = ["--tls-crypt-v2", &server];
        let kind = KeyKind::TlsCryptV2Client;
        assert_eq!(make(kind, "dated", None, &of_server), 0);
        // "branch office", in base64 as stock takes it.
        let words = Some("YnJhbmNoIG9mZmljZQ==");
        assert_eq!(make(kind, "named", words, &of_server), 0);
        let text = |name: &str| fs::read_to_string(path(name)).unwrap();
        let key = v2::ServerKey::parse(&text("server")).unwrap();
        let server = WrapSettings::tls_crypt_v2_server(&key, None);
        let metadata = |name: &str| {
            let key = v2::ClientKey::parse(&text(name)).unwrap();
            let packet = WrapSettings::tls_crypt_v2_client(&key)
                .wrap()
                .seal(&reset(), 0);
            server.open_first(&packet, 0).unwrap().metadata.unwrap()
        };
        assert!(metadata("dated").made_at().is_some());
        assert_eq!(metadata("named").body(), b"branch office");

        // Without the server's key, or with words that are no base64, there is no key.
        assert_eq!(make(kind, "none", None, &[]), 1);
        assert_eq!(make(kind, "none", Some("no base64"), &of_server), 1);
        assert_eq!(make(kind, "none", None, &["--tls-crypt-v2", "/nowhere"]), 1);
        assert!(!path("none").exists());
    }

    #[test]
    fn an_interface_that_is_not_named_or_not_there_is_not_removed() {
        assert_eq!(act(&Action::RemoveTun, &[]), 1);
        assert_eq!(act(&Action::MakeTun, &["--dev"]), 1);
        assert_eq!(act(&Action::RemoveTun, &["--dev", "no-such-tun"]), 1);
    }
}
