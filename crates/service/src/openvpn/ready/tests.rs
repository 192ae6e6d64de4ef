use super::*;
use crate::openvpn::OWN_NAME;
use std::io::Write as _;
use std::path::Path;

fn certificate(name: &str) -> String {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = own.join("../openvpn/tests/certs").join(name);
    path.display().to_string()
}

/// A client's configuration with `more` lines.
fn config(more: &str) -> OpenVpn {
    let text = format!(
        "client\ndev tun\nremote vpn.example\nca {}\nremote-cert-tls server\n{more}\n",
        certificate("p256/ca.crt")
    );
    let mut none = |_: &Path| Err(std::io::ErrorKind::NotFound.into());
    let name = Path::new("office.ovpn");
    let import = config::openvpn::parse_bytes(text.as_bytes(), name, &mut none, OWN_NAME);
    import.unwrap().into_model().unwrap().0
}

/// A file with this passphrase.
fn passphrase(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "{text}").unwrap();
    file
}

const LOGIN: &str = "<auth-user-pass>\nalice\nsecret\n</auth-user-pass>";

/// The kernel's data plane is not asked for.
fn alone(more: &str) -> Result<(), String> {
    rehearse_alone(&config(more), &DataplaneSettings::default())
}

/// A manager starts the client where nobody can be asked: what is missing is told before the start.
#[test]
fn a_client_that_runs_alone_says_at_once_whom_it_would_have_to_ask() {
    assert_eq!(alone(LOGIN), Ok(()));
    let by_management = "auth-user-pass\nmanagement 127.0.0.1 7505\nmanagement-query-passwords";
    assert_eq!(alone(by_management), Ok(()));
    let locked = format!("pkcs12 {}", certificate("keys/new.p12"));
    let asks_there = format!("{LOGIN}\nmanagement 127.0.0.1 7505 stdin");
    for (more, what) in [
        ("auth-user-pass", "auth-user-pass"),
        (&locked, "askpass"),
        (&asks_there, "management"),
    ] {
        let error = alone(more).unwrap_err();
        let words = format!("{what}: there is nobody to ask for it");
        assert!(error.contains(&words), "{more}: {error}");
    }
    let file = passphrase("millrace");
    let opened = format!("{locked}\naskpass {}", file.path().display());
    assert_eq!(alone(&opened), Ok(()));
}

#[test]
fn a_rehearsal_finds_what_the_start_would_fail_at() {
    let rehearsed = |more: &str| rehearse(&config(more), &DataplaneSettings::default());
    assert_eq!(rehearsed(LOGIN), Ok(()));
    // A user can be asked for a passphrase.
    let locked = format!("pkcs12 {}", certificate("keys/new.p12"));
    assert_eq!(rehearsed(&locked), Ok(()));
    let file = passphrase("wrong");
    for (more, words) in [
        (
            "auth-user-pass /nowhere/login".to_owned(),
            "auth-user-pass: ",
        ),
        (
            format!("{LOGIN}\ntls-crypt /nowhere/key"),
            "tls-crypt: /nowhere/key: ",
        ),
        (
            format!("{LOGIN}\nuser no-such-user-here"),
            "no-such-user-here",
        ),
        (
            format!("{locked}\naskpass {}", file.path().display()),
            "passphrase",
        ),
        (
            format!("{LOGIN}\nmanagement 127.0.0.1 7505 /nowhere/password"),
            "management: the password file: ",
        ),
    ] {
        let error = rehearsed(&more).unwrap_err();
        assert!(error.contains(words), "{more}: {error}");
    }
}
