use super::*;
use crate::setup;
use crate::tests::client as config_of_client;
use openvpn::role::Role;
use openvpn::wrap::WrapSettings;

const SEC: Duration = Duration::from_secs(1);

fn tls(config: &OpenVpn) -> Arc<TlsSettings> {
    Arc::new(setup::tls_settings(config, None).unwrap())
}

/// The terms of a client that logs in with a password, with `more` lines.
fn terms(more: &str) -> ClientSettings {
    let config = config_of_client(&format!("auth-user-pass\n{more}"));
    let tls = tls(&config);
    client(
        &config,
        &config.connections[0],
        tls,
        WrapSettings::none(),
        false,
    )
}

#[cfg(feature = "server")]
fn terms_of_server(more: &str) -> Settings {
    let config = crate::tests::server(more);
    let tls = tls(&config);
    server(&config, &config.connections[0], tls, None, false).common
}

#[test]
fn a_silent_server_is_left_after_the_limit_of_the_file() {
    let limits = |more: &str| {
        let timers = terms(more).common.timers;
        (timers.ping_restart, timers.ping_exit)
    };
    assert_eq!(limits(""), (Some(120 * SEC), None));
    assert_eq!(limits("proto tcp-client"), (None, None));
    assert_eq!(limits("ping-restart 0"), (None, None));
    assert_eq!(limits("ping-restart 30"), (Some(30 * SEC), None));
    assert_eq!(limits("ping-exit 40"), (None, Some(40 * SEC)));
}

#[test]
fn timers_of_the_file_are_the_sessions() {
    let common = terms(
        "ping 7\ninactive 60 1000\nsession-timeout 3600\nhand-window 20\ntran-window 30\ntls-timeout 3\n\
         max-packet-size 1100",
    )
    .common;
    assert_eq!(common.timers.ping, Some(7 * SEC));
    assert_eq!(common.timers.inactive, Some((60 * SEC, 1000)));
    assert_eq!(common.timers.session_timeout, Some(3600 * SEC));
    let windows = (common.hand_window, common.tran_window, common.tls_timeout);
    assert_eq!(windows, (20 * SEC, 30 * SEC, 3 * SEC));
    assert_eq!(common.max_packet_size, 1100);
    let usual = terms("").common.timers;
    assert_eq!(
        (usual.ping, usual.inactive, usual.session_timeout),
        (None, None, None)
    );
}

#[test]
fn keys_are_renewed_as_the_file_says() {
    let renegotiate = |more: &str| terms(more).common.renegotiate;
    assert_eq!(renegotiate("").time, Some((3600 * SEC, 3600 * SEC)));
    assert_eq!(renegotiate("reneg-sec 0").time, None);
    assert_eq!(
        renegotiate("reneg-sec 90 60").time,
        Some((60 * SEC, 90 * SEC))
    );
    let limits = renegotiate("reneg-bytes 5000\nreneg-pkts 60");
    assert_eq!((limits.bytes, limits.packets), (Some(5000), Some(60)));
}

/// All clients of a server would otherwise ask for new keys at the same time.
#[cfg(feature = "server")]
#[test]
fn a_server_renews_keys_up_to_a_tenth_early() {
    let time = |more: &str| terms_of_server(more).renegotiate.time;
    assert_eq!(time("reneg-sec 1000"), Some((900 * SEC, 1000 * SEC)));
    assert_eq!(time("reneg-sec 1000 100"), Some((100 * SEC, 1000 * SEC)));
    assert_eq!(time("reneg-sec 0"), None);
}

#[test]
fn the_peer_is_told_what_the_user_permits() {
    let environment = "setenv UV_ROOM 7\nsetenv IV_GUI_VER gui_1\nsetenv SECRET s\n";
    let info = terms(environment).peer_info;
    assert!(info.value("IV_VER").unwrap().starts_with("millrace_"));
    assert_eq!(info.value("IV_PLAT"), Some("linux"));
    assert_eq!(info.value("IV_GUI_VER"), Some("gui_1"));
    assert_eq!((info.value("UV_ROOM"), info.value("SECRET")), (None, None));
    let info = terms(&format!("{environment}push-peer-info")).peer_info;
    assert_eq!(
        (info.value("UV_ROOM"), info.value("SECRET")),
        (Some("7"), None)
    );
}

#[test]
fn the_file_limits_what_the_server_may_push() {
    let settings = terms("pull-filter ignore dhcp-option\nroute-nopull");
    assert_eq!(settings.filter.rules.len(), 1);
    assert!(settings.filter.no_routes && !terms("").filter.no_routes);
    assert_eq!(terms("").tun_mtu_max, 1600);
    assert_eq!(terms("tun-mtu-max 1700").tun_mtu_max, 1700);
    assert_eq!(terms("tun-mtu 9000").tun_mtu_max, 9000);
    assert_eq!(terms("").explicit_exit_notify, None);
    assert_eq!(
        terms("explicit-exit-notify 2").explicit_exit_notify,
        Some(2)
    );
}

/// The texts of stock 2.6 for the same options.
#[test]
fn the_options_are_compared_as_stock_writes_them() {
    let text = |more: &str| terms(more).common.occ.local(Role::Client);
    assert_eq!(
        text("data-ciphers AES-256-GCM\ncipher AES-256-GCM\ntun-mtu 1400"),
        "V4,dev-type tun,link-mtu 1449,tun-mtu 1400,proto UDPv4,cipher AES-256-GCM,auth [null-digest],keysize 256,\
         key-method 2,tls-client"
    );
    let key = crate::tests::key_block("tls-auth", "static.key");
    let wrapped = text(&format!(
        "proto tcp-client\ncomp-lzo no\nkey-direction 1\n{key}"
    ));
    for word in ["proto TCPv4_CLIENT", "comp-lzo", "keydir 1", "tls-auth"] {
        assert!(wrapped.split(',').any(|it| it == word), "{word}: {wrapped}");
    }
}

/// The kernel would drop packets in formats that it does not know.
#[test]
fn formats_that_the_kernel_lacks_are_not_offered_with_it() {
    let config = config_of_client("auth-user-pass");
    let offers = |kernel| {
        let tls = tls(&config);
        let settings = client(
            &config,
            &config.connections[0],
            tls,
            WrapSettings::none(),
            kernel,
        );
        [
            settings.common.epoch,
            settings.common.framings,
            settings.common.in_band,
        ]
    };
    assert_eq!(offers(true), [false; 3]);
    assert_eq!(offers(false), [true; 3]);
}
