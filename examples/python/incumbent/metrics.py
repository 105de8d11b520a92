"""Counts and measures the elections of a process, through prometheus_client.

They are the metrics of Incumbent's library, with the same names and labels.
"""

from weakref import WeakKeyDictionary

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
from wasmtime.component import Variant

from .driver import Meter
from .session import Session

#: The upper bounds of durations, in seconds: from an etcd on this machine to the usual time-out.
BUCKETS = 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0
#: How many elections of this process have series of their own.
LIMIT = 100
#: The name that all others share.
OTHERS = "(others)"
#: Why a term ends; anything else is a sentence.
REASONS = "resigned", "expired", "lease-lost", "deposed", "fenced"


def measure(session: Session, registry: CollectorRegistry = REGISTRY) -> None:
    """Counts and measures this session from now on. Call it before the first campaign."""
    if registry not in _metrics:
        _metrics[registry] = Metrics(registry)
    session._driver.meter = _metrics[registry]


class Metrics(Meter):
    """The metrics of one registry, which all sessions share."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, help: str, *labels: str) -> Counter:
            return Counter(name, help, labels, registry=registry)

        def gauge(name: str, help: str, *labels: str) -> Gauge:
            return Gauge(name, help, labels, registry=registry)

        def histogram(name: str, help: str, *labels: str) -> Histogram:
            return Histogram(name, help, labels, registry=registry, buckets=BUCKETS)

        self._elections = set[str]()
        self._is_leader = gauge("incumbent_is_leader", "How many candidates of this process lead.", "election")
        self._epoch = gauge("incumbent_epoch", "The epoch that this process leads, or led last.", "election")
        self._transitions = counter(
            "incumbent_transitions_total", "Terms that began, and terms that ended.", "reason"
        )
        self._renewals = counter("incumbent_renewals_total", "Renewals of leases, by their result.", "result")
        self._renewal_duration = histogram(
            "incumbent_renewal_duration_seconds", "How long the store took to renew a lease."
        )
        self._requests = counter(
            "incumbent_store_requests_total", "Requests to the store, by their result.", "operation", "result"
        )
        self._request_duration = histogram(
            "incumbent_store_request_duration_seconds", "How long the store took for a request.", "operation"
        )
        self._fence_rejections = counter(
            "incumbent_fence_rejections_total", "Guarded writes that were refused because their term was over."
        )
        self._replacements = counter(
            "incumbent_elector_replacements_total", "Electors that broke one of their rules, and were replaced."
        )
        self._master_status = gauge(
            "leader_election_master_status", "Whether this process leads: 1, or 0 if it does not.", "name"
        )
        self._slowpath = counter(
            "leader_election_slowpath_total", "How often the lease could not be renewed at once.", "name"
        )

    def _label(self, election: str) -> str:
        if election not in self._elections:
            if len(self._elections) >= LIMIT:
                return OTHERS
            self._elections.add(election)
        return election

    def _leads(self, election: str, difference: int) -> None:
        name = self._label(election)
        self._is_leader.labels(name).inc(difference)
        self._master_status.labels(name).inc(difference)

    def joined(self, election: str) -> None:
        self._leads(election, 0)
        self._slowpath.labels(self._label(election)).inc(0)

    def elected(self, election: str, epoch: int) -> None:
        self._leads(election, 1)
        if (name := self._label(election)) != OTHERS:
            self._epoch.labels(name).set(epoch)
        self._transitions.labels("elected").inc()

    def ended(self, election: str, reason: str) -> None:
        self._leads(election, -1)
        self._transitions.labels(reason if reason in REASONS else "other").inc()

    def endangered(self, election: str) -> None:
        self._slowpath.labels(self._label(election)).inc()

    def answered(self, operation: str, outcome: Variant, seconds: float) -> None:
        answer = outcome.payload.tag  # type: ignore[union-attr]
        is_answer = outcome.tag == "ok"
        self._requests.labels(operation, "ok" if is_answer else answer).inc()
        self._request_duration.labels(operation).observe(seconds)
        if operation == "keep-alive":
            result = "ok" if answer == "renewed" else "lost" if is_answer else "failed"
            self._renewals.labels(result).inc()
            self._renewal_duration.observe(seconds)

    def fenced(self) -> None:
        self._fence_rejections.inc()

    def replaced(self) -> None:
        self._replacements.inc()


_metrics = WeakKeyDictionary[CollectorRegistry, Metrics]()
