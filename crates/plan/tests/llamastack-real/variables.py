"""Values for the environment variables that a config.yaml names."""

import re

REFERENCE = re.compile(r"\$\{env\.([A-Z0-9_]+)(?:(:[=+])([^}]*))?\}")

# Values by name suffix, for variables that the server rejects as plain text.
VALUES_BY_SUFFIX = {"_URL": "http://localhost:9", "_BASE": "http://localhost:9", "_HOST": "localhost", "_PORT": "5432"}
VALUES_BY_NAME = {"INFERENCE_MODEL": "meta-llama/Llama-3.1-8B-Instruct"}


def value(name):
    by_suffix = (value for suffix, value in VALUES_BY_SUFFIX.items() if name.endswith(suffix))
    return VALUES_BY_NAME.get(name) or next(by_suffix, "text")


def bare(text):
    """Required variables: those without a default."""
    return {name: value(name) for name, operator, _ in REFERENCE.findall(text) if not operator}


def full(text):
    """Variables that enable a provider, and those without a default or with an empty one."""
    return {name: value(name) for name, operator, default in REFERENCE.findall(text) if operator == ":+" or not default}
