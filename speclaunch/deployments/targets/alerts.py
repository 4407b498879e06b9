"""Build speculation alerts, each with a test, and check the names in PromQL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from speclaunch.core import docs_url, lazy
from speclaunch.deployments.targets.interface import Rendering, Role, name_of
from speclaunch.engine import Metric, series_of

DROP = 0.8
"""Share of the baseline below which acceptance is low."""
APART = 0.7
"""Share of the mean of all ranks below which a rank's acceptance is low."""
FLOOR = 1.1
"""Tokens per verification below which drafting costs more than it saves on any model."""
LEAST_STEPS = 200
"""Minimum verifications in a window. With fewer, acceptance is not evaluated."""
LEAST_TOKENS = 1000
"""Minimum tokens in a window. A server with fewer counts as idle."""
LEARNED = 360
"""Minutes of traffic required in the last day to compare acceptance with that day's mean."""
RETRACTED = 0.05
"""Maximum share of retracted requests."""
WITHOUT_GRAPH = 0.2
"""Maximum share of decode passes without a CUDA graph."""
FULL = 0.95
"""Used share above which the KV cache counts as full."""
WINDOW = "15m"
RECORDED = "instance:speclaunch_accept_length:mean15m"
"""Name of the rule that records tokens per verification of servers with enough traffic."""
RUNBOOK = "howto/monitor.md"
SERVER = "server:30000"
"""Value of the label `instance` in test series."""


Series = Mapping[str, str]
"""Promtool test series: name with labels, and values per minute."""


class Alert(Struct, frozen=True, kw_only=True):
    """Alert with its test series: `firing` must trigger it with `value`, and `quiet` must not."""

    expression: str
    minutes: int = 15
    """Minutes for which the expression must hold."""
    severity: str = "warning"
    summary: str
    description: str
    """Text of the alert. `{value}` is replaced with the expression's value, to two decimals."""
    firing: tuple[Series, ...]
    quiet: tuple[tuple[Series, ...], ...]
    value: float
    at: int = 60
    """Minute at which the test evaluates the alert."""


class RoleAlerts(Struct, frozen=True):
    """Alerts of one role. `record`: its recording rule's expression; None without verification."""

    role: Role
    record: str | None
    alerts: Mapping[str, Alert]
    left_out: Mapping[str, str]
    """Reason for each alert that does not apply, by alert name."""


def runbook_url(alert: str) -> str | None:
    """Return the URL of an alert's runbook; None if the documentation is not published."""
    site, page = docs_url(), RUNBOOK.removesuffix(".md")
    return None if site is None else f"{site}{page}/#{alert.lower()}"


def alerts_of(deployment: Rendering) -> tuple[RoleAlerts, ...]:
    """Return the alerts of each role, in the order of the roles."""
    return tuple(_RoleBuilder(deployment, role).build() for role in deployment.roles)


def selector_of(deployment: Rendering, role: Role) -> str:
    """Return the PromQL matchers of a role's series."""
    own = f',role="{role.name}"' if deployment.has_roles else ""
    return f'job="{name_of(deployment)}"{own}'


