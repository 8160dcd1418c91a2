"""Writes tests/support/kubernetes.json: of Kubernetes' own JSON schemas, the properties that the manifests in `deploy` use.

    pip download --no-deps kubernetes-validate && unzip kubernetes_validate-*.whl
    python tools/kubernetes.py kubernetes_validate/kubernetes-json-schema/v1.37.0-local-strict/_definitions.json

A property that no manifest uses is left out, so the test refuses a new one until this has run again.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "tests" / "support" / "kubernetes.json"
ORIGIN = "Kubernetes 1.37, Apache-2.0; from the package kubernetes-validate 1.37.0, Apache-2.0, by tools/kubernetes.py"
#: The kinds of the manifests.
ROOTS = (
    *(
        f"core.v1.{kind}"
        for kind in ("Namespace", "ConfigMap", "Secret", "ServiceAccount", "PersistentVolumeClaim", "Service")
    ),
    *("apps.v1.Deployment", "batch.v1.CronJob", "batch.v1.Job", "rbac.v1.Role", "rbac.v1.RoleBinding"),
)
#: Of the pods of run workers, which dagster-k8s makes.
OF_RUN_WORKERS = {"args", "automountServiceAccountToken", "imagePullPolicy", "imagePullSecrets", "labels"}
KEPT = {"type", "required", "additionalProperties", "oneOf", "items", "$ref", "enum"}


def main(source: Path) -> None:
    definitions = json.loads(source.read_text())["$defs"]
    texts = (path.read_text() for path in sorted((ROOT / "deploy").rglob("*.yaml")))
    names = OF_RUN_WORKERS.union(*(re.findall(r"(\w+):(?:\s|$)", text) for text in texts))
    found: dict[str, Any] = {}

    def pruned(schema: Any) -> Any:
        if not isinstance(schema, dict):
            return schema
        if "$ref" in schema:
            keep(schema["$ref"].rpartition("/")[2])
        kept = {key: pruned(value) for key, value in schema.items() if key in KEPT}
        if "oneOf" in kept:
            kept["oneOf"] = [pruned(one) for one in kept["oneOf"]]
        if "properties" in schema:
            kept["properties"] = {
                name: pruned(schema["properties"][name]) for name in sorted(names & {*schema["properties"]})
            }
        return kept

    def keep(name: str) -> None:
        if name not in found:
            found[name] = {}
            found[name] = pruned(definitions[name])

    for root in ROOTS:
        keep(f"io.k8s.api.{root}")
    TARGET.write_text(json.dumps({"$comment": ORIGIN, "$defs": found}, separators=(",", ":"), sort_keys=True) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
