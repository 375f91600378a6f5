"""Level C: run the real server with a configuration and the services that it needs.

Reads one case as JSON from standard input and prints one JSON line with its problems."""

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

# Generous, because a working server never reaches it.
START_TIMEOUT_SECONDS = 300


def main():
    case = json.load(sys.stdin)
    started = time.monotonic()
    folder = pathlib.Path(case["folder"])
    folder.mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        password = case["prepared"].get("password") or secrets.token_hex(8) + "x"
        services = {kind: stack.enter_context(backing.KINDS[kind](folder, password)) for kind in case.get("needs", [])}
        problems = serve(case, folder, services)
    shutil.rmtree(folder)
    seconds = round(time.monotonic() - started, 1)
    found = [["C", text] for text in problems]
    print(json.dumps({"case": case["name"], "level": "C", "problems": found, "seconds": seconds}))


def serve(case, folder, services):
    addresses = {f"{kind}.{key}": value for kind, (address, _) in services.items() for key, value in address.items()}
    config = write_config(case, folder, addresses)
    listener = socket.create_server(("127.0.0.1", 0))
    address = f"{'https' if 'tls' in services else 'http'}://127.0.0.1:{listener.getsockname()[1]}"
    command = [sys.executable, "-m", "uvicorn", "llama_stack.core.server.server:create_app", "--factory",
               "--fd", str(listener.fileno())]
    if "tls" in services:
        command += ["--ssl-certfile", addresses["tls.cert"], "--ssl-keyfile", addresses["tls.key"]]
    log = folder / "log"
    with open(log, "wb") as output:
        server = subprocess.Popen(command, env=environment(case, folder, config, addresses), cwd=folder,
                                  stdout=output, stderr=output, pass_fds=[listener.fileno()])
    # Without our copy of the socket, requests to a server that has ended fail immediately.
    listener.close()
    trust = ssl.create_default_context(cafile=addresses["tls.cert"]) if "tls" in services else None
    try:
        return list(find_problems(case, address, trust, server, log, services))
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def fill_placeholders(text, addresses):
    """Replaces placeholders such as `{postgres.port}` by the addresses of started services."""
    for name, value in addresses.items():
        text = text.replace("{" + name + "}", str(value))
    return text


def write_config(case, folder, addresses):
    """Writes the configuration, with the values of `set` that refer to started services."""
    config = yaml.safe_load(open(case["config"]))
    for path, value in case.get("set", {}).items():
        *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
        place = config
        for parent in parents:
            place = place[parent]
        if value is None:
            del place[last]
        else:
            place[last] = yaml.safe_load(fill_placeholders(value, addresses)) if isinstance(value, str) else value
    config_path = folder / "config.yaml"
    config_path.write_text(yaml.safe_dump(config))
    return config_path


def environment(case, folder, config, addresses):
    """The environment of the server: only variables that it needs. Variables of the case take precedence."""
    needed = variables.bare(config.read_text()) | {"SQLITE_STORE_DIR": folder, "FILES_STORAGE_DIR": folder / "files"}
    given = {name: fill_placeholders(value, addresses) for name, value in case.get("env", {}).items()}
    kept = ("PATH", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "TIKTOKEN_CACHE_DIR", "HF_HUB_OFFLINE")
    ours = {name: os.environ[name] for name in kept}
    home = {"HOME": folder, "LLAMA_STACK_CONFIG": config}
    prepared = case["prepared"].get("variables", {})
    return {name: str(value) for name, value in (needed | prepared | given | ours | home).items()}


def find_problems(case, address, trust, server, log, services):
    """Problems of the running server."""
    deadline = time.monotonic() + START_TIMEOUT_SECONDS

    def get(path, data=None):
        request = urllib.request.Request(address + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=START_TIMEOUT_SECONDS, context=trust) as answer:
            return json.load(answer)

    while True:
        try:
            health = get("/v1/health")
            break
        except (urllib.error.URLError, ConnectionError, TimeoutError) as error:
            if server.poll() is not None:
                yield f"the server stops: {last_error(log)}"
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
    # The server creates tables, and connects to the database, only with the first row.
    try:
        kept = get("/v1/conversations", b'{"metadata": {"topic": "rudders"}}')
        if get(f"/v1/conversations/{kept['id']}") != kept:
            yield "a conversation is not read as it was written"
    except urllib.error.HTTPError as error:
        yield f"no conversation can be kept: {error}; {last_error(log)}"
    for kind, (_, is_used) in services.items():
        if not is_used():
            yield f"the server has written nothing to {kind}"


def last_error(log):
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line or "error" in line]
    return (errors or lines or ["(it said nothing)"])[-1]


if __name__ == "__main__":
    main()
