//! `millrace migrate`: makes WireGuard files from an office's PPTP file.

use crate::arguments::{self, flag, option, path_of, text};
use crate::server::netmask;
use crate::{Outcome, keys};
use clap::{Arg, ArgMatches, Command, value_parser};
use config::error::ImportError;
use config::kind::Kind;
use config::pptp::{self, Client, Role, Server};
use config::types::{Key32, is_ifname};
use std::collections::BTreeSet;
use std::fs::DirBuilder;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use thiserror::Error;
use zeroize::Zeroizing;

mod openwrt;

/// WireGuard's usual port.
const PORT: u16 = 51820;

/// Longest file name before `.conf`, as for an interface.
const NAME_MAX: usize = 15;

/// The command-line definition of `migrate`.
pub(crate) fn command() -> Command {
    let path = |name: &'static str, help: &'static str| {
        let argument = Arg::new(name).required_unless_present("openwrt").help(help);
        argument.value_parser(value_parser!(PathBuf))
    };
    Command::new("migrate")
        .about("Convert PPTP files to WireGuard, or take over OpenWrt's tunnels")
        .after_help(
            "With --openwrt: interfaces with proto wireguard or amneziawg in /etc/config/network, and instances with a \
             file in\n/etc/config/openvpn, become interfaces with proto millrace. What would change is shown; --apply \
             writes it.",
        )
        .arg(path(
            "FILE",
            "NAME.toml of a PPTP server or client, a pppd options file, or pptpd.conf",
        ))
        .arg(path(
            "DIRECTORY",
            "A new directory for the files, which only this user can read",
        ))
        .arg(option(
            "endpoint",
            "HOST[:PORT]",
            "The office's public address, for a server's file",
        ))
        .arg(
            flag(
                "openwrt",
                "Take over the tunnels in /etc/config/network and /etc/config/openvpn",
            )
            .conflicts_with_all(["FILE", "DIRECTORY", "endpoint"]),
        )
        .arg(option("interface", "NAME", "Take over only this interface or instance").requires("openwrt"))
        .arg(
            flag("apply", "Write the changes that are shown; copies of the old files go to \
                           /etc/millrace").requires("openwrt"),
        )
        .arg(
            arguments::path("uci", "DIRECTORY", "Directory of the UCI files")
                .requires("openwrt")
                .default_value("/etc/config"),
        )
}

/// Why some files, or all, were not written.
#[derive(Debug, Error)]
enum MigrateError {
    #[error(transparent)]
    Import(#[from] ImportError),
    #[error(
        "{0}: not a PPTP file; give NAME.toml, pptpd.conf, or a pppd options file that runs pptp"
    )]
    NotPptp(PathBuf),
    #[error("the office's public address is missing; give --endpoint vpn.example")]
    NoEndpoint,
    #[error("--endpoint {0}: write HOST or HOST:PORT")]
    Endpoint(String),
    #[error(
        "--endpoint is for a server's file; a client's file already names the office, so leave the option out"
    )]
    EndpointOfClient,
    #[error("{users} users, but the pool has {pool} addresses: enlarge the pool")]
    Pool { users: usize, pool: usize },
    #[error("{}: {error}", .path.display())]
    Write { path: PathBuf, error: io::Error },
}

/// A file to write.
struct New {
    /// The file name before `.conf`.
    name: String,
    text: Zeroizing<String>,
}

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches) -> Outcome {
    let words = if matches.get_flag("openwrt") {
        openwrt::run(&openwrt::Order {
            directory: path_of(matches, "uci"),
            only: text(matches, "interface"),
            apply: matches.get_flag("apply"),
            copies: Path::new("/etc/millrace"),
        })?
    } else {
        let (file, directory) = (path_of(matches, "FILE"), path_of(matches, "DIRECTORY"));
        migrate(file, directory, text(matches, "endpoint"))?
    };
    host::terminal::say(words);
    Ok(ExitCode::SUCCESS)
}

