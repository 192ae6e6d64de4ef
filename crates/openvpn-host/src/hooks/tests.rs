use super::*;
use crate::scripts::testing::shell;
use crate::tests::server;

const CLIENT: &str = "script-security 2\n";

/// The scripts of a server in a directory of its own.
fn in_directory(more: &str) -> (tempfile::TempDir, OpenVpn) {
    let directory = tempfile::tempdir().unwrap();
    let mut config = server(more);
    config.directory = Some(directory.path().to_owned());
    (directory, config)
}

#[test]
fn a_script_runs_in_the_directory_of_the_file_and_sees_all_variables() {
    let (directory, config) = in_directory(&format!("{CLIENT}verb 4\nsetenv COLOUR red"));
    let mut hooks = Hooks::new(&config, Some("office.conf"), SystemTime::UNIX_EPOCH);
    hooks.interface.set("dev", "tun3");
    let mut own = hooks.base.clone();
    own.set("common_name", "alice");
    let script = shell("echo $config $verb $COLOUR $dev $common_name $script_type $1 > seen");
    let arguments = ["add".to_owned()];
    hooks
        .run(Hook::LearnAddress, Some(&script), arguments, &own)
        .unwrap();
    let seen = std::fs::read_to_string(directory.path().join("seen")).unwrap();
    assert_eq!(seen, "office.conf 4 red tun3 alice learn-address add\n");
}

/// `client-connect` that fails keeps the client out; `client-disconnect` that fails changes nothing.
#[test]
fn a_script_that_fails_is_an_error_or_a_line_in_the_log() {
    let (directory, config) = in_directory(CLIENT);
    let hooks = Hooks::new(&config, None, SystemTime::UNIX_EPOCH);
    let none = Environment::default();
    let script = shell("touch ran; exit 3");
    let error = hooks.run(Hook::ClientConnect, Some(&script), [], &none);
    let text = error.unwrap_err().to_string();
    assert!(text.starts_with("client-connect: "), "{text}");
    std::fs::remove_file(directory.path().join("ran")).unwrap();
    hooks.tell(Hook::ClientDisconnect, Some(&script), [], &none);
    assert!(directory.path().join("ran").exists());
    hooks.run(Hook::ClientConnect, None, [], &none).unwrap();
}

#[test]
fn no_script_runs_without_the_permission_of_the_file() {
    let (directory, config) = in_directory("");
    let hooks = Hooks::new(&config, None, SystemTime::UNIX_EPOCH);
    let script = shell("touch ran");
    let error = hooks.run(Hook::Up, Some(&script), [], &Environment::default());
    let text = error.unwrap_err().to_string();
    assert!(text.contains("script-security 2"), "{text}");
    assert!(!directory.path().join("ran").exists());
}
