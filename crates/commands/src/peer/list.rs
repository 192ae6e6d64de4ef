//! `millrace peer list`: the clients of a server, and which are connected. For many clients, the text has a summary and
//! the clients that need a look.

use super::{Row, file};
use crate::status::{bits, bytes, largest_unit};
use config::pattern;
use config::shown;
use serde::Serialize;
use service::status::{PeerStatus, Status};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

/// Clients that the text shows without a filter or `--all`: a screen with the other lines.
const SCREEN: usize = 20;

/// Seconds without a packet after which a WireGuard peer counts as down: its keys have expired by then.
const LATELY: u64 = 180;

/// States of a client: connected, not connected, and not connected since the server's start.
const UP: &str = "up";
const DOWN: &str = "down";
const NEVER: &str = "never";

/// Facts about a client from the running server; empty if it is not up or does not answer.
#[derive(Default, Serialize)]
pub(crate) struct Live {
    /// [`UP`], [`DOWN`] or [`NEVER`].
    state: Option<&'static str>,
    /// Why the server counts the client as silent.
    reason: Option<String>,
    /// The address that the client connects from.
    endpoint: Option<String>,
    /// Start of the session in seconds since 1970, with OpenVPN.
    connected_unix: Option<u64>,
    /// Seconds since the last packet from the client.
    last_heard_age: Option<u64>,
    rx_bytes: Option<u64>,
    tx_bytes: Option<u64>,
    /// Bits a second.
    rx_rate: Option<u64>,
    tx_rate: Option<u64>,
    /// The client's program, as the client names it.
    version: Option<String>,
}

impl Live {
    fn of(peer: &PeerStatus, is_wireguard: bool) -> Self {
        let ages = [peer.last_heard_age, peer.latest_handshake_age];
        let heard = ages.into_iter().flatten().min();
        let state = match heard {
            None if is_wireguard => NEVER,
            Some(age) if is_wireguard && age > LATELY => DOWN,
            _ if peer.state.is_some() => DOWN,
            _ => UP,
        };
        Self {
            state: Some(state),
            reason: peer.reason.clone(),
            endpoint: peer.endpoint.clone(),
            connected_unix: peer.connected_unix,
            last_heard_age: heard,
            rx_bytes: Some(peer.rx_bytes),
            tx_bytes: Some(peer.tx_bytes),
            rx_rate: peer.rx_rate,
            tx_rate: peer.tx_rate,
            version: peer.version.clone(),
        }
    }
}

/// The name in the certificate of an OpenVPN client.
pub(super) fn certificate_name(peer: &PeerStatus) -> Option<&str> {
    peer.certificate_name.as_deref().or(peer.name.as_deref())
}

/// Adds the facts of the server's status to the rows of active clients.
pub(super) fn join(rows: &mut [Row], status: &Status) {
    let is_wireguard = status.protocol == "wireguard";
    let mut peers: HashMap<&str, &PeerStatus> = HashMap::new();
    for peer in &status.peers {
        let called = match is_wireguard {
            true => &peer.public_key,
            false => certificate_name(peer).unwrap_or_default(),
        };
        // Several sessions may have one name.
        let heard = |it: &PeerStatus| it.last_heard_age.unwrap_or(u64::MAX);
        let known = peers.entry(called).or_insert(peer);
        if heard(peer) < heard(known) {
            *known = peer;
        }
    }
    for row in rows.iter_mut().filter(|it| !it.revoked) {
        let called = row.common_name.as_ref().unwrap_or(&row.id);
        let Some(peer) = peers.get(called.as_str()) else {
            row.live.state = Some(DOWN);
            continue;
        };
        row.live = Live::of(peer, is_wireguard);
        if !is_wireguard {
            // The ranges of a session are its addresses and the networks behind it.
            let own = peer
                .allowed_ips
                .iter()
                .filter(|it| !row.behind.contains(it));
            row.addresses = own.cloned().collect();
        }
    }
}

