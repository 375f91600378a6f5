"""The environment variables that a configuration names. Comes in: the text of a config.yaml; goes out: values for them."""

import re

REFERENCE = re.compile(r"\$\{env\.([A-Z0-9_]+)(?:(:[=+])([^}]*))?\}")

# By the end of the name: what the server accepts where plain text would be refused.
SHAPES = {"_URL": "http://localhost:9", "_BASE": "http://localhost:9", "_HOST": "localhost", "_PORT": "5432"}
EXACT = {"INFERENCE_MODEL": "meta-llama/Llama-3.1-8B-Instruct"}


def value(name):
    return EXACT.get(name) or next((shape for end, shape in SHAPES.items() if name.endswith(end)), "text")


def bare(text):
    """Only what has to be set: names without a default."""
    return {name: value(name) for name, operator, _ in REFERENCE.findall(text) if not operator}


def full(text):
    """All that switches something on, and all that has no default or an empty one."""
    return {name: value(name) for name, operator, default in REFERENCE.findall(text) if operator == ":+" or not default}
