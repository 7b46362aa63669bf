"""How many CPUs count as ours, on machines made of files."""

import os
import time
from pathlib import Path

import pytest

import paceline as pl
from paceline._machine import usable_cpus


@pytest.fixture(autouse=True)
def many_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))


def machine(root: Path, groups: str, **files: str) -> str:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(groups)
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


def v1(quota: int, period: int = 100_000, at: str = "cpu,cpuacct") -> dict[str, str]:
    return {f"{at}__cpu_dot_cfs_quota_us": f"{quota}\n", f"{at}__cpu_dot_cfs_period_us": f"{period}\n"}


def test_no_cgroup_at_all(tmp_path: Path) -> None:
    assert usable_cpus(str(tmp_path), {}) == 64


def test_affinity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {5})
    assert usable_cpus(str(tmp_path), {}) == 1


@pytest.mark.parametrize(
    ("quota", "cpus"),
    [("200000 100000", 2), ("150000 100000", 1), ("50000 100000", 1), ("max 100000", 64), ("nonsense", 64), ("", 64)],
)
def test_version_2(tmp_path: Path, quota: str, cpus: int) -> None:
    root = machine(tmp_path, "0::/user/job\n", user__job__cpu_dot_max=f"{quota}\n")
    assert usable_cpus(root, {}) == cpus


def test_version_2_counts_the_groups_above(tmp_path: Path) -> None:
    files = {"user__job__cpu_dot_max": "800000 100000", "user__cpu_dot_max": "300000 100000"}
    assert usable_cpus(machine(tmp_path, "0::/user/job\n", **files), {}) == 3


def test_version_2_in_a_container(tmp_path: Path) -> None:
    root = machine(tmp_path, "0::/docker/of/the/host\n", cpu_dot_max="400000 100000")
    assert usable_cpus(root, {}) == 4


def test_version_2_beside_version_1(tmp_path: Path) -> None:
    root = machine(tmp_path, "0::/job\n", unified__job__cpu_dot_max="500000 100000")
    assert usable_cpus(root, {}) == 5


@pytest.mark.parametrize("mount", ["cpu,cpuacct", "cpu"])
def test_version_1(tmp_path: Path, mount: str) -> None:
    groups = "5:memory:/job\n4:cpu,cpuacct:/job\n1:name=systemd:/\n"
    root = machine(tmp_path, groups, **v1(600_000, at=f"{mount}__job"))
    assert usable_cpus(root, {}) == 6


def test_version_1_without_a_quota(tmp_path: Path) -> None:
    assert usable_cpus(machine(tmp_path, "4:cpu,cpuacct:/job\n", **v1(-1)), {}) == 64


def test_version_1_in_a_container(tmp_path: Path) -> None:
    assert usable_cpus(machine(tmp_path, "4:cpu,cpuacct:/docker/abc\n", **v1(200_000)), {}) == 2


@pytest.mark.parametrize(
    ("environment", "cpus"),
    [
        ({"SLURM_CPUS_PER_TASK": "4", "SLURM_CPUS_ON_NODE": "8"}, 4),
        ({"SLURM_CPUS_ON_NODE": "8"}, 8),
        ({"SLURM_CPUS_ON_NODE": "8(x2)"}, 64),
        ({"SLURM_CPUS_ON_NODE": "0"}, 64),
        ({"SLURM_CPUS_ON_NODE": "100"}, 64),
    ],
)
def test_slurm(tmp_path: Path, environment: dict[str, str], cpus: int) -> None:
    assert usable_cpus(str(tmp_path), environment) == cpus


def test_a_node_may_have_more_slots_than_cpus(tmp_path: Path) -> None:
    """They share the CPUs there are."""

    def together(folder: str, count: int) -> int:
        (Path(folder) / str(os.getpid())).touch()
        until = time.monotonic() + 30
        while len(os.listdir(folder)) < count:
            if time.monotonic() > until:
                raise TimeoutError(f"only {os.listdir(folder)} run together")
            time.sleep(0.01)
        return os.getpid()

    with pl.connect(cpus=12):
        pids = pl.remote(together).starmap([(str(tmp_path), 12)] * 12, chunksize=1)
    assert len(set(pids)) == 12
