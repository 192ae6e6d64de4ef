//! Links of the app AmneziaVPN, `vpn://…`, and its series of QR codes.
//!
//! A link is a JSON document in base64url, either plain or compressed by zlib behind its length in four bytes. The
//! document describes a server. A connection in it has a `.conf` file, and the file's values once more under other
//! names. A series has the same bytes in pieces, each the text of one QR code.
//!
//! Reading returns the text of a `.conf` file, which is then judged as any other: a link has no other powers.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};

use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use serde_json::{Map, Value, json};
use thiserror::Error;
use wireguard::amnezia::KEYS;
use zeroize::{Zeroize as _, Zeroizing};

use crate::clients::joined as secret;

/// The beginning of a link.
const SCHEME: &str = "vpn://";

/// The beginnings of web addresses.
const WEB: [&str; 2] = ["https://", "http://"];

/// The first bytes of each piece of a series, and how they begin in base64.
const MAGIC: [u8; 2] = 1984_u16.to_be_bytes();
const MAGIC_TEXT: &str = "B8";

/// Bytes of a document in one QR code. The app takes up to 850; these make a code that fits into 100 columns.
const PIECE: usize = 500;

/// Largest document, in bytes. The app's have ten thousand.
const DOCUMENT_MAX: usize = 1 << 20;

/// Maximum number of protocols that an error names.
const NAMED_MAX: usize = 5;

/// Letters of a link. Other programs pad them, or leave bits of the last one set.
const LETTERS: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The app's words for `DNS` in a file whose name servers stand elsewhere in the document.
const DNS_VARIABLES: [&str; 2] = ["$PRIMARY_DNS", "$SECONDARY_DNS"];

/// Sections of a file.
const SECTIONS: [&str; 2] = ["[Interface]", "[Peer]"];

/// Keys of both sections of a file, and the names of their values in a document.
const NAMES: [&[(&str, &str)]; 2] = [
    &[
        ("PrivateKey", "client_priv_key"),
        ("Address", "client_ip"),
        ("MTU", "mtu"),
    ],
    &[
        ("PublicKey", "server_pub_key"),
        ("PresharedKey", "psk_key"),
        ("AllowedIPs", "allowed_ips"),
        ("PersistentKeepalive", "persistent_keep_alive"),
    ],
];

/// Why a link or a series gives no file. No error quotes its content, except for names of protocols.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum LinkError {
    /// The text is not what the app writes.
    #[error("the link or code is damaged or cut; copy it again as a whole")]
    Damaged,
    /// The document is too large.
    #[error("the link holds more than a mebibyte, which is no tunnel; copy another link")]
    Large,
    /// A piece of a series is missing.
    #[error("QR code {0} of {1} is missing; add its text as a line")]
    Incomplete(usize, usize),
    /// The pieces belong to several series.
    #[error("the lines are QR codes of different series; keep the lines of one")]
    Mixed,
    /// The link is for the server's administrator.
    #[error(
        "the link gives full access to the server, with its SSH password; share a connection in the app instead, and \
         import that link"
    )]
    FullAccess,
    /// The text is the address of a web page, such as a subscription's.
    #[error(
        "the text is a web address, which is not opened; download the file from there, and import the file"
    )]
    Web,
    /// The link belongs to another program, such as `vless://…`.
    #[error(
        "the text is a link of {0}, which Millrace does not speak; share an AmneziaWG or WireGuard connection in the app"
    )]
    Scheme(String),
    /// Other text stands in front of the link.
    #[error("text stands in front of the vpn:// link; keep only the link")]
    Around,
    /// The link has a key for Amnezia's shop in place of a connection.
    #[error(
        "the link is a subscription, which only Amnezia's apps can use; export an AmneziaWG file there, and import \
         that"
    )]
    Subscription,
    /// The link has connections of other protocols only.
    #[error(
        "the link is for {0}, which Millrace does not read from links; share an AmneziaWG or WireGuard connection in \
         the app"
    )]
    Protocol(String),
    /// The link has no connection.
    #[error("the link has no connection; share one in the app, and import that link")]
    Empty,
}

