//! Refusals that several steps of the verification share.

use crate::der::oid::{CLIENT_AUTH, SERVER_AUTH};
use crate::verify::certificate::Certificate;
use crate::verify::time::Time;
use crate::verify::{Usage, VerifyError, VerifyFault};

/// Formats the refusal of a certificate for this reason.
pub(super) fn refusal(
    certificate: &Certificate<'_>,
    fault: VerifyFault,
    reason: String,
) -> VerifyError {
    VerifyError {
        subject: certificate.describe(),
        fault,
        reason,
    }
}

pub(super) fn unreadable(certificate: &Certificate<'_>) -> VerifyError {
    let reason = "a certificate above it cannot be read".to_owned();
    refusal(certificate, VerifyFault::Unreadable, reason)
}

pub(super) fn wrong_purpose(certificate: &Certificate<'_>) -> VerifyError {
    let reason = "it was made for another purpose than this end of TLS (a client's certificate on a \
                  server, or the reverse); have it made for the right one";
    refusal(certificate, VerifyFault::Purpose, reason.to_owned())
}

/// Checks that a certificate which states its purpose is for this end of TLS.
pub(super) fn check_purpose(own: &Certificate<'_>, usage: Usage) -> Result<(), VerifyError> {
    let (bit, purpose) = match usage {
        Usage::Client => (0x80, CLIENT_AUTH),
        Usage::Server => (0x40, SERVER_AUTH),
    };
    let netscape = own
        .netscape_type()
        .map(|kinds| kinds.is_none_or(|kinds| kinds & bit != 0));
    let extended = own
        .extended_key_usage()
        .map(|uses| uses.is_none_or(|uses| uses.contains(&purpose)));
    if netscape == Ok(true) && extended == Ok(true) {
        Ok(())
    } else {
        Err(wrong_purpose(own))
    }
}

pub(super) fn no_issuer(certificate: &Certificate<'_>) -> String {
    let issuer = crate::name::Name::parse(certificate.issuer).map(|name| name.to_string());
    format!(
        "its authority '{}' is not among those of ca; check that ca is the right one, or have the \
         peer send the certificates between (extra-certs)",
        issuer.unwrap_or_default()
    )
}

pub(super) fn check_dates(certificate: &Certificate<'_>, now: Time) -> Result<(), VerifyError> {
    let (fault, reason) = if now < certificate.not_before {
        let reason = format!(
            "it is valid from {} on, and the clock says {now}; set the clock",
            certificate.not_before
        );
        (VerifyFault::Early, reason)
    } else if now > certificate.not_after {
        let reason = format!(
            "it expired on {}, and the clock says {now}; have it renewed",
            certificate.not_after
        );
        (VerifyFault::Time, reason)
    } else {
        return Ok(());
    };
    Err(refusal(certificate, fault, reason))
}
