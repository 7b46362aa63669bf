"""Groups: slots that are there together or not at all."""

from __future__ import annotations

import gc
import os
import signal
import socket
import time
from pathlib import Path

import pytest

import paceline as pl
from support import wait_until


def pid() -> int:
    return os.getpid()


def hold(path: str) -> None:
    Path(path + ".here").touch()
    while not os.path.exists(path):
        time.sleep(0.01)


def sleep_for_ever() -> None:
    while True:
        time.sleep(0.05)


def test_members_are_processes_of_their_own_and_stay_the_same() -> None:
    with pl.connect(cpus=3), pl.group(3) as group:
        first = group.run(pid)
        assert len(set(first)) == 3
        assert group.run(pid) == first
        assert [group.submit(rank, pid).result() for rank in range(3)] == first
        assert set(group.map(lambda _: os.getpid(), range(30))) == set(first)
        assert len(group.nodes) == group.size == 3


def test_a_member_knows_which_one_it_is() -> None:
    def who() -> tuple[int | None, int | None, dict[str, str]]:
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR")
        current = pl.current()
        assert current is not None
        return current.rank, current.size, {name: os.environ[name] for name in names}

    with pl.connect(cpus=2):
        with pl.group(2) as group:
            for rank, found in enumerate(group.run(who)):
                number = str(rank)
                variables = {"RANK": number, "WORLD_SIZE": "2", "LOCAL_RANK": number, "LOCAL_WORLD_SIZE": "2"}
                assert found == (rank, 2, variables | {"MASTER_ADDR": "127.0.0.1"})
            members = set(group.run(pid))
        # The slots ended with it: no other task meets what was left in them.
        after = pl.remote(lambda: (os.getpid(), os.environ.get("RANK"), pl.current().rank))  # type: ignore[union-attr]
        for process, *rest in [after() for _ in range(5)]:
            assert process not in members
            assert rest == [None, None]


def test_members_meet_at_the_port_that_they_are_told() -> None:
    def add_up() -> int:
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        if rank == 0:
            with socket.create_server(address) as server:
                peers = [server.accept()[0] for _ in range(size - 1)]
                total = sum(peer.recv(1)[0] for peer in peers)
                for peer in peers:
                    peer.sendall(bytes([total]))
                    peer.close()
                return total
        deadline = time.monotonic() + 20
        while True:
            try:
                with socket.create_connection(address) as link:
                    link.sendall(bytes([rank]))
                    return link.recv(1)[0]
            except ConnectionRefusedError:
                assert time.monotonic() < deadline
                time.sleep(0.01)

    with pl.connect(cpus=3), pl.group(3) as group:
        assert group.run(add_up) == [3, 3, 3]


def test_what_can_never_be_had_fails_at_once_and_says_what_is_missing() -> None:
    with pl.connect(cpus=2, gpus=0):
        started = time.monotonic()
        with pytest.raises(pl.NoResources, match=r"a group of 3 with 1 CPUs? each") as refused:
            pl.group(3)
        assert "cannot hold the 3 members of the group at once" in str(refused.value)
        with pytest.raises(pl.NoResources, match="no node has a GPU"):
            pl.group(2, gpus=1)
        with pytest.raises(pl.NoResources, match="a group of 2"):
            pl.group(2, cpus=0.5, placement="one_per_node")
        assert time.monotonic() - started < 10
        assert pl.remote(abs)(-1) == 1
        with pl.group(2) as group:
            assert group.run(abs, -1) == [1, 1]


def test_it_waits_for_all_members_and_no_longer_than_it_may(tmp_path: Path) -> None:
    gate = str(tmp_path / "gate")
    with pl.connect(cpus=2):
        busy = pl.remote(hold).submit(gate)
        wait_until(busy.running, "one of two slots is busy")
        started = time.monotonic()
        with pytest.raises(pl.NoResources, match="no room for a group of 2") as refused:
            pl.group(2, wait=0.3)
        assert refused.value.waited
        assert 0.2 < time.monotonic() - started < 10
        # What it had waited for is free again.
        assert pl.remote(abs)(-1) == 1
        other = pl.remote(lambda: time.sleep(0.2)).submit()
        Path(gate).touch()
        with pl.group(2, wait=30) as group:
            assert busy.done(), "it took the place of what ran"
            assert other.done()
            assert group.run(abs, -2) == [2, 2]


def test_two_groups_that_do_not_fit_together_take_turns() -> None:
    import threading

    order: list[int] = []

    def use(number: int) -> None:
        with cluster, pl.group(2) as group:
            order.append(number)
            group.run(time.sleep, 0.1)
            order.append(number)

    with pl.connect(cpus=3) as cluster:
        threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert sorted(order) == [0, 0, 1, 1, 2, 2, 3, 3]
        assert order[::2] == order[1::2], "one after the other"


