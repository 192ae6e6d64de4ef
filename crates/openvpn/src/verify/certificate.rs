//! The parts of an X.509 certificate that OpenVPN's rules look at (RFC 5280 §4).
//!
//! Chains are verified by webpki; this is the view for names, usages, dates and for saying what is
//! wrong with a certificate that webpki refuses.

use crate::der::oid::{BASIC_CONSTRAINTS, EXTENDED_KEY_USAGE, KEY_USAGE};
use crate::der::{self, BadDer, Reader};
use crate::name::Name;
use crate::verify::time::Time;

const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];
const NAME_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x1e];
const NETSCAPE_CERT_TYPE: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x86, 0xf8, 0x42, 0x01, 0x01];

/// keyCertSign, as [`Certificate::key_usage`] counts.
const KEY_CERT_SIGN: u16 = 0x04;

/// Any of the authorities, as [`Certificate::netscape_type`] counts.
const NETSCAPE_AUTHORITY: u16 = 0x07;

/// The basic constraints (RFC 5280 §4.2.1.9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BasicConstraints {
    authority: bool,
    path_length: Option<u32>,
}

/// A parsed certificate.
#[derive(Debug, Clone)]
pub(crate) struct Certificate<'a> {
    /// The whole certificate, as it is on the wire.
    pub(crate) der: &'a [u8],
    /// 1, 2 or 3.
    pub(crate) version: u32,
    /// The serial number's bytes, most significant first, zeros in front removed.
    pub(crate) serial: &'a [u8],
    /// The serial number as it is encoded, which may be negative where an authority was careless.
    pub(crate) serial_integer: &'a [u8],
    /// The content of the issuer's name.
    pub(crate) issuer: &'a [u8],
    /// The content of the subject's name.
    pub(crate) subject: &'a [u8],
    pub(crate) not_before: Time,
    pub(crate) not_after: Time,
    /// The content of SubjectPublicKeyInfo.
    pub(crate) public_key: &'a [u8],
    /// The content of the AlgorithmIdentifier of the signature.
    pub(crate) signature_algorithm: &'a [u8],
    extensions: &'a [u8],
}

impl<'a> Certificate<'a> {
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, BadDer> {
        let mut certificate = der::only(bytes, der::SEQUENCE)?;
        let mut body = certificate.inside(der::SEQUENCE)?;
        let signature_algorithm = certificate.content(der::SEQUENCE)?;
        certificate.bit_string()?;
        certificate.end()?;

        let version = match body.optional(der::context(0))? {
            Some(version) => Reader::new(version.content).number()?.saturating_add(1),
            None => 1,
        };
        let serial_integer = body.content(der::INTEGER)?;
        let serial = der::unsigned(serial_integer);
        body.content(der::SEQUENCE)?;
        let issuer = body.content(der::SEQUENCE)?;
        let mut validity = body.inside(der::SEQUENCE)?;
        let not_before = Time::read(&mut validity)?;
        let not_after = Time::read(&mut validity)?;
        let subject = body.content(der::SEQUENCE)?;
        let public_key = body.content(der::SEQUENCE)?;
        // Unique identifiers, which are not in use, come before the extensions.
        let mut extensions = &[][..];
        while !body.is_empty() {
            let element = body.any()?;
            if element.tag == der::context(3) {
                let mut outer = Reader::new(element.content);
                extensions = outer.content(der::SEQUENCE)?;
                outer.end()?;
            }
        }
        Ok(Self {
            der: bytes,
            version,
            serial,
            serial_integer,
            issuer,
            subject,
            not_before,
            not_after,
            public_key,
            signature_algorithm,
            extensions,
        })
    }

    /// The subject; `None` if its encoding is broken.
    pub(crate) fn subject_name(&self) -> Option<Name> {
        Name::parse(self.subject).ok()
    }

    /// The subject for a message: as OpenVPN prints it, or the serial number if it is empty.
    pub(crate) fn describe(&self) -> String {
        match self.subject_name().map(|name| name.to_string()) {
            Some(name) if !name.is_empty() => name,
            _ => format!("serial {}", der::hex(self.serial)),
        }
    }

    /// The bytes that are signed, the algorithm, and the signature.
    pub(crate) fn signed(&self) -> Result<[&'a [u8]; 3], BadDer> {
        let mut certificate = der::only(self.der, der::SEQUENCE)?;
        let body = certificate.element(der::SEQUENCE)?;
        let algorithm = certificate.content(der::SEQUENCE)?;
        Ok([body.whole, algorithm, certificate.bit_string()?])
    }

    /// Whether it is an authority's by its basic constraints (CA:TRUE).
    pub(crate) fn is_authority(&self) -> bool {
        matches!(self.basic_constraints(), Ok(Some(it)) if it.authority)
    }

