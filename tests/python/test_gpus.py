"""GPUs: tasks see those they were given and no others, and nobody gets one that somebody may still hold.

There need be none here: `PACELINE_FAKE_GPUS` pretends, and what a task may use is what it sees in its environment.
"""

from __future__ import annotations

import os
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import paceline as pl
from support import run_script


@contextmanager
def gpus(monkeypatch: pytest.MonkeyPatch, fake: str, **options: object) -> Iterator[pl.Cluster]:
    monkeypatch.setenv("PACELINE_FAKE_GPUS", fake)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with pl.connect(cpus=4, **options) as cluster:  # type: ignore[arg-type]
        yield cluster


def seen() -> str | None:
    return os.environ.get("CUDA_VISIBLE_DEVICES")


def together(folder: str, count: int) -> tuple[str | None, int]:
    """What this task sees, once so many of them run at the same time."""
    (Path(folder) / str(os.getpid())).touch()
    until = time.monotonic() + 20
    while len(os.listdir(folder)) < count:
        if time.monotonic() > until:
            raise TimeoutError(f"only {os.listdir(folder)} run together")
        time.sleep(0.005)
    return seen(), os.getpid()


def test_tasks_see_exactly_their_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with gpus(monkeypatch, "4"):
        pairs = pl.remote(gpus=2)(together).starmap([(str(tmp_path), 2)] * 2)
        ids = [text.split(",") for text, _ in pairs if text]
        assert sorted(ids[0] + ids[1]) == ["0", "1", "2", "3"], "two each, and none twice"
        assert all(pair == sorted(pair) for pair in ids), "in the order of the bus"
        order = pl.remote(gpus=1)(lambda: os.environ.get("CUDA_DEVICE_ORDER"))
        assert order() == "PCI_BUS_ID"


def test_each_process_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with gpus(monkeypatch, "4"):
        found = pl.remote(gpus=1)(together).starmap([(str(tmp_path), 4)] * 4)
        assert sorted(text for text, _ in found if text) == ["0", "1", "2", "3"]
        assert len({pid for _, pid in found}) == 4


def test_cpu_work_sees_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    with gpus(monkeypatch, "2"):
        assert pl.remote(seen)() == ""
        assert pl.remote(gpus=1)(seen)() in ("0", "1")
        assert pl.remote(seen)() == "", "nor after others had one"


def test_the_gpus_are_known_before_user_code_is_imported(tmp_path: Path) -> None:
    (tmp_path / "uses_gpus.py").write_text(
        textwrap.dedent(
            """
            import os
            SEEN = os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get("CUDA_DEVICE_ORDER")

            def at_import():
                return SEEN
            """
        )
    )
    done = run_script(
        f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        import paceline as pl
        import uses_gpus
        pl.connect(cpus=2)
        print(pl.remote(gpus=2)(uses_gpus.at_import)())
        print(pl.remote(uses_gpus.at_import)())
        """,
        env={"PACELINE_FAKE_GPUS": "2", "CUDA_VISIBLE_DEVICES": "1,0"},
    ).ok()
    assert done.stdout == "('0,1', 'PCI_BUS_ID')\n('', 'PCI_BUS_ID')\n"


def test_an_actor_sees_its_gpus_before_its_class_is_imported(tmp_path: Path) -> None:
    (tmp_path / "gpu_class.py").write_text(
        textwrap.dedent(
            """
            import os
            SEEN = os.environ.get("CUDA_VISIBLE_DEVICES")

            class Learner:
                def seen(self):
                    return SEEN, os.environ.get("CUDA_VISIBLE_DEVICES")
            """
        )
    )
    done = run_script(
        f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        import paceline as pl
        import gpu_class
        pl.connect(cpus=2)
        two, one, none = (pl.remote(cpus=0, gpus=gpus)(gpu_class.Learner)() for gpus in (2, 1, 0))
        print(two.seen(), one.seen(), none.seen())
        """,
        env={"PACELINE_FAKE_GPUS": "3"},
    ).ok()
    assert done.stdout == "('0,1', '0,1') ('2', '2') ('', '')\n"


def test_parts_of_a_gpu_are_shared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with gpus(monkeypatch, "2"):
        halves = pl.remote(gpus=0.5)(together).starmap([(str(tmp_path), 4)] * 4)
        assert sorted(text for text, _ in halves if text) == ["0", "0", "1", "1"]
        with pytest.raises(ValueError, match="gpus"):
            pl.remote(gpus=1.5)(seen)


def test_who_had_a_gpu_is_gone_before_another_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first process stays warm for its own kind of task, and may still have memory on the GPU."""

    def is_alive(pid: int) -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return True

    with gpus(monkeypatch, "1"):
        first = pl.remote(gpus=1)(os.getpid)()
        assert pl.remote(gpus=1)(os.getpid)() == first, "warm for the same"
        assert pl.remote(gpus=0.5)(is_alive)(first) is False
        half = pl.remote(gpus=0.5)(os.getpid)()
        assert half != first
        assert pl.remote(gpus=1)(is_alive)(half) is False


def test_a_gpu_is_free_again_when_its_task_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without waiting for any heartbeat, which come every two seconds."""
    with gpus(monkeypatch, "1"):
        whole, half = pl.remote(gpus=1)(seen), pl.remote(gpus=0.5)(seen)
        whole()
        began = time.monotonic()
        for _ in range(3):
            assert half() == whole() == "0"
        assert time.monotonic() - began < 6


