//! The file of a WireGuard server.

use super::{InitError, Plan, place};
use crate::peer::secret;
use config::types::Key32;
use crypto::x25519::PrivateKey;
use std::path::PathBuf;

/// Writes the file. Returns its path.
pub(super) fn write(plan: &Plan<'_>) -> Result<PathBuf, InitError> {
    let key = Key32::new(*PrivateKey::generate().as_bytes());
    let addresses = plan.addresses();
    let addresses: Vec<String> = addresses
        .iter()
        .map(|(addr, bits)| format!("{addr}/{bits}"))
        .collect();
    let head = format!(
        "# A WireGuard server. `millrace up {name}` runs it, and so does wg-quick, without what [Server] says.\n\
         # `millrace peer add` lets clients in and `millrace peer revoke` takes them out again, also while it runs.\n\
         [Interface]\n",
        name = plan.name,
    );
    let tail = format!(
        "Address = {}\nListenPort = {}\n{}",
        addresses.join(", "),
        plan.port,
        plan.home.to_comments(),
    );
    let key = key.to_base64();
    let text = secret(&[&head, "PrivateKey = ", key.as_str(), "\n", &tail]);
    let path = plan.directory.join(format!("{}.conf", plan.name));
    place::write_new(&path, &text)?;
    Ok(path)
}
