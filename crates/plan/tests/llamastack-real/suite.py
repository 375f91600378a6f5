"""Every configuration against the real package. Comes in: the path of a JSON file that names the packages, the embedded
bases and the folders with cases; goes out: one line per check, a closing line, and status 1 if anything is wrong.

A case is a folder with config.yaml. Beside it expect.json may say:
  versions   packages to check with; without it those of the base named by distro_name
  env        variables, where {postgres.port} and its like stand for what was started
  like       the distribution of the package that the configuration must mean the same as
  differs    where it does not mean the same: path and reason
  ignored    keys that the server does not read and that are there on purpose: path and reason
  needs      postgres, redis, tls: started for the server
  prepared   true: what was started has an odd password, and the server gets the variables that the init container writes
  set        path of the configuration and what stands there instead while the server runs; null: nothing
  why        the reason for that
  providers  by API, what /v1/providers must list     (one of these two: the server is started)
  models     what /v1/models must list
  caught     {level, says}: a planted mistake, and what must be said of it
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


def python(packages, version, script, given):
    """Runs one of the scripts with a package of this version and returns its JSON lines."""
    search = [packages[version], str(HERE / "stand-ins"), os.environ["PYTHONPATH"]]
    done = subprocess.run([sys.executable, str(HERE / script)], input=json.dumps(given), text=True, capture_output=True,
                          env=os.environ | {"PYTHONPATH": os.pathsep.join(search)})
    if done.returncode != 0:
        raise RuntimeError(f"{script} with {version} failed:\n{done.stderr[-4000:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def read_case(name, config, beside, bases):
    """The case with what expect.json says of it and the versions it is for."""
    file = beside / "expect.json"
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
    """What can run side by side: the checks of one version, and each server."""
    packages = given["packages"]
    for version in packages:
        yield version, lambda v=version: python(packages, v, "needs.py", given["needs"])
        checked = [case for case in cases if version in case["versions"]]
        yield version, lambda v=version, c=checked: python(packages, v, "check.py", c)
    for number, case in enumerate(cases):
        # A base has to run with all of its versions; of a generated one the checks above have seen the others.
        for version in case["versions"] if case.get("base") else case["versions"][:1]:
            if is_served(case):
                prepared = given["prepared"] if case.get("prepared") else {}
                work = case | {"folder": f"{given['work']}/{number}-{version}", "prepared": prepared}
                yield version, lambda v=version, c=work: python(packages, v, "serve.py", c)


def verdict(case, result):
    """Whether this is as it should be, and in which words."""
    problems = [(level, text) for level, text in result["problems"] if not is_meant(case, text)]
    caught = case.get("caught")
    level = result["level"]
    if caught and caught["level"] in level:
        hits = [text for found, text in problems if found == caught["level"] and caught["says"] in text]
        if hits:
            return True, level, f"caught: {hits[0]}"
        return False, level, f"NOT CAUGHT: {caught['says']!r}; said was {[text for _, text in problems]}"
    if caught:
        # It is for another level to find.
        return not problems, level, "; ".join(text for _, text in problems)
    return not problems, level, "; ".join(f"level {level}: {text}" for level, text in problems)


def is_meant(case, text):
    """Whether expect.json gives a reason for just this."""
    for words, places in (("but the package's own", case.get("differs", {})), ("ignored key", case.get("ignored", {}))):
        if words in text and any(text.startswith(f"{path}: ") for path in places):
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
                good, level, words = verdict(by_name.get(result["case"], {}), result)
                passed, failed = passed + good, failed + (not good)
                print(f"{'ok    ' if good else 'FAILED'} {level:<3} {version} {result['seconds']:>5}s  {result['case']}"
                      + (f": {words}" if words else ""), flush=True)
    word = "FAILED" if failed else "ok"
    took = time.monotonic() - started
    print(f"test result: {word}. {passed} passed; {failed} failed; with llama-stack; finished in {took:.1f}s")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
