//! A real Chromium, driven by `chromedriver` through the WebDriver protocol (W3C, with Chromium's extensions).
//!
//! The browser runs in a host of the lab, as root, without a screen. It reaches only that host's loopback addresses
//! and resolves no names. The server of a page must listen in the same host.
//!
//! ```no_run
//! use lab::acceptance::browser::{self, Browser, DESKTOP, PHONE};
//! # let address = "127.0.0.1:1";
//! if !browser::ready() {
//!     return; // noted as missing; a failure with MILLRACE_TEST_REQUIRE=all
//! }
//! let host = lab::Host::private("page").unwrap();
//! // ... start a server in `host` ...
//! let browser = Browser::start(&host);
//! browser.size(PHONE);
//! browser.dark(true);
//! browser.open(&format!("http://{address}/"));
//! browser.fill("input[name=password]", "secret");
//! browser.click("button[type=submit]");
//! browser.wait_for("main h1");
//! assert_eq!(browser.text("main h1"), "Tunnels");
//! let rows = browser.script("return document.querySelectorAll('tr').length");
//! assert_eq!(rows, 3);
//! assert_eq!(browser.errors(), Vec::<String>::new());
//! browser.screenshot("page.png");
//! ```
//!
//! Every method panics with the browser's message, as assertions do. Dropping the value ends the browser.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::time::Duration;

use crate::{Host, Process, tools};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{Directory, until};

/// How long the browser may take to start, and to answer a command.
const PATIENCE: Duration = Duration::from_secs(90);

/// The JSON key of an element reference (W3C WebDriver, section 12.1).
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// Width and height of the viewport, in CSS pixels.
pub type Size = (u32, u32);

/// The viewport of a phone held upright.
pub const PHONE: Size = (390, 844);

/// The viewport of a desktop screen.
pub const DESKTOP: Size = (1280, 800);

/// Whether Chromium, its driver and hosts are available; if not, notes what is missing.
#[track_caller]
pub fn ready() -> bool {
    let programs = ["chromium", "chromedriver"];
    let found = programs.iter().try_for_each(|it| tools::find(it).map(drop));
    crate::may_enter() && crate::require(found).is_some()
}

/// A browser with one window.
pub struct Browser<'h> {
    host: &'h Host,
    port: u16,
    session: String,
    _driver: Process,
    /// The browser's files. Declared after the process, which still writes there, so that it is dropped later.
    directory: Directory,
}

impl<'h> Browser<'h> {
    /// Starts a browser in a host, with an empty page of the size [`DESKTOP`] and light colours.
    pub fn start(host: &'h Host) -> Self {
        let directory = Directory::new();
        let home = directory.path();
        let mut driver = host
            .command("chromedriver")
            .arg("--port=0")
            .env("HOME", home)
            .env("TMPDIR", home)
            .env("XDG_CONFIG_HOME", home)
            .env("XDG_CACHE_HOME", home)
            .spawn()
            .unwrap();
        let line = driver
            .wait_for_line("its port", PATIENCE, |line| {
                line.contains("started successfully on port")
            })
            .unwrap();
        let port = line.rsplit(' ').next().unwrap().trim_end_matches('.');
        let mut browser = Self {
            host,
            port: port.parse().unwrap(),
            session: String::new(),
            _driver: driver,
            directory,
        };
        let wanted = browser.capabilities();
        let made = browser.call("POST", "/session", &wanted).unwrap();
        let id = made["sessionId"].as_str();
        browser.session = id.unwrap_or_else(|| panic!("{made}")).to_owned();
        browser.size(DESKTOP);
        browser
    }

