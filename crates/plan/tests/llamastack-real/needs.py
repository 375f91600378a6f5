"""Whether we know what each provider of the package needs. Comes in: our lines on standard input; goes out: one JSON line
with every provider type of which we say something else than the package."""

import json
import sys

from llama_stack.core.distribution import get_provider_registry

# An API's name before 0.7, and now.
RENAMED = {"agents": "responses"}


def said(lines, api, kind):
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
            # What no provider can be written for, the server brings itself.
            needed = {other.value for other in spec.api_dependencies} & set(registry)
            needed = sorted(RENAMED.get(other, other) for other in needed)
            ours = said(lines, RENAMED.get(api, api), kind)
            if needed != ours:
                problems.append(["B", f"{api} {kind} needs {needed}; we say {ours}"])
    count = sum(map(len, registry.values()))
    print(json.dumps({"case": f"needs of {count} provider types", "level": "B", "problems": problems, "seconds": 0.0}))


if __name__ == "__main__":
    main()
