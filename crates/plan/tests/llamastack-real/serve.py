"""Level C: the real server runs with the configuration. Comes in: one case as JSON on standard input; goes out: one JSON
line with its problems. What the case needs beside the server is started before it and ended with it."""

import contextlib
import json
import os
import pathlib
import secrets
import shutil
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request

import yaml

import backing
import variables

# Long, because it only matters when something is broken.
LIMIT = 300


def main():
    case = json.load(sys.stdin)
    started = time.monotonic()
    folder = pathlib.Path(case["folder"])
    folder.mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        password = case["prepared"].get("password") or secrets.token_hex(8) + "x"
        beside = {kind: stack.enter_context(backing.KINDS[kind](folder, password)) for kind in case.get("needs", [])}
        problems = serve(case, folder, beside)
    shutil.rmtree(folder)
    took = round(time.monotonic() - started, 1)
    found = [["C", text] for text in problems]
    print(json.dumps({"case": case["name"], "level": "C", "problems": found, "seconds": took}))


def serve(case, folder, beside):
    addresses = {f"{kind}.{key}": value for kind, (address, _) in beside.items() for key, value in address.items()}
    config = write_config(case, folder, addresses)
    listener = socket.create_server(("127.0.0.1", 0))
    address = f"{'https' if 'tls' in beside else 'http'}://127.0.0.1:{listener.getsockname()[1]}"
    command = [sys.executable, "-m", "uvicorn", "llama_stack.core.server.server:create_app", "--factory",
               "--fd", str(listener.fileno())]
    if "tls" in beside:
        command += ["--ssl-certfile", addresses["tls.cert"], "--ssl-keyfile", addresses["tls.key"]]
    log = folder / "log"
    with open(log, "wb") as output:
        server = subprocess.Popen(command, env=environment(case, folder, config, addresses), cwd=folder,
                                  stdout=output, stderr=output, pass_fds=[listener.fileno()])
    # With our copy gone, a server that has ended refuses instead of letting us wait.
    listener.close()
    trust = ssl.create_default_context(cafile=addresses["tls.cert"]) if "tls" in beside else None
    try:
        return list(answers(case, address, trust, server, log, beside))
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def filled(text, addresses):
    """`{postgres.port}` and its like, replaced by what was started."""
    for name, value in addresses.items():
        text = text.replace("{" + name + "}", str(value))
    return text


def write_config(case, folder, addresses):
    """The configuration as it is, but for places that name what was started here."""
    config = yaml.safe_load(open(case["config"]))
    for path, value in case.get("set", {}).items():
        *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
        place = config
        for parent in parents:
            place = place[parent]
        if value is None:
            del place[last]
        else:
            place[last] = yaml.safe_load(filled(value, addresses)) if isinstance(value, str) else value
    written = folder / "config.yaml"
    written.write_text(yaml.safe_dump(config))
    return written


def environment(case, folder, config, addresses):
    """Nothing of ours but what the server needs; the variables of the case win."""
    needed = variables.bare(config.read_text()) | {"SQLITE_STORE_DIR": folder, "FILES_STORAGE_DIR": folder / "files"}
    given = {name: filled(value, addresses) for name, value in case.get("env", {}).items()}
    kept = ("PATH", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "TIKTOKEN_CACHE_DIR", "HF_HUB_OFFLINE")
    ours = {name: os.environ[name] for name in kept}
    home = {"HOME": folder, "LLAMA_STACK_CONFIG": config}
    prepared = case["prepared"].get("variables", {})
    return {name: str(value) for name, value in (needed | prepared | given | ours | home).items()}


def answers(case, address, trust, server, log, beside):
    """What is wrong with the running server."""
    deadline = time.monotonic() + LIMIT

    def get(path, data=None):
        asked = urllib.request.Request(address + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked, timeout=LIMIT, context=trust) as answer:
            return json.load(answer)

    while True:
        try:
            health = get("/v1/health")
            break
        except (urllib.error.URLError, ConnectionError, TimeoutError) as error:
            if server.poll() is not None:
                yield f"the server stops: {last_words(log)}"
                return
            if time.monotonic() > deadline:
                yield f"the server does not answer: {error}"
                return
            time.sleep(0.05)
    if health != {"status": "OK"}:
        yield f"/v1/health answers {health}"
    providers = {}
    for provider in get("/v1/providers")["data"]:
        providers.setdefault(provider["api"], []).append(provider["provider_id"])
    for api, wanted in case.get("providers", {}).items():
        if sorted(providers.get(api, [])) != sorted(wanted):
            yield f"/v1/providers has {sorted(providers.get(api, []))} for {api}, not {sorted(wanted)}"
    models = sorted(model["id"] for model in get("/v1/models")["data"])
    if "models" in case and models != sorted(case["models"]):
        yield f"/v1/models has {models}, not {sorted(case['models'])}"
    # Tables are made with their first row, and only then is the database asked at all.
    try:
        kept = get("/v1/conversations", b'{"metadata": {"topic": "rudders"}}')
        if get(f"/v1/conversations/{kept['id']}") != kept:
            yield "a conversation is not read as it was written"
    except urllib.error.HTTPError as error:
        yield f"no conversation can be kept: {error}; {last_words(log)}"
    for kind, (_, used) in beside.items():
        if not used():
            yield f"the server has written nothing to {kind}"


def last_words(log):
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line or "error" in line]
    return (errors or lines or ["(it said nothing)"])[-1]


if __name__ == "__main__":
    main()
