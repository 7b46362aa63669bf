"""Values that are kept on a node and go by reference."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import paceline as pl
from support import assert_nothing_left, run_script, wait_until
from support.memory import proportional

numpy = pytest.importorskip("numpy")

MIB = 1 << 20


@pl.remote
def total(values: Any) -> float:
    return float(values.sum())


@pl.remote
def overwrite(values: Any) -> float:
    values[:] = 7
    return float(values.sum())


@pl.remote
def same(value: Any) -> Any:
    return value


@pl.remote
def parts(box: dict[str, list[Any]], *, more: Any = None) -> tuple[float, str, Any]:
    array, word = box["both"]
    return float(array[1]), word, more


@pl.remote
def made(count: int) -> pl.Ref[Any]:
    return pl.put(numpy.ones(count))


@pl.remote
def made_in_a_box(count: int) -> dict[str, Any]:
    ref = pl.put(numpy.ones(count))
    return {"ref": ref, "again": [ref, pl.put("small")]}


def kept(cluster: pl.Cluster) -> dict[str, Any]:
    """What the store says of itself."""
    found = cluster.status()["nodes"][0]["objects"]
    assert isinstance(found, dict)
    return found


def nothing_kept(cluster: pl.Cluster) -> None:
    gc.collect()
    wait_until(lambda: kept(cluster)["count"] == 0 and kept(cluster)["memory"] == 0, "every object to go")


@pytest.fixture
def narrow() -> Iterator[pl.Cluster]:
    """A node that keeps 8 MiB of objects in memory."""
    with pl.connect(cpus=1, object_memory="8MiB") as cluster:
        yield cluster


@pytest.mark.parametrize(
    "value", [None, 7, "text", b"bytes" * 100_000, {"a": [1, 2.5]}, list(range(50_000)), bytearray(b"x" * 200_000)]
)
def test_what_is_put_is_got(cluster: pl.Cluster, value: Any) -> None:
    ref = pl.put(value)
    assert pl.get(ref) == value
    assert same(ref) == value
    assert type(pl.get(ref)) is type(value)


def test_a_reference_arrives_as_its_value(cluster: pl.Cluster) -> None:
    array = numpy.arange(300_000, dtype=float)
    large, small = pl.put(array), pl.put("word")
    assert total(large) == array.sum()
    assert [future.result() for future in [total.submit(large) for _ in range(50)]] == [array.sum()] * 50
    assert total.map([large, large]) == [array.sum()] * 2
    assert parts({"both": [large, small]}, more=small) == (1.0, "word", "word")
    beside = same([large, numpy.ones(300_000), small])
    assert [float(beside[0].sum()), float(beside[1].sum()), beside[2]] == [array.sum(), 300_000, "word"]


def test_what_is_written_is_seen_by_nobody_else(cluster: pl.Cluster) -> None:
    array = numpy.arange(100_000, dtype=float)
    ref = pl.put(array)
    array[0] = 99  # the object has what was there when it was put
    mine = pl.get(ref)
    mine[1] = 55
    for _ in range(4):
        assert overwrite(ref) == 700_000
    assert list(pl.get(ref)[:3]) == [0, 1, 2]
    assert list(mine[:3]) == [0, 55, 2]
    few = pl.put(numpy.zeros(3))
    pl.get(few)[0] = 1
    assert overwrite(few) == 21
    assert pl.get(few).sum() == 0


def test_objects_of_the_main_script() -> None:
    script = """
        import paceline as pl

        class Point:
            def __init__(self, x):
                self.x = x

        pl.connect(cpus=1)
        ref = pl.put(Point(5))
        print(pl.get(ref).x, pl.remote(lambda point: point.x + 1)(ref))
        """
    assert run_script(script).ok().stdout == "5 6\n"


def test_tasks_make_objects(cluster: pl.Cluster) -> None:
    ref = made(100_000)
    assert isinstance(ref, pl.Ref)
    assert total(ref) == 100_000
    box = made_in_a_box(50_000)
    assert total(box["ref"]) == 50_000
    assert box["again"][0] == box["ref"]
    assert pl.get(box["again"][1]) == "small"
    assert len({ref, box["ref"], box["again"][0]}) == 2


def test_objects_in_objects_stay_references(cluster: pl.Cluster) -> None:
    inner = pl.put(numpy.ones(100_000))
    outer = pl.put({"inner": inner, "word": "yes"})
    del inner
    gc.collect()
    found = pl.get(outer)
    assert total(found["inner"]) == 100_000
    assert pl.remote(lambda box: float(pl.get(box["inner"]).sum()))(outer) == 100_000
    del found, outer
    nothing_kept(cluster)


def test_a_function_may_close_over_a_reference(cluster: pl.Cluster) -> None:
    ref = pl.put(numpy.ones(100_000))
    assert pl.remote(lambda: float(pl.get(ref).sum()))() == 100_000


def test_objects_go_with_the_last_reference(cluster: pl.Cluster) -> None:
    refs = [pl.put(numpy.ones(20_000)) for _ in range(5)]
    refs.append(pl.put("small"))
    assert kept(cluster)["count"] == 6
    assert kept(cluster)["memory"] > 5 * 160_000
    futures = [same.submit(ref) for ref in refs]
    del refs  # the calls keep them
    assert [type(future.result()).__name__ for future in futures] == ["ndarray"] * 5 + ["str"]
    del futures
    nothing_kept(cluster)
    ref = made(50_000)
    assert kept(cluster)["count"] == 1
    again = pl.get(ref)
    del ref
    gc.collect()
    assert again.sum() == 50_000
    del again
    nothing_kept(cluster)


def test_a_slot_that_dies_holds_nothing(cluster: pl.Cluster) -> None:
    @pl.remote(cpus=0)
    class Keeper:
        def keep(self) -> int:
            self.ref = pl.put(numpy.ones(100_000))
            return os.getpid()

    keeper = Keeper()
    pid = keeper.keep()
    assert kept(cluster)["count"] == 1
    os.kill(pid, signal.SIGKILL)
    nothing_kept(cluster)


def test_a_result_outlives_the_slot_that_made_it(cluster: pl.Cluster) -> None:
    @pl.remote(cpus=0)
    class Maker:
        def make(self) -> tuple[int, pl.Ref[Any]]:
            return os.getpid(), pl.put(numpy.ones(100_000))

    maker = Maker()
    pid, ref = maker.make()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the slot to end")
    assert pl.get(ref).sum() == 100_000


def test_actors_and_pools_take_references(cluster: pl.Cluster) -> None:
    @pl.remote(cpus=0)
    class Model:
        def __init__(self, weights: Any) -> None:
            self.weights = weights

        def total(self, more: Any) -> float:
            return float(self.weights.sum() + more.sum())

    ref = pl.put(numpy.ones(100_000))
    assert Model(ref).total(ref) == 200_000
    with pl.Pool(2) as pool:
        assert pool.map(total.original, [ref, ref]) == [100_000.0] * 2


@pl.remote(cpus=0)
class User:
    """Has an object mapped, and has read all of it."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def total(self) -> float:
        return float(self.values.sum())

    def proportional(self) -> int:
        return proportional()


