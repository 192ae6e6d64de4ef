//! The status file and the management port's `status`, byte for byte as monitoring programs parse them: formats of a
//! server's status, and the statistics of a client.

use std::time::SystemTime;

pub(crate) use super::periodic_file::PeriodicFile;
use super::timestamp::Clock;

/// Format of a server's status.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Format {
    /// Version 1: for people and old programs.
    #[default]
    One,
    /// Version 2: comma-separated lines that begin with their kind.
    Two,
    /// Version 3: tab-separated lines that begin with their kind.
    Three,
}

impl Format {
    /// Converts the number of `status-version` or of the command `status n`.
    pub(crate) const fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::One),
            2 => Some(Self::Two),
            3 => Some(Self::Three),
            _ => None,
        }
    }
}

/// A client's byte counts since its start.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct ClientStatus {
    /// Read from the tunnel's interface.
    pub tun_read: u64,
    /// Written to the tunnel's interface.
    pub tun_write: u64,
    /// Received from the server.
    pub link_read: u64,
    /// Sent to the server.
    pub link_write: u64,
    /// Received from the server and authenticated.
    pub auth_read: u64,
}

impl ClientStatus {
    /// Formats the status: lines ended by `\n`, the last one `END`. There is only one format.
    pub(crate) fn text(&self, clock: &Clock, now: SystemTime) -> String {
        format!(
            "OpenVPN STATISTICS\nUpdated,{}\nTUN/TAP read bytes,{}\nTUN/TAP write bytes,{}\n\
             TCP/UDP read bytes,{}\nTCP/UDP write bytes,{}\nAuth read bytes,{}\nEND\n",
            clock.ascii(now),
            self.tun_read,
            self.tun_write,
            self.link_read,
            self.link_write,
            self.auth_read,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_prints_statistics() {
        let status = ClientStatus {
            tun_read: 1,
            tun_write: 2,
            link_read: 3,
            link_write: 4,
            auth_read: 5,
        };
        assert_eq!(
            status.text(&Clock::utc(), SystemTime::UNIX_EPOCH),
            "OpenVPN STATISTICS\nUpdated,1970-01-01 00:00:00\nTUN/TAP read bytes,1\n\
             TUN/TAP write bytes,2\nTCP/UDP read bytes,3\nTCP/UDP write bytes,4\n\
             Auth read bytes,5\nEND\n"
        );
    }
}
