//! The settings of a session. One of these serves all sessions of a tunnel.

use std::sync::Arc;
use std::time::Duration;

use super::token::TokenKeeper;
use crate::negotiate::{Cipher, CipherList, IvProto, OccOptions, PeerInfo, Transport};
use crate::push::PullFilter;
use crate::tls::TlsSettings;
use crate::wrap::WrapSettings;
use crypto::Digest;

/// The settings of both roles.
#[derive(Clone)]
pub struct Settings {
    /// Certificates and rules.
    pub tls: Arc<TlsSettings>,
    /// The option string, with which the ends compare the rest of their configuration.
    pub occ: OccOptions,
    /// The ciphers that may be negotiated, the preferred one first.
    pub data_ciphers: CipherList,
    /// The cipher for peers that negotiate none.
    pub fallback: Option<Cipher>,
    /// The digest beside ciphers that do not authenticate.
    pub auth: Digest,
    /// Whether keys may come from the TLS exporter. If not, we treat the peer like version 2.5.
    pub exporter: bool,
    /// Whether the epoch format is offered.
    pub epoch: bool,
    /// Whether compression framing is understood; a client announces this.
    pub framings: bool,
    /// Whether messages may be sent in data packets, for which the data plane must seal what it is given.
    pub in_band: bool,
    /// When keys are renewed.
    pub renegotiate: Renegotiate,
    /// How long a negotiation may take.
    pub hand_window: Duration,
    /// How long old keys still open packets after new keys have followed.
    pub tran_window: Duration,
    /// How long to wait before sending a control packet the second time.
    pub tls_timeout: Duration,
    /// The largest IP packet of the control channel, in bytes.
    pub max_packet_size: u16,
    /// Timers of the tunnel.
    pub timers: Timers,
}

impl Settings {
    /// OpenVPN's defaults.
    #[must_use]
    pub fn new(tls: Arc<TlsSettings>, occ: OccOptions) -> Self {
        Self {
            tls,
            occ,
            data_ciphers: CipherList::default(),
            fallback: None,
            auth: Digest::Sha1,
            exporter: true,
            epoch: false,
            framings: true,
            in_band: true,
            renegotiate: Renegotiate::default(),
            hand_window: Duration::from_secs(60),
            tran_window: Duration::from_secs(3600),
            tls_timeout: Duration::from_secs(2),
            max_packet_size: 1250,
            timers: Timers::default(),
        }
    }

    pub(super) fn transport(&self) -> Transport {
        self.occ.transport
    }

    /// How long keys wait before they seal, so that a peer that is slow to accept them never sees an unknown key.
    pub(super) fn defer(&self) -> Duration {
        match self.renegotiate.time {
            Some((_, most)) => self.hand_window.min(most / 2),
            None => self.hand_window,
        }
    }
}

/// When a side requests new keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renegotiate {
    /// After a time in this range: a server chooses at random, a client takes the longest. `None` is never.
    pub time: Option<(Duration, Duration)>,
    /// After this many bytes in both directions.
    pub bytes: Option<u64>,
    /// After this many packets in both directions.
    pub packets: Option<u64>,
}

impl Renegotiate {
    /// After this time, which a server shortens at random by up to a tenth.
    #[must_use]
    pub fn every(time: Duration) -> Self {
        Self {
            time: (!time.is_zero()).then(|| (time - time / 10, time)),
            bytes: None,
            packets: None,
        }
    }
}

impl Default for Renegotiate {
    /// Renews keys every hour.
    fn default() -> Self {
        Self::every(Duration::from_secs(3600))
    }
}

/// The limits of silence, and of the time that the tunnel is up. `None` is off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timers {
    /// Send a ping after this long without sending.
    pub ping: Option<Duration>,
    /// End with [`CloseReason::PingRestart`](super::CloseReason::PingRestart) after this long without receiving.
    pub ping_restart: Option<Duration>,
    /// End with [`CloseReason::PingExit`](super::CloseReason::PingExit) after this long without receiving.
    pub ping_exit: Option<Duration>,
    /// End after this long with less than this many bytes of payload.
    pub inactive: Option<(Duration, u64)>,
    /// End after this long, whatever happens.
    pub session_timeout: Option<Duration>,
}

/// The settings of a client only.
#[derive(Clone)]
pub struct ClientSettings {
    /// The settings of both roles.
    pub common: Settings,
    /// How the control channel is wrapped.
    pub wrap: WrapSettings,
    /// `IV_VER` and `IV_PLAT`, and with `push-peer-info` more. The lines of the protocol are added.
    pub peer_info: PeerInfo,
    /// The options that the server may push.
    pub filter: PullFilter,
    /// `tun-mtu-max`: the largest MTU that the server may push, in bytes.
    pub tun_mtu_max: u32,
    /// How many exit notices to send; the server may push another number.
    pub explicit_exit_notify: Option<u32>,
}

impl ClientSettings {
    /// OpenVPN's defaults.
    #[must_use]
    pub fn new(common: Settings, wrap: WrapSettings) -> Self {
        Self {
            common,
            wrap,
            peer_info: PeerInfo::default(),
            filter: PullFilter::default(),
            tun_mtu_max: 1600,
            explicit_exit_notify: None,
        }
    }

    /// Our full peer info, in stock's order.
    pub(super) fn peer_info(&self) -> PeerInfo {
        let common = &self.common;
        let mut info = PeerInfo::default();
        let first = ["IV_VER", "IV_PLAT"];
        for name in first {
            if let Some(value) = self.peer_info.value(name) {
                info.set(name, value);
            }
        }
        info.set("IV_TCPNL", "1");
        info.set("IV_MTU", &self.tun_mtu_max.to_string());
        if common.data_ciphers.has_both_gcm() {
            info.set("IV_NCP", "2");
        }
        info.set("IV_CIPHERS", &common.data_ciphers.to_string());
        let mut proto = IvProto::client(common.epoch);
        if !common.exporter {
            proto = proto
                .without(IvProto::TLS_KEY_EXPORT)
                .without(IvProto::DYN_TLS_CRYPT);
        }
        info.set("IV_PROTO", &proto.0.to_string());
        // The framings are understood; nothing is ever compressed.
        let framings = ["IV_LZO_STUB", "IV_COMP_STUB", "IV_COMP_STUBv2"];
        for name in framings.iter().filter(|_| common.framings) {
            info.set(name, "1");
        }
        for (name, value) in self.peer_info.iter() {
            if !first.contains(&name) {
                info.set(name, value);
            }
        }
        info
    }
}

/// The settings of a server only.
#[derive(Clone)]
pub struct ServerSettings {
    /// The settings of both roles.
    pub common: Settings,
    /// `auth-gen-token`: tokens instead of passwords for renegotiations.
    pub tokens: Option<Arc<TokenKeeper>>,
}

impl ServerSettings {
    /// OpenVPN's defaults.
    #[must_use]
    pub fn new(common: Settings) -> Self {
        Self {
            common,
            tokens: None,
        }
    }
}
