"""As much of kustomize as the files in deploy/kubernetes use; whatever else a file asks for is an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

Document = dict[str, Any]
_KNOWN = {
    *("apiVersion", "kind", "namespace", "resources", "labels", "images", "patches"),
    *("secretGenerator", "generatorOptions"),
}


def built(folder: Path) -> list[Document]:
    """Every document of the kustomization in `folder`, as `kubectl kustomize` would print it."""
    wanted: Document = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert wanted.keys() <= _KNOWN, wanted.keys() - _KNOWN
    documents: list[Document] = []
    for name in wanted["resources"]:
        path = folder / name
        documents += built(path) if path.is_dir() else [d for d in yaml.safe_load_all(path.read_text()) if d]
    for patch in wanted.get("patches", []):
        for part in yaml.safe_load_all((folder / patch["path"]).read_text()):
            _apply(documents, part)
    for generated in wanted.get("secretGenerator", []):
        assert wanted["generatorOptions"] == {"disableNameSuffixHash": True}
        data = {Path(file).name: "c2VjcmV0" for file in generated["files"]}
        named = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": generated["name"]}, "type": "Opaque"}
        documents.append({**named, "data": data})
    for document in documents:
        for more in wanted.get("labels", []):
            assert more.keys() == {"pairs"}
            document["metadata"].setdefault("labels", {}).update(more["pairs"])
        if "namespace" in wanted and document["kind"] != "Namespace":
            document["metadata"]["namespace"] = wanted["namespace"]
        for image in wanted.get("images", []):
            _rename(document, image)
    return documents


def _apply(documents: list[Document], patch: Document) -> None:
    """A strategic merge of mappings, and of the lists of network policies, which a patch replaces."""
    key = (patch["kind"], patch["metadata"]["name"])
    (found,) = [one for one in documents if (one["kind"], one["metadata"]["name"]) == key]
    _merge(found, patch, replaces_lists=patch["kind"] == "NetworkPolicy")


def _merge(into: Document, patch: Document, *, replaces_lists: bool) -> None:
    for name, value in patch.items():
        assert replaces_lists or not isinstance(value, list), "lists are merged by keys that this does not know"
        if isinstance(value, dict):
            _merge(into.setdefault(name, {}), value, replaces_lists=replaces_lists)
        elif value is None:
            del into[name]
        else:
            into[name] = value


def _rename(node: Any, image: Document) -> None:
    if isinstance(node, list):
        for one in node:
            _rename(one, image)
    elif isinstance(node, dict):
        for name, value in node.items():
            if name == "image" and isinstance(value, str) and value.rpartition(":")[0] == image["name"]:
                node[name] = f"{image.get('newName', image['name'])}:{image['newTag']}"
            else:
                _rename(value, image)
