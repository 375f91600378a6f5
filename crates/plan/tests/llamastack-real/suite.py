"""Checks every configuration with the real package.

The argument is the path of a JSON file with the packages, the embedded bases and the folders with cases. Prints one line per
check and a summary; exits with status 1 if a check fails.

A case is a folder with config.yaml and optionally expect.json, which may have these keys:
  versions   packages to check with; default: those of the base named by distro_name
  env        variables; placeholders such as {postgres.port} refer to started services
  like       distribution of the package to which the configuration must be equivalent
  differs    intended differences from it: path and reason
  ignored    keys that the server intentionally does not read: path and reason
  needs      services to start for the server: postgres, redis, tls
  prepared   true: services have a password with special characters, and the server gets the variables of the init container
  set        values by path that replace the configuration's while the server runs; null removes a value
  why        reason for `set`
  providers  expected /v1/providers by API (either this or `models` starts the server)
  models     expected /v1/models
  caught     {level, says}: a planted mistake, and the expected problem
"""

import json
import os
import pathlib
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import yaml

HERE = pathlib.Path(__file__).parent
DEFAULT_BASE = "starter"
KEYS = {"versions", "env", "like", "differs", "ignored", "needs", "prepared", "set", "why", "providers", "models", "caught"}


def run_script(packages, version, script, given):
    """Runs a script with the package of this version and returns its JSON lines."""
    search = [packages[version], str(HERE / "stand-ins"), os.environ["PYTHONPATH"]]
    completed = subprocess.run([sys.executable, str(HERE / script)], input=json.dumps(given), text=True, capture_output=True,
                               env=os.environ | {"PYTHONPATH": os.pathsep.join(search)})
    if completed.returncode != 0:
        raise RuntimeError(f"{script} with {version} failed:\n{completed.stderr[-4000:]}")
    return [json.loads(line) for line in completed.stdout.splitlines() if line.startswith("{")]


def read_case(name, config, expect_folder, bases):
    """The case with the keys of expect.json and the versions to check."""
    file = expect_folder / "expect.json"
    case = json.loads(file.read_text()) if file.exists() else {}
    unknown = case.keys() - KEYS
    if unknown:
        raise SystemExit(f"{file} has unknown keys: {', '.join(sorted(unknown))}")
    content = yaml.safe_load(config.read_text())
    named = content.get("distro_name") or content.get("image_name")
    versions = bases.get(named, bases[DEFAULT_BASE])
    return {"versions": versions} | case | {"name": name, "config": str(config)}


def read_cases(given):
    bases = {base["name"]: base["verified_with"] for base in given["bases"]}
    cases = []
    for base in given["bases"]:
        case = read_case(f"base {base['name']}", pathlib.Path(base["config"]), HERE / "bases" / base["name"], bases)
        cases.append(case | {"base": True, "versions": base["verified_with"]})
    for title, tree in given["trees"].items():
        found = sorted(pathlib.Path(tree).rglob("config.yaml"))
        print(f"{len(found)} {title}", flush=True)
        for config in found:
            name = f"{title.split()[0]} {config.parent.relative_to(tree)}"
            cases.append(read_case(name, config, config.parent, bases))
    return cases


def is_served(case):
    return case.get("caught", {}).get("level") == "C" or "models" in case or "providers" in case


def jobs(cases, given):
    """Jobs that can run in parallel: the checks of each version, and each server."""
    packages = given["packages"]
    for version in packages:
        yield version, lambda v=version: run_script(packages, v, "needs.py", given["needs"])
        yield version, lambda v=version: run_script(packages, v, "types.py", given["types"][v])
        checked = [case for case in cases if version in case["versions"]]
        yield version, lambda v=version, c=checked: run_script(packages, v, "check.py", c)
    for number, case in enumerate(cases):
        # A base runs with all its versions; a generated configuration runs with one, and levels A and B cover the others.
        for version in case["versions"] if case.get("base") else case["versions"][:1]:
            if is_served(case):
                prepared = given["prepared"] if case.get("prepared") else {}
                work = case | {"folder": f"{given['work']}/{number}-{version}", "prepared": prepared}
                yield version, lambda v=version, c=work: run_script(packages, v, "serve.py", c)


def evaluate(case, result):
    """Whether the result is as expected, the level, and a description."""
    problems = [(level, text) for level, text in result["problems"] if not is_intended(case, text)]
    caught = case.get("caught")
    level = result["level"]
    if caught and caught["level"] in level:
        hits = [text for found, text in problems if found == caught["level"] and caught["says"] in text]
        if hits:
            return True, level, f"caught: {hits[0]}"
        return False, level, f"NOT CAUGHT: {caught['says']!r}; said was {[text for _, text in problems]}"
    if caught:
        # Another level has to find the planted mistake.
        return not problems, level, "; ".join(text for _, text in problems)
    return not problems, level, "; ".join(f"level {level}: {text}" for level, text in problems)


def is_intended(case, text):
    """Whether expect.json declares this problem as intended."""
    for phrase, places in (("but the package's own", case.get("differs", {})), ("ignored key", case.get("ignored", {}))):
        if phrase in text and any(text.startswith(f"{path}: ") for path in places):
            return True
    return False


def main():
    given = json.loads(pathlib.Path(sys.argv[1]).read_text())
    started = time.monotonic()
    cases = read_cases(given)
    by_name = {case["name"]: case for case in cases}
    passed = failed = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        running = [(version, pool.submit(job)) for version, job in jobs(cases, given)]
        for version, future in running:
            try:
                results = future.result()
            except Exception as error:
                failed += 1
                print(f"FAILED with {version}: {error}", flush=True)
                continue
            for result in results:
                is_expected, level, description = evaluate(by_name.get(result["case"], {}), result)
                passed, failed = passed + is_expected, failed + (not is_expected)
                print(f"{'ok    ' if is_expected else 'FAILED'} {level:<3} {version} {result['seconds']:>5}s  {result['case']}"
                      + (f": {description}" if description else ""), flush=True)
    result_word = "FAILED" if failed else "ok"
    seconds = time.monotonic() - started
    print(f"test result: {result_word}. {passed} passed; {failed} failed; with llama-stack; finished in {seconds:.1f}s")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
