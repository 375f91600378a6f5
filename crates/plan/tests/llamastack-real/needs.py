"""Compares our table of API dependencies with the providers of the package.

Reads the table from standard input and prints one JSON line with every provider type whose dependencies differ."""

import json
import sys

from llama_stack.core.distribution import get_provider_registry

# Name of an API before 0.7, and its current name.
RENAMED = {"agents": "responses"}


def dependencies_of(lines, api, kind):
    for line in lines:
        if line["api"] == api and kind.startswith(line["kind"]):
            return line["needs"]
    return []


def main():
    lines = json.load(sys.stdin)
    registry = {api.value: specs for api, specs in get_provider_registry().items()}
    problems = []
    for api, specs in registry.items():
        for kind, spec in specs.items():
            # APIs without providers are built into the server.
            needed = {other.value for other in spec.api_dependencies} & set(registry)
            needed = sorted(RENAMED.get(other, other) for other in needed)
            ours = dependencies_of(lines, RENAMED.get(api, api), kind)
            if needed != ours:
                problems.append(["B", f"{api} {kind} needs {needed}; we say {ours}"])
    count = sum(map(len, registry.values()))
    print(json.dumps({"case": f"needs of {count} provider types", "level": "B", "problems": problems, "seconds": 0.0}))


if __name__ == "__main__":
    main()