    /// Whether it restricts the names that it signs for, or its extensions cannot be read.
    pub(crate) fn has_name_constraints(&self) -> bool {
        !matches!(self.extension(NAME_CONSTRAINTS), Ok(None))
    }

    /// Whether the certificate names its own subject as issuer.
    pub(crate) fn is_self_issued(&self) -> bool {
        self.issuer == self.subject
    }

    /// The value of an extension.
    fn extension(&self, wanted: &[u8]) -> Result<Option<&'a [u8]>, BadDer> {
        let mut extensions = Reader::new(self.extensions);
        while !extensions.is_empty() {
            let mut extension = extensions.inside(der::SEQUENCE)?;
            let oid = extension.content(der::OID)?;
            extension.optional(der::BOOLEAN)?;
            let value = extension.content(der::OCTET_STRING)?;
            if oid == wanted {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }

    /// The bits of a BIT STRING extension: the first is 0x80, the ninth 0x8000.
    fn bits(&self, oid: &[u8]) -> Result<Option<u16>, BadDer> {
        let Some(value) = self.extension(oid)? else {
            return Ok(None);
        };
        // The octet in front counts the unused bits of the last one, which are zero.
        let bits = Reader::new(value).content(der::BIT_STRING)?;
        let byte = |at: usize| bits.get(at).copied().map_or(0, u16::from);
        Ok(Some(byte(2) << 8 | byte(1)))
    }

    /// The key usage, if the extension is there.
    pub(crate) fn key_usage(&self) -> Result<Option<u16>, BadDer> {
        self.bits(KEY_USAGE)
    }

    /// The Netscape certificate type, if the extension is there: 0x80 client, 0x40 server.
    pub(crate) fn netscape_type(&self) -> Result<Option<u16>, BadDer> {
        self.bits(NETSCAPE_CERT_TYPE)
    }

    /// The basic constraints, if the extension is there.
    fn basic_constraints(&self) -> Result<Option<BasicConstraints>, BadDer> {
        let Some(value) = self.extension(BASIC_CONSTRAINTS)? else {
            return Ok(None);
        };
        let mut constraints = der::only(value, der::SEQUENCE)?;
        let authority = constraints.optional(der::BOOLEAN)?;
        let path_length = if constraints.is_empty() {
            None
        } else {
            Some(constraints.number()?)
        };
        Ok(Some(BasicConstraints {
            authority: authority.is_some_and(|authority| authority.content != [0]),
            path_length,
        }))
    }

    /// Whether it may sign certificates. Without basic constraints, OpenSSL's rules decide: a key usage or a Netscape
    /// type of an authority will do, and so will a self-issued certificate of version 1, which can have no extensions.
    pub(crate) fn may_sign(&self) -> bool {
        let (Ok(usage), Ok(constraints), Ok(netscape)) = (
            self.key_usage(),
            self.basic_constraints(),
            self.netscape_type(),
        ) else {
            return false;
        };
        if usage.is_some_and(|usage| usage & KEY_CERT_SIGN == 0) {
            return false;
        }
        constraints.map_or_else(
            || {
                usage.is_some()
                    || netscape.is_some_and(|kinds| kinds & NETSCAPE_AUTHORITY != 0)
                    || (self.version == 1 && self.is_self_issued())
            },
            |constraints| constraints.authority,
        )
    }

    /// How many authorities there may be between it and a peer's certificate, if that is limited.
    pub(crate) fn path_length(&self) -> Option<u32> {
        self.basic_constraints().ok()??.path_length
    }

    /// The identifiers of the extended key usage, if the extension is there.
    pub(crate) fn extended_key_usage(&self) -> Result<Option<Vec<&'a [u8]>>, BadDer> {
        let Some(value) = self.extension(EXTENDED_KEY_USAGE)? else {
            return Ok(None);
        };
        let mut usages = der::only(value, der::SEQUENCE)?;
        let mut found = Vec::new();
        while !usages.is_empty() {
            found.push(usages.content(der::OID)?);
        }
        Ok(Some(found))
    }

    /// The first mail address among the subject's alternative names.
    pub(crate) fn mail_address(&self) -> Result<Option<String>, BadDer> {
        /// rfc822Name, `[1]` of GeneralName.
        const MAIL: u8 = 0x81;
        let Some(value) = self.extension(SUBJECT_ALT_NAME)? else {
            return Ok(None);
        };
        let mut names = der::only(value, der::SEQUENCE)?;
        while !names.is_empty() {
            let name = names.any()?;
            if name.tag == MAIL {
                return Ok(Some(String::from_utf8_lossy(name.content).into_owned()));
            }
        }
        Ok(None)
    }
}
