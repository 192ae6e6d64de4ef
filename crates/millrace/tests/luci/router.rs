//! A router's web server, and a browser for it.

use lab::Host;
use lab::acceptance::browser::Browser;
use lab::acceptance::netifd::{Bus, States};
use lab::acceptance::{Directory, PATIENCE, PROGRAM, until};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

pub(crate) fn packaged(path: &str) -> PathBuf {
    let package = "../../packaging/openwrt/luci-proto-millrace";
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(package)
        .join(path)
}

pub(crate) fn public(key: &str) -> String {
    let mut child = Command::new(PROGRAM)
        .arg("pubkey")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(key.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A router with a web server, and the program's directories on it.
pub(crate) struct Router<'h> {
    host: &'h Host,
    pub(crate) directory: Directory,
    listener: TcpListener,
    end: AtomicBool,
    /// Answers of netifd about its interfaces.
    pub(crate) states: States,
    _bus: Bus,
    /// The rights that the package gives to a user with write access.
    pub(crate) rights: Vec<String>,
}

impl<'h> Router<'h> {
    pub(crate) fn new(host: &'h Host) -> Self {
        let directory = Directory::new();
        for name in ["config", "millrace"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        let rights = packaged("usr/share/rpcd/acl.d/luci-proto-millrace.json");
        let rights: Value = serde_json::from_slice(&fs::read(rights).unwrap()).unwrap();
        let rights = ["read", "write"].map(|it| rights["luci-proto-millrace"][it]["ubus"].clone());
        let rights = rights
            .iter()
            .flat_map(|it| it["luci.millrace"].as_array().unwrap().clone());
        let states = States::default();
        Self {
            host,
            _bus: Bus::with_states(&directory.path().join("ubus.sock"), States::clone(&states)),
            states,
            directory,
            listener: host
                .run(|| TcpListener::bind("127.0.0.1:0").unwrap())
                .unwrap(),
            end: AtomicBool::new(false),
            rights: rights.map(|it| it.as_str().unwrap().to_owned()).collect(),
        }
    }

    fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    fn page(&self, query: &str) -> String {
        format!("http://{}/?{query}", self.address())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Sets `/etc/config/network` for the program, and its sections for the stand-in of uci.
    pub(crate) fn network(&self, text: &str, sections: &Value) {
        fs::write(self.path("config/network"), text).unwrap();
        let state = json!({"network": sections}).to_string();
        fs::write(self.path("uci.json"), state).unwrap();
    }

    pub(crate) fn rpcd(&self, words: &[&str], input: &str) -> String {
        let (config, keep) = (self.path("config"), self.path("millrace"));
        let ubus = self.path("ubus.sock");
        let command = self.host.command(PROGRAM).arg("rpcd").args(words);
        let command = command.arg("--uci").arg(config).arg("--keep").arg(keep);
        let command = command.arg("--ubus").arg(ubus);
        command.output_with_input(input).unwrap()
    }

    fn serve(&self) {
        for stream in self.listener.incoming() {
            if self.end.load(Ordering::Relaxed) {
                return;
            }
            // A browser may leave at any time.
            let _ = self.answer(stream.unwrap());
        }
    }

    fn answer(&self, mut stream: TcpStream) -> std::io::Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut head = String::new();
        let mut length = 0;
        while reader.read_line(&mut head)? > 2 {
            let line = head.lines().last().unwrap_or_default().to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let target = head.split(' ').nth(1).unwrap_or_default();
        let path = target.split('?').next().unwrap_or_default();
        let stub = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/luci");
        let content = match path {
            "/ubus" => Ok(self.ubus(&body).into_bytes()),
            "/uci" => fs::read(self.path("uci.json")),
            "/" => fs::read(stub.join("index.html")),
            "/stub.js" | "/form.js" => fs::read(stub.join(&path[1..])),
            _ if path.starts_with("/po/") => {
                fs::read(packaged("../luci-proto-millrace.po").join(&path[4..]))
            }
            _ => fs::read(packaged("www").join(&path[1..])),
        };
        let kind = match path {
            "/" => "text/html",
            "/ubus" | "/uci" => "application/json",
            _ => "text/javascript",
        };
        let status = if content.is_ok() {
            "200 OK"
        } else {
            "404 Not Found"
        };
        let content = content.unwrap_or_default();
        write!(
            stream,
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            content.len()
        )?;
        stream.write_all(&content)
    }

    /// Answers a request as uhttpd does: JSON-RPC 2.0, one call or several.
    fn ubus(&self, body: &[u8]) -> String {
        assert!(body.len() <= 65536, "uhttpd takes no more");
        let asked: Value = serde_json::from_slice(body).unwrap();
        match &asked {
            Value::Array(all) => {
                let all: Vec<Value> = all.iter().map(|it| self.call(it)).collect();
                json!(all).to_string()
            }
            one => self.call(one).to_string(),
        }
    }

    fn call(&self, asked: &Value) -> Value {
        let words = |at: usize| asked["params"][at].as_str().unwrap_or_default();
        if words(1) == "network.interface" {
            // LuCI's own page may read this.
            let states = self.states.lock().unwrap().clone();
            let named = states.into_iter().map(|(name, mut it)| {
                it["interface"] = name.into();
                it
            });
            let all: Vec<Value> = named.collect();
            return json!({"jsonrpc": "2.0", "id": asked["id"], "result": [0, {"interface": all}]});
        }
        let allowed = words(1) == "luci.millrace" && self.rights.iter().any(|it| it == words(2));
        // 6: permission denied.
        let result = match allowed {
            true => {
                let answer = self.rpcd(&["call", words(2)], &asked["params"][3].to_string());
                json!([0, serde_json::from_str::<Value>(&answer).unwrap()])
            }
            false => json!([6]),
        };
        json!({"jsonrpc": "2.0", "id": asked["id"], "result": result})
    }
}

/// Runs `work` with a browser and the router's web server.
pub(crate) fn with_browser(router: &Router<'_>, work: impl FnOnce(&Browser<'_>)) {
    struct End<'r>(&'r Router<'r>);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.end.store(true, Ordering::Relaxed);
            let address = self.0.address();
            let _ = self.0.host.run(|| TcpStream::connect(address).map(drop));
        }
    }
    thread::scope(|scope| {
        scope.spawn(|| router.serve());
        let _end = End(router);
        let browser = Browser::start(router.host);
        work(&browser);
        assert_eq!(browser.script("return window.stubErrors"), json!([]));
        assert_eq!(browser.errors(), Vec::<String>::new());
    });
}