/// The clients to show.
#[derive(Default)]
pub(super) struct Filter {
    pub(super) all: bool,
    /// Only clients that are not connected, or of which the server does not tell.
    pub(super) down: bool,
    /// Only clients that are connected.
    pub(super) up: bool,
    /// Only clients that need, or have not used, a new file.
    pub(super) outdated: bool,
    /// Only clients whose names fit one of these patterns.
    pub(super) names: Vec<String>,
}

impl Filter {
    /// Whether there is anything to select by.
    fn is_set(&self) -> bool {
        self.down || self.up || self.outdated || !self.names.is_empty()
    }

    /// Removes the rows that are not asked for.
    pub(super) fn apply(&self, rows: &mut Vec<Row>) {
        rows.retain(|row| {
            (!self.down || row.is_down())
                && (!self.up || row.live.state == Some(UP))
                && (!self.outdated || row.needs_file())
                && (self.names.is_empty()
                    || self.names.iter().any(|it| pattern::fits(it, &row.name)))
        });
    }
}

impl Row {
    /// Whether the client is not known to be connected. If the server does not answer, this holds for all.
    fn is_down(&self) -> bool {
        !self.revoked && self.live.state != Some(UP)
    }

    fn needs_file(&self) -> bool {
        !self.revoked && matches!(self.file, file::OUTDATED | file::PENDING)
    }

    /// The place of a client among those that need a look, the smallest first; `None` if all is well.
    fn trouble(&self) -> Option<u8> {
        match self.live.state {
            _ if self.revoked => None,
            Some(DOWN) => Some(0),
            _ if self.needs_file() => Some(1),
            Some(NEVER) => Some(2),
            _ => None,
        }
    }

    /// The cells of a line, `now` in seconds since 1970.
    fn cells(&self, now: u64) -> [String; COLUMNS.len()] {
        let live = &self.live;
        let traffic = |count: Option<u64>| match (live.rx_bytes, live.tx_bytes) {
            (Some(0), Some(0)) => String::new(),
            _ => count.map(bytes).unwrap_or_default(),
        };
        let rate = |rate: Option<u64>| rate.map(bits).unwrap_or_default();
        let version: String = live
            .version
            .iter()
            .flat_map(|it| it.chars())
            .take(24)
            .collect();
        [
            // A client without a name is revoked by its key.
            match self.name.as_str() {
                "-" => self.id.clone(),
                name => name.to_owned(),
            },
            self.addresses
                .first()
                .map_or("", |it| address(it))
                .to_owned(),
            match &*self.behind {
                [] => String::new(),
                [one] => one.clone(),
                [one, more @ ..] => format!("{one} +{}", more.len()),
            },
            self.state(now),
            traffic(live.rx_bytes),
            traffic(live.tx_bytes),
            rate(live.rx_rate),
            rate(live.tx_rate),
            shown(&version),
            self.file.to_owned(),
        ]
    }

    fn state(&self, now: u64) -> String {
        let mut words = self.state_alone(now);
        if let Some(reason) = self.live.reason.as_ref().filter(|_| !self.revoked) {
            words += ": ";
            words += reason;
        }
        words
    }

    fn state_alone(&self, now: u64) -> String {
        let live = &self.live;
        let heard = live
            .last_heard_age
            .map(|age| format!("heard {} ago", largest_unit(age)));
        match (live.state, live.connected_unix) {
            _ if self.revoked => "revoked".to_owned(),
            (Some(UP), Some(since)) => {
                format!("in for {}", largest_unit(now.saturating_sub(since)))
            }
            (Some(NEVER), _) => "never in".to_owned(),
            (Some(state), _) => {
                let words = if state == UP { "in" } else { "out" };
                let heard = heard.map(|it| format!(", {it}"));
                words.to_owned() + &heard.unwrap_or_default()
            }
            (None, _) => String::new(),
        }
    }
}

/// A range, without the prefix of a single address.
fn address(range: &str) -> &str {
    let single = if range.contains(':') { "/128" } else { "/32" };
    range.strip_suffix(single).unwrap_or(range)
}

const COLUMNS: [&str; 10] = [
    "NAME",
    "ADDRESS",
    "BEHIND",
    "STATE",
    "RECEIVED",
    "SENT",
    "RECEIVING",
    "SENDING",
    "VERSION",
    "FILE",
];

