"""What docs/cluster.md and the files under examples/ say to type can be typed, and does what it should."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from processes import free_port, steps_of

import goldiclip.train.command as command
from goldiclip.cli import main
from goldiclip.config import Config, to_yaml
from goldiclip.train import train

ROOT = Path(__file__).resolve().parents[2]
MANIFEST, SLURM = ROOT / "examples/pytorchjob.yaml", ROOT / "examples/slurm.sh"
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), SLURM]


def typed(document: Path) -> Iterator[list[str]]:
    """The words after `goldiclip` of every whole command that a document has for `train` and `plan`."""
    for line in document.read_text().replace("\\\n", " ").splitlines():
        if found := re.search(r"goldiclip(?:\.cli)? ((?:train|plan(?! annotate)) [^`#]+)", line):
            yield shlex.split(found[1].removesuffix(";").replace('"$@"', "tiny"))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_line_to_train_or_plan_can_be_typed(document: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Config] = []

    def ask(recipe: str, words: Any, **options: Any) -> None:
        asked.append(command.requested(recipe if recipe.islower() else "cc3m", words))

    monkeypatch.setattr(command, "run", ask)
    monkeypatch.setattr(command, "show_plan", ask)
    lines = [words for words in typed(document) if "…" not in words and words[1:2] != ["--resume"]]
    for words in lines:
        assert main(words) == 0, words
    assert len(asked) == len(lines)


def container() -> dict[str, Any]:
    spec = yaml.safe_load(MANIFEST.read_text())["spec"]
    assert spec["pytorchReplicaSpecs"]["Master"] == spec["pytorchReplicaSpecs"]["Worker"]
    (found,) = spec["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"]
    assert found["name"] == "pytorch", "the operator gives its variables to this container alone"
    return dict(found)


def test_the_manifest_gives_every_gpu_a_process_and_every_folder_a_volume() -> None:
    spec, pod = yaml.safe_load(MANIFEST.read_text())["spec"], container()
    assert int(spec["nprocPerNode"]) == pod["resources"]["limits"]["nvidia.com/gpu"]
    mounts = {mount["mountPath"]: mount for mount in pod["volumeMounts"]}
    assert {"/data", "/runs", "/dev/shm"} <= mounts.keys()
    volumes = spec["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["volumes"]
    assert {volume["name"] for volume in volumes} == {mount["name"] for mount in mounts.values()}


def test_kubectl_reads_the_manifest() -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    words = ["kubectl", "label", "--local", "-f", str(MANIFEST), "read=yes", "-o", "yaml"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert yaml.safe_load(done.stdout)["spec"] == yaml.safe_load(MANIFEST.read_text())["spec"]


@pytest.mark.distributed
@pytest.mark.slow
def test_the_manifests_command_trains_on_two_nodes(small_run: Callable[..., Config], tmp_path: Path) -> None:
    """Two torchruns with the variables that the operator gives its pods, as if each were on a machine of its own."""
    config = small_run("run.samples=48")
    (tmp_path / "config.yaml").write_text(to_yaml(config))
    program, *options = container()["command"]
    assert program == "torchrun"
    words = [*options, "train", str(tmp_path / "config.yaml"), f"--out={tmp_path / 'run'}", container()["args"][-1]]
    shared = {"PET_NNODES": "2", "PET_NPROC_PER_NODE": "1", "PET_MASTER_ADDR": "127.0.0.1"}
    shared |= {"PET_MASTER_PORT": str(free_port()), "PYTHONWARNINGS": "ignore"}
    pods = [
        subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", *words],
            env={**os.environ, **shared, "PET_NODE_RANK": str(rank)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    said = [pod.communicate(timeout=180)[1] for pod in pods]
    assert [pod.returncode for pod in pods] == [0, 0], said[0][-3_000:]
    train(config, out=tmp_path / "alone")
    for ours, reference in zip(steps_of(tmp_path / "run"), steps_of(tmp_path / "alone"), strict=True):
        assert ours["batch_hash"] == reference["batch_hash"]
        assert ours["total"] == pytest.approx(reference["total"], rel=2e-4)


def test_the_slurm_script_is_a_script() -> None:
    subprocess.run(["bash", "-n", str(SLURM)], check=True)
    options = re.findall(r"^#SBATCH --([\w-]+)(?:=(\S+))?$", SLURM.read_text(), flags=re.M)
    assert dict(options)["signal"] == "USR1@120"
    assert dict(options)["ntasks-per-node"] == dict(options)["gpus-per-node"]


@pytest.mark.distributed
@pytest.mark.slow
def test_slurm_runs_the_script(small_run: Callable[..., Config], tmp_path: Path) -> None:
    if shutil.which("sbatch") is None or subprocess.run(["sinfo"], capture_output=True, check=False).returncode:
        pytest.skip("no Slurm answers here")
    (tmp_path / "config.yaml").write_text(to_yaml(small_run("run.samples=48")))
    here = ["--nodes=1", "--ntasks-per-node=2", "--gpus-per-node=0", "--cpus-per-task=1", "--wait"]
    words = [str(SLURM), str(tmp_path / "config.yaml"), "--out", str(tmp_path / "run")]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    submit = ["sbatch", *here, f"--output={tmp_path / 'said.txt'}", *words]
    done = subprocess.run(submit, env={**os.environ, "PATH": path}, timeout=180, check=False)
    assert done.returncode == 0, (tmp_path / "said.txt").read_text()[-3_000:]
    assert len(steps_of(tmp_path / "run")) == 6