/// Writes the files. Returns the next steps for the user.
fn migrate(file: &Path, directory: &Path, endpoint: Option<&str>) -> Result<String, MigrateError> {
    if Kind::at(file) != Kind::Pptp {
        return Err(MigrateError::NotPptp(file.to_owned()));
    }
    let model = pptp::read_to_leave(file)?.into_model()?;
    let office = interface(&model.interface, &mut BTreeSet::new());
    let (files, words) = match &model.role {
        Role::Server(server) => {
            let endpoint = endpoint.ok_or(MigrateError::NoEndpoint)?;
            server_files(server, &office, &with_port(endpoint)?)?
        }
        Role::Client(_) if endpoint.is_some() => return Err(MigrateError::EndpointOfClient),
        Role::Client(client) => client_file(client, &office),
    };
    let mut builder = DirBuilder::new();
    let failed = |path: &Path, error| MigrateError::Write {
        path: path.to_owned(),
        error,
    };
    builder
        .mode(0o700)
        .create(directory)
        .map_err(|error| failed(directory, error))?;
    for New { name, text } in &files {
        let path = directory.join(format!("{name}.conf"));
        host::written_file::write_new(&path, text.as_bytes())
            .map_err(|error| failed(&path, error))?;
    }
    Ok(words.replace("DIRECTORY", &directory.display().to_string()))
}

/// A private key and its public key.
fn pair() -> (Key32, Key32) {
    let private = keys::new();
    let public = keys::public_of(&private);
    (private, public)
}

fn with_port(endpoint: &str) -> Result<String, MigrateError> {
    let wrong = || MigrateError::Endpoint(endpoint.to_owned());
    let (host, port) = match endpoint.rsplit_once(':') {
        // An IPv6 address in brackets, without a port.
        Some((_, port)) if port.ends_with(']') => (endpoint, PORT),
        Some((host, port)) => (host, port.parse().map_err(|_| wrong())?),
        None => (endpoint, PORT),
    };
    let bare = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let is_host = match bare {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            let of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
            !host.is_empty() && host.chars().all(of_name)
        }
    };
    match is_host && port != 0 {
        true => Ok(format!("{host}:{port}")),
        false => Err(wrong()),
    }
}

/// Makes an interface name from any text; it is not in `taken`.
fn interface(text: &str, taken: &mut BTreeSet<String>) -> String {
    // Without the domain in `DOMAIN\user`.
    let own = text.rsplit('\\').next().unwrap_or(text);
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    let fitting = own.chars().map(|c| if fits(c) { c } else { '-' });
    let mut name: String = fitting.take(NAME_MAX).collect();
    if !is_ifname(&name) || name.starts_with(['-', '.']) {
        name = format!("user{name}").chars().take(NAME_MAX).collect();
    }
    let first = name.clone();
    for number in 2.. {
        if taken.insert(name.to_ascii_lowercase()) {
            break;
        }
        let number = format!("-{number}");
        let keep = NAME_MAX - number.len();
        name = first.chars().take(keep).collect::<String>() + &number;
    }
    name
}

