//! The table of all fields of the status document. The JSON document, the text, the metrics, the details on the web
//! page and the tables of docs/status.md are made from it: a new field is added here, and where it is set. The counters
//! of a direction are rows of [`plane::pipeline_counters`].

use std::collections::BTreeMap;

use plane::{LineCounts, OrderCounts, PipelineCounts, Statistics};
use serde::de::{DeserializeOwned, Error as _};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

/// One field of a level of the document.
pub struct Field<T: 'static> {
    /// Name in the JSON document. Its ending says the unit: `_ms`, `_us` and `_ns` for time, `_bytes` for sizes, `_percent`.
    pub name: &'static str,
    /// Label of the field's line in the text for people; empty for none.
    pub label: &'static str,
    /// Whether the document is without the field while it is null or empty.
    omitted: bool,
    get: fn(&T) -> Value,
    set: fn(&mut T, Value) -> serde_json::Result<()>,
}

impl<T> Field<T> {
    /// The field's value, as in the JSON document.
    #[must_use]
    pub fn value(&self, level: &T) -> Value {
        (self.get)(level)
    }

    /// The factor from the field's value to the unit of its metric: metrics have seconds and ratios.
    #[must_use]
    pub fn scale(&self) -> f64 {
        match self.name.rsplit_once('_') {
            Some((_, "ms")) => 1e-3,
            Some((_, "us")) => 1e-6,
            Some((_, "ns")) => 1e-9,
            Some((_, "percent")) => 1e-2,
            _ => 1.0,
        }
    }
}

/// Texts of pages and metrics about a field. A program that serves neither does not contain them.
pub struct Note {
    /// Description in Markdown: one line for docs/status.md.
    pub what: &'static str,
    /// Name of the metric, which ends with its unit, and with `_total` for a counter; empty if the field is no
    /// measure. `*` stands for the direction of a pipeline: `receive` or `transmit`.
    pub metric: &'static str,
    /// Rust's type, then after a semicolon when the field is absent.
    #[cfg(test)]
    pub kind: &'static str,
}

/// A level of the document.
pub trait Level: Default + 'static {
    /// The fields of this level, in the order of the text.
    const FIELDS: &'static [Field<Self>];
    /// The note of each field, in the same order.
    const NOTES: &'static [Note];
}

// The table is also how a level is read and written: derived code for all levels would be 30 KB of an ARMv7 program.

fn read<T: Level>(mut document: Map<String, Value>) -> serde_json::Result<T> {
    let mut level = T::default();
    for field in T::FIELDS {
        if let Some(value) = document.remove(field.name) {
            (field.set)(&mut level, value)?;
        }
    }
    Ok(level)
}

fn write<T: Level, S: Serializer>(level: &T, to: S) -> Result<S::Ok, S::Error> {
    let mut document = to.serialize_map(None)?;
    for field in T::FIELDS {
        let value = field.value(level);
        let empty = value.is_null()
            || value == ""
            || value.as_array().is_some_and(Vec::is_empty)
            || value.as_object().is_some_and(Map::is_empty);
        if !(field.omitted && empty) {
            document.serialize_entry(field.name, &value)?;
        }
    }
    document.end()
}

#[inline(never)]
fn get<T: Serialize>(value: &T) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

#[inline(never)]
fn set<T: DeserializeOwned>(place: &mut T, value: Value) -> serde_json::Result<()> {
    *place = serde_json::from_value(value)?;
    Ok(())
}

/// Makes each level's type and its tables.
macro_rules! levels {
    ($(
        $(#[doc = $about:literal])+
        pub struct $level:ident {
            $(
                $(#[doc = $what:literal])+
                $name:ident: $type:ty $(, absent $absent:literal)? $(, label $label:literal)?
                    $(, metric $metric:literal)? $(, feature $feature:literal)?;
            )+
        }
    )+) => {$(
        $(#[doc = $about])+
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $level {
            $($(#[doc = $what])+ $(#[cfg(feature = $feature)])? pub $name: $type,)+
        }

        impl Level for $level {
            const FIELDS: &'static [Field<Self>] = &[$($(#[cfg(feature = $feature)])? Field {
                name: stringify!($name),
                label: concat!($($label)?),
                omitted: !concat!($($absent)?).is_empty(),
                get: |it| get(&it.$name),
                set: |it, value| set(&mut it.$name, value),
            }),+];
            const NOTES: &'static [Note] = &[$($(#[cfg(feature = $feature)])? Note {
                what: concat!($($what),+).trim_ascii_start(),
                metric: concat!($($metric)?),
                #[cfg(test)]
                kind: concat!(stringify!($type), $(";", $absent)?),
            }),+];
        }

        impl<'de> Deserialize<'de> for $level {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                read(Map::deserialize(from)?).map_err(D::Error::custom)
            }
        }

        impl Serialize for $level {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                write(self, to)
            }
        }
    )+};
}

