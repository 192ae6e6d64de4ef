use super::*;
use crate::tests::client;
use std::path::PathBuf;

fn inline(text: &str) -> Prompted {
    Prompted::From(Source::Inline(text.into()))
}

fn both(prompted: &Prompted) -> (String, String) {
    let login = login(
        "auth-user-pass",
        "Auth",
        prompted,
        &client("auth-user-pass"),
    )
    .unwrap();
    (login.name, login.password.to_string())
}

#[test]
fn name_and_password_are_the_first_two_lines() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("login");
    let expected = ("alice".to_owned(), "pass word".to_owned());
    std::fs::write(&path, "alice\r\npass word\r\na note\n").unwrap();
    assert_eq!(both(&Prompted::From(Source::File(path))), expected);
    // A block begins behind its tag, perhaps after an empty line.
    assert_eq!(both(&inline("\n\nalice\npass word\n")), expected);
}

#[test]
fn a_login_file_that_is_missing_is_named_by_its_directive() {
    let missing = Prompted::From(Source::File(PathBuf::from("/nowhere/login")));
    let config = client("auth-user-pass");
    let errors = [
        login("http-proxy", "Proxy", &missing, &config).err(),
        rehearse_login("http-proxy", &missing, &config).err(),
    ];
    for error in errors {
        let text = error.unwrap().to_string();
        assert!(text.starts_with("http-proxy: "), "{text}");
    }
    assert!(rehearse_login("http-proxy", &inline("a\nb\n"), &config).is_ok());
}

/// A client that was set to run without anybody to ask must say at its start what it lacks.
#[test]
fn credentials_are_complete_only_if_nobody_needs_to_be_asked() {
    let lacking = |more: &str| complete(&client(more)).map_err(|error| error.to_string());
    let login = |lines: &str| format!("<auth-user-pass>\n{lines}\n</auth-user-pass>\n");
    let certificate = "cert c\nkey k";
    for whole in [
        certificate,
        &login("alice\nsecret"),
        "auth-user-pass\nauth-token-user YQ==\nauth-token token",
    ] {
        assert_eq!(lacking(whole), Ok(()), "{whole}");
    }
    for part in [
        "auth-user-pass",
        &login("alice"),
        "auth-user-pass\nauth-token token",
    ] {
        let error = lacking(part).unwrap_err();
        assert!(
            error.starts_with("auth-user-pass: there is nobody"),
            "{part}: {error}"
        );
    }
    let challenge = format!("{}static-challenge Code 1", login("alice\nsecret"));
    let error = lacking(&challenge).unwrap_err();
    assert!(
        error.starts_with("static-challenge: there is nobody"),
        "{error}"
    );
    let error = lacking("auth-user-pass /nowhere/login").unwrap_err();
    assert!(error.starts_with("auth-user-pass: No such file"), "{error}");
}

#[cfg(feature = "server")]
#[test]
fn a_server_needs_no_credentials() {
    assert!(complete(&crate::tests::server("")).is_ok());
}

#[test]
fn a_passphrase_is_the_first_line_of_its_file() {
    let config = client("auth-user-pass");
    let passphrase = passphrase(Some(&inline("open sesame\nrest\n")), &config).unwrap();
    assert_eq!(*passphrase, "open sesame");
}