def test_some_of_the_gpus_by_their_ids(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with gpus(monkeypatch, "4", gpus=[0, 2]):
        found = pl.remote(gpus=1)(together).starmap([(str(tmp_path), 2)] * 2)
        assert sorted(text for text, _ in found if text) == ["0", "2"]
        assert pl.remote(gpus=2)(seen)() == "0,2"


def test_a_number_of_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    with gpus(monkeypatch, "4", gpus=1):
        assert pl.remote(gpus=1)(seen)() == "0"
        with pytest.raises(pl.NoResources, match="GPU"):
            pl.remote(gpus=2)(seen)()
    with gpus(monkeypatch, "4", gpus=0), pytest.raises(pl.NoResources):
        pl.remote(gpus=1)(seen)()


def test_what_a_batch_system_leaves_to_us_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_FAKE_GPUS", "4")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,3")
    with pl.connect(cpus=1):
        assert pl.remote(gpus=2)(seen)() == "1,3"


@pytest.mark.parametrize(
    ("fake", "which", "text"),
    [
        ("2", [0, 5], "there is no GPU 5 here: this machine has GPU 0 (fake GPU, 16 of 16 GiB free), GPU 1"),
        ("2", [1, 1], "GPU 1 is named twice"),
        ("2", 3, "3 GPUs are more than can be used here: this machine has GPU 0"),
        ("2", "some", "'some' does not say which GPUs"),
        ("many", None, "PACELINE_FAKE_GPUS=many does not say how many GPUs"),
    ],
)
def test_gpus_that_are_not_here(monkeypatch: pytest.MonkeyPatch, fake: str, which: object, text: str) -> None:
    with pytest.raises(pl.NoSuchHardware) as caught, gpus(monkeypatch, fake, gpus=which):
        pass
    assert text in str(caught.value).replace('"', "'")
    assert "hint: " in str(caught.value)
    with gpus(monkeypatch, "2"):
        assert pl.remote(gpus=1)(seen)() in ("0", "1"), "and the next one works"


def test_without_a_driver_gpus_are_refused_and_the_rest_works(monkeypatch: pytest.MonkeyPatch) -> None:
    if os.path.exists("/dev/nvidiactl"):
        pytest.skip("this machine has an NVIDIA driver")
    monkeypatch.delenv("PACELINE_FAKE_GPUS", raising=False)
    with pytest.raises(pl.NoSuchHardware, match="no NVIDIA driver"):
        pl.connect(cpus=1, gpus=1)
    with pl.connect(cpus=1):
        assert pl.remote(seen)() == ""
        with pytest.raises(pl.NoResources, match="GPU"):
            pl.remote(gpus=1)(seen)()


def test_small_gpus_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    with gpus(monkeypatch, "2x16GB"):
        assert pl.remote(gpus=1, min_gpu_memory="12GB")(seen)() in ("0", "1")
        with pytest.raises(pl.NoResources, match="GPU"):
            pl.remote(gpus=1, min_gpu_memory="24GB")(seen)()


class OnGpu:
    """A worker that says which GPU it has."""

    def __init__(self) -> None:
        self.built_with = seen()

    def run(self, folder: str, count: int) -> tuple[str | None, int]:
        found = together(folder, count)
        assert found[0] == self.built_with
        return found

    def die(self) -> None:
        os.kill(os.getpid(), 9)


def test_a_pool_has_a_worker_for_each_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with gpus(monkeypatch, "3"), pl.WorkerPool(OnGpu, gpus=1) as pool:
        pool.wait_for_workers(3, timeout=20)
        found = pool.map([(str(tmp_path), 3)] * 3)
        assert sorted(text for text, _ in found if text) == ["0", "1", "2"]
        os.kill(found[0][1], 9)
        (tmp_path / "again").mkdir()
        again = pool.map([(str(tmp_path / "again"), 3)] * 3)
        assert sorted(text for text, _ in again if text) == ["0", "1", "2"], "the new one has the GPU of the old"
        assert len({pid for _, pid in again} - {pid for _, pid in found}) == 1
        assert pool.workers == 3


def test_two_pools_share_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with (
        gpus(monkeypatch, "1"),
        pl.WorkerPool(OnGpu, slots=1, gpus=0.5) as first,
        pl.WorkerPool(OnGpu, slots=1, gpus=0.5) as second,
    ):
        both = [pool.submit(str(tmp_path), 2) for pool in (first, second)]
        assert [future.result(20)[0] for future in both] == ["0", "0"]


def test_pools_and_actors_pass_over_small_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with gpus(monkeypatch, "2x16GB"):
        with pl.WorkerPool(OnGpu, gpus=1, min_gpu_memory="12GB") as pool:
            assert pool.map([(str(tmp_path), 1)])[0][0] in ("0", "1")
        with pl.WorkerPool(OnGpu, gpus=1, min_gpu_memory="24GB") as pool, pytest.raises(pl.NoResources, match="GPU"):
            pool.map([(str(tmp_path), 1)])
        with pl.Executor(1, gpus=1, min_gpu_memory="24GB") as executor, pytest.raises(pl.NoResources, match="GPU"):
            executor.submit(seen).result(20)
        with pytest.raises(pl.NoResources, match="GPU"):
            pl.remote(gpus=1, min_gpu_memory="24GB")(OnGpu)()
