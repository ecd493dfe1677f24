"""An API server on loopback that keeps objects and answers as Kubernetes does; a test plays the controllers."""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jsonschema_rs

DATA = Path(__file__).resolve().parents[3] / "data" / "kubernetes"
OBJECT = re.compile(
    r"/(?:api/v1|apis/(?P<group>[^/]+)/v[0-9a-z]+)/namespaces/(?P<space>[^/]+)/(?P<plural>[a-z]+)"
    r"(?:/(?P<name>[^/]+))?(?P<log>/log)?"
)


def schema(kind: str) -> dict[str, Any]:
    """The closed schema of a custom resource, `jobset` or `trainjob`."""
    values: dict[str, Any] = json.loads((DATA / f"{kind}.json").read_text())
    return values


class FakeKubernetes:
    """Objects by (plural, name), pods with their logs, and every call that was made."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.pods: list[dict[str, Any]] = []
        self.logs: dict[str, str] = {}
        self.calls: list[tuple[str, str]] = []
        self.refuse = ""
        self.schemas = {
            f"{kind}s": jsonschema_rs.validator_for(schema(kind)) for kind in ("jobset", "trainjob")
        }
        fake = self

        class Handler(_Handler):
            cluster = fake

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def kubeconfig(self, path: Path) -> Path:
        """A kubeconfig that leads here."""
        address = f"http://127.0.0.1:{self._server.server_address[1]}"
        name = {"name": "fake"}
        values = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "fake",
            "clusters": [{**name, "cluster": {"server": address}}],
            "users": [{**name, "user": {}}],
            "contexts": [{**name, "context": {"cluster": "fake", "user": "fake"}}],
        }
        path.write_text(json.dumps(values))
        return path

    def add_pod(self, jobset: str, node: int, phase: str = "Running") -> str:
        """A pod of a JobSet, as its controller makes it."""
        name = f"{jobset}-node-0-{node}-abcde"
        labels = {
            "jobset.sigs.k8s.io/jobset-name": jobset,
            "batch.kubernetes.io/job-completion-index": str(node),
        }
        self.pods.append({"metadata": {"name": name, "labels": labels}, "status": {"phase": phase}})
        return name

    def stop(self) -> None:
        """End the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    cluster: FakeKubernetes

    def do_GET(self) -> None:
        found = self._place()
        if found["log"]:
            text = self.cluster.logs.get(found["name"])
            self._send(200, text) if text is not None else self._fail(400, "container is waiting to start")
        elif found["plural"] == "pods":
            label, _, value = parse_qs(urlsplit(self.path).query)["labelSelector"][0].partition("=")
            pods = [pod for pod in self.cluster.pods if pod["metadata"]["labels"].get(label) == value]
            self._send(200, {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": pods})
        else:
            known = self.cluster.objects.get((found["plural"], found["name"]))
            self._send(200, known) if known else self._fail(404, f"{found['name']} not found")

    def do_POST(self) -> None:
        found = self._place()
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        key = (found["plural"], body["metadata"]["name"])
        checker = self.cluster.schemas.get(found["plural"])
        if self.cluster.refuse:
            self._fail(403, self.cluster.refuse)
        elif key in self.cluster.objects:
            self._fail(409, "already exists")
        elif checker and not checker.is_valid(body):
            self._fail(422, str(next(iter(checker.iter_errors(body)))))
        else:
            self.cluster.objects[key] = body
            self._send(201, body)

    def do_DELETE(self) -> None:
        found = self._place()
        known = self.cluster.objects.pop((found["plural"], found["name"]), None)
        self._send(200, {"kind": "Status", "status": "Success"}) if known else self._fail(404, "not found")

    def log_message(self, format: str, *args: object) -> None:
        """Keep the call instead of writing it."""
        self.cluster.calls.append((self.command, urlsplit(self.path).path))

    def _place(self) -> dict[str, str]:
        match = OBJECT.fullmatch(urlsplit(self.path).path)
        assert match, self.path
        return match.groupdict()

    def _fail(self, status: int, message: str) -> None:
        self._send(status, {"kind": "Status", "status": "Failure", "message": message, "code": status})

    def _send(self, status: int, body: object) -> None:
        text = body if isinstance(body, str) else json.dumps(body)
        raw = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain" if isinstance(body, str) else "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)
