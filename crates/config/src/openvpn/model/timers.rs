//! Everything that happens after a while. All times are in seconds.

/// The action when nothing is heard of the peer.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum PingTimeout {
    /// Neither was given: in a client over UDP 120 seconds to a new attempt, until the server
    /// pushes its own; otherwise nothing.
    #[default]
    Unset,
    /// `ping-restart 0`: nothing.
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
    /// `reneg-bytes`: both ways together; `None` for no limit but that of 64-bit blocks.
    pub bytes: Option<u64>,
    /// `reneg-pkts`: both ways together.
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

/// Times of a session. In a client, what is pushed replaces the ping and timeout fields.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Timers {
    /// `ping`: a ping after so many seconds without sending; 0 for none.
    pub ping: u32,
    /// `ping-restart`, `ping-exit`: in a server doubled by `keepalive`.
    pub ping_timeout: PingTimeout,
    /// `inactive SECONDS [BYTES]`: give up when fewer bytes went through in that time.
    pub inactive: Option<(u32, u64)>,
    /// `session-timeout`.
    pub session_timeout: Option<u32>,
    /// `reneg-*`.
    pub renegotiation: Renegotiation,
    /// `hand-window`: a handshake must be over, by default 60.
    pub hand_window: u32,
    /// `tran-window`: an old key still opens, by default 3600.
    pub tran_window: u32,
    /// `tls-timeout`: first retransmission on the control channel, by default 2.
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
