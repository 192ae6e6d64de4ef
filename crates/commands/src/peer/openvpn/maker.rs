//! Makes clients' keys, certificates and files.

use super::{Entry, Server};
use crate::peer::file::Record;
use crate::peer::issue::{Issued, Terms};
use crate::peer::{PeerError, place, secret};
use config::types::{Endpoint, Host};
use service::openvpn::authority::{Authority, ClientKey, Metadata, Purpose, ServerKey};
use zeroize::Zeroizing;

/// The parts of clients' files, and the keys that sign them.
pub(super) struct Maker<'a> {
    server: &'a Server,
    authority: Authority,
    /// The authority's certificate.
    certificate: Zeroizing<String>,
    wrap: ServerKey,
}

impl<'a> Maker<'a> {
    pub(super) fn new(server: &'a Server) -> Result<Self, PeerError> {
        let certificate = server.text_of(server.config.tls.ca.as_ref(), "it has no `ca`")?;
        let connection = server.config.connections.first();
        let wrap = connection.and_then(|it| it.wrap.tls_crypt_v2.as_ref());
        let wrap = ServerKey::parse(&server.text_of(wrap, "it has no `tls-crypt-v2`")?)?;
        let key = place::read(&server.store.key())?;
        Ok(Self {
            server,
            authority: Authority::read(&key, &certificate)?,
            certificate,
            wrap,
        })
    }

    /// The settings of a client's file.
    fn settings(&self, terms: &Terms) -> Result<String, PeerError> {
        let server = self.server;
        let Endpoint { host, port } = terms.endpoint(server.home(), &server.path)?;
        let host = match host {
            Host::Ip(addr) => addr.to_string(),
            Host::Scoped(addr, zone) => format!("{addr}%{zone}"),
            Host::Name(name) => name,
        };
        let tcp = server.is_tcp();
        let dns = server.dns(terms.lan_only).iter();
        let dns: String = dns.map(|it| format!("dhcp-option DNS {it}\n")).collect();
        Ok(format!(
            "client\n\
             dev tun\n\
             proto {}\n\
             remote {host} {port}\n\
             nobind\n\
             resolv-retry infinite\n\
             remote-cert-tls server\n\
             tls-version-min 1.2\n\
             data-ciphers AES-256-GCM:CHACHA20-POLY1305:AES-128-GCM\n\
             {}{}{dns}",
            if tcp { "tcp-client" } else { "udp" },
            if tcp { "" } else { "explicit-exit-notify 1\n" },
            server.routes(terms.lan_only),
        ))
    }

    /// Makes a key and a certificate for a client, and its file. Returns the file and the client's entry.
    pub(super) fn make(
        &self,
        name: &str,
        common_name: String,
        terms: &Terms,
    ) -> Result<(Issued, Entry), PeerError> {
        let wrap = ClientKey::generate(&self.wrap, &Metadata::user(name.as_bytes()))?;
        let issued = self.authority.issue(&common_name, Purpose::Client)?;
        let server = service::running::name_of(&self.server.path);
        let text = secret(&[
            &format!("# {name}, a client of {server}\n"),
            &self.settings(terms)?,
            "<ca>\n",
            &self.certificate,
            "</ca>\n<cert>\n",
            &issued.certificate,
            "</cert>\n<key>\n",
            &issued.key,
            "</key>\n<tls-crypt-v2>\n",
            &wrap.to_text(),
            "</tls-crypt-v2>\n",
        ]);
        let endpoint = terms.endpoint(self.server.home(), &self.server.path)?;
        let endpoint = endpoint.to_string();
        let public = self.server.public(&endpoint, terms.lan_only);
        let own_endpoint = terms.endpoint.as_ref().map(|_| &*endpoint);
        let entry = Entry {
            serial: issued.serial,
            common_name,
            name: name.to_owned(),
            file: Some(Record::new(&public, own_endpoint).to_string()),
            ..Entry::default()
        };
        let name = name.to_owned();
        Ok((Issued { name, text }, entry))
    }
}
