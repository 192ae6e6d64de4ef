//! Directives about proxies.

use super::value::{OK, Outcome, at, credentials, host, one_of, port};
use crate::openvpn::directive::Directive;
use crate::openvpn::{HttpAuth, HttpProxy, Prompted, Proxy};

/// `http-proxy-option` lines, which may stand before `http-proxy`.
#[derive(Clone, Default)]
pub(crate) struct HttpOptions {
    pub version: Option<String>,
    pub user_agent: Option<String>,
    pub headers: Vec<(String, Option<String>)>,
}

impl HttpOptions {
    pub(crate) const fn is_some(&self) -> bool {
        self.version.is_some() || self.user_agent.is_some() || !self.headers.is_empty()
    }

    pub(crate) const fn is_none(&self) -> bool {
        !self.is_some()
    }
}

/// Most `http-proxy-option CUSTOM-HEADER`, as in stock.
const HEADERS_MAX: usize = 10;

/// `http-proxy`.
pub(super) fn http_proxy(directive: &Directive) -> Result<HttpProxy, String> {
    let mut proxy = HttpProxy {
        host: host(at(directive, 0))?,
        port: port(at(directive, 1))?,
        auth: HttpAuth::None,
        credentials: None,
        version: "1.0".to_owned(),
        user_agent: None,
        headers: Vec::new(),
    };
    match directive.get(2) {
        None => return Ok(proxy),
        Some("auto") => {
            (proxy.auth, proxy.credentials) = (HttpAuth::Auto, Some(Prompted::Ask));
        }
        Some("auto-nct") => {
            (proxy.auth, proxy.credentials) = (HttpAuth::AutoNoClearText, Some(Prompted::Ask));
        }
        Some(file) => {
            (proxy.auth, proxy.credentials) = (HttpAuth::Basic, Some(credentials(file)));
        }
    }
    match directive.get(3) {
        None | Some("basic") => {}
        Some("none") => (proxy.auth, proxy.credentials) = (HttpAuth::None, None),
        Some("digest") => proxy.auth = HttpAuth::Auto,
        Some("ntlm" | "ntlm2") => {
            return Err(
                "NTLM rests on broken ciphers; use `basic` or `auto`, or another proxy".to_owned(),
            );
        }
        Some(other) => return Err(one_of(other, &["none", "basic", "digest"])),
    }
    Ok(proxy)
}

/// `http-proxy-override`.
pub(super) fn http_override(directive: &Directive) -> Result<HttpProxy, String> {
    Ok(HttpProxy {
        host: host(at(directive, 0))?,
        port: port(at(directive, 1))?,
        auth: match directive.get(2) {
            Some("nct") => HttpAuth::AutoNoClearText,
            _ => HttpAuth::Auto,
        },
        credentials: Some(Prompted::Ask),
        version: "1.0".to_owned(),
        user_agent: None,
        headers: Vec::new(),
    })
}

/// `http-proxy-option`.
pub(super) fn http_option(options: &mut HttpOptions, directive: &Directive) -> Outcome {
    let value = |text: &str| -> Result<String, String> {
        if text.is_empty() || text.bytes().any(|byte| byte.is_ascii_control()) {
            return Err("has an empty value or control characters".to_owned());
        }
        Ok(text.to_owned())
    };
    match (at(directive, 0), directive.values.len()) {
        ("VERSION", 2) => match at(directive, 1) {
            version @ ("1.0" | "1.1") => options.version = Some(version.to_owned()),
            other => return Err(one_of(other, &["1.0", "1.1"])),
        },
        ("AGENT", 2) => options.user_agent = Some(value(at(directive, 1))?),
        ("CUSTOM-HEADER" | "EXT1" | "EXT2", 2 | 3) => {
            if options.headers.len() == HEADERS_MAX {
                return Err(format!("more than {HEADERS_MAX} headers"));
            }
            let content = directive.get(2).map(value).transpose()?;
            options.headers.push((value(at(directive, 1))?, content));
        }
        (other, _) => {
            return Err(one_of(
                other,
                &["VERSION v", "AGENT name", "CUSTOM-HEADER name value"],
            ));
        }
    }
    OK
}

/// `socks-proxy`.
pub(super) fn socks_proxy(directive: &Directive) -> Result<Proxy, String> {
    Ok(Proxy::Socks {
        host: host(at(directive, 0))?,
        port: directive.get(1).map_or(Ok(1080), port)?,
        credentials: directive.get(2).map(credentials),
    })
}