levels! {
    /// The status document, the same for all protocols; docs/status.md describes it. A reader ignores unknown fields
    /// and takes defaults for missing ones, so daemon and command may differ in age.
    pub struct Status {
        /// Name of the interface.
        interface: String;
        /// `wireguard`, `openvpn` or `pptp`.
        protocol: String;
        /// `client` or `server`; null with WireGuard, whose peers are equal.
        role: Option<String>, label "protocol";
        /// First generation of [AmneziaWG](amneziawg.md) that has the tunnel's settings, `1.0` to `3.1`.
        amnezia: Option<String>, absent "if null", label "amneziawg", feature "amnezia";
        /// OpenVPN and PPTP clients: `connecting` or `connected`. All protocols:
        /// [`silent` or `no carrier`](#silent-and-no-carrier) if all peers are in this state, and `waiting` while
        /// `waiting_for` is set.
        state: Option<String>;
        /// The tunnel's own addresses; empty with WireGuard.
        addresses: Vec<String>, label "addresses";
        /// The tunnel's own public key, in base64, with WireGuard.
        public_key: Option<String>, label "public key";
        /// UDP port; 0 while there is none.
        listen_port: u16, label "listening port";
        /// TCP ports that a server listens on.
        listen_tcp: Vec<u16>, label "listening tcp port";
        /// Mark of outgoing datagrams; 0 for none.
        fwmark: u32, label "fwmark";
        /// Device that the sockets are bound to.
        bound_device: Option<String>, absent "if null";
        /// MTU of the interface, in bytes.
        mtu: u32, label "mtu", metric "millrace_tunnel_mtu_bytes";
        /// Reason for this MTU, with WireGuard: `ppp0 1492 less 80`, `as configured`,
        /// [and others](troubleshooting.md#pings-work-pages-do-not-load-mtu); null where `wg-quick` or `ip` sets the
        /// MTU.
        mtu_reason: Option<String>;
        /// Result of probing the paths to WireGuard's peers: `10.0.0.1 answers up to 1420 bytes`,
        /// `10.0.0.1 answers no pings`.
        mtu_probe: Option<String>, label "mtu probes";
        /// Missing thing that a tunnel in the state `waiting` waits for, such as `an address of
        /// vpn.example:51820`.
        waiting_for: Option<String>, absent "if null", label "state";
        /// Warnings, one sentence each: what the tunnel asked of the host and does not have, such as a route that the
        /// kernel refused or that another one hides; certificates, lists and allowances that end soon, with the remedy.
        warnings: Vec<String>, absent "if empty", label "warning";
        /// Earliest end of the tunnel's certificate, authorities and revocation lists, in seconds since 1970, with
        /// OpenVPN; not in programs without servers.
        expires_unix: Option<u64>, absent "if null", metric "millrace_tunnel_expires_timestamp_seconds";
        /// Threads of the data plane.
        workers: usize, metric "millrace_tunnel_workers";
        /// Milliseconds since the daemon's start, by a clock that never jumps.
        uptime_ms: u64, metric "millrace_tunnel_uptime_seconds";
        /// The peers, as below: a server's connected clients, or a client's server.
        peers: Vec<PeerStatus>;
        /// Servers of a [pool](pools.md) that did not answer, each with the seconds since then, at most the latest 64.
        failed_servers: BTreeMap<String, u64>, absent "if empty";
        /// Refused control packets, handshakes and sessions, by [reason](#drops-and-refusals).
        refused: BTreeMap<String, u64>, metric "millrace_tunnel_refused_total";
        /// The data plane, as below.
        dataplane: DataplaneStatus;
    }

    /// One peer.
    pub struct PeerStatus {
        /// WireGuard: the peer's public key, in base64.
        public_key: String, absent "if empty", label "public key";
        /// WireGuard: `#! Name` in the file, or the server of a [pool](pools.md). OpenVPN: the client's name in
        /// `millrace peer list`, otherwise the certificate's common name. PPTP: user name of a client, host name of a
        /// server.
        name: Option<String>;
        /// OpenVPN: the certificate's common name, where a client has another name.
        certificate_name: Option<String>, absent "if null", label "certificate";
        /// WireGuard: the key that this one replaces once the peer uses it, in base64: the peer has a new file.
        replaces: Option<String>, absent "if null";
        /// The peer's address, `ADDRESS:PORT`; with PPTP `ADDRESS`.
        endpoint: Option<String>, label "endpoint";
        /// `udp`, `tcp` or, with PPTP, `gre`.
        transport: Option<String>;
        /// OpenVPN client's program: `2.6.14 linux`.
        version: Option<String>, label "version";
        /// User name of the login (OpenVPN, PPTP).
        username: Option<String>, label "user";
        /// Number of a server's client, which `client-kill` at the management port takes; with PPTP the call ID.
        client_id: Option<u64>;
        /// The peer's ranges, `ADDRESS/PREFIX`; for a server's client, its addresses and `iroute`s.
        allowed_ips: Vec<String>, label "allowed ips";
        /// Cipher of the data packets, with OpenVPN and PPTP, once both ends have agreed on one.
        cipher: Option<String>, label "cipher";
        /// Kind of code that computes the cipher: `portable`, `simd` or `accelerator`.
        crypto_backend: Option<String>;
        /// Provider of the code that computes the cipher.
        backend: Option<String>;
        /// Key exchange of the session: with OpenVPN the TLS group, such as `X25519MLKEM768`; with WireGuard
        /// `X25519 + ML-KEM-768` or `X25519`, where `PostQuantum` is on.
        key_exchange: Option<String>, absent "if null", label "key exchange", feature "postquantum";
        /// Whether that key exchange is post-quantum, so that a recording stays secret from quantum computers.
        post_quantum: Option<bool>, absent "if null", metric "millrace_peer_post_quantum",
            feature "postquantum";
        /// Start of the session, in seconds since 1970, except with WireGuard.
        connected_unix: Option<u64>, metric "millrace_peer_connected_timestamp_seconds";
        /// End of the peer's certificate, in seconds since 1970, with OpenVPN.
        expires_unix: Option<u64>, absent "if null", metric "millrace_peer_certificate_expires_timestamp_seconds";
        /// [`silent` or `no carrier`](#silent-and-no-carrier); only with a known fault.
        state: Option<String>, absent "if null", label "state";
        /// Reason for the state, in words.
        reason: Option<String>, absent "if null";
        /// Seconds since the last authentic packet of any kind came from the peer, by a clock that never jumps.
        last_heard_age: Option<u64>, label "last heard", metric "millrace_peer_last_heard_age_seconds";
        /// Installation of the newest keys, in seconds since 1970.
        last_handshake_unix: Option<u64>, metric "millrace_peer_handshake_timestamp_seconds";
        /// Seconds since the newest keys were installed, by a clock that never jumps.
        latest_handshake_age: Option<u64>, label "latest handshake", metric "millrace_peer_handshake_age_seconds";
        /// Bytes that came from the peer, of data and control packets, without IP, UDP and TCP.
        rx_bytes: u64, label "transfer", metric "millrace_peer_receive_bytes_total";
        /// Bytes that went to the peer, counted like `rx_bytes`.
        tx_bytes: u64, metric "millrace_peer_transmit_bytes_total";
        /// Bits received a second, between two samples.
        rx_rate: Option<u64>, label "rate", metric "millrace_peer_receive_bits_per_second";
        /// Bits sent a second, between two samples.
        tx_rate: Option<u64>, metric "millrace_peer_transmit_bits_per_second";
        /// Seconds between persistent keepalives, with WireGuard.
        keepalive: Option<u16>, label "persistent keepalive", metric "millrace_peer_keepalive_seconds";
        /// The [uplinks](uplinks.md) over which the peer may be reached, as below. If a peer connects over several
        /// uplinks of its own, each of its addresses is one uplink of this list; their traffic is counted together.
        lines: Vec<LineStatus>, absent "if empty", label "line";
        /// Counts of putting the peer's packets into order, as below.
        order: Option<OrderStatus>, absent "if null", label "order";
    }

    /// One uplink of a peer. The packets that came over it are `accepted`, `late`, `duplicated` or `ancient`.
    pub struct LineStatus {
        /// Name of the uplink.
        name: String;
        /// `unknown`, `up`, `degraded` or `down`.
        state: String;
        /// Reason for the state, in words.
        reason: String;
        /// Seconds since the state changed.
        state_age: Option<u64>, metric "millrace_line_state_age_seconds";
        /// Whether packets to the peer go over this uplink.
        in_use: bool, metric "millrace_line_in_use";
        /// Smoothed round trip in milliseconds.
        round_trip_ms: Option<f64>, metric "millrace_line_round_trip_seconds";
        /// Usual difference of two round trips in a row, in milliseconds (RFC 3550, section 6.4.1).
        jitter_ms: Option<f64>, metric "millrace_line_jitter_seconds";
        /// Percent of the last 32 probes that were lost; null with fewer than 8 recent probes: busy and metered uplinks
        /// send fewer.
        loss_percent: Option<u8>, metric "millrace_line_probe_loss_ratio";
        /// Monthly allowance, as below.
        cap: Option<CapStatus>, absent "if null";
        /// Packets sent over this uplink, copies included.
        sent: u64, metric "millrace_line_transmit_packets_total";
        /// Bytes of the packets sent, headers and tags included.
        sent_bytes: u64, metric "millrace_line_transmit_bytes_total";
        /// Bytes received, headers and tags included, without copies.
        received_bytes: u64, metric "millrace_line_receive_bytes_total";
        /// Packets whose first copy came in time over this uplink.
        accepted: u64, metric "millrace_line_accepted_packets_total";
        /// First copies that came too late, when nothing waited for them.
        late: u64, metric "millrace_line_late_packets_total";
        /// Accepted packets that waited for an earlier one.
        buffered: u64, metric "millrace_line_buffered_packets_total";
        /// Copies of packets that had already come.
        duplicated: u64, metric "millrace_line_duplicated_packets_total";
        /// Copies too old to tell whether the packet had come.
        ancient: u64, metric "millrace_line_ancient_packets_total";
    }

    /// The allowance of an uplink for a month, and its use: bytes of both directions, with the headers of UDP and IP.
    pub struct CapStatus {
        /// Bytes that the uplink may carry in a month.
        cap_bytes: u64, metric "millrace_line_cap_bytes";
        /// Bytes carried in this month.
        used_bytes: u64, metric "millrace_line_cap_used_bytes";
        /// Bytes that are left; 0 once the allowance is exceeded.
        left_bytes: u64, metric "millrace_line_cap_left_bytes";
        /// First day of the next month, such as `2026-12-14`; null while the clock is not set.
        renews: Option<String>;
    }

    /// Counts of putting a peer's packets into order, over all uplinks.
    pub struct OrderStatus {
        /// Packets that came in time to be put into order.
        accepted: u64, metric "millrace_peer_order_accepted_packets_total";
        /// Packets that came too late, when nothing waited for them.
        late: u64, metric "millrace_peer_order_late_packets_total";
        /// Packets that wait now for an earlier one.
        waiting: u64, metric "millrace_peer_order_waiting_packets";
        /// Packets that never came. Falls by one when such a packet comes late.
        lost: u64, metric "millrace_peer_order_lost_packets";
        /// Packets that the peer was asked to send again.
        asked: u64, metric "millrace_peer_order_asked_packets_total";
        /// Packets that came after they were requested again.
        repaired: u64, metric "millrace_peer_order_repaired_packets_total";
    }

    /// Counters and settings of the data plane.
    pub struct DataplaneStatus {
        /// Cipher of the packets, with WireGuard; empty with OpenVPN and PPTP, where each peer has its own.
        cipher: String;
        /// Kind of code that computes the cipher: `portable`, `simd` or `accelerator`; empty without encryption.
        crypto_backend: String;
        /// Provider of the code that computes the cipher.
        backend: String;
        /// Measurements that decided which code computes the cipher, as below; empty if a profile decided, or there was
        /// only one candidate.
        measured: Vec<MeasuredStatus>;
        /// Whether this build has [code for accelerators](accelerators.md).
        accelerators: Option<bool>;
        /// Each offload: `on`, `off (setting)`, `off (kernel: WHY)`, `off (self-test: WHY)`, `off (demoted: WHY)`
        /// ([kernel-levels.md](kernel-levels.md)); a server with TCP only has no `udp-…`; `kernel-data-plane` has `(auto:
        /// WHY)`.
        rungs: BTreeMap<String, String>;
        /// Packets from the interface to the peers, as below; `transmit` in names of metrics.
        outbound: PipelineStatus;
        /// Packets from the peers to the interface, as below; `receive` in names of metrics.
        inbound: PipelineStatus;
        /// Packets that the data plane dropped, by [reason](#drops-and-refusals).
        drops: BTreeMap<String, u64>, label "dropped", metric "millrace_tunnel_dropped_packets_total";
        /// Cause that limited the speed between two samples, in words; empty with `--no-rate`, and below 1,000 packets
        /// a second.
        limits: String, label "limit";
    }

    /// The measured time of one candidate for the cipher: the shortest processor time of several runs.
    pub struct MeasuredStatus {
        /// Name of the candidate.
        name: String;
        /// Kind of the candidate: `portable`, `simd` or `accelerator`.
        kind: String;
        /// Bytes of each packet in the measured batch.
        batch_len: usize, metric "millrace_cipher_batch_packet_bytes";
        /// Nanoseconds of processor time for each packet of the measured batch; null if the candidate was already far
        /// behind with small packets.
        batch_ns: Option<u64>, metric "millrace_cipher_batch_seconds";
        /// Bytes of the packet that was measured alone.
        alone_len: usize, metric "millrace_cipher_alone_packet_bytes";
        /// Nanoseconds of processor time for the packet measured alone.
        alone_ns: Option<u64>, metric "millrace_cipher_alone_seconds";
    }
}

