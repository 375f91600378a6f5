"""Finds the keys of a configuration that the package ignores silently, and differences between configurations."""

from pydantic import BaseModel

# Intentionally ignored keys. Each is allowed only together with the key that the server reads, with the same value.
ALLOWED_KEYS = {
    # FR-031 requires `url`, and this provider reads `base_url`: both are written.
    "url": "base_url",
    # The API key is written under both names for the same reason.
    "api_key": "api_token",
}
# FR-043 requires the user's tool groups; since 0.7 the server registers them itself and drops the list.
ALLOWED_LISTS = {"registered_resources.tool_groups"}


def keys(given, read, path):
    """Paths of keys that are in the given mappings but not in the objects that the package built from them."""
    if isinstance(given, dict) and isinstance(read, BaseModel):
        fields = type(read).model_fields
        names = {alias: name for name, field in fields.items() for alias in (name, field.alias) if alias}
        if type(read).model_config.get("extra") == "allow":
            return
        for key, value in given.items():
            where = f"{path}.{key}" if path else str(key)
            if key in names:
                yield from keys(value, getattr(read, names[key]), where)
            elif key not in ALLOWED_KEYS or given.get(ALLOWED_KEYS[key]) != value:
                yield where
    elif isinstance(given, dict) and isinstance(read, dict):
        for key, value in given.items():
            yield from keys(value, read.get(key), f"{path}.{key}")
    elif isinstance(given, list) and isinstance(read, list):
        if len(given) != len(read):
            if path not in ALLOWED_LISTS:
                yield f"{path} ({len(given)} entries given, {len(read)} kept)"
            return
        for index, (value, read_value) in enumerate(zip(given, read)):
            yield from keys(value, read_value, f"{path}[{index}]")


def diff(left, right, path):
    """Paths at which two plain values differ, with both values."""
    if isinstance(left, dict) and isinstance(right, dict):
        for key in sorted(left.keys() | right.keys()):
            yield from diff(left.get(key), right.get(key), f"{path}.{key}" if path else str(key))
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for index, (mine, wanted) in enumerate(zip(left, right)):
            yield from diff(mine, wanted, f"{path}[{index}]")
    elif left != right:
        yield path, left, right
