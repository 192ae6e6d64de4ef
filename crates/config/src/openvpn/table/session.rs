//! Directives of a session: TLS, the data channel, timers.

use super::{EXTERNAL, Entry, MANY, OPENSSL, PKCS11, no, skip, yes};

pub(super) const TLS: &[Entry] = &[
    yes("ca", 1, 1).inline(),
    no(
        "capath",
        "directories of certificates are not searched; join them into one `ca` file",
    ),
    yes("cert", 1, 1).inline(),
    yes("key", 1, 1).inline(),
    yes("pkcs12", 1, 1).inline(),
    yes("extra-certs", 1, 1).inline(),
    yes("crl-verify", 1, 2).inline(),
    yes("askpass", 0, 1),
    skip(
        "dh",
        "no old Diffie-Hellman group is used: key exchange is by elliptic curves",
    )
    .inline(),
    yes("tls-version-min", 1, 2),
    yes("tls-version-max", 1, 1),
    yes("tls-cipher", 1, 1),
    yes("tls-ciphersuites", 1, 1),
    yes("tls-groups", 1, 1),
    yes("ecdh-curve", 1, 1),
    yes("tls-cert-profile", 1, 1),
    yes("tls-auth", 1, 2).connection().inline(),
    yes("key-direction", 1, 1).connection(),
    yes("tls-crypt", 1, 2).connection().inline(),
    yes("tls-crypt-v2", 1, 2).connection().inline(),
    yes("tls-crypt-v2-verify", 1, 1),
    yes("tls-crypt-v2-max-age", 1, 1),
    yes("remote-cert-tls", 1, 1),
    yes("remote-cert-ku", 0, MANY),
    yes("remote-cert-eku", 1, 1),
    yes("ns-cert-type", 1, 1),
    yes("verify-x509-name", 1, 2),
    yes("verify-hash", 1, 2).inline().list(),
    yes("peer-fingerprint", 1, 1).inline().list(),
    yes("x509-username-field", 1, MANY),
    skip(
        "x509-track",
        "scripts get X509_* for each field of every subject without it",
    ),
    no(
        "keying-material-exporter",
        "keying material is not given to anybody else; remove the line",
    ),
    no(
        "tls-remote",
        "removed from OpenVPN 2.4; write `verify-x509-name NAME name`",
    ),
    no(
        "compat-names",
        "removed from OpenVPN 2.5; write names as `verify-x509-name` has them",
    ),
    skip("no-name-remapping", "names are not rewritten"),
    no(
        "tls-export-cert",
        "peer certificates are not written to files; `tls-verify` gets X509_*",
    ),
    no(
        "cryptoapicert",
        "a Windows key store; use `cert` and `key`, or `pkcs12`",
    ),
    no("management-external-key", EXTERNAL),
    no("management-external-cert", EXTERNAL),
    no("pkcs11-providers", PKCS11),
    no("pkcs11-protected-authentication", PKCS11),
    no("pkcs11-private-mode", PKCS11),
    no("pkcs11-cert-private", PKCS11),
    no("pkcs11-pin-cache", PKCS11),
    no("pkcs11-id", PKCS11),
    no("pkcs11-id-management", PKCS11),
    no(
        "secret",
        "a static key without TLS has no forward secrecy and is gone from OpenVPN 2.8; \
         give both ends certificates, or `peer-fingerprint`",
    )
    .inline(),
    skip(
        "allow-deprecated-insecure-static-crypto",
        "there is no static-key mode to allow",
    ),
    yes("key-method", 1, 1),
    skip("single-session", "a peer has one session"),
    skip("prng", OPENSSL),
    skip("engine", OPENSSL),
    skip("providers", OPENSSL),
    skip("use-prediction-resistance", OPENSSL),
];

pub(super) const DATA: &[Entry] = &[
    yes("data-ciphers", 1, 1).client(),
    yes("ncp-ciphers", 1, 1).client(),
    yes("data-ciphers-fallback", 1, 1).client(),
    yes("cipher", 1, 1).client(),
    yes("auth", 1, 1),
    yes("allow-insecure-ciphers", 0, 0),
    yes("ncp-disable", 0, 0),
    yes("keysize", 1, 1),
    yes("compat-mode", 1, 1),
    yes("comp-lzo", 0, 1).client(),
    yes("compress", 0, 1).client(),
    yes("allow-compression", 1, 1),
    skip("comp-noadapt", "nothing is compressed").client(),
    yes("replay-window", 1, 2),
    yes("reorder", 0, 0),
    skip(
        "mute-replay-warnings",
        "replays are counted, not logged one by one",
    ),
    skip(
        "replay-persist",
        "keys and packet numbers of a session die with the process",
    ),
    no(
        "no-replay",
        "packets that come twice would be taken twice; remove the line",
    ),
    no(
        "no-iv",
        "removed from OpenVPN 2.5; remove the line at both ends",
    ),
    skip(
        "force-tls-key-material-export",
        "used whenever the client can",
    ),
];

pub(super) const TIMERS: &[Entry] = &[
    yes("keepalive", 2, 2),
    yes("ping", 1, 1).client(),
    yes("ping-restart", 1, 1).client(),
    yes("ping-exit", 1, 1).client(),
    skip(
        "ping-timer-rem",
        "timeouts run only while there is a peer, always",
    )
    .client(),
    yes("inactive", 1, 2).client(),
    yes("session-timeout", 1, 1).client(),
    yes("reneg-sec", 1, 2),
    yes("reneg-bytes", 1, 1),
    yes("reneg-pkts", 1, 1),
    yes("hand-window", 1, 1),
    yes("tran-window", 1, 1),
    yes("tls-timeout", 1, 1),
    yes("tls-exit", 0, 0),
];
