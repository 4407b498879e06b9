"""Read which pods Prometheus scrapes, from annotations and the operator's monitors.

`prometheus.io/{scrape,port,path}` annotations of a pod, or of a Service that selects it, follow
Prometheus's Kubernetes example (documentation/examples/prometheus-kubernetes.yml). PodMonitor and
ServiceMonitor belong to monitoring.coreos.com/v1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import yaml
from msgspec import Struct

from speclaunch.deployments.sources import nodes, pods
from speclaunch.deployments.sources.nodes import Entries
from speclaunch.deployments.sources.source_text import Document
from speclaunch.engine import Scrape

_ANNOTATION = "prometheus.io/"
_ON = "true"


class SelectedScrape(Struct, frozen=True):
    """Scrape of the pods with these labels, in all namespaces if no namespace is set."""

    namespace: str | None
    selector: Mapping[str, str]
    scrape: Scrape

    def reaches(self, namespace: str | None, labels: Mapping[str, str]) -> bool:
        """True if the scrape selects a pod."""
        same = self.namespace is None or namespace is None or self.namespace == namespace
        return same and bool(self.selector) and self.selector.items() <= labels.items()


def annotated(metadata: yaml.Node | None, subject: str, document: Document) -> Scrape | None:
    """Return the scrape that the annotations of a pod or Service request."""
    found = nodes.entries(nodes.entries(metadata).get("annotations"))
    if nodes.text(found.get(f"{_ANNOTATION}scrape")) != _ON:
        return None
    return Scrape(
        f"the annotation prometheus.io/scrape{subject}",
        nodes.place(found[f"{_ANNOTATION}scrape"], document),
        pods.setting(found.get(f"{_ANNOTATION}path"), document),
        pods.number_at(found.get(f"{_ANNOTATION}port"), document),
    )


def scrapes_in(roots: Sequence[Entries], document: Document) -> Iterator[SelectedScrape]:
    """Yield the scrapes that Services, PodMonitors and ServiceMonitors request."""
    services = [root for root in roots if nodes.text(root.get("kind")) == "Service"]
    for root in roots:
        kind = nodes.text(root.get("kind"))
        metadata = nodes.entries(root.get("metadata"))
        namespace, spec = nodes.text(metadata.get("namespace")), nodes.entries(root.get("spec"))
        name = nodes.text(metadata.get("name")) or "unnamed"
        if kind == "Service":
            scrape = annotated(root.get("metadata"), f" of the Service {name}", document)
            if scrape is not None:
                yield SelectedScrape(namespace, _selector(spec), scrape)
        elif kind == "PodMonitor":
            for endpoint in _endpoints(spec, "podMetricsEndpoints"):
                port = endpoint.get("portNumber", endpoint.get("targetPort"))
                scrape = _monitored(endpoint, port, f"the PodMonitor {name}", document)
                if scrape is not None:
                    yield SelectedScrape(namespace, _match_labels(spec), scrape)
        elif kind == "ServiceMonitor":
            chosen = _match_labels(spec)
            for service in services:
                own = nodes.entries(service.get("metadata"))
                if not chosen or not chosen.items() <= pods.texts_in(own.get("labels")).items():
                    continue
                its = nodes.entries(service.get("spec"))
                for endpoint in _endpoints(spec, "endpoints"):
                    target = endpoint.get("targetPort", _target(its, endpoint))
                    scrape = _monitored(endpoint, target, f"the ServiceMonitor {name}", document)
                    if scrape is not None:
                        yield SelectedScrape(namespace, _selector(its), scrape)


def _endpoints(spec: Entries, key: str) -> Iterator[Entries]:
    return (nodes.entries(item) for item in nodes.items(spec.get(key)))


def _monitored(
    endpoint: Entries, port: yaml.Node | None, subject: str, document: Document
) -> Scrape | None:
    """Return the scrape of an endpoint. Its port is unknown if the file states only a name."""
    shown = next((endpoint[key] for key in ("port", "targetPort", "path") if key in endpoint), port)
    if shown is None:
        return None
    place = nodes.place(shown, document)
    path = pods.setting(endpoint.get("path"), document)
    return Scrape(subject, place, path, pods.number_at(port, document))


def _selector(spec: Entries) -> dict[str, str]:
    return dict(pods.texts_in(spec.get("selector")))


def _match_labels(spec: Entries) -> dict[str, str]:
    selector = nodes.entries(spec.get("selector"))
    labels = pods.texts_in(selector.get("matchLabels"))
    return {} if "matchExpressions" in selector else dict(labels)


def _target(service: Entries, endpoint: Entries) -> yaml.Node | None:
    """Return the target port of the Service port that an endpoint names."""
    shown = nodes.text(endpoint.get("port"))
    for item in nodes.items(service.get("ports")):
        entry = nodes.entries(item)
        if nodes.text(entry.get("name")) == shown:
            return entry.get("targetPort", entry.get("port"))
    return None
