//! The table has every option that stock reads.

use std::collections::HashSet;
use std::process::Command;

use super::*;

#[test]
fn every_name_once() {
    let mut names = HashSet::new();
    for entry in all() {
        assert!(names.insert(entry.name), "{} twice", entry.name);
        assert!(entry.min <= entry.max, "{}", entry.name);
    }
}

/// Names of all options that 2.6 and 2.7 read, undocumented ones included.
const KNOWN: &str = "allow-compression allow-nonadmin allow-pull-fqdn allow-recursive-routing \
    askpass auth auth-gen-token auth-gen-token-secret auth-nocache auth-retry auth-token \
    auth-token-user auth-user-pass auth-user-pass-optional auth-user-pass-verify bcast-buffers \
    bind bind-dev block-ipv6 block-outside-dns ca capath ccd-exclusive cd cert chroot cipher \
    client client-cert-not-required client-config-dir client-connect client-crresponse \
    client-disconnect client-nat client-to-client comp-lzo comp-noadapt compat-mode \
    compat-names compress config connect-freq connect-freq-initial connect-retry \
    connect-retry-max connect-timeout connection crl-verify cryptoapicert daemon data-ciphers \
    data-ciphers-fallback dev dev-node dev-type dh dhcp-internal dhcp-option dhcp-pre-release \
    dhcp-release dhcp-renew disable disable-dco disable-occ dns down down-pre duplicate-cn \
    ecdh-curve echo engine errors-to-stderr explicit-exit-notify extra-certs fast-io float \
    force-tls-key-material-export fragment genkey gremlin group hand-window hash-size help \
    http-proxy http-proxy-option http-proxy-override http-proxy-retry http-proxy-timeout \
    http-proxy-user-pass ifconfig ifconfig-ipv6 ifconfig-ipv6-pool ifconfig-ipv6-push \
    ifconfig-noexec ifconfig-nowarn ifconfig-pool ifconfig-pool-persist ifconfig-push \
    ifconfig-push-constraint ignore-unknown-option inactive ip-remote-hint ip-win32 ipchange \
    iproute iroute iroute-ipv6 keepalive key key-derivation key-direction \
    keying-material-exporter learn-address link-mtu lladdr local log log-append lport \
    machine-readable-output management management-client management-client-auth \
    management-client-group management-client-user management-external-cert \
    management-external-key management-forget-disconnect management-hold management-log-cache \
    management-query-passwords management-query-proxy management-query-remote \
    management-signal management-up-down mark max-clients max-packet-size max-routes \
    max-routes-per-client memstats mktun mlock mode msg-channel mssfix mtu-disc mtu-dynamic \
    mtu-test multihome mute mute-replay-warnings ncp-ciphers nice no-name-remapping no-replay \
    nobind ns-cert-type opt-verify parameter passtos pause-exit peer-fingerprint peer-id \
    persist-key persist-local-ip persist-remote-ip persist-tun ping ping-exit ping-restart \
    ping-timer-rem pkcs11-cert-private pkcs11-id pkcs11-id-management pkcs11-pin-cache \
    pkcs11-private-mode pkcs11-protected-authentication pkcs11-providers pkcs12 plugin port \
    port-share preresolve prng proto proto-force protocol-flags providers pull pull-filter \
    push push-continuation push-peer-info push-remove push-reset rcvbuf rdns-internal \
    redirect-gateway redirect-private register-dns remap-usr1 remote remote-cert-eku \
    remote-cert-ku remote-cert-tls remote-random remote-random-hostname reneg-bytes reneg-pkts \
    reneg-sec replay-persist replay-window resolv-retry rmtun route route-delay route-gateway \
    route-ipv6 route-ipv6-gateway route-method route-metric route-noexec route-nopull \
    route-pre-down route-up rport script-security secret server server-bridge server-ipv6 \
    server-poll-timeout service session-timeout setcon setenv setenv-safe shaper show-adapters \
    show-ciphers show-curves show-digests show-engines show-gateway show-groups show-net \
    show-net-up show-pkcs11-ids show-tls show-valid-subnets single-session sndbuf socket-flags \
    socks-proxy socks-proxy-retry stale-routes-check static-challenge status status-version \
    suppress-timestamps syslog tap-sleep tcp-nodelay tcp-queue-limit test-crypto tls-auth \
    tls-cert-profile tls-cipher tls-ciphersuites tls-client tls-crypt tls-crypt-v2 \
    tls-crypt-v2-verify tls-exit tls-export-cert tls-groups tls-server tls-timeout tls-verify \
    tls-version-max tls-version-min tmp-dir topology tran-window tun-ipv6 tun-mtu \
    tun-mtu-extra tun-mtu-max txqueuelen udp-mtu up up-delay up-restart \
    use-prediction-resistance user username-as-common-name verb verify-client-cert verify-hash \
    verify-x509-name version vlan-accept vlan-pvid vlan-tagging win-sys windows-driver \
    writepid x509-track x509-username-field allow-deprecated-insecure-static-crypto \
    dns-updown override-username route-table tls-crypt-v2-max-age ncp-disable keysize \
    key-method no-iv tls-remote";

#[test]
fn every_option_of_stock_has_its_place() {
    for name in KNOWN.split_whitespace() {
        assert!(find(name).is_some(), "--{name} has no place");
    }
}

#[test]
fn every_option_that_stock_prints_has_its_place() {
    // If a program is installed, its own list counts; otherwise the list above is used.
    let output = Command::new("openvpn").arg("--help").output();
    let Some(output) = lab::require(output.map_err(|error| format!("openvpn: {error}"))) else {
        return;
    };
    let help = String::from_utf8_lossy(&output.stdout);
    let mut found = 0;
    for line in help.lines() {
        let Some(option) = line.strip_prefix("--") else {
            continue;
        };
        let end = option.find(|c: char| !c.is_ascii_alphanumeric() && c != '-');
        let name = &option[..end.unwrap_or(option.len())];
        assert!(find(name).is_some(), "--{name} has no place");
        found += 1;
    }
    assert!(found > 200, "only {found} options in the help of openvpn");
}