/// Whether a text begins with these letters, in any case.
fn begins(text: &str, with: &str) -> bool {
    let head = text.get(..with.len());
    head.is_some_and(|it| it.eq_ignore_ascii_case(with))
}

/// The scheme of a link, in lower case.
fn scheme(text: &str) -> Option<String> {
    let (name, _) = text.lines().next()?.split_once("://")?;
    let is_letter = |it: u8| it.is_ascii_alphanumeric() || b"+-.".contains(&it);
    let is_name = (1..=16).contains(&name.len()) && name.bytes().all(is_letter);
    is_name.then(|| name.to_ascii_lowercase())
}

/// Whether a later line begins with a link.
fn has_link_inside(text: &str) -> bool {
    let mut lines = text.lines().skip(1);
    lines.any(|it| begins(it.trim_start(), SCHEME))
}

/// The text without white space around it, and without the byte order mark that Windows editors put first.
fn trimmed(text: &str) -> &str {
    text.trim_matches(|it: char| it.is_whitespace() || it == '\u{feff}')
}

/// Whether a text is a link, a web address, or a series of QR codes. No message may quote any of these.
#[must_use]
pub fn is_link(text: &str) -> bool {
    let text = trimmed(text);
    let is_piece = || {
        let first = text.lines().next().and_then(decoded);
        first.is_some_and(|it| it.starts_with(&MAGIC))
    };
    scheme(text).is_some() || has_link_inside(text) || (text.starts_with(MAGIC_TEXT) && is_piece())
}

/// The text of the file that a link or a series has.
///
/// # Errors
/// [`LinkError`]; all but [`LinkError::Incomplete`] and [`LinkError::Mixed`] are faults of the link.
pub fn read(text: &str) -> Result<Zeroizing<String>, LinkError> {
    let text = trimmed(text);
    if WEB.into_iter().any(|it| begins(text, it)) {
        return Err(LinkError::Web);
    }
    match scheme(text) {
        Some(name) if name != "vpn" => return Err(LinkError::Scheme(name)),
        None if has_link_inside(text) => return Err(LinkError::Around),
        _ => {}
    }
    let bytes = match begins(text, SCHEME) {
        true => decoded(&text[SCHEME.len()..]).ok_or(LinkError::Damaged)?,
        false => joined(text)?,
    };
    file(&parsed(&inflated(&bytes)?)?)
}

/// The link for a client's file, which the app shows as `name`; `None` if the file has no endpoint.
#[must_use]
pub fn write(conf: &str, name: &str) -> Option<Zeroizing<String>> {
    let document = document(conf, name)?;
    let plain = text_of(&document);
    let mut bytes = Zeroizing::new(Vec::with_capacity(plain.len() + 64));
    bytes.extend(u32::try_from(plain.len()).ok()?.to_be_bytes());
    let mut encoder = ZlibEncoder::new(&mut *bytes, Compression::best());
    encoder.write_all(plain.as_bytes()).ok()?;
    encoder.finish().ok()?;
    let mut link = Zeroizing::new(String::with_capacity(
        SCHEME.len() + bytes.len() * 4 / 3 + 4,
    ));
    link.push_str(SCHEME);
    LETTERS.encode_string(&*bytes, &mut link);
    Some(link)
}

/// The texts of the QR codes of a link; `None` if the text is no link, or too long for a series.
#[must_use]
pub fn series(link: &str) -> Option<Vec<Zeroizing<String>>> {
    let bytes = decoded(link.strip_prefix(SCHEME)?)?;
    let count = u8::try_from(bytes.len().div_ceil(PIECE)).ok()?;
    let piece = |(number, part): (u8, &[u8])| {
        // The length is at most `PIECE`.
        let length = (part.len() as u32).to_be_bytes();
        let piece = [&MAGIC[..], &[count, number], &length, part].concat();
        Zeroizing::new(LETTERS.encode(&*Zeroizing::new(piece)))
    };
    Some((0..).zip(bytes.chunks(PIECE)).map(piece).collect())
}

