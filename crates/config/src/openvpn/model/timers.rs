//! Timers of a session. All times are in seconds.

/// The action when no packet arrives from the peer.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum PingTimeout {
    /// Neither was given. A client over UDP reconnects after 120 seconds, until the server pushes a value; otherwise
    /// there is no timeout.
    #[default]
    Unset,
    /// `ping-restart 0`: no timeout.
    Off,
    /// `ping-restart`: connect again after so many seconds.
    Restart(u32),
    /// `ping-exit`: give up after so many seconds.
    Exit(u32),
}

/// `reneg-*`: when keys are renewed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Renegotiation {
    /// `reneg-sec MAX`, by default 3600; 0 for never.
    pub seconds: u32,
    /// `reneg-sec MAX MIN`: each session takes its own time between the two. `None`: 90 % of
    /// the maximum in a server, the maximum in a client.
    pub seconds_min: Option<u32>,
    /// `reneg-bytes`: sum of both directions; `None` for no limit but that of 64-bit blocks.
    pub bytes: Option<u64>,
    /// `reneg-pkts`: sum of both directions.
    pub packets: Option<u64>,
}

impl Default for Renegotiation {
    fn default() -> Self {
        Self {
            seconds: 3600,
            seconds_min: None,
            bytes: None,
            packets: None,
        }
    }
}

/// Timers of a session. In a client, pushed values replace the ping and timeout fields.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Timers {
    /// `ping`: a ping after this many seconds without sending; 0 for none.
    pub ping: u32,
    /// `ping-restart`, `ping-exit`: `keepalive` doubles it in a server.
    pub ping_timeout: PingTimeout,
    /// `inactive SECONDS [BYTES]`: exit when fewer bytes went through in that time.
    pub inactive: Option<(u32, u64)>,
    /// `session-timeout`.
    pub session_timeout: Option<u32>,
    /// `reneg-*`.
    pub renegotiation: Renegotiation,
    /// `hand-window`: time limit of a handshake, by default 60.
    pub hand_window: u32,
    /// `tran-window`: how long an old key still decrypts, by default 3600.
    pub tran_window: u32,
    /// `tls-timeout`: time to the first retransmission on the control channel, by default 2.
    pub tls_timeout: u32,
    /// `tls-exit`: exit when a handshake fails.
    pub tls_exit: bool,
}

impl Default for Timers {
    fn default() -> Self {
        Self {
            ping: 0,
            ping_timeout: PingTimeout::Unset,
            inactive: None,
            session_timeout: None,
            renegotiation: Renegotiation::default(),
            hand_window: 60,
            tran_window: 3600,
            tls_timeout: 2,
            tls_exit: false,
        }
    }
}
