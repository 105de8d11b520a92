//! The status page, in a real browser.

use serde_json::json;

use super::browser::{Browser, Page};
use super::http::Endpoint;
use super::*;

incumbent_tests::on_an_etcd!(
    an_open_page_shows_each_change,
    what_stands_still_needs_no_script,
    everybody_can_read_the_page,
);

/// axe-core, which setup.sh has put into `.tools`.
fn axe() -> String {
    let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.tools/axe-core/axe.min.js");
    fs::read_to_string(std::env::var("INCUMBENT_AXE").unwrap_or_else(|_| kept.into()))
        .expect("./setup.sh brings axe-core, or INCUMBENT_AXE names it")
}

fn instance(etcd: &Etcd, id: &str, value: &str) -> (Running, String) {
    let more = ["--listen", "127.0.0.1:0", "--id", id, "--value", value];
    let running = Running::campaign(etcd, "my-service", &more);
    let url = Endpoint::of(&running).url + "/";
    running.event("joined");
    (running, url)
}

fn says(browser: &mut Browser, page: &Page, selector: &str, what: &str) {
    until(&format!("{selector} says {what:?}"), || browser.text(page, selector).contains(what));
}

fn an_open_page_shows_each_change(etcd: Etcd) {
    let mut browser = Browser::start();
    let (first, first_url) = instance(&etcd, "one", "one");
    first.event("elected");
    let (second, second_url) = instance(&etcd, "two", "two");
    let (mut third, third_url) = instance(&etcd, "three", "three");
    let leader = browser.open(&first_url);
    let standby = browser.open(&third_url);
    let next = browser.open(&second_url);
    for page in [&leader, &standby] {
        says(&mut browser, page, "h1", "one leads my-service");
        says(&mut browser, page, "tr:nth-child(3)", "three");
        says(&mut browser, page, "#store", "The store answers.");
    }
    let watch = "refused = 0; addEventListener('securitypolicyviolation', () => refused += 1)";
    browser.run(&standby, watch);

    // The bar runs down between two answers, and goes up when a renewal comes.
    let moves = |to: &str| {
        format!(
            "new Promise(found => {{
                const look = () =>
                    [document.querySelector('#time')?.textContent, document.querySelector('meter')?.value];
                let before = look();
                const timer = setInterval(() => {{
                    const now = look();
                    if ({to}) {{ clearInterval(timer); found(true); }}
                    before = now;
                }}, 20);
            }})"
        )
    };
    browser.run(&leader, &moves("now[0] === before[0] && now[1] < before[1]"));
    browser.run(&leader, &moves("now[1] > before[1]"));
    says(&mut browser, &leader, "#renewals", "were left");
    browser.picture(&leader, "leads");
    browser.picture(&standby, "waits");

    // A handover.
    kill(first.pid(), Signal::TERM);
    says(&mut browser, &standby, "h1", "two leads my-service");
    says(&mut browser, &next, "#instance", "leads");
    says(&mut browser, &leader, "#gone", "has not answered since");
    browser.picture(&standby, "handover");

    assert_eq!(browser.run(&standby, "refused"), 0, "the page keeps to its own policy");

    // A kill. This page's own instance leads then.
    kill(second.pid(), Signal::KILL);
    says(&mut browser, &next, "#gone", "has not answered since");
    browser.picture(&next, "killed");
    says(&mut browser, &standby, "h1", "three leads my-service");
    says(&mut browser, &standby, "#changes", "elected");
    browser.go(&standby, &format!("{third_url}?window=60"));
    says(&mut browser, &standby, "[aria-current]", "1 minute");

    // A pause: the time in which the process did not run is drawn.
    kill(third.pid(), Signal::STOP);
    says(&mut browser, &standby, "#gone", "has not answered since");
    kill(third.pid(), Signal::CONT);
    until("the page tells that it was paused", || {
        browser.run(&standby, "!!document.querySelector('#timeline .paused')") == true
    });
    // Its lease may have ended meanwhile: a renewal shows that it leads.
    browser.run(&standby, &moves("now[1] > before[1]"));
    says(&mut browser, &standby, "h1", "three leads my-service");
    says(&mut browser, &standby, "#queue", "leads");
    browser.picture(&standby, "paused");

    // A store that goes away.
    drop(etcd);
    says(&mut browser, &standby, "#store", "The store does not answer.");
    says(&mut browser, &standby, "#instance", "is not in line");
    says(&mut browser, &standby, "h1", "three led my-service when the store answered last");
    says(&mut browser, &standby, "#queue", "led");
    let again = end(curl(&third_url)).stdout;
    assert!(again.contains("three led") && again.contains("does not answer"), "{again}");
    browser.picture(&standby, "no-store");
    kill(third.pid(), Signal::TERM);
    third.wait();
}

