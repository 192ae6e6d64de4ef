//! A server's status file and the management port's `status`: formats 1, 2 and 3, byte for byte as monitoring programs
//! parse them.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::SystemTime;

use crate::status_file::Format;
use crate::timestamp::{Clock, unix};

/// Placeholder for an unknown common name or user name.
pub(crate) const UNDEFINED: &str = "UNDEF";

/// One client of a server.
#[derive(Clone, Debug)]
pub struct ClientRow {
    /// Common name from its certificate or user name; empty before login.
    pub common_name: String,
    /// The client's outer address, as [`real_address`](super::real_address) writes it.
    pub real_address: String,
    /// The client's address in the tunnel.
    pub ipv4: Option<Ipv4Addr>,
    /// The client's IPv6 address in the tunnel.
    pub ipv6: Option<Ipv6Addr>,
    /// Bytes of outer payload that came from the client.
    pub bytes_received: u64,
    /// Bytes of outer payload that went to the client.
    pub bytes_sent: u64,
    /// When the client connected.
    pub connected_since: SystemTime,
    /// The user's name; empty if none.
    pub username: String,
    /// Client number for the management port's commands.
    pub client_id: u64,
    /// Peer id in the client's data packets.
    pub peer_id: u32,
    /// OpenVPN's name of the data channel cipher.
    pub cipher: String,
}

/// One address or network behind a client.
#[derive(Clone, Debug)]
pub struct RouteRow {
    /// The address in the tunnel.
    pub address: IpAddr,
    /// Prefix length, for a network.
    pub prefix: Option<u8>,
    /// The route was learned from a packet and expires.
    pub cached: bool,
    /// Common name of the client.
    pub common_name: String,
    /// Outer address of that client.
    pub real_address: String,
    /// Time of the last packet to the address or network.
    pub last_reference: SystemTime,
}

/// Status of a server.
#[derive(Clone, Debug, Default)]
pub struct ServerStatus {
    /// Rows of the connected clients.
    pub clients: Vec<ClientRow>,
    /// All addresses and networks behind the clients.
    pub routes: Vec<RouteRow>,
    /// Maximum length of the broadcast queue: always zero, but monitors expect the line.
    pub broadcast_queue_max: u64,
    /// A kernel data plane moves the packets.
    pub kernel_data_plane: bool,
}

impl RouteRow {
    fn text(&self) -> String {
        let mut text = self.address.to_string();
        if let Some(prefix) = self.prefix {
            // Writing to a string cannot fail.
            let _ = write!(text, "/{prefix}");
        }
        if self.cached {
            text.push('C');
        }
        text
    }
}

impl ServerStatus {
    /// Formats the status: lines ended by `\n`, the last one `END`.
    pub(crate) fn text(
        &self,
        format: Format,
        title: &str,
        clock: &Clock,
        now: SystemTime,
    ) -> String {
        match format {
            Format::One => self.plain(clock, now),
            Format::Two => self.table(',', title, clock, now),
            Format::Three => self.table('\t', title, clock, now),
        }
    }

    fn plain(&self, clock: &Clock, now: SystemTime) -> String {
        let mut lines = vec![
            "OpenVPN CLIENT LIST".to_owned(),
            format!("Updated,{}", clock.ascii(now)),
            "Common Name,Real Address,Bytes Received,Bytes Sent,Connected Since".to_owned(),
        ];
        lines.extend(self.clients.iter().map(|client| {
            format!(
                "{},{},{},{},{}",
                known(&client.common_name),
                client.real_address,
                client.bytes_received,
                client.bytes_sent,
                clock.ascii(client.connected_since),
            )
        }));
        lines.push("ROUTING TABLE".to_owned());
        lines.push("Virtual Address,Common Name,Real Address,Last Ref".to_owned());
        lines.extend(self.routes.iter().map(|route| {
            format!(
                "{},{},{},{}",
                route.text(),
                known(&route.common_name),
                route.real_address,
                clock.ascii(route.last_reference),
            )
        }));
        lines.push("GLOBAL STATS".to_owned());
        lines.push(format!(
            "Max bcast/mcast queue length,{}",
            self.broadcast_queue_max
        ));
        finish(lines)
    }

    fn table(&self, separator: char, title: &str, clock: &Clock, now: SystemTime) -> String {
        let row = |fields: &[&str]| fields.join(separator.encode_utf8(&mut [0; 4]));
        let mut lines = vec![
            row(&["TITLE", title]),
            row(&["TIME", &clock.ascii(now), &unix(now).to_string()]),
            row(&CLIENT_HEADER),
        ];
        lines.extend(self.clients.iter().map(|client| {
            row(&[
                "CLIENT_LIST",
                known(&client.common_name),
                &client.real_address,
                &client.ipv4.map(|a| a.to_string()).unwrap_or_default(),
                &client.ipv6.map(|a| a.to_string()).unwrap_or_default(),
                &client.bytes_received.to_string(),
                &client.bytes_sent.to_string(),
                &clock.ascii(client.connected_since),
                &unix(client.connected_since).to_string(),
                known(&client.username),
                &client.client_id.to_string(),
                &client.peer_id.to_string(),
                &client.cipher,
            ])
        }));
        lines.push(row(&ROUTE_HEADER));
        lines.extend(self.routes.iter().map(|route| {
            row(&[
                "ROUTING_TABLE",
                &route.text(),
                known(&route.common_name),
                &route.real_address,
                &clock.ascii(route.last_reference),
                &unix(route.last_reference).to_string(),
            ])
        }));
        lines.push(row(&[
            "GLOBAL_STATS",
            "Max bcast/mcast queue length",
            &self.broadcast_queue_max.to_string(),
        ]));
        let kernel = u8::from(self.kernel_data_plane).to_string();
        lines.push(row(&["GLOBAL_STATS", "dco_enabled", &kernel]));
        finish(lines)
    }
}