/// `home: 500 clients: 482 in, 6 out, 12 were never in; 3 run an outdated file`.
fn summary(server: &str, rows: &[Row]) -> String {
    let active = || rows.iter().filter(|it| !it.revoked);
    let many = |count: usize, word: &str, words: &str| match count {
        0 => None,
        1 => Some(format!("1 {word}")),
        _ => Some(format!("{count} {words}")),
    };
    let is = |state| active().filter(|it| it.live.state == Some(state)).count();
    let (up, down, never) = (is(UP), is(DOWN), is(NEVER));
    let states = match up + down + never {
        0 => Vec::new(),
        _ => vec![
            Some(format!("{up} in")),
            many(down, "out", "out"),
            many(never, "was never in", "were never in"),
        ],
    };
    let file = |state| active().filter(|it| it.file == state).count();
    let rest = [
        many(
            file(file::OUTDATED),
            "runs an outdated file",
            "run an outdated file",
        ),
        many(
            file(file::PENDING),
            "has not used its new file",
            "have not used their new file",
        ),
        many(rows.len() - active().count(), "revoked", "revoked"),
    ];
    let all = many(active().count(), "client", "clients");
    let all = all.unwrap_or_else(|| "no clients".to_owned());
    let mut text = format!("{server}: {all}");
    for (mark, words) in [(": ", states), ("; ", rest.to_vec())] {
        let words: Vec<String> = words.into_iter().flatten().collect();
        if !words.is_empty() {
            text += mark;
            text += &words.join(", ");
        }
    }
    text
}

