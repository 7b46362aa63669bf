"""Large buffers: they arrive whole and writable, and nobody else sees a write."""

from __future__ import annotations

import gc
import hashlib
import mmap
import os
import pickle
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import paceline as pl

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

MIB = 1 << 20


@pl.remote
def total(array: Array) -> int:
    return int(array.sum(dtype=np.int64))


@pl.remote
def filled(count: int, value: int) -> Array:
    return np.full(count, value, np.uint8)


@pl.remote
def same(value: Any) -> Any:
    return value


@pl.remote
def overwritten(array: Array, value: int) -> tuple[int, int]:
    before = int(array[0])
    array[:] = value
    return before, int(array.sum(dtype=np.int64))


def maps(pid: int | str = "self") -> int:
    return Path(f"/proc/{pid}/maps").read_text().count("memfd:paceline")


SIZES = [0, 1, 4096, 8 * 1024 - 1, 8 * 1024, 28_000, 128 * 1024 - 1, 128 * 1024, 128 * 1024 + 1, MIB + 13, 9 * MIB]


@pytest.mark.parametrize("size", SIZES)
def test_arrays_of_all_sizes_come_back_as_they_were(cluster: pl.Cluster, size: int) -> None:
    rng = np.random.default_rng(size)
    array = rng.integers(0, 256, size, np.uint8)
    came = same(array)
    assert came.dtype == array.dtype
    assert came.shape == array.shape
    assert (came == array).all()
    assert came.flags.writeable
    assert came.flags.aligned


@pytest.mark.parametrize("kind", ["f8", ">i4", "c16", "M8[s]", "S3", "?"])
def test_arrays_of_many_kinds(cluster: pl.Cluster, kind: str) -> None:
    array = np.arange(100_000).astype("i8").view("u1").astype(kind).reshape(800, 1000)
    for form in (array, array.T, array[::2, 1:]):
        came = same(form)
        assert came.dtype == pickle.loads(pickle.dumps(form, 5)).dtype
        assert (came == form).all()
        came[0, 0] = came[0, 1]


