"""Checks the manifests of examples/kubernetes, and runs their commands: check.py PROGRAM.

What the API's schemas do not see is checked here as well: the Pod Security standard "restricted",
names that have to fit, and whether the program takes the commands and answers the probes.
"""

import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any, Iterator

import yaml
from jsonschema import Draft202012Validator
from kubernetes_validate import SchemaNotFoundError, ValidationError, validate

HERE = Path(__file__).parent
MANIFESTS = HERE.parent.parent / "examples" / "kubernetes"
# The first one with sidecars, the one in which they became stable, and the newest one.
VERSIONS = ["1.29", "1.33", "1.37"]
RESTRICTED = Draft202012Validator(yaml.safe_load((HERE / "restricted.yaml").read_text()))
LISTEN = "--listen=0.0.0.0:8080"


def against_schema(manifest: dict[str, Any]) -> Iterator[str]:
    for version in VERSIONS:
        try:
            validate(manifest, version, strict=True)
        except ValidationError as error:
            yield f"in Kubernetes {version}: {error.json_path}: {error.message}"
        except SchemaNotFoundError as error:
            yield error.message


def containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [*pod.get("initContainers", []), *pod["containers"]]


def against_others(manifest: dict[str, Any], manifests: list[dict[str, Any]]) -> Iterator[str]:
    """Names that do not fit."""
    templates = [other["spec"]["template"] for other in manifests if other["kind"] == "Deployment"]
    configured = [other["metadata"]["name"] for other in manifests if other["kind"] == "ConfigMap"]

    def selected(labels: dict[str, str]) -> list[dict[str, Any]]:
        return [its for its in templates if labels.items() <= its["metadata"]["labels"].items()]

    spec = manifest.get("spec", {})
    match manifest["kind"]:
        case "Service":
            pods = selected(spec["selector"])
            ports = {
                port[key]
                for its in pods
                for container in its["spec"]["containers"]
                for port in container.get("ports", [])
                for key in ("name", "containerPort")
            }
            for port in spec["ports"]:
                if port.get("targetPort", port["port"]) not in ports:
                    yield f"no selected pod has the port {port}"
        case "PodDisruptionBudget":
            if len(selected(spec["selector"]["matchLabels"])) != 1:
                yield "its selector is not that of one Deployment"
        case "Deployment":
            template = spec["template"]
            pod = template["spec"]
            selectors = [spec["selector"]]
            selectors += [one["labelSelector"] for one in pod["topologySpreadConstraints"]]
            if any(selected(one["matchLabels"]) != [template] for one in selectors):
                yield "its selectors are not those of its own pods alone"
            volumes = {volume["name"]: volume for volume in pod.get("volumes", [])}
            for volume in volumes.values():
                if "configMap" in volume and volume["configMap"]["name"] not in configured:
                    yield f"there is no ConfigMap for {volume}"
            for container in containers(pod):
                for mount in container.get("volumeMounts", []):
                    if mount["name"] not in volumes:
                        yield f"there is no volume for {mount}"
                ports = {port["name"] for port in container.get("ports", [])}
                for probe in probes(container):
                    if probe["port"] not in ports:
                        yield f"there is no port for {probe}"


def probes(container: dict[str, Any]) -> list[dict[str, Any]]:
    kinds = ["startupProbe", "livenessProbe", "readinessProbe"]
    return [container[kind]["httpGet"] for kind in kinds if kind in container]


def free_port() -> int:
    with socket.create_server(("", 0)) as server:
        return int(server.getsockname()[1])


def answer_of(url: str) -> object:
    try:
        return urllib.request.urlopen(url, timeout=5).status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError as error:
        return error


def command_of(container: dict[str, Any]) -> list[str]:
    """The command, if it is a call of the program."""
    is_ours = "/incumbent:" in container["image"]
    command = container.get("command", ["/incumbent"] if is_ours else [])
    return command + container.get("args", []) if command[:1] == ["/incumbent"] else []


def run(program: str, container: dict[str, Any], grace: float) -> Iterator[str]:
    """Runs a command on a store in a file, and does what a kubelet does: asks its probes until they
    say yes, and then asks it to end."""
    command = command_of(container)
    if LISTEN not in command:
        yield f"{command} has no {LISTEN}, where the probes ask"
        return
    told = subprocess.run([program, command[1], "--help"], capture_output=True, text=True).stdout
    for name in (entry["name"] for entry in container["env"]):
        if f"[env: {name}]" not in told:
            yield f"incumbent {command[1]} has no variable {name}"

    port = free_port()
    command = [program if part == "/incumbent" else part for part in command]
    command[command.index(LISTEN)] = f"--listen=0.0.0.0:{port}"
    with tempfile.TemporaryDirectory() as directory:
        worker = Path(directory, "worker")
        worker.write_text("#!/bin/sh\nexec sleep 100\n")
        worker.chmod(0o755)
        environment = {"PATH": os.environ["PATH"], "INCUMBENT_STORE": f"sqlite:{directory}/store"}
        process = subprocess.Popen(
            command, cwd=directory, env=environment, text=True, stdout=DEVNULL, stderr=PIPE
        )
        try:
            for path in [*(probe["path"] for probe in probes(container)), "/leader"]:
                url = f"http://127.0.0.1:{port}{path}"
                until = time.monotonic() + 20
                while (answer := answer_of(url)) != 200:
                    if process.poll() is not None or time.monotonic() > until:
                        yield f"{path} answers {answer}"
                        break
                    time.sleep(0.02)
            process.terminate()
            said = process.communicate(timeout=grace)[1]
            if process.returncode != 0:
                yield f"the program ends with status {process.returncode}, and says: {said}"
        except subprocess.TimeoutExpired:
            yield f"the program does not end within {grace} s (terminationGracePeriodSeconds)"
        finally:
            process.kill()
            process.communicate()


def faults_of(
    manifest: dict[str, Any], manifests: list[dict[str, Any]], program: str
) -> Iterator[str]:
    yield from against_schema(manifest)
    yield from against_others(manifest, manifests)
    if manifest["kind"] != "Deployment":
        return
    pod = manifest["spec"]["template"]["spec"]
    for error in RESTRICTED.iter_errors(pod):
        yield f"not restricted: {error.json_path}: {error.message}"
    grace = pod.get("terminationGracePeriodSeconds", 30)
    for container in containers(pod):
        command = command_of(container)
        stop_timeout = re.search(r"--stop-timeout=(\d+)s", " ".join(command))
        if stop_timeout and grace < int(stop_timeout[1]) + 10:
            yield "terminationGracePeriodSeconds is less than --stop-timeout and 10 s"
        if command:
            yield from run(program, container, grace)


def main() -> int:
    program = os.path.abspath(sys.argv[1])
    files = [
        (path.name, manifest)
        for path in sorted(MANIFESTS.glob("*.yaml"))
        for manifest in yaml.safe_load_all(path.read_text())
    ]
    manifests = [manifest for _, manifest in files]
    faults = [
        f"{file}: {manifest['kind']} {manifest['metadata']['name']}: {fault}"
        for file, manifest in files
        for fault in faults_of(manifest, manifests, program)
    ]
    print("\n".join(faults) or f"{len(files)} manifests hold in Kubernetes {', '.join(VERSIONS)}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