const CLIENT_HEADER: [&str; 14] = [
    "HEADER",
    "CLIENT_LIST",
    "Common Name",
    "Real Address",
    "Virtual Address",
    "Virtual IPv6 Address",
    "Bytes Received",
    "Bytes Sent",
    "Connected Since",
    "Connected Since (time_t)",
    "Username",
    "Client ID",
    "Peer ID",
    "Data Channel Cipher",
];

const ROUTE_HEADER: [&str; 7] = [
    "HEADER",
    "ROUTING_TABLE",
    "Virtual Address",
    "Common Name",
    "Real Address",
    "Last Ref",
    "Last Ref (time_t)",
];

fn known(name: &str) -> &str {
    if name.is_empty() { UNDEFINED } else { name }
}

fn finish(mut lines: Vec<String>) -> String {
    lines.push("END\n".to_owned());
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status_file::real_address;
    use std::time::{Duration, UNIX_EPOCH};

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn status() -> ServerStatus {
        ServerStatus {
            clients: vec![ClientRow {
                common_name: "branch1".to_owned(),
                real_address: real_address("192.0.2.7:40000".parse().unwrap()),
                ipv4: Some([10, 8, 0, 2].into()),
                ipv6: None,
                bytes_received: 1234,
                bytes_sent: 56_789,
                connected_since: at(60),
                username: String::new(),
                client_id: 3,
                peer_id: 1,
                cipher: "AES-256-GCM".to_owned(),
            }],
            routes: vec![
                RouteRow {
                    address: IpAddr::from([10, 8, 0, 2]),
                    prefix: None,
                    cached: false,
                    common_name: "branch1".to_owned(),
                    real_address: "192.0.2.7:40000".to_owned(),
                    last_reference: at(61),
                },
                RouteRow {
                    address: IpAddr::from([192, 168, 3, 0]),
                    prefix: Some(24),
                    cached: true,
                    common_name: String::new(),
                    real_address: "192.0.2.7:40000".to_owned(),
                    last_reference: at(62),
                },
            ],
            ..ServerStatus::default()
        }
    }

    #[test]
    fn format_one() {
        let text = status().text(Format::One, "t", &Clock::utc(), at(120));
        assert_eq!(
            text,
            "OpenVPN CLIENT LIST\n\
             Updated,1970-01-01 00:02:00\n\
             Common Name,Real Address,Bytes Received,Bytes Sent,Connected Since\n\
             branch1,192.0.2.7:40000,1234,56789,1970-01-01 00:01:00\n\
             ROUTING TABLE\n\
             Virtual Address,Common Name,Real Address,Last Ref\n\
             10.8.0.2,branch1,192.0.2.7:40000,1970-01-01 00:01:01\n\
             192.168.3.0/24C,UNDEF,192.0.2.7:40000,1970-01-01 00:01:02\n\
             GLOBAL STATS\n\
             Max bcast/mcast queue length,0\n\
             END\n"
        );
    }

    #[test]
    fn formats_two_and_three_differ_only_in_the_separator() {
        let two = status().text(Format::Two, "Millrace 1", &Clock::utc(), at(120));
        let three = status().text(Format::Three, "Millrace 1", &Clock::utc(), at(120));
        assert_eq!(two.replace(',', "\t"), three);
        assert_eq!(
            two,
            "TITLE,Millrace 1\n\
             TIME,1970-01-01 00:02:00,120\n\
             HEADER,CLIENT_LIST,Common Name,Real Address,Virtual Address,Virtual IPv6 Address,\
             Bytes Received,Bytes Sent,Connected Since,Connected Since (time_t),Username,\
             Client ID,Peer ID,Data Channel Cipher\n\
             CLIENT_LIST,branch1,192.0.2.7:40000,10.8.0.2,,1234,56789,1970-01-01 00:01:00,60,\
             UNDEF,3,1,AES-256-GCM\n\
             HEADER,ROUTING_TABLE,Virtual Address,Common Name,Real Address,Last Ref,\
             Last Ref (time_t)\n\
             ROUTING_TABLE,10.8.0.2,branch1,192.0.2.7:40000,1970-01-01 00:01:01,61\n\
             ROUTING_TABLE,192.168.3.0/24C,UNDEF,192.0.2.7:40000,1970-01-01 00:01:02,62\n\
             GLOBAL_STATS,Max bcast/mcast queue length,0\n\
             GLOBAL_STATS,dco_enabled,0\n\
             END\n"
        );
    }
}