def odd(count: int) -> dict[str, Array]:
    """Arrays of some `count` elements that are no plain ones, and some that are."""
    plain = np.arange(count, dtype=np.float64)
    fixed = plain.copy()
    fixed.flags.writeable = False
    record = np.zeros(count, [("name", "S4"), ("at", "<f8", (2,))])
    record["at"] = 1.5
    noted = np.dtype("f8", metadata={"unit": "m"})
    letters = np.array([str(n) for n in range(count)])
    return {
        "plain": plain,
        "matrix": plain[: count // 4 * 4].reshape(4, -1),
        "one row": plain.reshape(1, -1, 1),
        "read-only": fixed,
        "fortran": np.asfortranarray(plain[: count // 4 * 4].reshape(4, -1)),
        "every other": plain[::2],
        "backwards": plain[::-1],
        "broadcast": np.broadcast_to(np.float32(3), (4, count)),
        "unaligned": np.frombuffer(b"x" * (8 * count + 1), "u1")[1:].view("f8"),
        "objects": np.array([None, *range(count - 1)], object),
        "records": record,
        "rec.array": record.view(np.recarray),
        "big-endian": plain.astype(">i4"),
        "instants": plain.astype("M8[ms]"),
        "spans": plain.astype("m8[D]"),
        "text": letters,
        "raw": letters.astype("S").view("V1"),
        "long double": plain.astype(np.longdouble),
        "halves": (plain % 100).astype("f2"),
        "complex": plain * 1j,
        "truth": plain > 3,
        "long long": plain.astype("q"),
        "noted": plain.astype(noted),
        "masked": np.ma.masked_array(plain, plain > 3),
        "scalar": np.array(7.5),
        "none": np.empty((3, 0, 2)),
    }


@pytest.mark.parametrize("count", [8, 3_500, 40_000])
def test_odd_arrays_come_back_as_they_were(cluster: pl.Cluster, count: int) -> None:
    arrays = odd(count)
    everything = same(arrays)
    for name, array in arrays.items():
        like = pickle.loads(pickle.dumps(array, 5))
        for came in (same(array), same([array, 1])[0], same(value=array), everything[name]):
            assert type(came) is type(array), name
            assert (came.dtype, came.shape) == (like.dtype, like.shape), name
            assert came.dtype.metadata == like.dtype.metadata, name
            assert came.tobytes(order="A") == array.tobytes(order="A") or came.dtype == object, name
            np.testing.assert_array_equal(came, array, name)
            for flag in ("C_CONTIGUOUS", "F_CONTIGUOUS", "WRITEABLE", "ALIGNED"):
                assert came.flags[flag] == like.flags[flag], (name, flag)
            if came.flags.writeable and came.size and came.dtype.kind == "f":
                came[...] = 9
                assert array.size == 1 or not (np.asarray(array) == 9).all()


@pytest.mark.parametrize("count", [1_000, 28_000, 200_000])
def test_an_array_that_is_there_twice_is_one(cluster: pl.Cluster, count: int) -> None:
    array = np.zeros(count, np.uint8)
    first, (second, other) = same((array, [array, array.copy()]))
    first[:] = 1
    assert second is first
    assert not other.any()


def test_small_arrays_that_are_kept_stay_as_they_are(cluster: pl.Cluster) -> None:
    """Their memory is used again at once, but not by them."""
    kept = [same(np.full(28_000, value, np.uint8)) for value in range(200)]
    kept += [future.result() for future in [same.submit(np.full(50_000, v, np.uint8)) for v in range(200)]]
    assert all((array == n % 200).all() for n, array in enumerate(kept))


def test_they_go_through_memory_that_both_share(cluster: pl.Cluster) -> None:
    """No socket: both sides have the same memory mapped."""

    @pl.remote
    def sees() -> int:
        return maps()

    assert (same(np.ones(MIB)) == 1).all()
    assert maps() >= 2  # its own, and the slot's
    assert max(sees.submit().result() for _ in range(20)) >= 1


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_bytes(cluster: pl.Cluster, kind: type) -> None:
    value = kind(os.urandom(3 * MIB))
    came = same(value)
    assert type(came) is kind
    assert came == value

    @pl.remote
    def forms(first: Any, *rest: Any, **named: Any) -> Any:
        return first == rest[0], first is rest[0], named["last"] == first, (first, len(first))

    equal, one, named, (back, length) = forms(value, value, last=value)
    assert equal
    assert one
    assert named
    assert back == value
    assert length == 3 * MIB


def test_containers_with_many_buffers(cluster: pl.Cluster) -> None:
    value = {"list": [np.full(40_000 * n, n, np.uint8) for n in range(1, 20)], "twice": np.ones(MIB)}
    value["again"] = value["twice"]
    came = same(value)
    assert all((a == b).all() for a, b in zip(value["list"], came["list"], strict=True))
    assert came["again"] is came["twice"]


def test_more_buffers_than_travel_outside(cluster: pl.Cluster) -> None:
    arrays = [np.full(128 * 1024, n % 251, np.uint8) for n in range(1100)]
    came = same(arrays)
    assert all((array == n % 251).all() for n, array in enumerate(came))


@pytest.mark.parametrize("size", [1000, 28_000, MIB])
def test_what_is_read_only_stays_so(cluster: pl.Cluster, size: int) -> None:
    array = np.ones(size, np.uint8)
    array.flags.writeable = False
    assert not same(array).flags.writeable


def test_changes_after_submitting_are_not_seen(cluster: pl.Cluster) -> None:
    array = np.zeros(8 * MIB, np.uint8)
    futures = []
    for value in range(8):
        array[:] = value
        futures.append(total.submit(array))
    assert [future.result() for future in futures] == [value * 8 * MIB for value in range(8)]


@pytest.mark.parametrize("size", [10_000, 28_000, MIB, 4 * MIB])
def test_a_write_is_seen_by_nobody_else(cluster: pl.Cluster, size: int) -> None:
    array = np.full(size, 7, np.uint8)
    for value in range(1, 20):
        assert overwritten(array, value) == (7, size * value)
        assert array[0] == 7
        assert (array == 7).all()
    futures = [overwritten.submit(array, value) for value in range(8)]
    assert [future.result()[0] for future in futures] == [7] * 8
    first, second = filled(size, 1), filled(size, 1)
    first[:] = 2
    assert (second == 1).all()
    assert (filled(size, 1) == 1).all()


def test_a_write_to_a_tensor_is_seen_by_nobody_else(cluster: pl.Cluster) -> None:
    torch = pytest.importorskip("torch")

    @pl.remote
    def grown(tensor: Any) -> tuple[int, Any]:
        first = int(tensor[0])
        tensor += 1
        return first, tensor

    for size in (100, 28_000, MIB):
        tensor = torch.full((size,), 7, dtype=torch.int32)
        for _ in range(10):
            first, came = grown(tensor)
            assert first == 7
            assert bool((came == 8).all())
            came[:] = 9
            assert bool((tensor == 7).all())
        # Over the memory that an array has arrived in.
        over = torch.from_numpy(filled(size, 3))
        over += 1
        assert (filled(size, 3) == 3).all()
        assert bool((over == 4).all())


@pytest.mark.parametrize("size", [28_000, 5 * MIB])
def test_overwriting_again_and_again(cluster: pl.Cluster, size: int) -> None:
    """Arrays that are always overwritten arrive as copies before long; what they hold is the same."""
    array = np.full(size, 3, np.uint8)
    for value in range(40):
        assert overwritten(array, value) == (3, size * value)
        came = filled(size, value)
        assert (came == value).all()
        came[:] = 1
    assert total(array) == 3 * size


@pytest.mark.parametrize("size", [28_000, 2 * MIB])
@pytest.mark.parametrize("step", [None, 1, 4096, 11_000])
def test_recycled_memory_has_new_values(cluster: pl.Cluster, size: int, step: int | None) -> None:
    """Receive, write some of it in place or nothing, drop, receive again into the same range."""
    pages = set()
    for value in range(1, 60):
        came = filled(size, value)
        begin = came.__array_interface__["data"][0]
        pages.update(range(begin // mmap.PAGESIZE, (begin + size - 1) // mmap.PAGESIZE + 1))
        assert (came == value).all()
        if step:
            came[7::step] = 255
        del came
        assert overwritten(np.full(size, value, np.uint8), 9) == (value, 9 * size)
    assert len(pages) * mmap.PAGESIZE < 20 * size, "memory is not used again"


@pytest.mark.parametrize("size", [28_000, 300_000])
def test_what_is_held_stays_as_it_is(cluster: pl.Cluster, size: int) -> None:
    held = []
    for value in range(50):
        held.append(filled(size, value))
        same(np.full(size, 200 + value % 50, np.uint8))
    assert all((array == value).all() for value, array in enumerate(held))


def test_a_part_of_an_array_keeps_it(cluster: pl.Cluster) -> None:
    parts = [filled(MIB, value)[10:20] for value in range(30)]
    gc.collect()
    for value in range(30):
        same(np.full(MIB, 100 + value, np.uint8))
    assert all((part == value).all() for value, part in enumerate(parts))


def test_what_a_task_keeps_stays_as_it_is(cluster: pl.Cluster) -> None:
    @pl.remote
    class Keeper:
        def __init__(self) -> None:
            self.kept: list[Array] = []

        def keep(self, array: Array) -> int:
            self.kept.append(array[::1000])
            return len(self.kept)

        def seen(self) -> list[int]:
            return [int(array.max()) * (array.min() == array.max()) for array in self.kept]

    keeper = Keeper()
    for value in range(40):
        keeper.keep(np.full(MIB, value, np.uint8))
    assert keeper.seen() == list(range(40))
    keeper.kept = []
    assert keeper.seen() == []


@pytest.mark.parametrize("size", [28_000, MIB])
def test_a_forked_child_reads_the_old_values(cluster: pl.Cluster, size: int) -> None:
    @pl.remote
    class Parent:
        def __init__(self) -> None:
            self.ends: list[tuple[int, int]] = []

        def fork(self, array: Array) -> int:
            """A child that looks at the array, page by page for the first time, once it is told to."""
            (ask, go), (said, say) = os.pipe(), os.pipe()
            child = os.fork()
            if child == 0:
                os.close(go)
                os.read(ask, 1)
                os.write(say, hashlib.sha256(array).digest())
                os._exit(0)
            os.close(ask)
            self.ends.append((go, said))
            return child

        def take(self, array: Array) -> int:
            return int(array[0])

        def ask(self) -> list[bytes]:
            return [(os.write(go, b"x"), os.read(said, 32))[1] for go, said in self.ends]

    parent = Parent()
    arrays = [np.full(size, value, np.uint8) for value in (3, 4)]
    for array in arrays:
        parent.fork(array)
    for value in range(1000):
        assert parent.take(np.full(min(size, 200_000), value % 256, np.uint8)) == value % 256
    assert parent.take(np.full(size, 9, np.uint8)) == 9
    assert parent.ask() == [hashlib.sha256(array).digest() for array in arrays]


@pytest.mark.parametrize("size", [28_000, MIB])
def test_a_child_of_the_client_reads_the_old_values(cluster: pl.Cluster, size: int) -> None:
    held = filled(size, 5)
    (ask, go), (said, say) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.close(go)
        os.read(ask, 1)
        os.write(say, b"%d" % (held == 5).all())
        os._exit(0)
    os.close(ask)
    del held
    for value in range(50):
        assert (filled(size, value) == value).all()
    os.close(go)
    assert os.read(said, 8) == b"1"
    os.waitpid(child, 0)
    os.close(said), os.close(say)


def test_retries_get_what_was_sent(cluster: pl.Cluster, tmp_path: Path) -> None:
    """A task that overwrites its argument and dies is run again with the argument as it was."""
    marks = tmp_path / "marks"

    @pl.remote(retries=2)
    def dies(array: Array, marks: str) -> int:
        seen = int(array.sum(dtype=np.int64))
        array[:] = 99
        with open(marks, "a") as file:
            file.write("x")
        if len(Path(marks).read_text()) < 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return seen

    assert dies(np.ones(MIB, np.uint8), str(marks)) == MIB
    assert len(marks.read_text()) == 3


def test_another_attempt_gets_what_was_sent(cluster: pl.Cluster) -> None:
    """Even if the one before it has kept the array, and written to it."""

    @pl.remote(retries=3, retry_on=("error",))
    def keeps(array: Array) -> int:
        seen = int(array.sum(dtype=np.int64))
        kept = globals().setdefault("_kept", [])
        kept.append(array)
        array[:] = 99
        if pl.current().attempt < 3:
            raise ValueError
        return seen

    assert keeps(np.ones(MIB, np.uint8)) == MIB


def test_nested_tasks(cluster: pl.Cluster) -> None:
    @pl.remote
    def outer(array: Array) -> Array:
        inner = same(array * 2)
        inner += 1
        return inner

    assert (outer(np.ones(MIB)) == 3).all()


def test_maps_and_pools(cluster: pl.Cluster) -> None:
    arrays = [np.full(300_000, n, np.uint8) for n in range(40)]
    assert same.map(list(range(3))) == [0, 1, 2]
    assert total.map(arrays) == [n * 300_000 for n in range(40)]
    for n, came in enumerate(same.imap(arrays)):
        assert (came == n).all()
    with pl.Pool(2) as pool:
        for n, came in enumerate(pool.imap(np.negative, [array.astype(np.int32) for array in arrays], chunksize=3)):
            assert (came == -n).all()


def test_descriptors_do_not_pile_up(cluster: pl.Cluster) -> None:
    filled(MIB, 1)
    before = len(os.listdir("/proc/self/fd"))
    held = [filled(MIB, n % 256) for n in range(300)]
    assert all((array == n % 256).all() for n, array in enumerate(held))
    assert len(os.listdir("/proc/self/fd")) <= before + 8


def test_serialised_by_value_too(cluster: pl.Cluster) -> None:
    """What plain pickle cannot do goes by the same way."""

    class Local:
        def __init__(self, array: Array) -> None:
            self.array = array

    came = same(Local(np.full(MIB, 3, np.uint8)))
    assert (came.array == 3).all()
    came.array[:] = 4
