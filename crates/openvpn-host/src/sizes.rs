//! Sizes and shapes of data packets, from the configuration.

use config::openvpn::{Connection, OpenVpn};
use openvpn::data::format::{Framing, Shape};
use openvpn::data::mtu::{DEFAULT_TUN_MTU, Encapsulation, MssFix, Outer};
use openvpn::data::wire::Layout;
use openvpn::negotiate::Cipher;
use openvpn::push::Compression;
use std::net::SocketAddr;
use std::sync::Arc;

use openvpn::data::fragment::Fragments;

/// `fragment` leaves no room for a packet.
#[derive(Debug, thiserror::Error)]
#[error("fragment {0}: with this cipher no byte of a packet fits; set a larger size")]
pub struct NoRoom(u16);

/// Returns the framing that the server pushed.
pub fn pushed(compression: &Compression) -> Framing {
    match compression {
        Compression::CompLzo(_) => Framing::Lzo,
        Compression::Compress(word) => match word.as_deref() {
            Some("lzo") => Framing::Lzo,
            Some("stub-v2" | "lz4-v2") => Framing::V2,
            Some("migrate") => Framing::None,
            _ => Framing::Swap,
        },
    }
}

/// Returns the shape of all packets under a peer's keys, once cipher and layout are agreed on.
///
/// # Errors
/// [`NoRoom`] if `fragment` is too small.
pub fn shape(
    config: &OpenVpn,
    connection: &Connection,
    (cipher, layout): (Cipher, Layout),
    framing: Framing,
    tun_mtu: u16,
    remote: SocketAddr,
) -> Result<Shape, NoRoom> {
    let stream = connection.protocol.transport.is_tcp();
    let fragment = connection.mtu.fragment.filter(|_| !stream);
    let sizes = Encapsulation {
        cipher,
        auth: config.data.auth,
        layout,
        framing,
        fragment: fragment.is_some(),
        outer: Outer {
            v6: remote.is_ipv6(),
            tcp: stream,
            socks: false,
        },
    };
    let mssfix = connection.mtu.mssfix;
    let mssfix =
        mssfix.unwrap_or_else(|| MssFix::default_for(tun_mtu, fragment.map(|it| it.bytes)));
    let fragments = match fragment {
        None => None,
        Some(size) => {
            let most = sizes.max_fragment(size).ok_or(NoRoom(size.bytes))?;
            // Framing may add a few bytes to an interface packet.
            Some(Arc::new(Fragments::new(most, usize::from(tun_mtu) + 64)))
        }
    };
    Ok(Shape {
        framing,
        stream,
        fragments,
        mss: sizes.mss(mssfix).unwrap_or(0),
        unpacked_max: match config.data.unpack {
            true => usize::from(tun_mtu.max(DEFAULT_TUN_MTU)) + 64,
            false => 0,
        },
    })
}

#[cfg(test)]
mod tests;
