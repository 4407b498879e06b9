"""Alerts about speculation, each with the deployment's own numbers and a test.

An alert whose metric the release lacks, or that cannot apply to the deployment, is left out with
its reason. What each metric counts, and when: engine/releases/metrics.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from speclaunch.core import docs_url
from speclaunch.deployments.targets.interface import Rendering, Role
from speclaunch.deployments.targets.words import name_of
from speclaunch.engine import Metric, series_of

DROP = 0.8
"""Share of the baseline below which acceptance is low."""
APART = 0.7
"""Share of the mean of all ranks below which a rank's acceptance is low."""
FLOOR = 1.1
"""Tokens per verification below which drafting costs more than it saves on any model."""
LEAST_STEPS = 200
"""Verifications in a window below which acceptance is not evaluated."""
LEAST_TOKENS = 1000
"""Tokens in a window below which a server counts as idle."""
LEARNED = 360
"""Minutes of traffic in the last day before acceptance is compared with their mean."""
RETRACTED = 0.05
"""Share of requests that may be retracted."""
WITHOUT_GRAPH = 0.2
"""Share of decode passes that may run without a CUDA graph."""
FULL = 0.95
"""Share of the KV cache above which it counts as full."""
WINDOW = "15m"
RECORDED = "instance:speclaunch_accept_length:mean15m"
"""Recording rule: tokens per verification of a server, if it had enough traffic."""
RUNBOOK = "howto/monitor.md"
SERVER = "server:30000"
"""Instance of the series in tests."""


class Series(Struct, frozen=True):
    """A series of a test: its text with labels, and values per minute in promtool's notation."""

    text: str
    values: str


class Alert(Struct, frozen=True):
    """An alert, the value that its firing series give, and series that keep it quiet."""

    name: str
    expression: str
    minutes: int
    """Minutes for which the expression must hold."""
    severity: str
    summary: str
    description: str
    """`{value}` stands for the value of the expression, with two decimals."""
    firing: tuple[Series, ...]
    quiet: tuple[tuple[Series, ...], ...]
    value: float
    at: int = 60
    """Minute at which the test evaluates it."""

    @property
    def runbook(self) -> str | None:
        """URL of its runbook; None if the documentation is not published."""
        site, page = docs_url(), RUNBOOK.removesuffix(".md")
        return None if site is None else f"{site}{page}/#{self.name.lower()}"


class OmittedAlert(Struct, frozen=True):
    """An alert that does not apply, and the reason."""

    name: str
    why: str


class RoleAlerts(Struct, frozen=True):
    """The alerts of one role; `record` is the expression of the recording rule, if there is one."""

    role: Role
    record: str | None
    alerts: tuple[Alert, ...]
    left_out: tuple[OmittedAlert, ...]


def alerts_of(deployment: Rendering) -> tuple[RoleAlerts, ...]:
    """Return the alerts of each role, in the order of the roles."""
    return tuple(_RoleBuilder(deployment, role).build() for role in deployment.roles)


def selector_of(deployment: Rendering, role: Role) -> str:
    """Return the matchers of a role's series."""
    own = f',role="{role.name}"' if deployment.has_roles else ""
    return f'job="{name_of(deployment)}"{own}'


def acceptance(selector: str, series: Mapping[str, Metric], by: str) -> str:
    """Return tokens per verification in the window by server, for servers with enough traffic.

    From 0.5.13 on the quotient of two counters, which a restart does not disturb, and which
    requests weigh by their tokens; before, the mean of a gauge.
    """
    tokens = f"sglang:generation_tokens_total{{{selector}}}[{WINDOW}]"
    if "sglang:spec_verify_calls_total" in series:
        steps = f"sglang:spec_verify_calls_total{{{selector}}}[{WINDOW}]"
        return (
            f"sum by ({by}) (rate({tokens})) / sum by ({by}) (rate({steps}))"
            f" and sum by ({by}) (increase({steps})) >= {LEAST_STEPS}"
        )
    gauge = f"(sglang:spec_accept_length{{{selector}}} > 0)[{WINDOW}:]"
    return (
        f"avg by ({by}) (avg_over_time({gauge}))"
        f" and sum by ({by}) (increase({tokens})) >= {LEAST_TOKENS}"
    )


