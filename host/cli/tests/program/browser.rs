//! A real browser without a window, spoken to in Chromium's own protocol through two pipes.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;

/// The names that the browser has on a system.
const NAMES: [&str; 3] = ["chromium-headless-shell", "chromium", "google-chrome"];

/// How long it may be silent.
const LIMIT: Duration = Duration::from_secs(60);

/// A browser, which ends with this value.
pub struct Browser {
    process: Child,
    requests: ChildStdin,
    answers: Receiver<Vec<u8>>,
    next: u64,
    _profile: TempDir,
}

/// A page that is open, by its session.
pub struct Page(String);

impl Browser {
    /// The one that setup.sh brings, or that INCUMBENT_BROWSER names.
    pub fn start() -> Self {
        let profile = TempDir::new().unwrap();
        let name = std::env::var("INCUMBENT_BROWSER").ok().or_else(|| {
            let is_there = |name: &&str| {
                let path = std::env::var_os("PATH").unwrap_or_default();
                std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
            };
            NAMES.into_iter().find(is_there).map(Into::into)
        });
        let name = name.expect("./setup.sh brings a browser, or INCUMBENT_BROWSER names one");
        // It listens on descriptor 3, and answers on 4.
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", &name]);
        command.args(["--headless", "--remote-debugging-pipe", "--no-sandbox", "--no-first-run"]);
        command.args(["--disable-gpu", "--disable-dev-shm-usage", "--no-proxy-server"]);
        command.arg(format!("--user-data-dir={}", profile.path().display()));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let requests = process.stdin.take().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let (sender, answers) = mpsc::channel();
        // It ends with the browser, or with this value.
        thread::spawn(move || {
            output.split(0).map_while(Result::ok).try_for_each(|message| sender.send(message))
        });
        Self { process, requests, answers, next: 0, _profile: profile }
    }

    pub fn open(&mut self, url: &str) -> Page {
        let target = self.ask(None, "Target.createTarget", &json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = self.ask(None, "Target.attachToTarget", &attach)["sessionId"].clone();
        let page = Page(session.as_str().unwrap().to_owned());
        self.go(&page, url);
        page
    }

    /// Loads a page, and waits until it is there.
    pub fn go(&mut self, page: &Page, url: &str) {
        self.tell(page, "Page.enable", &json!({}));
        self.tell(page, "Page.navigate", &json!({ "url": url }));
        while self.message()["method"] != "Page.loadEventFired" {}
        self.tell(page, "Page.disable", &json!({}));
    }

    pub fn tell(&mut self, page: &Page, method: &str, parameters: &Value) -> Value {
        self.ask(Some(&page.0), method, parameters)
    }

    /// What this JavaScript comes to.
    pub fn run(&mut self, page: &Page, script: &str) -> Value {
        let script = json!({ "expression": script, "returnByValue": true, "awaitPromise": true });
        let mut answer = self.tell(page, "Runtime.evaluate", &script);
        assert!(answer.get("exceptionDetails").is_none(), "{answer}");
        answer["result"]["value"].take()
    }

    /// What is in the first element that this selector finds, as it is shown.
    pub fn text(&mut self, page: &Page, selector: &str) -> String {
        let text = self.run(page, &format!("document.querySelector({selector:?})?.innerText"));
        text.as_str().unwrap_or_default().to_owned()
    }

    /// Keeps a picture of the page in the folder that INCUMBENT_SCREENSHOTS names, if it does.
    pub fn picture(&mut self, page: &Page, name: &str) {
        let Some(folder) = std::env::var_os("INCUMBENT_SCREENSHOTS") else { return };
        let whole = json!({ "captureBeyondViewport": true });
        let picture = self.tell(page, "Page.captureScreenshot", &whole);
        let picture = STANDARD.decode(picture["data"].as_str().unwrap()).unwrap();
        std::fs::write(Path::new(&folder).join(format!("{name}.png")), picture).unwrap();
    }

    fn ask(&mut self, session: Option<&str>, method: &str, parameters: &Value) -> Value {
        self.next += 1;
        let mut request = json!({ "id": self.next, "method": method, "params": parameters });
        if let Some(session) = session {
            request["sessionId"] = session.into();
        }
        write!(self.requests, "{request}\0").unwrap();
        loop {
            let mut message = self.message();
            if message["id"] == self.next {
                assert!(message.get("error").is_none(), "{method}: {message}");
                return message["result"].take();
            }
        }
    }

    fn message(&mut self) -> Value {
        let message = self.answers.recv_timeout(LIMIT).expect("the browser answers");
        serde_json::from_slice(&message).unwrap()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
