//! Result, error and reason codes of the control connection (RFC 2637, section 2), with texts for people.

use core::fmt;

/// Defines an enum of the codes that the RFC defines, with `Other` for the rest.
macro_rules! codes {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $value:literal, $text:literal;)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)+
            /// A code that the RFC does not define.
            Other(u8),
        }

        impl From<u8> for $name {
            fn from(code: u8) -> Self {
                match code {
                    $($value => Self::$variant,)+
                    other => Self::Other(other),
                }
            }
        }

        impl $name {
            /// The code on the wire.
            #[must_use]
            pub const fn code(self) -> u8 {
                match self {
                    $(Self::$variant => $value,)+
                    Self::Other(code) => code,
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$variant => f.write_str($text),)+
                    Self::Other(code) => write!(f, "unknown code {code}"),
                }
            }
        }
    };
}

codes! {
    /// A general error (RFC 2637, section 2.16); explains a result code of "general error".
    ErrorCode {
        /// Code 0.
        None = 0, "no general error";
        /// Code 1.
        NotConnected = 1, "there is no control connection yet";
        /// Code 2.
        BadFormat = 2, "a length or the magic cookie is wrong";
        /// Code 3.
        BadValue = 3, "a field is out of range or a reserved field is not zero";
        /// Code 4.
        NoResource = 4, "not enough resources now";
        /// Code 5.
        BadCallId = 5, "the call ID is invalid here";
        /// Code 6.
        PacError = 6, "an error specific to the access concentrator";
    }
}

codes! {
    /// The result of Start-Control-Connection-Request (RFC 2637, section 2.2).
    StartResult {
        /// Code 1.
        Established = 1, "established";
        /// Code 2.
        GeneralError = 2, "general error";
        /// Code 3.
        AlreadyExists = 3, "a control connection exists already";
        /// Code 4.
        NotAuthorized = 4, "not authorized to open a control connection";
        /// Code 5.
        VersionNotSupported = 5, "protocol version not supported";
    }
}

codes! {
    /// Why a control connection is to be closed (RFC 2637, section 2.3).
    StopReason {
        /// Code 1.
        None = 1, "general request";
        /// Code 2.
        Protocol = 2, "cannot support the peer's version of the protocol";
        /// Code 3.
        LocalShutdown = 3, "the peer is being shut down";
    }
}

codes! {
    /// The result of Stop-Control-Connection-Request and of Echo-Request (RFC 2637, sections 2.4 and 2.6).
    PlainResult {
        /// Code 1.
        Ok = 1, "done";
        /// Code 2.
        GeneralError = 2, "general error";
    }
}

codes! {
    /// The result of Outgoing-Call-Request (RFC 2637, section 2.8).
    OutgoingResult {
        /// Code 1.
        Connected = 1, "connected";
        /// Code 2.
        GeneralError = 2, "general error";
        /// Code 3.
        NoCarrier = 3, "no carrier";
        /// Code 4.
        Busy = 4, "busy";
        /// Code 5.
        NoDialTone = 5, "no dial tone";
        /// Code 6.
        TimeOut = 6, "the call was not established in time";
        /// Code 7.
        DoNotAccept = 7, "calls are administratively prohibited";
    }
}

codes! {
    /// Why a call has ended (RFC 2637, section 2.13).
    DisconnectResult {
        /// Code 1.
        LostCarrier = 1, "lost carrier";
        /// Code 2.
        GeneralError = 2, "general error";
        /// Code 3.
        AdminShutdown = 3, "shut down by the administrator";
        /// Code 4.
        Request = 4, "ended at our request";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_comes_back_as_it_was() {
        for code in 0..=u8::MAX {
            assert_eq!(ErrorCode::from(code).code(), code);
            assert_eq!(StartResult::from(code).code(), code);
            assert_eq!(StopReason::from(code).code(), code);
            assert_eq!(PlainResult::from(code).code(), code);
            assert_eq!(OutgoingResult::from(code).code(), code);
            assert_eq!(DisconnectResult::from(code).code(), code);
        }
    }

    #[test]
    fn an_unknown_code_is_named_by_its_number() {
        assert_eq!(OutgoingResult::from(9).to_string(), "unknown code 9");
        assert_eq!(
            OutgoingResult::from(7).to_string(),
            "calls are administratively prohibited"
        );
    }
}
