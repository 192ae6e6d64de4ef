//! `millrace pq`: post-quantum keys for WireGuard interfaces of the kernel and of other programs.

use crate::Outcome;
use crate::arguments::{self, flag, option, text};
use clap::{Arg, ArgMatches, Command, value_parser};
use config::permissions::Permissions;
use config::postquantum::{PORT, Policy};
use config::types::is_ifname;
use config::wgquick;
use service::companion::{self, Member, Options};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The command-line definition of `pq`.
pub(crate) fn command() -> Command {
    let serve = Command::new("serve")
        .about("Exchange post-quantum keys with the peers of a WireGuard interface, until a signal")
        .arg(
            Arg::new("IFNAME")
                .required(true)
                .help("Interface of the kernel's WireGuard, or of a program such as wireguard-go"),
        )
        .arg(arguments::path(
            "file",
            "FILE",
            "The interface's file [default: /etc/wireguard/IFNAME.conf]; SIGHUP reads it again",
        ))
        .arg(flag(
            "all",
            "Offer keys to every peer in the file, also without `#! PostQuantum`",
        ))
        .arg(
            option(
                "port",
                "PORT",
                "UDP port inside the tunnel at this end [default: 51819]",
            )
            .value_parser(value_parser!(u16).range(1..)),
        )
        .arg(arguments::log());
    Command::new("pq")
        .about("Exchange post-quantum keys beside another WireGuard program")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(serve)
}

/// Runs the command.
pub(crate) fn run(matches: &ArgMatches) -> Outcome {
    let Some(("serve", matches)) = matches.subcommand() else {
        return Ok(ExitCode::from(2));
    };
    crate::guard::must_administer("pq serve")?;
    let ifname = text(matches, "IFNAME").unwrap_or_default();
    if !is_ifname(ifname) {
        return Err(format!("{ifname:?} is not the name of an interface").into());
    }
    arguments::log_to_file(matches)?;
    let default = PathBuf::from(format!("/etc/wireguard/{ifname}.conf"));
    let path = arguments::file(matches, "file").unwrap_or(&default);
    let all = matches.get_flag("all");
    companion::run(&Options {
        ifname: ifname.to_owned(),
        port: matches.get_one("port").copied().unwrap_or(PORT),
        members: &|| members(path, all),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Reads the peers that take part from the interface's file.
fn members(path: &Path, all: bool) -> Result<Vec<Member>, String> {
    let shown = path.display();
    let import = wgquick::read(path, Permissions::ALL).map_err(|error| error.to_string())?;
    let (tunnel, _) = import.into_tunnel().map_err(|error| error.to_string())?;
    if tunnel.interface.save_config {
        return Err(format!(
            "{shown}: `SaveConfig = true` would write the keys of exchanges into the file; remove that line first"
        ));
    }
    if tunnel.peers.iter().any(|it| it.requires_post_quantum()) {
        log::warn!(
            "{shown}: `PostQuantum = require` works as `prefer` here: only Millrace's own WireGuard holds packets back"
        );
    }
    let members = tunnel.peers.into_iter().filter_map(|peer| {
        let settings = peer.post_quantum.as_deref().copied().unwrap_or_default();
        (all || settings.policy != Policy::Off).then(|| Member {
            public_key: peer.public_key,
            preshared_key: peer.preshared_key.unwrap_or_default(),
            settings,
        })
    });
    Ok(members.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "[Interface]\nPrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\n[Peer]\n\
        #! PostQuantum = prefer\nPublicKey = xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\n\
        PresharedKey = FpCyhws9cxwWoV4xELtfJvjJN+zQVRPISllRWgeopVE=\n[Peer]\n\
        PublicKey = TrMvSoP4jYQlY6RIzBgbssQqY3vxI2Pi+y71lOWWXX0=\n";

    #[test]
    fn the_file_names_the_peers_that_take_part_and_must_not_save_keys() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("wg0.conf");
        std::fs::write(&path, FILE).unwrap();
        let some = members(&path, false).unwrap();
        assert_eq!(some.len(), 1);
        assert!(!some[0].preshared_key.is_zero());
        assert_eq!(members(&path, true).unwrap().len(), 2);
        std::fs::write(&path, FILE.replace("[Peer]", "SaveConfig = true\n[Peer]")).unwrap();
        let refused = members(&path, true).unwrap_err();
        assert!(refused.contains("SaveConfig"), "{refused}");
        assert!(members(&directory.path().join("none.conf"), true).is_err());
    }
}
