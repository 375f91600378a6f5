"""Compares our table of provider types with the providers of the package.

Reads the types that we know for this version from standard input and prints one JSON line with every difference: a type that only
one side has, a required key that we neither write nor ask for, and a key that we ask for and the package does not require."""

import importlib
import json
import sys

from llama_stack.core.distribution import get_provider_registry

APIS = {"inference", "safety", "vector_io", "tool_runtime"}


def required_keys(spec):
    module, name = spec.config_class.rsplit(".", 1)
    fields = getattr(importlib.import_module(module), name).model_fields
    return {field.alias or key for key, field in fields.items() if field.is_required()}


def main():
    ours = {(known["api"], known["type"]): known for known in json.load(sys.stdin) if known["api"] in APIS}
    theirs = {(api.value, kind): spec for api, specs in get_provider_registry().items() if api.value in APIS
              for kind, spec in specs.items()}
    problems = [["B", f"{api} {kind} is in one of both tables only"] for api, kind in sorted(ours.keys() ^ theirs.keys())]
    for api, kind in sorted(ours.keys() & theirs.keys()):
        known, required = ours[api, kind], required_keys(theirs[api, kind])
        missing = sorted(required - set(known["required"]) - set(known["written"]))
        needless = sorted(set(known["required"]) - required)
        if missing or needless:
            problems.append(["B", f"{api} {kind} requires {sorted(required)}; missing: {missing}, not required: {needless}"])
    print(json.dumps({"case": f"{len(theirs)} provider types", "level": "B", "problems": problems, "seconds": 0.0}))


if __name__ == "__main__":
    main()