class _RoleBuilder:
    """Builder of one role's alerts."""

    def __init__(self, deployment: Rendering, role: Role) -> None:
        self.deployment, self.role = deployment, role
        self.series = series_of(deployment.version)
        self.job = name_of(deployment)
        self.selector = selector_of(deployment, role)
        self.by = "job, instance" + ", role" * deployment.has_roles

    def build(self) -> RoleAlerts:
        """Return the alerts and what is left out, with the recording rule of acceptance."""
        role = self.role
        made = [
            self.acceptance_low(),
            self.verifies_nothing(),
            self.ranks_apart(),
            self.retractions(),
            self.graphs_off(),
            self.kv_pressure(),
            self.stuck(),
            self.no_metrics(),
            OmittedAlert(
                "SpeculationLowAfterCacheHits",
                "no metric of any release separates the acceptance of requests with cache hits "
                "from that of others",
            ),
        ]
        record = acceptance(self.selector, self.series, self.by) if role.observed.verifies else None
        return RoleAlerts(
            role,
            record,
            tuple(alert for alert in made if isinstance(alert, Alert)),
            tuple(alert for alert in made if isinstance(alert, OmittedAlert)),
        )

    def has(self, name: str) -> bool:
        """True if the release has a series."""
        return f"sglang:{name}" in self.series

    def of(self, name: str, matchers: str = "") -> str:
        """Return a selector of the role's series."""
        return f"sglang:{name}{{{self.selector}{matchers}}}"

    def test(self, name: str, values: str, **labels: str) -> Series:
        """Return a series of a test, with each label that the release gives it."""
        own = {"job": self.job, "instance": SERVER}
        if self.deployment.has_roles:
            own["role"] = self.role.name
        if name != "up":
            name = f"sglang:{name}"
            own |= dict.fromkeys(self.series[name].labels, "0")
        pairs = ",".join(f'{label}="{value}"' for label, value in {**own, **labels}.items())
        return Series(f"{name}{{{pairs}}}", values)

    def traffic(self, *runs: tuple[float, int], steps: int = 600) -> tuple[Series, ...]:
        """Return series of an acceptance length for minutes, run after run."""
        lengths = [length for length, minutes in runs for _ in range(minutes)]
        if self.has("spec_verify_calls_total"):
            return (
                self.test("generation_tokens_total", _counted(runs, steps)),
                self.test("spec_verify_calls_total", f"0+{steps}x{len(lengths)}"),
            )
        values = " ".join(f"{length:g}+0x{minutes - 1}" for length, minutes in runs)
        return (
            self.test("generation_tokens_total", _counted(runs, steps)),
            self.test("spec_accept_length", values),
        )

    def not_verifying(self, name: str) -> OmittedAlert | None:
        """Return why no alert about verification applies to the role."""
        observed = self.role.observed
        if observed.algorithm is None:
            return OmittedAlert(name, "the deployment does not speculate")
        if not observed.verifies:
            return OmittedAlert(name, "a prefill server verifies nothing")
        return None

    def acceptance_low(self) -> Alert | OmittedAlert:
        """Return the alert about acceptance below the baseline, or below its own mean."""
        name = "SpeculationAcceptanceLow"
        if (reason := self.not_verifying(name)) is not None:
            return reason
        recorded = f"{RECORDED}{{{self.selector}}}"
        baseline = self.deployment.baseline
        if baseline is not None:
            least = round(max(baseline.length * DROP, FLOOR), 2)
            low = _length(least * 0.75)
            return Alert(
                name,
                f"{recorded} < {least:g}",
                minutes=15,
                severity="warning",
                summary="Speculation accepts less than its baseline",
                description="{value} tokens per verification, below "
                f"{least:g} ({DROP:.0%} of {baseline.length:g}, {baseline.source}).",
                firing=self.traffic((low, 90)),
                quiet=(self.traffic((_length(least * 1.1), 90)), self.few(low)),
                value=low,
            )
        mean = f"avg_over_time({recorded}[1d])"
        return Alert(
            name,
            f"{recorded} < {FLOOR:g} or ({recorded} < {DROP:g} * {mean}"
            f" and count_over_time({recorded}[1d]) >= {LEARNED})",
            minutes=15,
            severity="warning",
            summary="Speculation accepts less than before",
            description="{value} tokens per verification: below "
            f"{DROP:.0%} of the mean of the last day, or below {FLOOR:g}. A decay over several "
            "days needs a baseline: render with --acceptance.",
            firing=self.traffic((3.0, 420), (1.5, 90)),
            quiet=(self.traffic((3.0, 510)), self.traffic((3.0, 30), (1.5, 480)), self.few(1.0)),
            value=1.5,
            at=480,
        )

    def few(self, length: float) -> tuple[Series, ...]:
        """Return series of low acceptance with too little traffic to tell."""
        return self.traffic((length, 90), steps=2)

    def verifies_nothing(self) -> Alert | OmittedAlert:
        """Return the alert about a server that generates without verifying."""
        name = "SpeculationVerifiesNothing"
        if (reason := self.not_verifying(name)) is not None:
            return reason
        # The first token of a request comes from its prompt, without a verification.
        tokens = " - ".join(
            f"sum by ({self.by}) (increase({self.of(counter)}[{WINDOW}]))"
            for counter in ("generation_tokens_total", "num_requests_total")
        )
        busy = self.test("generation_tokens_total", "0+1000x90")
        long, short = (self.test("num_requests_total", f"0+{n}x90") for n in (10, 1000))
        if self.has("spec_verify_calls_total"):
            steps = self.of("spec_verify_calls_total")
            verified = f"sum by ({self.by}) (increase({steps}[{WINDOW}])) > 0"
            firing = self.test("spec_verify_calls_total", "500+0x90")
            quiet = self.test("spec_verify_calls_total", "0+400x90")
        else:
            length = self.of("spec_accept_length")
            verified = f"max by ({self.by}) (max_over_time({length}[{WINDOW}])) > 0"
            firing = self.test("spec_accept_length", "0+0x90")
            quiet = self.test("spec_accept_length", "2.5+0x90")
        return Alert(
            name,
            f"{tokens} >= {LEAST_TOKENS} unless {verified}",
            minutes=10,
            severity="critical",
            summary=f"{self.role.observed.algorithm} is configured, but nothing is verified",
            description="{value} tokens in "
            f"{WINDOW} without a verification. The server generates without speculation.",
            firing=(busy, long, firing),
            quiet=(
                (busy, long, quiet),
                (busy, short, firing),
                (self.test("generation_tokens_total", "5+0x90"), long, firing),
            ),
            value=14850,
        )

    def ranks_apart(self) -> Alert | OmittedAlert:
        """Return the alert about a DP rank that accepts less than the others."""
        name = "SpeculationRanksApart"
        if (reason := self.not_verifying(name)) is not None:
            return reason
        ranks = self.role.observed.ranks
        if ranks < 2:
            return OmittedAlert(name, "the server has one data-parallel rank")
        metric = self.series["sglang:spec_accept_length"]
        if "dp_rank" not in metric.labels_of(metric.name):
            return OmittedAlert(
                name, f"metrics of SGLang {self.deployment.version} have no dp_rank"
            )
        mean = f"avg_over_time(({self.of('spec_accept_length')} > 0)[{WINDOW}:])"
        tokens = f"increase({self.of('generation_tokens_total')}[{WINDOW}])"
        busy = self.test("generation_tokens_total", "0+1000x90")
        good = self.test("spec_accept_length", "3+0x90", dp_rank="0")
        return Alert(
            name,
            f"min by ({self.by}) ({mean}) / avg by ({self.by}) ({mean}) < {APART:g}"
            f" and sum by ({self.by}) ({tokens}) >= {LEAST_TOKENS}",
            minutes=15,
            severity="warning",
            summary="A data-parallel rank accepts less than the others",
            description=f"The worst of {ranks} ranks has {{value}} of their mean acceptance "
            f"length; {APART:g} is the limit.",
            firing=(busy, good, self.test("spec_accept_length", "1+0x90", dp_rank="1")),
            quiet=((busy, good, self.test("spec_accept_length", "2.7+0x90", dp_rank="1")),),
            value=0.5,
        )

    def retractions(self) -> Alert | OmittedAlert:
        """Return the alert about retracted requests."""
        name = "SpeculationRequestsRetracted"
        for series in (
            "num_retracted_requests_total",
            "num_retractions_sum",
            "total_retracted_reqs",
        ):
            if self.has(series):
                break
        else:
            return OmittedAlert(
                name, f"SGLang {self.deployment.version} does not count retractions"
            )
        retracted = f"max by ({self.by}) (increase({self.of(series)}[{WINDOW}]))"
        finished = f"sum by ({self.by}) (increase({self.of('num_requests_total')}[{WINDOW}]))"
        requests = self.test("num_requests_total", "0+100x90")
        return Alert(
            name,
            f"{retracted} / {finished} > {RETRACTED:g} and {retracted} >= 5",
            minutes=5,
            severity="warning",
            summary="Requests are retracted, and computed again",
            description="{value} retractions per request in "
            f"{WINDOW}; {RETRACTED:g} is the limit. The KV cache is too small for the load.",
            firing=(requests, self.test(series, "0+20x90")),
            quiet=(
                (requests, self.test(series, "0+1x90")),
                (requests, self.test(series, "7+0x90")),
            ),
            value=0.2,
        )

    def graphs_off(self) -> Alert | OmittedAlert:
        """Return the alert about decode passes without a CUDA graph."""
        name = "SpeculationGraphsOff"
        if not self.role.observed.graphs:
            return OmittedAlert(name, "decode runs without CUDA graphs as configured")
        if self.role.mode == "prefill":
            return OmittedAlert(name, "a prefill server does not decode")
        if self.has("cuda_graph_passes_total"):
            passes = "cuda_graph_passes_total"
            without, decode = ',mode="decode_none"', ',mode=~"decode_.*"'
            none = f"increase({self.of(passes, without)}[{WINDOW}])"
            every = f"increase({self.of(passes, decode)}[{WINDOW}])"
            share = f"sum by ({self.by}) ({none}) / sum by ({self.by}) ({every})"
            busy = f"sum by ({self.by}) ({every}) >= {LEAST_STEPS}"
            graph = self.test(passes, "0+100x90", mode="decode_cuda_graph")
            firing = (graph, self.test(passes, "0+100x90", mode="decode_none"))
            quiet: tuple[Series, ...] = (graph, self.test(passes, "0+10x90", mode="decode_none"))
        elif self.has("is_cuda_graph"):
            gauge = self.of("is_cuda_graph")
            tokens = f"increase({self.of('generation_tokens_total')}[{WINDOW}])"
            share = f"1 - avg by ({self.by}) (avg_over_time({gauge}[{WINDOW}]))"
            busy = f"sum by ({self.by}) ({tokens}) >= {LEAST_TOKENS}"
            traffic = self.test("generation_tokens_total", "0+1000x90")
            firing = (traffic, self.test("is_cuda_graph", "0.5+0x90"))
            quiet = (traffic, self.test("is_cuda_graph", "1+0x90"))
        else:
            return OmittedAlert(
                name, f"SGLang {self.deployment.version} has no metric of CUDA graphs"
            )
        return Alert(
            name,
            f"{share} > {WITHOUT_GRAPH:g} and {busy}",
            minutes=15,
            severity="warning",
            summary="Decode runs without CUDA graphs",
            description="{value} of the decode passes run without a graph; "
            f"{WITHOUT_GRAPH:g} is the limit.",
            firing=firing,
            quiet=(quiet,),
            value=0.5,
        )

    def kv_pressure(self) -> Alert:
        """Return the alert about a full KV cache with waiting requests."""
        usage = f"max by ({self.by}) (avg_over_time({self.of('token_usage')}[{WINDOW}]))"
        waiting = f"max by ({self.by}) (min_over_time({self.of('num_queue_reqs')}[{WINDOW}]))"
        full = self.test("token_usage", "0.98+0x90")
        return Alert(
            "SpeculationKvPressure",
            f"{usage} > {FULL:g} and {waiting} > 0",
            minutes=10,
            severity="warning",
            summary="The KV cache is full, and requests wait",
            description="{value} of the KV cache is used; "
            f"{FULL:g} is the limit. Drafts of waiting requests cannot start.",
            firing=(full, self.test("num_queue_reqs", "3+0x90")),
            quiet=(
                (full, self.test("num_queue_reqs", "0+0x90")),
                (self.test("token_usage", "0.6+0x90"), self.test("num_queue_reqs", "3+0x90")),
            ),
            value=0.98,
        )

    def stuck(self) -> Alert:
        """Return the alert about a scheduler that has requests and makes no progress."""
        running = f"max by ({self.by}) (min_over_time({self.of('num_running_reqs')}[5m]))"
        has = self.test("num_running_reqs", "4+0x90")
        if self.has("realtime_tokens_total"):
            tokens = self.of("realtime_tokens_total")
            moves = f"sum by ({self.by}) (increase({tokens}[5m])) > 0"
            still = self.test("realtime_tokens_total", "900+0x90", mode="decode")
            moving = self.test("realtime_tokens_total", "0+90x90", mode="decode")
        else:
            moves = f"max by ({self.by}) (changes({self.of('gen_throughput')}[5m])) > 0"
            still = self.test("gen_throughput", "50+0x90")
            moving = self.test("gen_throughput", "0+1x90")
        watchdog = self.role.observed.watchdog
        own = f" The engine stops itself after {watchdog:g} s." if watchdog is not None else ""
        return Alert(
            "SpeculationSchedulerStuck",
            f"{running} > 0 unless {moves}",
            minutes=5,
            severity="critical",
            summary="The scheduler has requests and makes no progress",
            description=f"{{value}} running requests, and no token in 5m.{own}",
            firing=(has, still),
            quiet=((has, moving), (self.test("num_running_reqs", "0+0x90"), still)),
            value=4,
        )

    def no_metrics(self) -> Alert:
        """Return the alert about a server that answers without the engine's metrics."""
        up = f"up{{{self.selector}}}"
        running = self.of("num_running_reqs")
        answers = self.test("up", "1+0x90")
        others = tuple(
            self.test(name, "1+0x90", role=role.name)
            for role in self.deployment.roles
            if role is not self.role
            for name in ("up", "num_running_reqs")
        )
        return Alert(
            "SpeculationUnmonitored",
            f"{up} == 1 unless on ({self.by}) {running} or absent({up}) or {up} == 0",
            minutes=10,
            severity="warning",
            summary="The engine's metrics are missing",
            description="Prometheus cannot reach the server, or it shows no metrics of SGLang: the "
            "other alerts cannot fire. Check `enable_metrics`, the port and the scrape settings.",
            firing=(answers, *others),
            quiet=((answers, self.test("num_running_reqs", "0+0x90"), *others),),
            value=1,
        )


def _length(length: float) -> float:
    """Return a length as a whole number of tokens in 600 verifications."""
    return round(length * 600) / 600


def _counted(runs: tuple[tuple[float, int], ...], steps: int) -> str:
    """Return a counter of tokens for runs of an acceptance length and minutes."""
    parts, start = [], 0
    for length, minutes in runs:
        tokens = round(length * steps)
        parts.append(f"{start}+{tokens}x{minutes - 1}")
        start += tokens * minutes
    return " ".join(parts)