/// The bytes of a text in base64url, or in plain base64.
fn decoded(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    let mut letters = Zeroizing::new(Vec::with_capacity(text.len()));
    let given = text.bytes().filter(|it| !it.is_ascii_whitespace());
    letters.extend(given.map(|it| match it {
        b'+' => b'-',
        b'/' => b'_',
        letter => letter,
    }));
    let mut bytes = Zeroizing::new(vec![0; letters.len() + 3]);
    let length = LETTERS.decode_slice(&*letters, &mut bytes).ok()?;
    bytes.truncate(length);
    Some(bytes)
}

/// The bytes that the lines of a series have together.
fn joined(text: &str) -> Result<Zeroizing<Vec<u8>>, LinkError> {
    let mut pieces: BTreeMap<u8, Zeroizing<Vec<u8>>> = BTreeMap::new();
    let mut count = None;
    for line in text.lines().filter(|it| !it.trim().is_empty()) {
        let bytes = decoded(line).ok_or(LinkError::Damaged)?;
        let piece = bytes.split_first_chunk::<8>();
        let (&[a, b, total, number, length @ ..], part) = piece.ok_or(LinkError::Damaged)?;
        let is_whole = u32::from_be_bytes(length) as usize == part.len();
        if [a, b] != MAGIC || number >= total || !is_whole {
            return Err(LinkError::Damaged);
        }
        let part = Zeroizing::new(part.to_vec());
        let known = pieces.get(&number).is_some_and(|it| *it != part);
        if known || *count.get_or_insert(total) != total {
            return Err(LinkError::Mixed);
        }
        pieces.insert(number, part);
    }
    let count = count.ok_or(LinkError::Damaged)?;
    if let Some(number) = (0..count).find(|it| !pieces.contains_key(it)) {
        return Err(LinkError::Incomplete(usize::from(number) + 1, count.into()));
    }
    let size = pieces.values().map(|it| it.len()).sum();
    let mut bytes = Zeroizing::new(Vec::with_capacity(size));
    pieces.values().for_each(|it| bytes.extend_from_slice(it));
    Ok(bytes)
}

/// The JSON in the bytes of a link. A link cannot make it larger than [`DOCUMENT_MAX`].
fn inflated(bytes: &[u8]) -> Result<Zeroizing<Vec<u8>>, LinkError> {
    if bytes.trim_ascii_start().starts_with(b"{") {
        return Ok(Zeroizing::new(bytes.to_vec()));
    }
    let (length, packed) = bytes.split_first_chunk().ok_or(LinkError::Damaged)?;
    let length = u32::from_be_bytes(*length) as usize;
    let mut plain = Zeroizing::new(Vec::with_capacity(length.min(DOCUMENT_MAX) + 1));
    let mut decoder = ZlibDecoder::new(packed).take(DOCUMENT_MAX as u64 + 1);
    let read = decoder.read_to_end(&mut plain);
    read.map_err(|_| LinkError::Damaged)?;
    match plain.len() > DOCUMENT_MAX {
        true => Err(LinkError::Large),
        false => Ok(plain),
    }
}

/// A JSON value whose texts are overwritten when it is dropped, as some are keys.
struct Secret(Value);

impl Drop for Secret {
    fn drop(&mut self) {
        fn wipe(value: &mut Value) {
            match value {
                Value::String(text) => text.zeroize(),
                Value::Array(items) => items.iter_mut().for_each(wipe),
                Value::Object(members) => members.values_mut().for_each(wipe),
                _ => {}
            }
        }
        wipe(&mut self.0);
    }
}

/// The parsed JSON. Its own error could quote a key.
fn parsed(text: &[u8]) -> Result<Secret, LinkError> {
    let value = serde_json::from_slice(text);
    value.map(Secret).map_err(|_| LinkError::Damaged)
}

/// The text of a JSON value.
fn text_of(value: &Secret) -> Zeroizing<String> {
    Zeroizing::new(value.0.to_string())
}