fn what_stands_still_needs_no_script(etcd: Etcd) {
    let mut browser = Browser::start();
    let hostile = "<img src=x onerror=alert(1)>\"'&\u{1b}[2J\u{202e}\n</script>{{ 7 * 7 }}";
    let (first, url) = instance(&etcd, hostile, hostile);
    first.event("elected");
    until("the endpoint knows", || end(curl(&url)).stdout.contains("<h1>&#60;img"));

    let page = browser.open("about:blank");
    browser.tell(&page, "Emulation.setScriptExecutionDisabled", &json!({ "value": true }));
    browser.go(&page, &url);
    let shown = "<img src=x onerror=alert(1)>\"'&\\u{1b}[2J\\u{202e}\\n</script>{{ 7 * 7 }}";
    for selector in ["h1", "#instance", "#queue", "#timeline", "noscript"] {
        let text = browser.run(&page, &format!("document.querySelector('{selector}').textContent"));
        let wanted = match selector {
            "noscript" => "Without JavaScript",
            "#timeline" => {
                "<img src=x onerror=alert(1)>\"'&\\u{1b}[2J\\u{202e}\\n</script>{… (this instance)"
            }
            _ => shown,
        };
        assert!(text.as_str().unwrap().contains(wanted), "{selector}: {text}");
    }
    let elements = "[...document.querySelectorAll('img,iframe,script')].length";
    assert_eq!(browser.run(&page, elements), 1, "the page's own script, and nothing else");
    browser.picture(&page, "hostile");

    // Nothing is loaded from elsewhere, and nothing that was slipped in would run.
    let head = end(curl(&url)).stdout;
    assert!(
        head.contains("content-security-policy: default-src 'none'; style-src 'nonce-"),
        "{head}"
    );
    assert!(!head.contains("http://") && !head.contains("https://"), "{head}");
    let wrong = end(curl(&format!("{url}?window=7"))).stdout;
    assert!(wrong.contains("400") && wrong.contains("GET /?window=3600"), "{wrong}");
}

fn curl(url: &str) -> Command {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--include", "--noproxy", "*", "--max-time", "10", url]);
    curl
}

fn everybody_can_read_the_page(etcd: Etcd) {
    let mut browser = Browser::start();
    let (first, url) = instance(&etcd, "one", "one");
    first.event("elected");
    let (_second, _) = instance(&etcd, "two", &"w".repeat(2_000));
    let page = browser.open(&url);
    says(&mut browser, &page, "#queue", "www");
    for (scheme, width) in [("light", 1_280), ("dark", 1_280), ("light", 360)] {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        browser.tell(&page, "Emulation.setEmulatedMedia", &json!({ "features": features }));
        let size = json!({
            "width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500
        });
        browser.tell(&page, "Emulation.setDeviceMetricsOverride", &size);
        // By the protocol, and so past the page's policy.
        browser.run(&page, &format!("{};0", axe()));
        let faults = "axe.run().then(run => run.violations.map(fault =>
            fault.id + ': ' + fault.nodes.map(node => node.html).join(' ')))";
        // The page may be drawn in the new colours a little later.
        until(&format!("{scheme}, {width} wide: everybody can read it"), || {
            let faults = browser.run(&page, faults);
            println!("{scheme}, {width} wide: {faults}");
            faults == json!([])
        });
        let wide = browser.run(&page, "document.scrollingElement.scrollWidth");
        assert!(wide.as_u64().unwrap() <= width, "{wide} in {width}");
        browser.picture(&page, &format!("{scheme}-{width}"));
    }
    // By the keyboard alone, and it stays where it is when the page changes.
    let focused = "document.activeElement.textContent";
    let mut found = Vec::new();
    while found.last().is_none_or(|last| last != "1 hour") {
        for kind in ["keyDown", "keyUp"] {
            let key =
                json!({ "type": kind, "key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9 });
            browser.tell(&page, "Input.dispatchKeyEvent", &key);
        }
        found.push(browser.run(&page, focused).as_str().unwrap().to_owned());
        assert!(found.len() < 20, "{found:?}");
    }
    let time = browser.text(&page, "#time");
    until("the page is newer", || browser.text(&page, "#time") != time);
    assert_eq!(browser.run(&page, focused), "1 hour");
}
