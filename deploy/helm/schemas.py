#!/usr/bin/env python3
"""Cuts the JSON schemas that kubeconform needs from the OpenAPI document of Kubernetes.

usage: schemas.py swagger.json FOLDER

Each kind gets a file of its own with all definitions it refers to; properties that the
document does not name are refused, as an API server with strict validation does.
"""

import json
import os
import sys

swagger, folder = sys.argv[1:]
with open(swagger, encoding="utf-8") as f:
    definitions = json.load(f)["definitions"]
os.makedirs(folder, exist_ok=True)

for name, d in definitions.items():
    if name == "io.k8s.apimachinery.pkg.util.intstr.IntOrString":
        d.clear()
        d["oneOf"] = [{"type": "string"}, {"type": "integer"}]
    elif name == "io.k8s.apimachinery.pkg.api.resource.Quantity":
        d.clear()
        d["oneOf"] = [{"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?([eE][0-9]+|[KMGTPE]i?|[munk])?$"}, {"type": "number"}]
    elif "properties" in d and "additionalProperties" not in d and "x-kubernetes-preserve-unknown-fields" not in d:
        d["additionalProperties"] = False


def references(node, found):
    if isinstance(node, dict):
        ref = node.get("$ref")
        if isinstance(ref, str) and (name := ref.removeprefix("#/definitions/")) not in found:
            found.add(name)
            references(definitions[name], found)
        for child in node.values():
            references(child, found)
    elif isinstance(node, list):
        for child in node:
            references(child, found)


for name, d in definitions.items():
    for kind in d.get("x-kubernetes-group-version-kind", []):
        if d.get("properties", {}).keys() >= {"apiVersion", "kind", "metadata"}:
            found = set()
            references(d, found)
            schema = dict(d, definitions={n: definitions[n] for n in sorted(found)})
            schema["properties"] = dict(d["properties"], kind={"const": kind["kind"]})
            schema["required"] = sorted({"apiVersion", "kind", "metadata", *d.get("required", [])})
            group = kind["group"].split(".")[0]
            file = "-".join(part for part in (kind["kind"].lower(), group, kind["version"]) if part) + ".json"
            with open(os.path.join(folder, file), "w", encoding="utf-8") as f:
                json.dump(schema, f)
