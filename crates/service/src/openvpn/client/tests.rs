//! A client in a simulated world. Servers fail, refuse, restart and move, a line drops, clocks jump, and a host records
//! its settings.
//!
//! `MILLRACE_TEST_SEEDS` is the number of seeds (200), `MILLRACE_TEST_SEED` the first of them (1).

mod by_lines;
mod by_stream_lines;
mod data_plane;
mod fake_host;
mod moves;
mod options;
mod scenarios;
mod scripts;
mod seeds;
mod server;
mod steps;
mod world;

use super::machine::{Machine, Parts};
use crate::openvpn::OWN_NAME;
use crate::openvpn::kernel_plane::Choice;
use config::lines::Lines;
use config::openvpn::{OpenVpn, parse_arguments};
use config::settings::{DataplaneSettings, Kind};
use openvpn::tls::TlsSettings;
use openvpn::wrap::WrapSettings;
use openvpn_host::hooks::Hooks;
use openvpn_host::setup;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

/// A file of the certificates that the protocol's own tests use.
fn certificate(name: &str) -> PathBuf {
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    own.join("../openvpn/tests/certs/p256").join(name)
}

/// Parses a configuration with `more` options and keeps it for the whole test run.
fn config(more: &str) -> &'static OpenVpn {
    config_by_lines(more, Lines::default())
}

/// A configuration with `more` options and these uplinks.
fn config_by_lines(more: &str, lines: Lines) -> &'static OpenVpn {
    let file = |name| certificate(name).display().to_string();
    let (ca, cert, key) = (file("ca.crt"), file("client.crt"), file("client.key"));
    let text = format!("--client --dev tun0 --ca {ca} --cert {cert} --key {key} {more}");
    let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    let mut read = |path: &std::path::Path| config::openvpn::read_config(path);
    let import = parse_arguments(&words, &mut read, OWN_NAME).unwrap();
    assert!(import.faults().is_empty(), "{:?}", import.faults());
    let (mut config, _) = import.into_model().unwrap();
    config.lines = lines;
    Box::leak(Box::new(config))
}

fn machine(config: &'static OpenVpn) -> Machine<'static> {
    Machine::new(parts(config))
}

/// The parts of a client in user space.
fn parts(config: &'static OpenVpn) -> Parts<'static> {
    // All configurations use the same certificates.
    static TLS: [OnceLock<Arc<TlsSettings>>; 2] = [const { OnceLock::new() }; 2];
    let asks = config.scripts.tls_verify.is_some();
    let tls = TLS[usize::from(asks)].get_or_init(|| {
        let mut tls = setup::tls_settings(config, None).unwrap();
        if asks {
            tls.ask_for_verdicts();
        }
        Arc::new(tls)
    });
    let wraps = config.connections.iter();
    let wraps = wraps.map(|it| (it.wrap.clone(), WrapSettings::none()));
    let settings = DataplaneSettings {
        kind: Kind::User,
        ..DataplaneSettings::default()
    };
    Parts {
        config,
        hooks: Hooks::new(config, None, SystemTime::UNIX_EPOCH),
        tls: Arc::clone(tls),
        wraps: wraps.collect(),
        no_dns: false,
        auth_retry: config.client().unwrap().auth_retry,
        mover: Box::leak(Box::new(Choice::of(config, &settings))),
        given_up: 0,
    }
}
