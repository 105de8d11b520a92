"""The metrics, as Prometheus takes them."""

import asyncio
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import candidates, soon, until
from etcd import ROOT, Etcd
from prometheus_client import CollectorRegistry, generate_latest
from wasmtime.component import Variant

from incumbent import Stale, Unknown, connect
from incumbent.metrics import measure

PROMTOOL = Path(os.environ.get("INCUMBENT_PROMTOOL", ROOT / ".tools/prometheus/promtool"))


def value(registry: CollectorRegistry, name: str, /, **labels: str) -> float | None:
    return registry.get_sample_value(name, labels)


async def test_terms_renewals_requests_and_faults_are_counted(tmp_path: Path) -> None:
    etcd, registry = Etcd("3.5", tmp_path), CollectorRegistry()

    def of(name: str, /, **labels: str) -> float | None:
        return value(registry, name, **labels)

    session, other = await connect(etcd.url, ttl=2), await connect(etcd.url)
    measure(session, registry)
    measure(other, registry)
    assert of("incumbent_fence_rejections_total") == 0, "what has not happened yet is 0"
    first = await soon(session.campaign("my-service"))
    assert of("incumbent_is_leader", election="my-service") == 1
    assert of("incumbent_epoch", election="my-service") == first.epoch
    assert of("leader_election_slowpath_total", name="my-service") == 0
    await until(lambda: of("incumbent_renewals_total", result="ok"))
    etcd.ctl("del", *candidates(etcd))
    assert await soon(first.lost()) == "deposed"
    with pytest.raises(Stale):
        await first.put("key", "")
    assert of("incumbent_is_leader", election="my-service") == 0
    await first.resign()

    second = await soon(session.campaign("my-service"))
    etcd.pause()
    assert await soon(second.lost()) == "expired"
    etcd.resume()
    assert of("leader_election_slowpath_total", name="my-service") == 1
    await (await soon(other.campaign("another"))).resign()
    trapped = await soon(other.campaign("another"))
    other._driver.fuel = 1
    with pytest.raises(Unknown):
        await trapped.put("key", "")
    assert "fuel" in await soon(trapped.lost())
    other._driver.fuel = 500_000_000
    await soon(trapped.resign())
    await soon(asyncio.gather(second.resign(), session.close(), other.close()))
    etcd.kill()

    wanted: list[tuple[str, dict[str, str], float]] = [
        ("incumbent_is_leader", {"election": "my-service"}, 0),
        ("leader_election_master_status", {"name": "my-service"}, 0),
        ("incumbent_transitions_total", {"reason": "elected"}, 4),
        ("incumbent_transitions_total", {"reason": "deposed"}, 1),
        ("incumbent_transitions_total", {"reason": "expired"}, 1),
        ("incumbent_transitions_total", {"reason": "resigned"}, 1),
        ("incumbent_transitions_total", {"reason": "other"}, 1),
        ("incumbent_store_requests_total", {"operation": "claim", "result": "ok"}, 4),
        ("incumbent_fence_rejections_total", {}, 1),
        ("incumbent_elector_replacements_total", {}, 1),
    ]
    for name, labels, amount in wanted:
        assert of(name, **labels) == amount, (name, labels)
    took = "incumbent_store_request_duration_seconds"
    count = of(f"{took}_count", operation="claim")
    assert count and 0.000_01 < (of(f"{took}_sum", operation="claim") or 0) / count < 1
    assert of("incumbent_renewal_duration_seconds_count") == of(f"{took}_count", operation="keep-alive")

    meter = session._driver.meter
    meter.answered("keep-alive", Variant("err", Variant("timeout")), 1.0)
    meter.answered("keep-alive", Variant("ok", Variant("expired")), 1.0)
    assert of("incumbent_renewals_total", result="failed") and of("incumbent_renewals_total", result="lost")
    assert of("incumbent_store_requests_total", operation="keep-alive", result="timeout")
    for number in range(200):
        meter.joined(f"bounded-{number}")
    own = [line for line in text(registry).splitlines() if line.startswith("incumbent_is_leader{")]
    assert len(own) == 101, "series are bounded"
    assert of("incumbent_is_leader", election="(others)") == 0

    if not PROMTOOL.exists():
        pytest.skip(f"there is no {PROMTOOL}: ./setup.sh fetches it")
    checked = subprocess.run([PROMTOOL, "check", "metrics"], input=text(registry), capture_output=True, text=True)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


async def test_the_names_meanings_and_buckets_are_those_of_the_library(etcd: Etcd) -> None:
    registry = CollectorRegistry()
    async with await connect(etcd.url) as session:
        measure(session, registry)
    described = re.findall(
        r'describe_(\w+)!\(\s*"(\w+)",\s*"([^"]+)"', (ROOT / "host/incumbent/src/metrics.rs").read_text()
    )
    wanted = {line for kind, name, help in described for line in (f"# HELP {name} {help}", f"# TYPE {name} {kind}")}
    assert len(wanted) == 22
    found = {line for line in text(registry).splitlines() if line.startswith("#") and "_created " not in line}
    assert found == wanted
    source = (ROOT / "host/cli/src/http/metrics.rs").read_text()
    buckets = re.search(r"BUCKETS.*=\s*\[(.*)\]", source)
    bounds = re.findall(r'^incumbent_renewal_duration_seconds_bucket\{le="([\d.]+)"', text(registry), re.MULTILINE)
    assert buckets and [float(bound) for bound in bounds] == [float(bound) for bound in buckets[1].split(",")]


def text(registry: Any) -> str:
    return generate_latest(registry).decode()