/// A text on one line for a comment: names may contain anything.
fn comment(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

fn server_files(
    server: &Server,
    office: &str,
    endpoint: &str,
) -> Result<(Vec<New>, String), MigrateError> {
    let (users, pool) = (server.users.len(), server.pool.len());
    if users > pool {
        return Err(MigrateError::Pool { users, pool });
    }
    let (address, bits) = server.address;
    let port = endpoint.rsplit(':').next().unwrap_or_default();
    let (private, public) = pair();
    let mut text = Zeroizing::new(format!(
        "[Interface]\nPrivateKey = {}\nListenPort = {port}\nAddress = {address}/{bits}\n",
        private.to_base64().as_str()
    ));
    let mut files = Vec::new();
    let mut taken = BTreeSet::from([office.to_ascii_lowercase()]);
    for ((user, _), inside) in server.users.iter().zip(&server.pool) {
        let name = interface(user, &mut taken);
        let user = comment(user);
        let (own, theirs) = pair();
        *text += &format!(
            "\n# {user}\n[Peer]\nPublicKey = {}\nAllowedIPs = {inside}/32\n",
            theirs.to_base64().as_str()
        );
        let dns: Vec<String> = server.dns.iter().map(Ipv4Addr::to_string).collect();
        let dns = match dns.is_empty() {
            true => String::new(),
            false => format!("DNS = {}\n", dns.join(", ")),
        };
        let network = network(address, bits);
        // A name server outside this network is reached through the tunnel as well.
        let outside = |dns: &&Ipv4Addr| self::network(**dns, bits) != network;
        let outside = server.dns.iter().filter(outside);
        let outside: String = outside.map(|dns| format!(", {dns}/32")).collect();
        let of_user = format!(
            "# {user}\n[Interface]\nPrivateKey = {}\nAddress = {inside}/32\n{dns}\n[Peer]\nPublicKey = {}\nEndpoint = \
             {endpoint}\n# All of IPv4, as with a default route: 0.0.0.0/0\nAllowedIPs = \
             {network}/{bits}{outside}\nPersistentKeepalive = 25\n",
            own.to_base64().as_str(),
            public.to_base64().as_str()
        );
        files.push(New {
            name,
            text: Zeroizing::new(of_user),
        });
    }
    let words = format!(
        "DIRECTORY/{office}.conf is the office's: run `millrace up` with it, and open UDP port {port}. The others are \
         for the users, one each: send each over a confidential channel, then delete it here. They work with \
         WireGuard's own programs on any system. Add networks behind the office to AllowedIPs in the users' files. \
         When the last user has switched, end PPTP and close TCP port {} and protocol 47.",
        server.listen.port()
    );
    files.insert(
        0,
        New {
            name: office.to_owned(),
            text,
        },
    );
    Ok((files, words))
}

/// Clears the host part of an address.
fn network(address: Ipv4Addr, bits: u8) -> Ipv4Addr {
    address & netmask(bits)
}

/// The client's own part: its key. The office supplies the rest.
fn client_file(client: &Client, office: &str) -> (Vec<New>, String) {
    let (private, public) = pair();
    let routes: Vec<String> = client.routes.iter().map(ToString::to_string).collect();
    let routes = match client.default_route {
        true => "0.0.0.0/0".to_owned(),
        false => routes.join(", "),
    };
    let text = format!(
        "[Interface]\nPrivateKey = {}\n# From the office:\nAddress =\n\n[Peer]\n# From the office:\nPublicKey =\n\
         Endpoint = {}:{PORT}\nAllowedIPs = {routes}\nPersistentKeepalive = 25\n",
        private.to_base64().as_str(),
        client.host
    );
    let words = format!(
        "DIRECTORY/{office}.conf is this end's. Two values have to come from the office: Address, and the office's \
         PublicKey. The office needs a [Peer] with this end's public key,\n\n    {}\n\nand this end's Address as \
         AllowedIPs. List the networks behind the office in AllowedIPs here, and name servers as DNS under \
         [Interface]. With Millrace at the office, `millrace migrate` there writes the files of all users.",
        public.to_base64().as_str()
    );
    let file = New {
        name: office.to_owned(),
        text: Zeroizing::new(text),
    };
    (vec![file], words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::permissions::Permissions;
    use config::tunnel::Tunnel;
    use config::wgquick;
    use crypto::x25519::PrivateKey;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    /// A server's file without `allow-insecure`: it is only migrated, so it need not run.
    const SERVER: &str = "protocol = \"pptp\"\nlisten = \"0.0.0.0\"\naddress = \"10.9.0.1/24\"\n\
        dns = [\"10.9.0.1\", \"192.168.1.1\"]\n[users]\n";

    /// The files that the migration makes of a text, and its message.
    fn migrated(
        text: &str,
        endpoint: Option<&str>,
    ) -> Result<(tempfile::TempDir, String), MigrateError> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("office.toml");
        fs::write(&file, text).unwrap();
        let words = migrate(&file, &directory.path().join("new"), endpoint)?;
        Ok((directory, words))
    }

    fn tunnel(directory: &tempfile::TempDir, name: &str) -> Tunnel {
        let path = directory.path().join("new").join(name);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let text = fs::read_to_string(path).unwrap();
        let import = wgquick::parse(&text, name, Permissions::NONE);
        import.into_tunnel().unwrap().0
    }

    #[test]
    fn both_ends_of_each_user_know_each_other() {
        let text = format!("{SERVER}alice = \"a\"\n'HOME\\bob smith' = \"b\"\n");
        let (directory, words) = migrated(&text, Some("vpn.example")).unwrap();
        assert!(
            words.contains("office.conf") && words.contains("1723"),
            "{words}"
        );
        let office = tunnel(&directory, "office.conf");
        let key = |tunnel: &Tunnel| {
            let private = tunnel.interface.private_key.as_ref().unwrap().as_bytes();
            Key32::new(*PrivateKey::new(*private).public().as_bytes())
        };
        assert_eq!(office.peers.len(), 2);
        for (peer, name) in office.peers.iter().zip(["bob-smith.conf", "alice.conf"]) {
            let user = tunnel(&directory, name);
            assert_eq!(peer.public_key, key(&user));
            assert_eq!(user.peers[0].public_key, key(&office));
            assert_eq!(
                peer.allowed_ips[0].to_string(),
                user.interface.addresses[0].to_string()
            );
            let allowed: Vec<String> = user.peers[0]
                .allowed_ips
                .iter()
                .map(ToString::to_string)
                .collect();
            assert_eq!(allowed, ["10.9.0.0/24", "192.168.1.1/32"]);
        }
    }

    #[test]
    fn what_cannot_be_is_refused_and_nothing_written() {
        let text = format!("{SERVER}alice = \"a\"\n");
        let says = |text: &str, endpoint| match migrated(text, endpoint) {
            Err(error) => error.to_string(),
            Ok((_, words)) => panic!("{words}"),
        };
        assert!(says(&text, None).contains("--endpoint"));
        for wrong in ["", ":1", "a b", "host:0", "host:x", "[::1", "fe80::1"] {
            assert!(says(&text, Some(wrong)).contains("HOST"), "{wrong}");
        }
        let small = text.replace("dns", "pool = \"10.9.0.9\"\ndns") + "bob = \"b\"\n";
        assert!(says(&small, Some("h")).contains("pool"));
        assert!(says("x = 1\n", Some("h")).contains("protocol"));
        // Existing files are not overwritten.
        let (directory, _) = migrated(&text, Some("[::1]:5")).unwrap();
        let again = migrate(
            &directory.path().join("office.toml"),
            &directory.path().join("new"),
            Some("h"),
        );
        assert!(matches!(again, Err(MigrateError::Write { .. })));
    }

    #[test]
    fn a_client_gets_its_key_and_is_told_what_is_missing() {
        let text = "protocol = \"pptp\"\nallow-insecure = \"pptp\"\nserver = \"vpn.example\"\nusername = \"a\"\n\
            password = \"b\"\nroutes = [\"10.20.0.0/16\"]\n";
        let (directory, words) = migrated(text, None).unwrap();
        assert!(words.contains("public key"), "{words}");
        let wrong = migrated(text, Some("vpn.example"));
        assert!(matches!(wrong, Err(MigrateError::EndpointOfClient)));
        let text = fs::read_to_string(directory.path().join("new/office.conf")).unwrap();
        assert!(text.contains("AllowedIPs = 10.20.0.0/16") && text.contains("vpn.example:51820"));
    }

    #[test]
    fn names_of_users_become_names_of_interfaces() {
        let mut taken = BTreeSet::new();
        for (user, name) in [
            ("alice", "alice"),
            ("Alice", "Alice-2"),
            ("..", "user.."),
            ("-x", "user-x"),
            ("a/b c", "a-b-c"),
            ("averyveryverylongname", "averyveryverylo"),
            ("averyveryverylong", "averyveryvery-2"),
            ("ä", "user-"),
            ("", "user"),
        ] {
            let made = interface(user, &mut taken);
            assert_eq!(made, name);
            assert!(is_ifname(&made));
        }
    }
}