/// The text of the file for the connection in a document.
fn file(document: &Secret) -> Result<Zeroizing<String>, LinkError> {
    let document = &document.0;
    // A password may be an SSH key of several lines.
    let is_set = |it: &str| document[it].as_str().is_some_and(|it| !it.is_empty());
    if ["userName", "password"].into_iter().any(is_set) {
        return Err(LinkError::FullAccess);
    }
    let containers = document["containers"].as_array();
    let containers = containers.map_or(&[][..], Vec::as_slice);
    let usual = &document["defaultContainer"];
    let by_use = [true, false].into_iter().flat_map(|wanted| {
        let is_wanted = move |it: &&Value| (&it["container"] == usual) == wanted;
        containers.iter().filter(is_wanted)
    });
    let mut connections =
        by_use.flat_map(|it| ["awg", "wireguard"].map(|name| &it[name]["last_config"]));
    let Some(connection) = connections.find(|it| !it.is_null() && *it != "") else {
        return Err(without_connection(document, containers));
    };
    let connection = match connection {
        Value::String(text) if text.trim_start().starts_with('{') => parsed(text.as_bytes())?,
        // Other programs put the file itself here.
        Value::String(text) => Secret(json!({ "config": text })),
        value => Secret(value.clone()),
    };
    Ok(filled(&connection.0, document))
}

/// Why a document without a connection is refused.
fn without_connection(document: &Value, containers: &[Value]) -> LinkError {
    let is_ours = |it: &&str| it.starts_with("amnezia-awg") || *it == "amnezia-wireguard";
    let names = containers.iter().filter_map(|it| it["container"].as_str());
    let names = names.filter(|it| !is_ours(it)).take(NAMED_MAX);
    let names: Vec<String> = names.map(crate::keys::shown).collect();
    let has = |name: &&str| document.get(name).is_some();
    let is_subscription = ["api_key", "api_config", "auth_data"].iter().any(has);
    match names.is_empty() {
        false => LinkError::Protocol(names.join(", ")),
        true if is_subscription => LinkError::Subscription,
        true => LinkError::Empty,
    }
}

/// Keys of a section of a file, and the names of their values in a document. AmneziaWG's have the same.
fn names(section: usize) -> impl Iterator<Item = (&'static str, &'static str)> {
    let own = KEYS.into_iter().filter(move |_| section == 0);
    let known = NAMES[section].iter().copied();
    known.chain(own.map(|it| (it, it)))
}

/// The section that begins with a line.
fn head(line: &str) -> Option<usize> {
    let head = line.split('#').next().unwrap_or_default().trim();
    SECTIONS.iter().position(|it| head.eq_ignore_ascii_case(it))
}

/// The text of a file with the lines that it lacks, as a connection and its document have their values.
fn filled(connection: &Value, document: &Value) -> Zeroizing<String> {
    let config = connection["config"].as_str().unwrap_or_default();
    let is_open = |line: &&str| DNS_VARIABLES.iter().any(|it| line.contains(it));
    let lines = config.split_inclusive('\n').filter(|it| !is_open(it));
    let mut lines: Vec<&str> = lines.collect();
    for absent in ["\n[Interface]\n", "\n[Peer]\n"] {
        if lines.iter().all(|it| head(it) != head(absent)) {
            lines.push(absent);
        }
    }
    let config = secret(&lines);
    let lacking = [0, 1].map(|section| {
        let of_document = match section {
            0 => ("DNS", servers(document)),
            _ => ("Endpoint", endpoint(connection, document)),
        };
        let values = names(section).map(|(key, name)| (key, value(&connection[name])));
        let values = values.chain([of_document]);
        let lacks = values.filter(|(key, _)| found(&config, section, key).is_none());
        let given: Vec<_> = lacks.filter_map(|(key, text)| Some((key, text?))).collect();
        let parts = given
            .iter()
            .flat_map(|(key, text)| [key, " = ", text, "\n"]);
        secret(&parts.collect::<Vec<&str>>())
    });
    let mut parts = Vec::with_capacity(lines.len() + 4);
    let mut is_seen = [false; 2];
    for line in lines {
        parts.push(line);
        if let Some(section) = head(line).filter(|it| !std::mem::replace(&mut is_seen[*it], true)) {
            parts.extend((!line.ends_with('\n')).then_some("\n"));
            parts.push(&lacking[section]);
        }
    }
    secret(&parts)
}

/// A value as a line of a file may have it; `None` if there is none, or it is more than a line.
fn value(value: &Value) -> Option<Zeroizing<String>> {
    let text = match value {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        Value::Array(items) => {
            let items: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
            items.join(", ")
        }
        _ => return None,
    };
    let text = Zeroizing::new(text);
    (!text.is_empty() && !text.contains(char::is_control)).then_some(text)
}