macro_rules! pipeline_status {
    ($($(#[doc = $what:literal])+ $name:ident, metric $metric:literal;)+) => {
        levels! {
            /// One direction of the data plane.
            pub struct PipelineStatus {
                $($(#[doc = $what])+ $name: u64, metric $metric;)+
                /// Mean size of a batch, in packets.
                packets_per_batch: f64, metric "millrace_tunnel_*_packets_per_batch";
                /// Packets a second, between two samples.
                packet_rate: Option<u64>, metric "millrace_tunnel_*_packets_per_second";
                /// Bits of inner packets a second, between two samples.
                bit_rate: Option<u64>, metric "millrace_tunnel_*_bits_per_second";
            }
        }

        impl From<&PipelineCounts> for PipelineStatus {
            fn from(counts: &PipelineCounts) -> Self {
                Self {
                    $($name: counts.$name,)+
                    packets_per_batch: counts.packets as f64 / counts.batches.max(1) as f64,
                    ..Self::default()
                }
            }
        }
    };
}

plane::pipeline_counters!(pipeline_status);

impl From<LineCounts> for LineStatus {
    fn from(counts: LineCounts) -> Self {
        Self {
            sent: counts.sent,
            sent_bytes: counts.sent_bytes,
            received_bytes: counts.received_bytes,
            accepted: counts.accepted,
            late: counts.late,
            buffered: counts.buffered,
            duplicated: counts.duplicated,
            ancient: counts.ancient,
            ..Self::default()
        }
    }
}

impl From<&OrderCounts> for OrderStatus {
    fn from(counts: &OrderCounts) -> Self {
        Self {
            accepted: counts.accepted,
            late: counts.late,
            waiting: counts.waiting,
            lost: counts.lost(),
            asked: counts.asked,
            repaired: counts.repaired,
        }
    }
}

/// Counters of the data plane, for every protocol. The protocol fills in the ciphers.
pub fn dataplane(statistics: Statistics) -> DataplaneStatus {
    let rungs = statistics.rungs.into_iter();
    let drops = statistics.drops.into_iter();
    DataplaneStatus {
        accelerators: Some(crypto::accelerator::BUILT),
        rungs: rungs.map(|(k, v)| (k.to_owned(), v)).collect(),
        outbound: (&statistics.outbound).into(),
        inbound: (&statistics.inbound).into(),
        drops: drops.map(|(k, v)| (k.to_owned(), v)).collect(),
        ..DataplaneStatus::default()
    }
}
