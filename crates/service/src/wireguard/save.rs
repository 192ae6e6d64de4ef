//! `SaveConfig`: writes the configuration file from the running tunnel when it goes down.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use config::tunnel::{Peer, Tunnel};
use config::types::Host;
use config::uapi::{DeviceState, PeerState};

/// Returns the file's model with settings that `wg` may have changed: keys, port, mark and peers. All other settings
/// are the file's. A preshared key is the configured one: [`PeerState`] never has the key of an exchange.
///
/// `implied_mark` is a mark that the plan chose, not the file: it is not saved. An endpoint name in the file stays a
/// name, unlike with wg-quick, so that the next start looks it up again.
pub fn merge(
    file: &Tunnel,
    device: &DeviceState,
    peers: &[PeerState],
    implied_mark: u32,
) -> Tunnel {
    let mut saved = file.clone();
    let interface = &mut saved.interface;
    interface.private_key = device.private_key.clone();
    interface.listen_port = Some(device.listen_port).filter(|&port| port != 0);
    if interface.fwmark.unwrap_or(0) != 0 || device.fwmark != implied_mark {
        interface.fwmark = Some(device.fwmark).filter(|&mark| mark != 0);
    }
    #[cfg(feature = "amnezia")]
    interface.amnezia.clone_from(&device.amnezia);
    saved.peers = peers
        .iter()
        .map(|peer| {
            let known = file
                .peers
                .iter()
                .find(|old| old.public_key == peer.public_key);
            merge_peer(known, peer)
        })
        .collect();
    saved
}

fn merge_peer(known: Option<&Peer>, live: &PeerState) -> Peer {
    let named = known
        .and_then(|peer| peer.endpoint.clone())
        .filter(|endpoint| matches!(endpoint.host, Host::Name(_)));
    Peer {
        // `save` takes the comments from the file.
        name: None,
        #[cfg(feature = "postquantum")]
        post_quantum: match cfg!(feature = "server") {
            true => None,
            false => known.and_then(|peer| peer.post_quantum.clone()),
        },
        public_key: live.public_key.clone(),
        preshared_key: live.preshared_key.clone().filter(|key| !key.is_zero()),
        allowed_ips: live.allowed_ips.clone(),
        endpoint: named.or_else(|| live.endpoint.clone()),
        persistent_keepalive: Some(live.persistent_keepalive).filter(|&seconds| seconds != 0),
        replaces: None,
    }
}

/// Replaces the file by the model: the old file stays intact until the new one is on the disk. Comments are lost, as
/// with wg-quick. A program with servers keeps `#! Key = value` in the sections of peers, such as their names.
///
/// # Errors
/// File system errors; the old file then keeps its content.
pub fn save(path: &Path, tunnel: &Tunnel) -> io::Result<()> {
    // A symbolic link stays; the file that it leads to is replaced.
    let path = fs::canonicalize(path)?;
    // The file holds keys, so only its owner may read it.
    fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    let text = tunnel.to_conf();
    #[cfg(feature = "server")]
    let text = {
        let old = zeroize::Zeroizing::new(fs::read(&path)?);
        config::clients::with_comments(&text, &String::from_utf8_lossy(&old))
    };
    host::written_file::replace(&path, text.as_bytes(), 0o600)
}

#[cfg(test)]
mod tests {
    use config::permissions::Permissions;
    use config::types::Key32;
    use config::wgquick;

    use super::*;

    const FILE: &str = "[Interface]\nPrivateKey = yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\n\
        Address = 10.0.0.1/24\nSaveConfig = true\nPostUp = true\n[Peer]\n\
        PublicKey = xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\nEndpoint = vpn.example:1\n";

    fn file() -> Tunnel {
        let import = wgquick::parse(FILE, "wg0.conf", Permissions::NONE);
        import.into_tunnel().unwrap().0
    }

    fn live(key: &Key32) -> PeerState {
        PeerState {
            public_key: key.clone(),
            endpoint: Some("192.0.2.1:1".parse().unwrap()),
            ..PeerState::default()
        }
    }

    #[test]
    fn live_changes_are_merged_and_the_files_own_kept() {
        let file = file();
        let device = DeviceState {
            #[cfg(feature = "amnezia")]
            amnezia: Default::default(),
            private_key: file.interface.private_key.clone(),
            listen_port: 7,
            fwmark: 51820,
        };
        let new = Key32::new([9; 32]);
        let peers = [live(&file.peers[0].public_key), live(&new)];
        let saved = merge(&file, &device, &peers, 51820);
        assert_eq!(saved.interface.addresses, file.interface.addresses);
        assert_eq!(saved.interface.scripts, file.interface.scripts);
        assert_eq!(
            (saved.interface.listen_port, saved.interface.fwmark),
            (Some(7), None)
        );
        let endpoint = |index: usize| saved.peers[index].endpoint.as_ref().unwrap().to_string();
        assert_eq!(
            (endpoint(0), endpoint(1)),
            ("vpn.example:1".into(), "192.0.2.1:1".into())
        );
        let marked = merge(&file, &device, &peers, 1);
        assert_eq!(marked.interface.fwmark, Some(51820));
    }

    #[test]
    fn the_new_file_is_secret_and_whole() {
        let directory = std::env::temp_dir().join(format!("millrace-save-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("wg0.conf");
        let comments = "[Peer]\n#! Name = store-7\n#! PostQuantum = require\n";
        let named = FILE.replace("[Peer]\n", comments);
        fs::write(&path, named).unwrap();
        fs::write(directory.join(".wg0.conf.new"), "left").unwrap();
        save(&path, &file()).unwrap();
        save(&path, &file()).unwrap();
        #[cfg(all(feature = "postquantum", feature = "server"))]
        let text = fs::read_to_string(&path).unwrap();
        let read = wgquick::read(&path, Permissions::NONE).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        let files = fs::read_dir(&directory).unwrap().count();
        fs::remove_dir_all(&directory).unwrap();
        let mut read = read.into_tunnel().unwrap().0;
        let name = read.peers[0].name.take();
        let kept = cfg!(feature = "server").then_some("store-7");
        assert_eq!(name.as_deref(), kept);
        #[cfg(all(feature = "postquantum", feature = "server"))]
        {
            assert!(read.peers[0].requires_post_quantum());
            read.peers[0].post_quantum = None;
            assert_eq!(text.matches("PostQuantum").count(), 1, "{text}");
        }
        assert_eq!(read, file());
        assert_eq!((mode & 0o777, files), (0o600, 1));
    }
}