def acceptance(selector: str, series: Mapping[str, Metric], by: str) -> str:
    """Return PromQL for tokens per verification, by the labels `by`, if there is enough traffic.

    For 0.5.13 and later, the query divides two counters, so it survives restarts and weights
    requests by their tokens. For earlier releases, it averages a gauge.
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
    """Builder of one role's alerts. Alert methods return a reason if the alert does not apply."""

    def __init__(self, deployment: Rendering, role: Role) -> None:
        self.deployment, self.role = deployment, role
        self.series = series_of(deployment.version)
        self.job = name_of(deployment)
        self.selector = selector_of(deployment, role)
        self.by = "job, instance" + ", role" * deployment.has_roles
        self.release = f"SGLang {deployment.version}"

    def build(self) -> RoleAlerts:
        observed = self.role.observed
        unverified = "the deployment does not speculate" if observed.algorithm is None else None
        if unverified is None and not observed.verifies:
            unverified = "a prefill server verifies nothing"
        made: dict[str, Alert | str] = {
            "SpeculationAcceptanceLow": unverified or self.acceptance_low(),
            "SpeculationVerifiesNothing": unverified or self.verifies_nothing(),
            "SpeculationRanksApart": unverified or self.ranks_apart(),
            "SpeculationRequestsRetracted": self.retractions(),
            "SpeculationGraphsOff": self.graphs_off(),
            "SpeculationKvPressure": self.kv_pressure(),
            "SpeculationSchedulerStuck": self.stuck(),
            "SpeculationUnmonitored": self.no_metrics(),
            "SpeculationLowAfterCacheHits": "no metric of any release separates the acceptance of "
            "requests with cache hits from that of others",
        }
        return RoleAlerts(
            self.role,
            acceptance(self.selector, self.series, self.by) if observed.verifies else None,
            {name: alert for name, alert in made.items() if isinstance(alert, Alert)},
            {name: why for name, why in made.items() if isinstance(why, str)},
        )

    def has(self, name: str) -> bool:
        return f"sglang:{name}" in self.series

    def of(self, name: str, matchers: str = "") -> str:
        return f"sglang:{name}{{{self.selector}{matchers}}}"

    def over(
        self, outer: str, inner: str, name: str, matchers: str = "", time: str = WINDOW
    ) -> str:
        """Return PromQL that applies `inner` to a series over `time`, and `outer` by server."""
        return f"{outer} by ({self.by}) ({inner}({self.of(name, matchers)}[{time}]))"

    def test(self, name: str, values: str, **labels: str) -> Series:
        """Return a test series with all labels that the release sets."""
        own = {"job": self.job, "instance": SERVER}
        if self.deployment.has_roles:
            own["role"] = self.role.name
        if name != "up":
            name = f"sglang:{name}"
            own |= dict.fromkeys(self.series[name].labels, "0")
        pairs = ",".join(f'{label}="{value}"' for label, value in {**own, **labels}.items())
        return {"series": f"{name}{{{pairs}}}", "values": values}

    def traffic(self, *runs: tuple[float, int], steps: int = 600) -> tuple[Series, ...]:
        """Return test series of `steps` verifications a minute, for `runs` of (length, minutes)."""
        tokens = self.test("generation_tokens_total", _counted(runs, steps))
        if self.has("spec_verify_calls_total"):
            minutes = sum(minutes for _, minutes in runs)
            return (tokens, self.test("spec_verify_calls_total", f"0+{steps}x{minutes}"))
        values = " ".join(f"{length:g}+0x{minutes - 1}" for length, minutes in runs)
        return (tokens, self.test("spec_accept_length", values))

    def acceptance_low(self) -> Alert:
        recorded = f"{RECORDED}{{{self.selector}}}"
        baseline = self.deployment.baseline
        if baseline is not None:
            least = round(max(baseline.length * DROP, FLOOR), 2)
            low = _length(least * 0.75)
            return Alert(
                expression=f"{recorded} < {least:g}",
                summary="Acceptance length is below its baseline",
                description="{value} tokens per verification, below "
                f"{least:g} ({DROP:.0%} of {baseline.length:g}, {baseline.source}).",
                firing=self.traffic((low, 90)),
                quiet=(
                    self.traffic((_length(least * 1.1), 90)),
                    self.traffic((low, 90), steps=2),  # too few verifications
                ),
                value=low,
            )
        mean = f"avg_over_time({recorded}[1d])"
        return Alert(
            expression=f"{recorded} < {FLOOR:g} or ({recorded} < {DROP:g} * {mean}"
            f" and count_over_time({recorded}[1d]) >= {LEARNED})",
            summary="Acceptance length has dropped",
            description="{value} tokens per verification: below "
            f"{DROP:.0%} of the mean of the last day, or below {FLOOR:g}. A decay over several "
            "days needs a baseline: render with --acceptance.",
            firing=self.traffic((3.0, 420), (1.5, 90)),
            quiet=(
                self.traffic((3.0, 510)),
                self.traffic((3.0, 30), (1.5, 480)),
                self.traffic((1.0, 90), steps=2),
            ),
            value=1.5,
            at=480,
        )

    def verifies_nothing(self) -> Alert:
        # The first token of a request comes from its prompt, without a verification.
        tokens = " - ".join(
            self.over("sum", "increase", name)
            for name in ("generation_tokens_total", "num_requests_total")
        )
        busy = self.test("generation_tokens_total", "0+1000x90")
        long, short = (self.test("num_requests_total", f"0+{n}x90") for n in (10, 1000))
        if self.has("spec_verify_calls_total"):
            verified = self.over("sum", "increase", "spec_verify_calls_total")
            firing = self.test("spec_verify_calls_total", "500+0x90")
            quiet = self.test("spec_verify_calls_total", "0+400x90")
        else:
            verified = self.over("max", "max_over_time", "spec_accept_length")
            firing = self.test("spec_accept_length", "0+0x90")
            quiet = self.test("spec_accept_length", "2.5+0x90")
        return Alert(
            expression=f"{tokens} >= {LEAST_TOKENS} unless {verified} > 0",
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

    def ranks_apart(self) -> Alert | str:
        ranks = self.role.observed.ranks
        if ranks < 2:
            return "the server has one data-parallel rank"
        metric = self.series["sglang:spec_accept_length"]
        if "dp_rank" not in metric.labels_of(metric.name):
            return f"metrics of {self.release} have no dp_rank"
        mean = f"avg_over_time(({self.of('spec_accept_length')} > 0)[{WINDOW}:])"
        busy = self.test("generation_tokens_total", "0+1000x90")
        good = self.test("spec_accept_length", "3+0x90", dp_rank="0")
        return Alert(
            expression=f"min by ({self.by}) ({mean}) / avg by ({self.by}) ({mean}) < {APART:g}"
            f" and {self.over('sum', 'increase', 'generation_tokens_total')} >= {LEAST_TOKENS}",
            summary="A data-parallel rank accepts less than the others",
            description=f"The worst of {ranks} ranks has {{value}} of their mean acceptance "
            f"length; {APART:g} is the limit.",
            firing=(busy, good, self.test("spec_accept_length", "1+0x90", dp_rank="1")),
            quiet=((busy, good, self.test("spec_accept_length", "2.7+0x90", dp_rank="1")),),
            value=0.5,
        )

    def retractions(self) -> Alert | str:
        names = ("num_retracted_requests_total", "num_retractions_sum", "total_retracted_reqs")
        name = next(filter(self.has, names), None)
        if name is None:
            return f"{self.release} does not count retractions"
        retracted = self.over("max", "increase", name)
        finished = self.over("sum", "increase", "num_requests_total")
        requests = self.test("num_requests_total", "0+100x90")
        return Alert(
            expression=f"{retracted} / {finished} > {RETRACTED:g} and {retracted} >= 5",
            minutes=5,
            summary="Requests are retracted and recomputed",
            description="{value} retractions per request in "
            f"{WINDOW}; {RETRACTED:g} is the limit. The KV cache is too small for the load.",
            firing=(requests, self.test(name, "0+20x90")),
            quiet=((requests, self.test(name, "0+1x90")), (requests, self.test(name, "7+0x90"))),
            value=0.2,
        )

    def graphs_off(self) -> Alert | str:
        if not self.role.observed.graphs:
            return "decode runs without CUDA graphs as configured"
        if self.role.mode == "prefill":
            return "a prefill server does not decode"
        if self.has("cuda_graph_passes_total"):
            passes = "cuda_graph_passes_total"
            every = self.over("sum", "increase", passes, ',mode=~"decode_.*"')
            none = self.over("sum", "increase", passes, ',mode="decode_none"')
            share = f"{none} / {every}"
            busy = f"{every} >= {LEAST_STEPS}"
            other = self.test(passes, "0+100x90", mode="decode_cuda_graph")
            low, high = (self.test(passes, f"0+{n}x90", mode="decode_none") for n in (10, 100))
        elif self.has("is_cuda_graph"):
            share = f"1 - {self.over('avg', 'avg_over_time', 'is_cuda_graph')}"
            tokens = self.over("sum", "increase", "generation_tokens_total")
            busy = f"{tokens} >= {LEAST_TOKENS}"
            other = self.test("generation_tokens_total", "0+1000x90")
            low, high = (self.test("is_cuda_graph", f"{n}+0x90") for n in ("1", "0.5"))
        else:
            return f"{self.release} has no metric of CUDA graphs"
        return Alert(
            expression=f"{share} > {WITHOUT_GRAPH:g} and {busy}",
            summary="Decode runs without CUDA graphs",
            description="{value} of the decode passes run without a graph; "
            f"{WITHOUT_GRAPH:g} is the limit.",
            firing=(other, high),
            quiet=((other, low),),
            value=0.5,
        )

    def kv_pressure(self) -> Alert:
        usage = self.over("max", "avg_over_time", "token_usage")
        waiting = self.over("max", "min_over_time", "num_queue_reqs")
        full, waits = self.test("token_usage", "0.98+0x90"), self.test("num_queue_reqs", "3+0x90")
        return Alert(
            expression=f"{usage} > {FULL:g} and {waiting} > 0",
            minutes=10,
            summary="The KV cache is full and requests are waiting",
            description="{value} of the KV cache is used; "
            f"{FULL:g} is the limit. Drafts of waiting requests cannot start.",
            firing=(full, waits),
            quiet=(
                (full, self.test("num_queue_reqs", "0+0x90")),
                (self.test("token_usage", "0.6+0x90"), waits),
            ),
            value=0.98,
        )

    def stuck(self) -> Alert:
        running = self.over("max", "min_over_time", "num_running_reqs", time="5m")
        has = self.test("num_running_reqs", "4+0x90")
        if self.has("realtime_tokens_total"):
            moves = self.over("sum", "increase", "realtime_tokens_total", time="5m")
            still = self.test("realtime_tokens_total", "900+0x90", mode="decode")
            moving = self.test("realtime_tokens_total", "0+90x90", mode="decode")
        else:
            moves = self.over("max", "changes", "gen_throughput", time="5m")
            still = self.test("gen_throughput", "50+0x90")
            moving = self.test("gen_throughput", "0+1x90")
        watchdog = self.role.observed.watchdog
        own = f" The engine stops itself after {watchdog:g} s." if watchdog is not None else ""
        return Alert(
            expression=f"{running} > 0 unless {moves} > 0",
            minutes=5,
            severity="critical",
            summary="The scheduler has requests but makes no progress",
            description=f"{{value}} running requests, and no token in 5m.{own}",
            firing=(has, still),
            quiet=((has, moving), (self.test("num_running_reqs", "0+0x90"), still)),
            value=4,
        )

    def no_metrics(self) -> Alert:
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
            expression=f"{up} == 1 unless on ({self.by}) {running} or absent({up}) or {up} == 0",
            minutes=10,
            summary="The engine's metrics are missing",
            description="Prometheus cannot reach the server, or it shows no metrics of SGLang: the "
            "other alerts cannot fire. Check `enable_metrics`, the port and the scrape settings.",
            firing=(answers, *others),
            quiet=((answers, self.test("num_running_reqs", "0+0x90"), *others),),
            value=1,
        )