def one_copy(size: int, slots: int) -> None:
    with pl.connect(cpus=1) as cluster:
        bare = [User(numpy.ones(1)) for _ in range(slots)]
        assert [user.total() for user in bare] == [1] * slots
        before = sum(user.proportional() for user in bare)
        ref = pl.put(numpy.ones(size // 8))
        users = [User(ref) for _ in range(slots)]
        assert [user.total() for user in users] == [size // 8] * slots
        grown = sum(user.proportional() for user in users) - before
        assert grown < 1.25 * size, "all of them together have one copy"
        assert kept(cluster)["memory"] < size + MIB


def test_a_node_has_one_copy_for_all_its_slots() -> None:
    one_copy(32 * MIB, 4)


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_node_has_one_copy_of_a_gigabyte_for_eight_slots() -> None:
    one_copy(1024 * MIB, 8)


def test_beyond_the_limit_objects_go_to_disk(narrow: pl.Cluster) -> None:
    arrays = [numpy.full(3 * MIB // 8, index, dtype=float) for index in range(6)]
    refs = [pl.put(array) for array in arrays]
    state = kept(narrow)
    assert state["count"] == 6
    assert state["memory"] <= state["limit"] == 8 * MIB
    assert state["disk"] >= 4 * 3 * MIB
    for array, ref in zip(arrays, refs, strict=True):
        assert total(ref) == array.sum()
        assert (pl.get(ref) == array).all()
        assert overwrite(ref) == 7 * len(array)
        assert (pl.get(ref) == array).all()
    del refs, ref
    nothing_kept(narrow)
    assert kept(narrow)["disk"] == 0


def test_what_is_larger_than_the_limit_is_refused(narrow: pl.Cluster) -> None:
    with pytest.raises(pl.StoreFull, match=r"9 MiB.*8 MiB") as caught:
        pl.put(numpy.zeros(9 * MIB // 8))
    assert caught.value.limit == 8 * MIB
    assert "PACELINE_OBJECT_MEMORY" in str(caught.value)
    assert pl.get(pl.put(numpy.ones(MIB // 8))).sum() == MIB // 8


def test_full_of_what_is_in_use(narrow: pl.Cluster) -> None:
    ref = pl.put(numpy.ones(6 * MIB // 8))
    used = pl.get(ref)  # mapped here: it cannot go to disk
    with pytest.raises(pl.StoreFull, match="in use"):
        pl.put(numpy.ones(4 * MIB // 8), wait=0.2)
    assert used.sum() == len(used)
    del used
    assert pl.get(pl.put(numpy.ones(4 * MIB // 8))).sum() == 4 * MIB // 8
    assert pl.get(ref).sum() == 6 * MIB // 8


def test_a_disk_that_cannot_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "nowhere"))
    with pl.connect(cpus=1, object_memory="8MiB") as cluster:
        ref = pl.put(numpy.ones(6 * MIB // 8))
        with pytest.raises(pl.StoreFull, match="disk failed") as caught:
            pl.put(numpy.ones(4 * MIB // 8), wait=0.5)
        assert caught.value.disk
        assert total(ref) == 6 * MIB // 8
        del ref
        nothing_kept(cluster)
        assert total(pl.put(numpy.ones(4 * MIB // 8))) == 4 * MIB // 8


FULL_DISK = """
import os, time
import numpy
import paceline as pl

MIB = 1 << 20
def array(value): return numpy.full(3 * MIB // 8, value, dtype=float)
def free(): return os.statvfs(os.environ["TMPDIR"]).f_bavail * os.statvfs(os.environ["TMPDIR"]).f_bsize

@pl.remote
def total(array): return float(array.sum())

def sound(refs): return [total(ref) for ref in refs] == [float(array(value).sum()) for value in range(len(refs))]

with pl.connect(cpus=1, object_memory="8MiB") as cluster:
    refs = [pl.put(array(value)) for value in range(3)]  # two fit into memory, and one onto the disk of four MiB
    assert 3 * MIB <= cluster.status()["nodes"][0]["objects"]["disk"] < 4 * MIB
    left = free()
    assert left < 3 * MIB
    try:
        pl.put(array(3), wait=0.5)
    except pl.StoreFull as error:
        print(error)
        assert error.disk
    else:
        raise AssertionError("there was no room for it")
    assert free() == left, "what could not be written whole is not left there"
    assert sound(refs)
    assert sum((pl.get(ref) == array(value)).all() for value, ref in enumerate(refs)) == 3
    refs[1:] = []  # the node goes on: there is room again
    refs += [pl.put(array(value), wait=10) for value in (1, 2)]
    assert sound(refs)
    del refs
    until = time.monotonic() + 10
    while free() < 4 * MIB:
        assert time.monotonic() < until, "the disk is not given back"
        time.sleep(0.01)
print("went on")
"""


def test_a_full_disk_is_told_and_the_node_goes_on(tmp_path: Path) -> None:
    """A disk of its own, of four MiB, in a mount namespace of its own."""
    disk = tmp_path / "disk"
    disk.mkdir()
    alone = ["unshare", "--mount", *([] if os.getuid() == 0 else ["--map-root-user"])]
    mounted = ["sh", "-c", f'mount -t tmpfs -o size=4m none {disk} && exec "$@"', "sh"]
    done = run_script(FULL_DISK, env={"TMPDIR": str(disk)}, prefix=[*alone, *mounted])
    assert done.returncode == 0, done.stderr
    assert "No space left on device" in done.stdout
    assert "went on" in done.stdout
    assert_nothing_left(done)


def test_a_reference_of_a_cluster_that_has_ended() -> None:
    with pl.connect(cpus=1):
        ref = pl.put(numpy.ones(100_000))
    with pytest.raises(pl.ClusterClosed):
        pl.get(ref)


def test_references_are_no_plain_pickles_secret(cluster: pl.Cluster) -> None:
    ref = pl.put([1, 2, 3])
    assert pl.get(pickle.loads(pickle.dumps(ref))) == [1, 2, 3]
    with pytest.raises(TypeError, match="get takes a reference"):
        pl.get(7)  # type: ignore[call-overload]


@pytest.mark.parametrize("how", ["ends", "is killed"])
def test_nothing_is_left(how: str) -> None:
    script = """
        import numpy, os, signal, sys
        import paceline as pl

        pl.connect(cpus=2, object_memory="8MiB")
        refs = [pl.put(numpy.ones(300_000)) for _ in range(6)]
        futures = [pl.remote(lambda values: float(values.sum())).submit(ref) for ref in refs]
        print([future.result() for future in futures][0], flush=True)
        if os.environ["HOW"] == "is killed":
            os.kill(os.getpid(), signal.SIGKILL)
        """
    run = run_script(script, env={"HOW": how})
    assert run.stdout.startswith("300000.0")
    assert_nothing_left(run)


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_a_forked_child_has_no_part_in_it(cluster: pl.Cluster) -> None:
    ref = pl.put(numpy.ones(100_000))
    mine = pl.get(ref)
    child = os.fork()
    if child == 0:
        fine = mine.sum() == 100_000
        del ref, mine
        gc.collect()
        os._exit(0 if fine else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert total(ref) == 100_000


@pl.remote
def filled(count: int, value: float = 1.0) -> Any:
    return numpy.full(count, value)


@pl.remote
def fails() -> None:
    raise LookupError("no luck")


def test_results_that_are_kept(cluster: pl.Cluster) -> None:
    future = filled.options(keep=True).submit(200_000, 2.0)
    ref = future.result()
    assert isinstance(ref, pl.Ref)
    assert total(ref) == 400_000
    assert pl.get(ref)[0] == 2
    assert kept(cluster)["count"] == 1
    assert [pl.get(one).sum() for one in filled.options(keep=True).map([3, 4])] == [3, 4]
    assert type(filled.options(keep=True).options(keep=False)(3)).__name__ == "ndarray"  # type: ignore[call-overload]
    del ref, future
    nothing_kept(cluster)
    with pytest.raises(LookupError, match="no luck"):
        fails.options(keep=True)()


def test_futures_as_arguments(cluster: pl.Cluster) -> None:
    parts = [filled.submit(10, value) for value in (1.0, 2.0)]
    assert total.submit(parts[0]).result() == 10
    chain = same.submit(1)
    for _ in range(10):
        chain = same.submit(chain)
    assert chain.result() == 1
    both = same.submit({"here": [parts[1], filled.options(keep=True).submit(5, 3.0)]}).result()
    assert [float(array.sum()) for array in both["here"]] == [20, 15]
    assert total(filled.submit(4)) == 4  # a plain call waits for it, too


def test_an_input_that_fails(cluster: pl.Cluster) -> None:
    with pytest.raises(LookupError, match="no luck"):
        same.submit(fails.submit()).result()
    ended = fails.submit()
    with pytest.raises(LookupError):
        ended.result()
    with pytest.raises(LookupError, match="no luck"):
        same.submit([ended]).result()
    with pytest.raises(pl.ArgumentNotSerializable, match="lock"):
        same.submit([filled.submit(1), threading.Lock()]).result()


def test_a_task_that_waits_can_be_cancelled(cluster: pl.Cluster, tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    def waits(path: str) -> int:
        import os
        import time

        while not os.path.exists(path):
            time.sleep(0.005)
        return 1

    first = pl.remote(waits).submit(str(gate))
    second = same.submit(first)
    third = same.submit(second)
    assert not second.done()
    assert "waits for the tasks whose results are its arguments" in second.explain()
    assert second.cancel()
    assert second.cancelled()
    wait_until(third.cancelled, "what waits for a cancelled task to be cancelled")
    fourth = same.submit(first)
    gate.touch()
    assert fourth.result() == 1


def test_methods_take_futures_that_have_ended(cluster: pl.Cluster, tmp_path: Path) -> None:
    @pl.remote(cpus=0)
    class Echo:
        def echo(self, value: Any) -> Any:
            return value

    echo = Echo()
    ended = filled.submit(3)
    assert ended.result() is not None
    assert echo.echo(ended).sum() == 3
    with pytest.raises(pl.ArgumentNotSerializable, match="a future that has not ended"):
        echo.echo(same.submit(pl.remote(lambda: __import__("time").sleep(1)).submit()))