    fn capabilities(&self) -> Value {
        let program = tools::find("chromium").unwrap();
        let data = self.directory.path().join("profile");
        json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:loggingPrefs": {"browser": "ALL"},
            "goog:chromeOptions": {"binary": program, "args": [
                "--headless=new",
                // Tests run as root, some of them in a chroot with little shared memory.
                "--no-sandbox",
                "--disable-dev-shm-usage",
                "--disable-gpu",
                "--hide-scrollbars",
                "--force-device-scale-factor=1",
                "--lang=en",
                // The page and nothing else: no first-run dialogs, no traffic beyond the loopback.
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-default-apps",
                "--disable-extensions",
                "--disable-sync",
                "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1, EXCLUDE 127.0.0.2",
                format!("--user-data-dir={}", data.display()),
            ]},
        }}})
    }

    /// Sends one command and returns its value, or the driver's error message.
    fn call(&self, method: &str, path: &str, body: &Value) -> Result<Value, String> {
        let body = match method {
            "POST" => body.to_string(),
            _ => String::new(),
        };
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            self.port,
            body.len()
        );
        let answer = self.host.run(|| exchange(self.port, &request)).unwrap();
        let answer = answer.map_err(|error| format!("{method} {path}: {error}"))?;
        let value = serde_json::from_str::<Value>(&answer).map_err(|error| error.to_string())?;
        let value = value["value"].clone();
        match value["error"].as_str() {
            Some(error) => Err(format!("{method} {path}: {error}: {}", value["message"])),
            None => Ok(value),
        }
    }

    fn command(&self, method: &str, path: &str, body: &Value) -> Result<Value, String> {
        let path = format!("/session/{}{path}", self.session);
        self.call(method, &path, body)
    }

    /// Sends a command of the DevTools protocol, for functions that WebDriver lacks.
    pub fn devtools(&self, command: &str, parameters: &Value) -> Value {
        let body = json!({"cmd": command, "params": parameters});
        self.command("POST", "/goog/cdp/execute", &body).unwrap()
    }

    /// Sets the size of the viewport.
    pub fn size(&self, (width, height): Size) {
        let is_phone = width < 600;
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_phone});
        self.devtools("Emulation.setDeviceMetricsOverride", &size);
    }

    /// Tells pages that the user prefers dark colours, or light ones (`prefers-color-scheme`).
    pub fn dark(&self, dark: bool) {
        let value = if dark { "dark" } else { "light" };
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": value}]});
        self.devtools("Emulation.setEmulatedMedia", &media);
    }

    /// Opens an address and waits until the page is loaded.
    pub fn open(&self, url: &str) {
        let body = json!({"url": url});
        self.command("POST", "/url", &body).unwrap();
    }

    /// The address of the current page.
    pub fn url(&self) -> String {
        let url = self.command("GET", "/url", &Value::Null).unwrap();
        url.as_str().unwrap().to_owned()
    }

    /// Runs the body of a function in the page and returns the function's result.
    pub fn script(&self, body: &str) -> Value {
        self.script_with(body, &[])
    }

    /// Runs a script with `arguments`.
    pub fn script_with(&self, body: &str, arguments: &[Value]) -> Value {
        let body = json!({"script": body, "args": arguments});
        self.command("POST", "/execute/sync", &body).unwrap()
    }

    /// Runs the body of an asynchronous function, which may use `await`, and returns its result.
    pub fn script_async(&self, body: &str) -> Value {
        let script = format!(
            "const done = arguments[arguments.length - 1]; \
             (async () => {{ {body} }})().then(done, (error) => done('failed: ' + error));"
        );
        let body = json!({"script": script, "args": []});
        self.command("POST", "/execute/async", &body).unwrap()
    }

    /// The path of the first element that a CSS selector finds.
    fn element(&self, selector: &str) -> Result<String, String> {
        let body = json!({"using": "css selector", "value": selector});
        let found = self.command("POST", "/element", &body)?;
        let id = found[ELEMENT].as_str();
        Ok(format!("/element/{}", id.unwrap_or_default()))
    }

    /// Whether a CSS selector finds an element, and the first one is visible.
    pub fn shows(&self, selector: &str) -> bool {
        let script = "const it = document.querySelector(arguments[0]); \
                      return !!it && it.checkVisibility()";
        self.script_with(script, &[selector.into()]) == true
    }

    /// Waits until an element exists and is visible.
    pub fn wait_for(&self, selector: &str) {
        until(selector, || self.shows(selector));
    }

    /// Waits until the text of an element contains `wanted`.
    pub fn wait_for_text(&self, selector: &str, wanted: &str) {
        let script =
            "const it = document.querySelector(arguments[0]); return it ? it.innerText : null";
        let mut last = Value::Null;
        let end = std::time::Instant::now() + super::PATIENCE;
        while std::time::Instant::now() < end {
            last = self.script_with(script, &[selector.into()]);
            if last.as_str().is_some_and(|text| text.contains(wanted)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("{selector}: {wanted:?} never came; it is {last}");
    }

    /// The visible text of the first element that a CSS selector finds.
    pub fn text(&self, selector: &str) -> String {
        let path = self.element(selector).unwrap() + "/text";
        let text = self.command("GET", &path, &Value::Null).unwrap();
        text.as_str().unwrap().to_owned()
    }

    /// Clicks the first element that a CSS selector finds, which must be visible.
    pub fn click(&self, selector: &str) {
        let path = self.element(selector).unwrap() + "/click";
        self.command("POST", &path, &json!({})).unwrap();
    }

    /// Replaces the content of the first element that a CSS selector finds. For `input[type=file]` the text is a
    /// path.
    pub fn fill(&self, selector: &str, text: &str) {
        let path = self.element(selector).unwrap();
        // A file chooser cannot be cleared.
        let _ = self.command("POST", &format!("{path}/clear"), &json!({}));
        let body = json!({"text": text});
        self.command("POST", &format!("{path}/value"), &body)
            .unwrap();
    }

    /// The page's errors since the last call: script errors, violations of its content security policy, and resources
    /// that failed to load.
    pub fn errors(&self) -> Vec<String> {
        let log = self.command("POST", "/se/log", &json!({"type": "browser"}));
        let log = log.unwrap();
        let severe = |entry: &&Value| entry["level"] == "SEVERE";
        let entries = log.as_array().into_iter().flatten().filter(severe);
        entries
            .map(|entry| entry["message"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    /// Bytes on the wire for the page and all that it has loaded so far, headers included.
    pub fn transferred(&self) -> u64 {
        let script = "return performance.getEntriesByType('navigation') \
                      .concat(performance.getEntriesByType('resource')) \
                      .reduce((sum, it) => sum + it.transferSize, 0)";
        self.script(script).as_u64().unwrap()
    }

    /// Writes a picture of the viewport as PNG or, if the path ends in `.webp`, as WebP, which is smaller.
    pub fn screenshot(&self, path: impl AsRef<Path>) {
        let is_webp = path.as_ref().extension().is_some_and(|it| it == "webp");
        let picture = match is_webp {
            true => {
                let wanted = json!({"format": "webp", "quality": 85});
                self.devtools("Page.captureScreenshot", &wanted)["data"].clone()
            }
            false => self.command("GET", "/screenshot", &Value::Null).unwrap(),
        };
        let picture = STANDARD.decode(picture.as_str().unwrap()).unwrap();
        fs::write(path, picture).unwrap();
    }
}

impl Drop for Browser<'_> {
    fn drop(&mut self) {
        // If this fails, the driver is killed anyway. The browser has a process group of its own.
        let _ = self.command("DELETE", "", &Value::Null);
    }
}

/// Sends one request and returns the body of the answer.
fn exchange(port: u16, request: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(request.as_bytes())?;
    let mut reader = BufReader::new(stream);
    let mut length = None;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse::<u64>().ok();
        }
    }
    let length = length.ok_or_else(|| io::Error::other("an answer without a length"))?;
    let mut body = String::new();
    reader.take(length).read_to_string(&mut body)?;
    Ok(body)
}