def _length(length: float) -> float:
    """Return an acceptance length, rounded so that 600 verifications give whole tokens."""
    return round(length * 600) / 600


def _counted(runs: tuple[tuple[float, int], ...], steps: int) -> str:
    """Return promtool samples of a token counter. `runs`: acceptance lengths and minutes."""
    parts, start = [], 0
    for length, minutes in runs:
        tokens = round(length * steps)
        parts.append(f"{start}+{tokens}x{minutes - 1}")
        start += tokens * minutes
    return " ".join(parts)


_TOKEN = lazy(r'"(?:[^"\\]|\\.)*"|\d[\w.]*|[A-Za-z_][\w:]*|=~|!~|!=|==|>=|<=|\S')
_NAME = lazy(r"[A-Za-z_][\w:]*\Z")
_LABEL_LISTS = ("by", "without", "on", "ignoring", "group_left", "group_right")
_OPERATORS = ("and", "or", "unless", "bool", "offset")
TARGET_LABELS = frozenset({"job", "instance", "role"})
"""Labels that Prometheus and the rendered scrape settings add to every series."""


def names_in(expression: str) -> tuple[dict[str, frozenset[str]], set[str]]:
    """Return an expression's metrics with their matched labels, and its grouping labels."""
    tokens = _TOKEN.findall(expression)
    metrics: dict[str, frozenset[str]] = {}
    grouped: set[str] = set()
    place = 0
    while place < len(tokens):
        token = tokens[place]
        following = tokens[place + 1] if place + 1 < len(tokens) else ""
        place += 1
        if not _NAME.match(token) or token in _OPERATORS:
            continue
        if token in _LABEL_LISTS:
            end = tokens.index(")", place)
            grouped.update(word for word in tokens[place:end] if _NAME.match(word))
            place = end
        elif following == "{":
            end = tokens.index("}", place)
            labels = frozenset(word for word in tokens[place:end] if _NAME.match(word))
            metrics[token] = metrics.get(token, frozenset()) | labels
            place = end
        elif following != "(" and following not in _LABEL_LISTS:
            metrics.setdefault(token, frozenset())
    return metrics, grouped


def unknown_names(
    expression: str, series: Mapping[str, Metric], recorded: frozenset[str]
) -> Iterator[str]:
    """Yield messages about metrics (except `recorded`) and labels that the release lacks."""
    metrics, grouped = names_in(expression)
    known = set(TARGET_LABELS)
    for name, labels in metrics.items():
        own: frozenset[str] = frozenset()
        if name in series:
            own = series[name].labels_of(name)
        elif name not in recorded and name != "up":
            yield f"the release has no metric {name}"
            continue
        known |= own
        yield from (f"{name} has no label {label}" for label in labels - own - TARGET_LABELS)
    yield from (f"no metric has the label {label}" for label in grouped - known)