/// The name servers of a document.
fn servers(document: &Value) -> Option<Zeroizing<String>> {
    let servers = ["dns1", "dns2"]
        .into_iter()
        .filter_map(|it| value(&document[it]));
    let servers: Vec<String> = servers.map(|it| it.to_string()).collect();
    (!servers.is_empty()).then(|| servers.join(", ").into())
}

/// The endpoint of a connection, whose host may stand in the document only.
fn endpoint(connection: &Value, document: &Value) -> Option<Zeroizing<String>> {
    let host = value(&connection["hostName"]).or_else(|| value(&document["hostName"]))?;
    let port = value(&connection["port"])?;
    let host = match host.contains(':') && !host.starts_with('[') {
        true => format!("[{}]", *host),
        false => host.to_string(),
    };
    Some(format!("{host}:{}", *port).into())
}

/// The values of a key in all sections of a kind, separated by commas.
fn found(conf: &str, section: usize, key: &str) -> Option<Zeroizing<String>> {
    let mut at = None;
    let values = conf.lines().filter_map(|line| {
        at = head(line).or(at);
        let (name, value) = line.split_once('=').filter(|_| at == Some(section))?;
        name.trim().eq_ignore_ascii_case(key).then(|| value.trim())
    });
    let values: Vec<&str> = values.collect();
    (!values.is_empty()).then(|| Zeroizing::new(values.join(", ")))
}