/// The summary of all clients, and a table of those that the filter selects.
pub(super) fn text(server: &str, mut rows: Vec<Row>, filter: &Filter) -> String {
    let mut text = summary(server, &rows) + "\n";
    filter.apply(&mut rows);
    // The summary counts revoked clients. `--name` finds them.
    if !filter.all && filter.names.is_empty() {
        rows.retain(|it| !it.revoked);
    }
    let all = rows.len();
    let is_cut = !filter.all && !filter.is_set() && all > SCREEN;
    if is_cut {
        rows.retain(|it| it.trouble().is_some());
        rows.sort_by_key(Row::trouble);
        rows.truncate(SCREEN);
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    text += &table(&rows, now.map_or(0, |it| it.as_secs()));
    let hidden = all - rows.len();
    if is_cut && hidden > 0 {
        let _ = writeln!(
            text,
            "{hidden} not listed: --all, or some by --down, --outdated, --name 'store-*'"
        );
    } else if rows.is_empty() && filter.is_set() {
        text += match filter.names.is_empty() {
            true => "no client fits the options\n",
            false => {
                "no client fits the options; in --name, `*` stands for any characters, and `?` for one\n"
            }
        };
    }
    text
}

/// Lines of columns, without empty columns; no line if there are no rows.
fn table(rows: &[Row], now: u64) -> String {
    let lines: Vec<_> = rows.iter().map(|it| it.cells(now)).collect();
    let is_known = rows.iter().any(|it| it.file != file::UNKNOWN);
    let is_shown = |column: usize| {
        let is_filled = lines.iter().any(|cells| !cells[column].is_empty());
        is_filled && (COLUMNS[column] != "FILE" || is_known)
    };
    let columns: Vec<(usize, usize)> = (0..COLUMNS.len())
        .filter(|column| is_shown(*column))
        .map(|column| {
            let widths = lines.iter().map(|cells| cells[column].chars().count());
            let width = widths.chain([COLUMNS[column].len()]).max();
            (column, width.unwrap_or_default())
        })
        .collect();
    let head = COLUMNS.map(str::to_owned);
    let mut text = String::new();
    for cells in lines.first().map(|_| &head).into_iter().chain(&lines) {
        let mut line = String::new();
        for (column, width) in &columns {
            let _ = write!(line, "{:width$}  ", cells[*column]);
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// The rows in the format of RFC 4180. A list is one field, with spaces between its items.
pub(super) fn csv(rows: &[Row]) -> String {
    let mut text = "name,addresses,behind,state,endpoint,connected_unix,last_heard_age,rx_bytes,tx_bytes,rx_rate,tx_rate,\
                    version,file,revoked,id,note\r\n"
        .to_owned();
    for row in rows {
        let live = &row.live;
        let number = |it: Option<u64>| it.map(|it| it.to_string()).unwrap_or_default();
        let word = |it: &Option<String>| it.clone().unwrap_or_default();
        let fields = [
            Some(row.name.clone())
                .filter(|it| it != "-")
                .unwrap_or_default(),
            row.addresses.join(" "),
            row.behind.join(" "),
            live.state.unwrap_or_default().to_owned(),
            word(&live.endpoint),
            number(live.connected_unix),
            number(live.last_heard_age),
            number(live.rx_bytes),
            number(live.tx_bytes),
            number(live.rx_rate),
            number(live.tx_rate),
            word(&live.version),
            row.file.to_owned(),
            row.revoked.to_string(),
            row.id.clone(),
            word(&row.note),
        ];
        text += &fields.map(|it| field(&it)).join(",");
        text += "\r\n";
    }
    text
}

/// A field, quoted if need be. A spreadsheet would compute a text that begins like a formula.
fn field(text: &str) -> String {
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let text = match is_formula {
        true => format!("'{text}"),
        false => text.to_owned(),
    };
    match text.contains([',', '"', '\r', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A row of a connected client, with all that a server may say.
    pub(in crate::peer) fn full(row: Row) -> Row {
        let peer = PeerStatus {
            endpoint: Some("192.0.2.1:4711".to_owned()),
            connected_unix: Some(1),
            last_heard_age: Some(1),
            reason: Some("silent".to_owned()),
            rx_rate: Some(1),
            tx_rate: Some(1),
            version: Some("2.6.14 linux".to_owned()),
            ..PeerStatus::default()
        };
        let live = Live::of(&peer, false);
        Row { live, ..row }
    }

    /// The clients of a WireGuard server and its status: `store-0` is heard, `store-1` was heard long ago, `store-2` does
    /// not answer, `store-3` was never heard, and so on.
    fn office(count: usize) -> (Vec<Row>, Status) {
        let row = |number: usize| Row {
            name: format!("store-{number}"),
            id: format!("key{number}="),
            addresses: vec![format!("10.7.{}.{}/32", number / 256, number % 256)],
            behind: vec![format!("192.168.{}.0/24", number % 256)],
            file: file::CURRENT,
            ..Row::default()
        };
        let peer = |number: usize| PeerStatus {
            public_key: format!("key{number}="),
            endpoint: Some(format!("192.0.2.{}:4711", number % 256)),
            last_heard_age: [Some(4), Some(7200), Some(60), None][number % 4],
            state: (number % 4 == 2).then(|| "silent".to_owned()),
            reason: (number % 4 == 2).then(|| "no answer to handshakes".to_owned()),
            rx_bytes: 1024,
            ..PeerStatus::default()
        };
        let status = Status {
            protocol: "wireguard".to_owned(),
            peers: (0..count).rev().map(peer).collect(),
            ..Status::default()
        };
        ((0..count).map(row).collect(), status)
    }

    fn joined(count: usize) -> Vec<Row> {
        let (mut rows, status) = office(count);
        join(&mut rows, &status);
        rows
    }

    #[test]
    fn a_table_says_who_is_in() {
        let mut rows = joined(5);
        rows[0].file = file::OUTDATED;
        rows[1].behind.push("fd00:1::/64".to_owned());
        rows[2].name = "-".to_owned();
        rows[4].revoked = true;
        let expected = "\
office: 4 clients: 1 in, 2 out, 1 was never in; 1 runs an outdated file, 1 revoked
NAME     ADDRESS   BEHIND             STATE                                             RECEIVED  SENT  FILE
store-0  10.7.0.0  192.168.0.0/24     in, heard 4 seconds ago                           1.00 KiB  0 B   outdated
store-1  10.7.0.1  192.168.1.0/24 +1  out, heard 2 hours ago                            1.00 KiB  0 B   current
key2=    10.7.0.2  192.168.2.0/24     out, heard 1 minute ago: no answer to handshakes  1.00 KiB  0 B   current
store-3  10.7.0.3  192.168.3.0/24     never in                                          1.00 KiB  0 B   current
";
        assert_eq!(text("office", rows, &Filter::default()), expected);
        let (rows, _) = office(2);
        let expected = "\
office: 2 clients
NAME     ADDRESS   BEHIND          FILE
store-0  10.7.0.0  192.168.0.0/24  current
store-1  10.7.0.1  192.168.1.0/24  current
";
        assert_eq!(text("office", rows, &Filter::default()), expected);
        let none = text("office", Vec::new(), &Filter::default());
        assert_eq!(none, "office: no clients\n");
    }

    #[test]
    fn five_hundred_clients_are_a_screen_of_those_that_need_a_look() {
        let mut rows = joined(500);
        // Few are out.
        for row in &mut rows[13..] {
            row.live.state = Some(UP);
        }
        for row in &mut rows[496..] {
            row.file = file::OUTDATED;
        }
        let shown = text("office", rows, &Filter::default());
        let lines: Vec<&str> = shown.lines().collect();
        let summary = "office: 500 clients: 491 in, 6 out, 3 were never in; 4 run an outdated file";
        assert_eq!(lines[0], summary);
        let names = lines[2..15]
            .iter()
            .filter_map(|line| line.split(' ').next());
        let wanted = [1, 2, 5, 6, 9, 10, 496, 497, 498, 499, 3, 7, 11];
        assert!(names.eq(wanted.map(|it| format!("store-{it}"))), "{shown}");
        assert!(lines[15].starts_with("487 not listed: --all"), "{shown}");
        assert_eq!(lines.len(), 16);

        let shown = text("office", joined(500), &Filter::default());
        assert!(shown.lines().count() <= 24, "{shown}");
        assert!(shown.contains("\n480 not listed: "), "{shown}");
        let all = Filter {
            all: true,
            ..Filter::default()
        };
        assert_eq!(text("office", joined(500), &all).lines().count(), 502);
        // The server does not answer.
        let shown = text("office", office(500).0, &Filter::default());
        assert_eq!(shown.lines().count(), 2, "{shown}");
    }

    #[test]
    fn revoked_clients_hide_no_other() {
        let rows = || {
            let mut rows = joined(40);
            for row in &mut rows[20..] {
                (row.revoked, row.live.state) = (true, None);
            }
            rows
        };
        let shown = text("office", rows(), &Filter::default());
        let all_active = (0..20).all(|it| shown.contains(&format!("store-{it} ")));
        assert!(all_active && shown.lines().count() == 22, "{shown}");
        let count = |filter: &Filter| text("office", rows(), filter).lines().count();
        let all = Filter {
            all: true,
            ..Filter::default()
        };
        assert_eq!(count(&all), 42);
        let named = Filter {
            names: vec!["store-3?".to_owned()],
            ..Filter::default()
        };
        assert_eq!(count(&named), 12);
    }

    #[test]
    fn clients_of_a_server_that_does_not_answer_count_as_down() {
        let down = Filter {
            down: true,
            ..Filter::default()
        };
        let mut rows = office(3).0;
        rows[1].revoked = true;
        down.apply(&mut rows);
        let names: Vec<&str> = rows.iter().map(|it| &*it.name).collect();
        assert_eq!(names, ["store-0", "store-2"]);
    }

    #[test]
    fn filters_select_rows() {
        let mut rows = joined(100);
        rows[8].file = file::OUTDATED;
        rows[9].file = file::PENDING;
        rows[10].revoked = true;
        let selected = |filter: &Filter| {
            let mut rows = joined(100);
            rows[8].file = file::OUTDATED;
            rows[9].file = file::PENDING;
            (rows[10].revoked, rows[10].live.state) = (true, None);
            filter.apply(&mut rows);
            rows.iter().map(|it| it.name.clone()).collect::<Vec<_>>()
        };
        let filter = |down, outdated, names: &[&'static str]| Filter {
            down,
            outdated,
            names: names.iter().map(|it| (*it).to_owned()).collect(),
            ..Filter::default()
        };
        assert_eq!(selected(&filter(true, false, &[])).len(), 74);
        let up = Filter {
            up: true,
            ..Filter::default()
        };
        assert_eq!(selected(&up).len(), 25);
        let outdated = selected(&filter(false, true, &[]));
        assert_eq!(outdated, ["store-8", "store-9"]);
        assert_eq!(selected(&filter(true, true, &[])), ["store-9"]);
        assert_eq!(selected(&filter(false, false, &["store-1?"])).len(), 10);
        let some = selected(&filter(true, false, &["store-9*", "*-13"]));
        assert_eq!(some.len(), 1 + 1 + 8, "{some:?}");
        let none = filter(false, false, &["berlin"]);
        let shown = text("office", joined(100), &none);
        assert!(shown.ends_with("and `?` for one\n"), "{shown}");
        // A selection is not cut.
        let shown = text("office", joined(100), &filter(true, false, &[]));
        assert_eq!(shown.lines().count(), 77);
    }

    #[test]
    fn sessions_are_found_by_the_name_in_the_certificate() {
        let session = |name: &str, heard| PeerStatus {
            name: Some(name.to_owned()),
            connected_unix: Some(1_000_000),
            last_heard_age: Some(heard),
            allowed_ips: vec!["10.8.0.6/32".to_owned(), "192.168.7.0/24".to_owned()],
            version: Some("2.6.14\u{1b}[2J linux and a long rest".to_owned()),
            ..PeerStatus::default()
        };
        let status = Status {
            protocol: "openvpn".to_owned(),
            peers: vec![session("anna", 500), session("anna", 3), session("eve", 1)],
            ..Status::default()
        };
        let row = |name: &str, common_name: &str, revoked| Row {
            name: name.to_owned(),
            common_name: Some(common_name.to_owned()),
            behind: vec!["192.168.7.0/24".to_owned()],
            file: file::UNKNOWN,
            revoked,
            ..Row::default()
        };
        let mut rows = vec![
            row("anna", "anna", true),
            row("berlin", "anna", false),
            row("bob", "bob", false),
        ];
        join(&mut rows, &status);
        assert_eq!(rows[1].live.last_heard_age, Some(3));
        let table = table(&rows, 1_000_000 + 2 * 86_400);
        let expected = "\
NAME    ADDRESS   BEHIND          STATE          VERSION
anna              192.168.7.0/24  revoked
berlin  10.8.0.6  192.168.7.0/24  in for 2 days  2.6.14\\u{1b}[2J linux and a l
bob               192.168.7.0/24  out
";
        assert_eq!(table, expected);
        assert_eq!(
            summary("home", &rows),
            "home: 2 clients: 1 in, 1 out; 1 revoked"
        );
    }

    #[test]
    fn csv_is_quoted_and_no_formula() {
        let mut rows = joined(2);
        rows[0].live.version = Some("=cmd|' /C calc'!A0, \"x\"".to_owned());
        rows[0].behind.push("fd00:1::/64".to_owned());
        rows[0].note = Some("24 Mill Road, second floor".to_owned());
        rows[1].name = "-".to_owned();
        let text = csv(&rows);
        let lines: Vec<&str> = text.split("\r\n").collect();
        assert_eq!(lines.len(), 4);
        assert_eq!(
            lines[1],
            "store-0,10.7.0.0/32,192.168.0.0/24 fd00:1::/64,up,192.0.2.0:4711,,4,1024,0,,,\
             \"'=cmd|' /C calc'!A0, \"\"x\"\"\",current,false,key0=,\"24 Mill Road, second floor\""
        );
        assert_eq!(
            lines[2],
            ",10.7.0.1/32,192.168.1.0/24,down,192.0.2.1:4711,,7200,1024,0,,,,current,false,key1=,"
        );
        assert!(lines[0].starts_with("name,") && lines[3].is_empty());
        let columns = |line: &str| line.split(',').count();
        assert_eq!(columns(lines[0]), columns(lines[2]));
        for formula in ["=1", "+1", "-1", "@x", "\tx", "\rx"] {
            assert!(field(formula).trim_start_matches('"').starts_with('\''));
        }
    }
}
