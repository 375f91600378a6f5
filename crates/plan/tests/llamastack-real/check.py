"""Levels A and B: load configurations with the classes of the first package on PYTHONPATH, without starting a server.

Reads a JSON list of cases from standard input and prints one JSON line with the problems of each case."""

import json
import os
import sys
import time

import llama_stack
import yaml
from llama_stack.core.datatypes import Api, StackConfig
from llama_stack.core.distribution import get_provider_registry
from llama_stack.core.stack import replace_env_vars
from llama_stack.core.utils.dynamic import instantiate_class_type

import ignored
import variables

DISABLED = (None, "", "__disabled__")


def one_line(error):
    """The error in one line; messages of the package span many lines."""
    if hasattr(error, "errors"):
        return "; ".join(": ".join(filter(None, [".".join(map(str, e["loc"])), e["msg"]])) for e in error.errors())
    return " ".join(str(error).split())


def load(text, environment):
    """Level A: substitute variables and apply the schema, as the server does."""
    os.environ.update(environment)
    try:
        given = replace_env_vars(yaml.safe_load(text))
    finally:
        for name in environment:
            del os.environ[name]
    return given, StackConfig(**given)


def check_providers(config):
    """Level B: the package has each provider, and the provider reads all of its configuration."""
    registry = get_provider_registry(config)
    known = {api.value if isinstance(api, Api) else str(api): specs for api, specs in registry.items()}
    for api, providers in config.providers.items():
        if api not in known:
            yield f"providers.{api}: unknown API; this server has {', '.join(sorted(known))}"
            continue
        for index, provider in enumerate(providers):
            where = f"providers.{api}[{index}]"
            if provider.provider_id in DISABLED or provider.module:
                continue
            spec = known[api].get(provider.provider_type)
            if spec is None:
                yield f"{where}: unknown provider type {provider.provider_type}"
                continue
            # APIs without providers are built into the server.
            needed = {api.value for api in spec.api_dependencies} & set(known)
            for missing in sorted(needed - set(config.providers)):
                yield f"{where} ({provider.provider_type}): needs the API {missing}, which has no provider"
            settings = provider.config or {}
            try:
                read = instantiate_class_type(spec.config_class)(**settings)
            except Exception as error:
                yield f"{where} ({provider.provider_type}): {one_line(error)}"
                continue
            for path in ignored.keys(settings, read, f"{where}.config"):
                yield f"{path}: ignored key; {provider.provider_type} does not read it"


def check(case):
    text = open(case["config"]).read()
    package_config = read_package_config(case["like"]) if case.get("like") else ""
    for kind in (variables.bare, variables.full):
        # Placeholders for services that only level C starts get a plausible value.
        given = {name: variables.value(name) if "{" in value else value for name, value in case.get("env", {}).items()}
        environment = kind(text + package_config) | given
        try:
            given, config = load(text, environment)
        except Exception as error:
            yield "A", one_line(error)
            return
        for path in ignored.keys(given, config, ""):
            yield "A", f"{path}: ignored key; the server does not read it"
        for problem in check_providers(config):
            yield "B", problem
        if package_config:
            _, expected = load(package_config, environment)
            for path, mine, wanted in ignored.diff(plain_values(config), plain_values(expected), ""):
                yield "A", f"{path}: {mine!r}, but the package's own {case['like']} has {wanted!r}"


def read_package_config(name):
    """The package's own file for a distribution, to which our base must be equivalent."""
    return open(os.path.join(os.path.dirname(llama_stack.__file__), "distributions", name, "config.yaml")).read()


def plain_values(config):
    """The configuration as plain values. The order of APIs has no meaning, so that they are sorted."""
    return config.model_dump() | {"apis": sorted(config.apis)}


def main():
    for case in json.load(sys.stdin):
        started = time.monotonic()
        # Both sets of variables usually have the same problems.
        problems = list(dict.fromkeys(check(case)))
        seconds = time.monotonic() - started
        print(json.dumps({"case": case["name"], "level": "A+B", "problems": problems, "seconds": round(seconds, 1)}), flush=True)


if __name__ == "__main__":
    main()
