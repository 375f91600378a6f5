"""Reads specs as the profiler does. Comes in: a file with a JSON object of names and specs; goes out: a JSON object with what
was wrong with each, empty where all of it was understood."""

import json
import sys

from dynamo.profiler.utils.dgdr_v1beta1_types import DynamoGraphDeploymentRequestSpec


def beyond(given, read, path=""):
    """What was given and not read, or read as something else."""
    if isinstance(given, dict) and isinstance(read, dict):
        return [found for name in given for found in beyond(given[name], read.get(name), f"{path}.{name}")]
    return [] if given == read else [f"{path}: {given!r} is read as {read!r}"]


def judged(spec):
    try:
        read = DynamoGraphDeploymentRequestSpec.model_validate(spec)
    except ValueError as error:
        return [str(error)]
    return beyond(spec, read.model_dump(mode="json", by_alias=True, exclude_unset=True))


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        specs = json.load(file)
    print(json.dumps({name: judged(spec) for name, spec in specs.items()}))
