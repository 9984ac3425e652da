//! A real browser without a window, driven by its own protocol: opens a file, runs scripts in the page, takes pictures.

use crate::eventually;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// A page of a browser, until this is dropped.
pub struct Browser {
    child: Child,
    input: ChildStdin,
    messages: Receiver<Value>,
    last: u64,
    session: String,
    /// What the page and the browser complain of.
    pub complaints: Vec<String>,
    _home: tempfile::TempDir,
}

impl Browser {
    /// Opens `file` in a window of this size. Whoever calls this knows that there is a browser.
    pub fn open(file: &Path, (width, height): (u32, u32), is_dark: bool) -> Self {
        let home = tempfile::tempdir().expect("a directory");
        let options = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-sync",
            "--disable-background-networking",
            "--disable-component-update",
            "--remote-debugging-pipe",
        ];
        // The protocol goes over descriptors 3 and 4.
        let mut child = Command::new("sh")
            .args(["-c", "exec chromium \"$@\" 3<&0 4>&1 </dev/null >/dev/null", "sh"])
            .args(options)
            .arg(format!("--user-data-dir={}", home.path().display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the browser runs");
        let input = child.stdin.take().expect("a pipe");
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            let mut message = Vec::new();
            while output.read_until(0, &mut message).is_ok_and(|read| read > 0) {
                message.pop();
                let Ok(value) = serde_json::from_slice(&message) else { return };
                if sender.send(value).is_err() {
                    return;
                }
                message.clear();
            }
        });
        let session = String::new();
        let mut browser = Self { child, input, messages, last: 0, session, complaints: Vec::new(), _home: home };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}))["targetId"].clone();
        let attached = browser.call("Target.attachToTarget", json!({"targetId": target, "flatten": true}));
        browser.session = attached["sessionId"].as_str().expect("a session").to_owned();
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            browser.call(domain, json!({}));
        }
        let scheme = if is_dark { "dark" } else { "light" };
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        browser.call("Emulation.setEmulatedMedia", json!({"features": features}));
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        browser.call("Emulation.setDeviceMetricsOverride", size);
        browser.call("Page.navigate", json!({"url": format!("file://{}", file.display())}));
        eventually("the page should be there", || {
            browser.run("document.readyState === 'complete' && location.protocol === 'file:'") == json!(true)
        });
        browser
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        self.last += 1;
        let mut message = json!({"id": self.last, "method": method, "params": params});
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.input.write_all(&bytes).expect("the browser listens");
        loop {
            let answer = self.messages.recv_timeout(Duration::from_secs(120)).expect("an answer of the browser");
            if answer["id"] == self.last {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
            let complaints = ["Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled"];
            if answer["method"].as_str().is_some_and(|method| complaints.contains(&method)) {
                self.complaints.push(answer["params"].to_string());
            }
        }
    }

    /// The value of an expression in the page; a promise is waited for.
    pub fn run(&mut self, script: &str) -> Value {
        let params = json!({"expression": script, "returnByValue": true, "awaitPromise": true});
        let answer = self.call("Runtime.evaluate", params);
        assert!(answer["exceptionDetails"].is_null(), "{script}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    pub fn until(&mut self, script: &str) {
        eventually(&format!("the page should be so: {script}"), || self.run(script) == json!(true));
    }

    /// Presses a key, as a person does.
    pub fn key(&mut self, key: &str, code: u32) {
        for what in ["keyDown", "keyUp"] {
            let mut params = json!({"type": what, "key": key, "windowsVirtualKeyCode": code});
            if key == "Enter" {
                params["text"] = json!("\r");
            }
            self.call("Input.dispatchKeyEvent", params);
        }
    }

    /// A picture of the whole page, as PNG in base64.
    pub fn picture(&mut self) -> String {
        let params = json!({"format": "png", "captureBeyondViewport": true});
        self.call("Page.captureScreenshot", params)["data"].as_str().expect("a picture").to_owned()
    }

    /// The page as it would be printed, as PDF in base64.
    pub fn printed(&mut self) -> String {
        self.call("Page.printToPDF", json!({"printBackground": true}))["data"].as_str().expect("a file").to_owned()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.session.clear();
        let _ = self.input.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