def test_with_one_member_the_group_is_lost() -> None:
    with pl.connect(cpus=2), pl.group(2) as group:
        victim = group.run(pid)[1]
        waits = [group.submit(rank, sleep_for_ever) for rank in (0, 1)]
        behind = group.submit(0, abs, -1)
        wait_until(lambda: all(future.running() for future in waits), "both run")
        os.kill(victim, signal.SIGKILL)
        for future in [*waits, behind]:
            with pytest.raises(pl.GroupLost, match=r"rank 1 of 2 died with slot \d+ on .*SIGKILL") as lost:
                future.result(30)
            assert (lost.value.rank, lost.value.size, lost.value.signal) == (1, 2, signal.SIGKILL)
        with pytest.raises(pl.GroupLost):
            group.run(abs, -1)


def test_an_error_in_one_member_stops_the_others() -> None:
    def fail_or_wait() -> None:
        if os.environ["RANK"] == "1":
            raise ValueError("no more data")
        sleep_for_ever()

    with pl.connect(cpus=2), pl.group(2) as group:
        started = time.monotonic()
        with pytest.raises(ValueError, match="no more data"):
            group.run(fail_or_wait)
        assert time.monotonic() - started < 10
        assert group.run(abs, -1) == [1, 1], "the group goes on"


def test_the_end_of_the_block_waits_and_an_error_in_it_does_not() -> None:
    with pl.connect(cpus=2):
        with pl.group(2) as group:
            future = group.submit(1, lambda: time.sleep(0.3))
        assert future.done()
        with pytest.raises(pl.GroupClosed, match="the group is closed"):
            group.submit(0, abs, -1)
        started = time.monotonic()
        group = pl.group(2)

        def fail() -> None:
            with group:
                futures.append(group.submit(0, sleep_for_ever))
                wait_until(futures[0].running, "it runs")
                raise KeyError("mine")

        futures: list[pl.Future[None]] = []
        with pytest.raises(KeyError, match="mine"):
            fail()
        assert futures[0].cancelled()
        assert time.monotonic() - started < 10
        assert pl.remote(cpus=2)(abs)(-1) == 1, "everything was given back"


def test_groups_in_tasks_and_of_remote_functions() -> None:
    @pl.remote(timeout=20)
    def outer() -> list[int | None]:
        with pl.group(2) as group:
            return group.run(lambda: pl.current().rank)  # type: ignore[union-attr]

    with pl.connect(cpus=2):
        assert outer() == [0, 1], "a task that waits leaves its CPU to the group"
        with pl.group(1) as group:
            assert group.run(pl.remote(abs), -3) == [3]
            with pytest.raises(ValueError, match="the ranks of this group are 0 to 0"):
                group.submit(1, abs, -1)


def test_many_groups_one_after_the_other() -> None:
    with pl.connect(cpus=2):
        for number in range(20):
            with pl.group(2) as group:
                assert group.run(abs, -number) == [number, number]


def test_a_group_that_is_forgotten_late_ends_no_other() -> None:
    with pl.connect(cpus=2):
        with pl.group(2) as first:
            pass
        with pl.group(2) as second:
            del first
            gc.collect()
            assert second.run(abs, -1) == [1, 1]


def test_nonsense_is_refused_where_it_is_written() -> None:
    with pl.connect(cpus=1):
        with pytest.raises(ValueError, match="size"):
            pl.group(0)
        with pytest.raises(ValueError, match="the order of a placement"):
            pl.group(1, placement="sideways")
    with pytest.raises(pl.NotConnected):
        pl.group(1)


def test_group_member_lost_while_it_gathers_raises_group_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that has answered dies before the group looks where its members are."""
    from paceline import _group

    gather = _group.Group._each
    killed: list[int] = []

    def each(group: _group.Group, *arguments: object) -> list[object]:
        ports: list[object] = gather(group, *arguments)  # type: ignore[arg-type]
        if not killed:
            [node] = cluster.status()["nodes"]
            killed.append(next(slot["pid"] for slot in node["slots"] if slot["state"] == "leased"))
            os.kill(killed[0], signal.SIGKILL)
            wait_until(lambda: group._native.places() is None, "the group to be lost")
        return ports

    monkeypatch.setattr(_group.Group, "_each", each)
    with pl.connect(cpus=2) as cluster, pytest.raises(pl.GroupLost):
        pl.group(2)
    assert killed
