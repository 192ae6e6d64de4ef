//! A listener's settings and outputs.

use std::sync::Arc;
use std::time::Duration;

use plane::Source;

use super::remote::Remote;
use super::table::ClientId;
use crate::keyfile::v2::Metadata;
use crate::session::{Output, ServerSettings};
use crate::wrap::WrapSettings;

/// A listener's settings.
#[derive(Clone)]
pub struct ListenerSettings {
    /// Settings of its sessions.
    pub server: Arc<ServerSettings>,
    /// Settings of sessions over TCP where the others are over UDP; `None` if all are of one kind.
    pub streams: Option<Arc<ServerSettings>>,
    /// How the control channel is wrapped.
    pub wrap: WrapSettings,
    /// `max-clients`, at most 2^24 - 1, the number of peer ids.
    pub max_clients: usize,
    /// `connect-freq-initial`: how many resets are answered in which time.
    pub resets: (u32, Duration),
    /// `connect-freq`: how many sessions may begin in which time; `None` for no limit. Not for TCP.
    pub starts: Option<(u32, Duration)>,
    /// `force-cookie` of `tls-crypt-v2`: clients before 2.6 that use it are not let in, for they make the server keep
    /// a session before they have proved their address.
    pub force_cookie: bool,
}

impl ListenerSettings {
    /// OpenVPN's defaults.
    #[must_use]
    pub fn new(server: Arc<ServerSettings>, wrap: WrapSettings) -> Self {
        Self {
            server,
            streams: None,
            wrap,
            max_clients: 1024,
            resets: (100, Duration::from_secs(10)),
            starts: None,
            force_cookie: false,
        }
    }
}

/// Something to do, in the order in which it comes.
#[derive(Debug)]
pub enum ServerOutput {
    /// Send this datagram, for a session or to a stranger.
    Send {
        /// The destination.
        to: Remote,
        /// Our address to send from: the one that the receiver called. `None` lets the kernel choose.
        called: Option<Source>,
        /// One datagram; over TCP one packet behind its length.
        datagram: Vec<u8>,
    },
    /// A session began. Nothing is known of the client but its address.
    Started {
        /// Its number.
        client: ClientId,
        /// The client's address and transport.
        from: Remote,
        /// Metadata of its tls-crypt-v2 key, for a script to judge.
        metadata: Option<Metadata>,
    },
    /// A session asks for something; never [`Output::Send`]. After [`Output::Closed`] another session may get the
    /// number.
    Client {
        /// The client.
        client: ClientId,
        /// The request.
        output: Output,
    },
}
