//! Actions that `openvpn` can be asked to do instead of running a tunnel.

use std::path::PathBuf;

/// An option that asks for an action instead of a tunnel.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Action {
    /// `--help`.
    Help,
    /// `--version`.
    Version,
    /// `--genkey`.
    GenKey(GenKey),
    /// `--show-ciphers`.
    ShowCiphers,
    /// `--show-digests`.
    ShowDigests,
    /// `--show-tls`.
    ShowTls,
    /// `--show-curves`, `--show-groups`.
    ShowGroups,
    /// `--show-gateway`.
    ShowGateway,
    /// `--mktun`: a persistent interface named by `dev`, for `user` and `group`.
    MakeTun,
    /// `--rmtun`.
    RemoveTun,
}

/// `--genkey [KIND] [FILE] [METADATA]`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GenKey {
    /// The kind of key.
    pub kind: KeyKind,
    /// The output file; `None` for standard output. In the old form it is the file of `--secret`.
    pub file: Option<PathBuf>,
    /// Base64 metadata for a tls-crypt-v2 client key; `None` for a time stamp. The server's key comes from
    /// `--tls-crypt-v2`.
    pub metadata: Option<String>,
}

/// Kinds of keys.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum KeyKind {
    /// `secret`: the 2048-bit key of `tls-auth` and `tls-crypt`.
    Static,
    /// `tls-crypt-v2-server`.
    TlsCryptV2Server,
    /// `tls-crypt-v2-client`.
    TlsCryptV2Client,
    /// `auth-token`: the secret of `auth-gen-token-secret`.
    AuthToken,
}