pub(crate) fn open(browser: &Browser<'_>, router: &Router<'_>, query: &str) {
    browser.open(&router.page(query));
    until("the page", || {
        let faults = browser.script("return window.stubErrors");
        assert_eq!(faults, json!([]));
        browser.script("return window.stubReady === true") == true
    });
}

/// The element's visible text at this moment, because polling pages replace their elements.
pub(crate) fn words(browser: &Browser<'_>, selector: &str) -> String {
    let script = "const it = document.querySelector(arguments[0]); return it ? it.innerText : ''";
    let text = browser.script_with(script, &[selector.into()]);
    text.as_str().unwrap().to_owned()
}

/// Takes a screenshot for `docs/luci` if one is requested.
pub(crate) fn picture(browser: &Browser<'_>, name: &str) {
    if let Some(directory) = std::env::var_os("MILLRACE_PICTURES") {
        browser.screenshot(Path::new(&directory).join(name));
    }
}

/// Drops a file onto the import area.
pub(crate) fn drop_file(browser: &Browser<'_>, name: &str, bytes: &[u8]) {
    let script = "const data = new DataTransfer(); \
        data.items.add(new File([new Uint8Array(arguments[1])], arguments[0])); \
        const panel = document.querySelector('.millrace-import'); \
        panel.style.display = ''; \
        panel.querySelector('.millrace-found').replaceChildren(); \
        panel.dispatchEvent(new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true}))";
    browser.script_with(script, &[name.into(), json!(bytes)]);
}
