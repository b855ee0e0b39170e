"""The doctor finds what is there and says how to get what is not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from goldiclip import doctor
from goldiclip.cli import main


def test_a_healthy_machine_is_told_so(tmp_path: Path) -> None:
    findings = {finding.name: finding for finding in doctor.examine(tmp_path)}
    assert findings["Python"].verdict == "good"
    assert findings["torch"].verdict == "good"
    assert findings["disk"].found.endswith(str(tmp_path))
    assert all(finding.remedy for finding in findings.values() if finding.verdict != "good")


def test_a_missing_package_comes_with_its_command_and_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: None)
    missing = {finding.name: finding for finding in doctor.examine() if finding.verdict == "missing"}
    assert "goldiclip[serve]" in missing["faiss"].remedy
    assert "search" in missing["faiss"].remedy


def test_what_is_too_old_is_named_with_the_version_to_get(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.importlib.metadata, "version", lambda name: "2.9.1+cu126" if name == "torch" else "99")
    bad = {finding.name: finding for finding in doctor.examine() if finding.verdict == "bad"}
    assert set(bad) == {"torch"}
    assert "2.9.1" in bad["torch"].found
    assert bad["torch"].remedy == "pip install 'torch>=2.11'"


def test_a_package_that_is_not_there_is_asked_for_in_its_oldest_good_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name in doctor.REQUIRED:
            raise doctor.importlib.metadata.PackageNotFoundError(name)
        return "1"

    monkeypatch.setattr(doctor.importlib.metadata, "version", version)
    bad = {finding.name: finding.remedy for finding in doctor.examine() if finding.verdict == "bad"}
    assert bad["timm"] == "pip install 'timm>=1.0.20'"
    assert set(bad) == set(doctor.REQUIRED)


def test_a_torch_whose_libraries_are_missing_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "torch":
                raise OSError("libcudart.so.13: cannot open shared object file")

    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    (gpu,) = (finding for finding in doctor.examine() if finding.name == "GPU")
    assert gpu.verdict == "bad"
    assert "libcudart" in gpu.found
    assert "reinstall torch" in gpu.remedy


def test_what_stops_everything_makes_the_command_fail(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.show([doctor.Finding("torch", "bad", "not installed", "pip install torch")]) == 1
    assert "pip install torch" in capsys.readouterr().out


def test_the_command_prints_its_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    assert "shared memory" in capsys.readouterr().out