/// The document for a client's file, as the app itself makes it of a file.
fn document(conf: &str, name: &str) -> Option<Secret> {
    let endpoint = found(conf, 1, "Endpoint")?;
    let (host, port) = endpoint.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let mut connection = Map::new();
    let mut is_amnezia = false;
    for section in [0, 1] {
        for (key, name) in names(section) {
            let Some(text) = found(conf, section, key) else {
                continue;
            };
            is_amnezia |= key == name;
            let text = match key {
                "AllowedIPs" => text.split(',').map(str::trim).collect(),
                _ => text.as_str().into(),
            };
            connection.insert(name.to_owned(), text);
        }
    }
    connection.insert("config".to_owned(), conf.into());
    connection.insert("hostName".to_owned(), host.into());
    connection.insert("port".to_owned(), port.parse::<u16>().ok()?.into());
    let connection = text_of(&Secret(connection.into()));
    let protocol = if is_amnezia { "awg" } else { "wireguard" };
    let container = format!("amnezia-{protocol}");
    let mut document = json!({
        "containers": [{
            "container": container,
            protocol: {
                "isThirdPartyConfig": true,
                "last_config": *connection,
                "port": port,
                "transport_proto": "udp",
            },
        }],
        "defaultContainer": container,
        "description": name,
        "hostName": host,
    });
    // Without a second server, the app would add one of its own, outside the tunnel's.
    let servers = found(conf, 0, "DNS");
    let servers = servers.iter().flat_map(|it| it.split(',').map(str::trim));
    let servers: Vec<&str> = servers
        .filter(|it| it.parse::<std::net::IpAddr>().is_ok())
        .collect();
    if let [first, rest @ ..] = &servers[..] {
        document["dns1"] = (*first).into();
        document["dns2"] = (*rest.first().unwrap_or(first)).into();
    }
    Some(Secret(document))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permissions::Permissions;
    use crate::wgquick;
    use proptest::prelude::*;

    const CONF: &str = "[Interface]\nPrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\n\
        Address = 10.7.0.2/32, fd00:7::2/128\nDNS = 10.7.0.1\nMTU = 1360\nJc = 4\nJmin = 40\nJmax = 70\nS1 = 30\n\
        S2 = 40\nS3 = 25\nS4 = 16\nH1 = 100-200\nH2 = 300\nH3 = 400\nH4 = 500-600\nI1 = <b 0xc0ffee><t><r 16>\n\
        HeaderProtectionKey = xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\nRandomTrailers = on\n\n\
        [Peer]\nPublicKey = xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\n\
        PresharedKey = TrMvSoP4jYQlY6RIzBgbssQqY3vxI2Pi+y71lOWWXX0=\nAllowedIPs = 0.0.0.0/0, ::/0\n\
        Endpoint = [2001:db8::1]:51820\nPersistentKeepalive = 25\n";

    /// A link with this document, which is not compressed.
    fn plain(document: &Value) -> String {
        format!("{SCHEME}{}", LETTERS.encode(document.to_string()))
    }

    /// The document of a link.
    fn opened(link: &str) -> Value {
        let bytes = decoded(link.strip_prefix(SCHEME).unwrap()).unwrap();
        serde_json::from_slice(&inflated(&bytes).unwrap()).unwrap()
    }

    /// A document with a connection and more members.
    fn with(container: &str, protocol: &Value, more: &Value) -> Value {
        let mut document = json!({"containers": [{"container": container, "awg": protocol}]});
        let more = more.as_object().unwrap().clone();
        document.as_object_mut().unwrap().extend(more);
        document
    }

    #[test]
    fn a_file_survives_a_link_and_a_series() {
        let link = write(CONF, "phone").unwrap();
        assert!(is_link(&link));
        assert_eq!(read(&link).unwrap().as_str(), CONF);
        let codes = series(&link).unwrap();
        assert!(codes.len() > 1);
        let mut lines: Vec<&str> = codes.iter().map(|it| it.as_str()).collect();
        lines.reverse();
        let text = lines.join("\n\n");
        assert!(is_link(&text) && is_link(&format!("\n{}\n", *link)));
        let copied = format!("\u{feff}VPN{}\r\n", &link[3..]);
        assert!(is_link(&copied));
        assert_eq!(read(&copied).unwrap().as_str(), CONF);
        let web = "HTTPS://provider.example/?token=hunter2";
        assert!(is_link(web));
        assert_eq!(read(web), Err(LinkError::Web));
        let other = "VLESS://uuid@192.0.2.1:443";
        assert!(is_link(other));
        assert_eq!(read(other), Err(LinkError::Scheme("vless".to_owned())));
        let mail = format!("Your link:\n {}\n", *link);
        assert!(is_link(&mail));
        assert_eq!(read(&mail), Err(LinkError::Around));
        assert_eq!(read(&text).unwrap().as_str(), CONF);
        // A camera may see a code twice.
        lines.push(lines[0]);
        assert_eq!(read(&lines.join("\n")).unwrap().as_str(), CONF);
        lines.truncate(1);
        let missing = LinkError::Incomplete(1, codes.len());
        assert_eq!(read(&lines.join("\n")), Err(missing));
        let other = series(&write(&CONF.replace("Jc = 4", "Jc = 5"), "phone").unwrap()).unwrap();
        assert_eq!(
            read(&format!("{}\n{}", &*codes[0], &*other[0])),
            Err(LinkError::Mixed)
        );
    }

    #[test]
    fn values_alone_make_the_same_tunnel() {
        let mut document = opened(&write(CONF, "phone").unwrap());
        let text = document["containers"][0]["awg"]["last_config"]
            .as_str()
            .unwrap();
        let mut connection: Value = serde_json::from_str(text).unwrap();
        connection.as_object_mut().unwrap().remove("config");
        let tunnel = |text: &str| {
            let import = wgquick::parse(text, "wg0.conf", Permissions::NONE);
            import.into_tunnel().unwrap().0
        };
        let expected = tunnel(CONF);
        for connection in [connection.clone(), json!(connection.to_string())] {
            document["containers"][0]["awg"]["last_config"] = connection;
            let text = read(&plain(&document)).unwrap();
            assert_eq!(*tunnel(&text).to_conf(), *expected.to_conf(), "{}", *text);
        }
    }

    #[test]
    fn a_file_gets_the_lines_that_it_lacks() {
        let config = "[Interface]\nDNS = $PRIMARY_DNS, $SECONDARY_DNS\nprivatekey = a\nI2 = \n[Peer]\nPublicKey = b";
        let connection = json!({
            "config": config, "client_priv_key": "x", "mtu": "1280", "I1": "<r 9>", "I2": "<r 8>", "I3": "",
            "psk_key": "c\nPostUp = true", "hostName": "vpn.example", "port": 7, "allowed_ips": ["0.0.0.0/0", "::/0"],
        });
        let more =
            json!({"dns1": "1.1.1.1", "dns2": "1.0.0.1", "defaultContainer": "amnezia-awg2"});
        let document = with(
            "amnezia-awg2",
            &json!({"last_config": connection.to_string()}),
            &more,
        );
        let expected = "[Interface]\nMTU = 1280\nI1 = <r 9>\nDNS = 1.1.1.1, 1.0.0.1\nprivatekey = a\nI2 = \n\
            [Peer]\nAllowedIPs = 0.0.0.0/0, ::/0\nEndpoint = vpn.example:7\nPublicKey = b";
        assert_eq!(read(&plain(&document)).unwrap().as_str(), expected);
        // Comments belong to a line, and a key in any [Peer] counts.
        let config =
            "[Interface] # mine\nMTU = 7\n[peer]#\nPublicKey = b\n[Peer]\nEndpoint = c:7\n";
        let connection = json!({"config": config, "mtu": 9, "port": 7, "psk_key": "d"});
        let more = json!({"hostName": "e"});
        let document = with("amnezia-awg", &json!({"last_config": connection}), &more);
        let expected = config.replace("[peer]#\n", "[peer]#\nPresharedKey = d\n");
        assert_eq!(read(&plain(&document)).unwrap().as_str(), expected);
        let connection = json!({"client_priv_key": "a", "server_pub_key": "b"});
        let document = with(
            "amnezia-awg",
            &json!({"last_config": connection}),
            &json!({}),
        );
        let expected = "\n[Interface]\nPrivateKey = a\n\n[Peer]\nPublicKey = b\n";
        assert_eq!(read(&plain(&document)).unwrap().as_str(), expected);
        let config = "[Interface]\nDNS = $PRIMARY_DNS, $SECONDARY_DNS\n[Peer]\nPublicKey = b";
        let document = with("amnezia-awg", &json!({"last_config": config}), &json!({}));
        let expected = config.replace("DNS = $PRIMARY_DNS, $SECONDARY_DNS\n", "");
        assert_eq!(read(&plain(&document)).unwrap().as_str(), expected);
    }

    #[test]
    fn the_usual_connection_comes_first() {
        let one = |name: &str, key: &str| json!({"container": name, "awg": {"last_config": format!("# {key}\n[Interface]\n[Peer]\n")}});
        let document = json!({
            "defaultContainer": "amnezia-awg2",
            "containers": [{"container": "amnezia-xray", "xray": {"last_config": "x"}}, one("amnezia-awg", "a"), one("amnezia-awg2", "b")],
        });
        assert!(read(&plain(&document)).unwrap().starts_with("# b\n"));
    }

    #[test]
    fn links_without_a_connection_are_refused_by_their_kind() {
        let awg = json!({"last_config": CONF});
        let secret =
            json!({"hostName": "a", "userName": "root", "password": "hunter2", "port": 22});
        let others = json!({"containers": [
            {"container": "amnezia-openvpn", "openvpn": {"last_config": "{}"}},
            {"container": "amnezia-xray\n", "xray": {"last_config": "{}"}},
        ]});
        for (document, fault) in [
            (with("amnezia-awg", &awg, &secret), LinkError::FullAccess),
            (secret, LinkError::FullAccess),
            (
                with(
                    "amnezia-awg",
                    &awg,
                    &json!({"password": "-----BEGIN\nhunter2\n"}),
                ),
                LinkError::FullAccess,
            ),
            (
                json!({"config_version": 1, "api_key": "k"}),
                LinkError::Subscription,
            ),
            (
                with("amnezia-awg", &json!({"port": "7"}), &json!({})),
                LinkError::Empty,
            ),
            (json!({}), LinkError::Empty),
            (json!({"containers": [7, null, "x"]}), LinkError::Empty),
        ] {
            let error = read(&plain(&document)).unwrap_err();
            assert_eq!(error, fault, "{document}");
            assert!(!error.to_string().contains("hunter2"));
        }
        let error = read(&plain(&others)).unwrap_err().to_string();
        assert!(
            error.contains("the link is for amnezia-openvpn, amnezia-xray"),
            "{error}"
        );
        assert!(!error.contains('\n'));
    }

    #[test]
    fn a_bomb_and_damage_are_refused() {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&vec![b' '; DOCUMENT_MAX + 1]).unwrap();
        let packed = encoder.finish().unwrap();
        for claimed in [0_u32, 9, u32::MAX] {
            let bytes = [&claimed.to_be_bytes()[..], &packed].concat();
            let link = format!("{SCHEME}{}", LETTERS.encode(bytes));
            assert!(link.len() < 4096);
            assert_eq!(read(&link), Err(LinkError::Large));
        }
        let link = write(CONF, "phone").unwrap();
        for wrong in [
            "vpn://",
            "vpn://AAAA",
            "vpn://?",
            "vpn://e30",
            "B8",
            &link[..link.len() - 9],
        ] {
            let error = read(wrong).unwrap_err();
            let kinds = [LinkError::Damaged, LinkError::Empty];
            assert!(kinds.contains(&error), "{wrong}: {error:?}");
        }
        assert!(!is_link("B8 = 7") && !is_link(CONF) && !is_link(""));
        let nested = format!("{{\"a\":{}", "[".repeat(100_000));
        assert_eq!(
            read(&format!("{SCHEME}{}", LETTERS.encode(nested))),
            Err(LinkError::Damaged)
        );
    }

    #[test]
    fn the_app_gets_the_names_that_it_reads() {
        let document = opened(&write(CONF, "phone").unwrap());
        let awg = &document["containers"][0]["awg"];
        let connection: Value = serde_json::from_str(awg["last_config"].as_str().unwrap()).unwrap();
        for (name, value) in [
            ("hostName", json!("2001:db8::1")),
            ("port", json!(51820)),
            ("client_ip", json!("10.7.0.2/32, fd00:7::2/128")),
            ("allowed_ips", json!(["0.0.0.0/0", "::/0"])),
            ("H1", json!("100-200")),
            ("mtu", json!("1360")),
            ("config", json!(CONF)),
        ] {
            assert_eq!(connection[name], value, "{name}");
        }
        assert_eq!(document["defaultContainer"], "amnezia-awg");
        assert_eq!(
            (&document["dns1"], &document["dns2"]),
            (&json!("10.7.0.1"), &json!("10.7.0.1"))
        );
        let wireguard =
            "[Interface]\nPrivateKey = a\n[Peer]\nPublicKey = b\nEndpoint = c.example:7\n";
        let document = opened(&write(wireguard, "x").unwrap());
        assert_eq!(document["containers"][0]["container"], "amnezia-wireguard");
        assert_eq!(document["containers"][0]["wireguard"]["port"], "7");
        assert_eq!(write("[Interface]\n", "x"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_a_file_or_a_fault(text in "\\PC{0,60}", bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            for text in [text.clone(), format!("{SCHEME}{text}"), format!("{SCHEME}{}", LETTERS.encode(&bytes))] {
                let _ = (is_link(&text), read(&text));
            }
            let piece = [&MAGIC[..], &[1, 0], &(bytes.len() as u32).to_be_bytes(), &bytes].concat();
            let _ = read(&LETTERS.encode(piece));
        }

        #[test]
        fn any_file_survives(lines in prop::collection::vec("[a-zA-Z0-9]{1,9} = [!-~ ]{0,40}", 0..9)) {
            let conf = format!("[Interface]\n{}\n[Peer]\nEndpoint = a.example:7\n", lines.join("\n"));
            let text = read(&write(&conf, "x").unwrap()).unwrap();
            prop_assert_eq!(&*text, &conf);
        }

        #[test]
        fn any_document_gives_whole_lines(config in "\\PC{0,40}", value in "\\PC{0,20}|[\\x00-\\x7f]{0,20}") {
            let connection = json!({"config": config, "I1": value, "psk_key": value, "hostName": value, "port": 7});
            let document = with("amnezia-awg", &json!({"last_config": connection}), &json!({"dns1": value}));
            let text = read(&plain(&document)).unwrap();
            for line in text.lines().filter(|it| it.starts_with("PostUp")) {
                prop_assert!(config.contains(line));
            }
        }
    }
}
