"""What tasks ask for, what clusters have, and what is said when the two do not meet."""

import time

import pytest

import paceline as pl
from support import wait_until


def test_what_fits_nowhere_is_refused_at_once_and_says_what_is_missing() -> None:
    with pl.connect(cpus=2, gpus=0):
        with pytest.raises(pl.NoResources, match="no node has more than 2 CPUs") as refused:
            pl.remote(cpus=3)(abs)(-1)
        assert refused.value.needs == "3 CPUs"
        with pytest.raises(pl.NoResources, match="no node has a GPU"):
            pl.remote(gpus=1)(abs)(-1)
        with pytest.raises(pl.NoResources, match="no node has any licence"):
            pl.remote(resources={"licence": 1})(abs)(-1)
        with pytest.raises(pl.NoResources, match="of memory"):
            pl.remote(memory="900TB")(abs)(-1)


def test_cpus_gpus_memory_and_custom_resources_in_one_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_FAKE_GPUS", "2")
    with pl.connect(cpus=2, gpus=2, memory="4GB", resources={"licence": 2}):
        mixed = pl.remote(cpus=0.5, gpus=0.5, memory="1GB", resources={"licence": 1})(abs)
        assert mixed.map([-1, 2, -3], chunksize=1) == [1, 2, 3]
        assert pl.remote(gpus=2)(abs)(-4) == 4
        with pytest.raises(pl.NoResources, match="no node has more than 2 GPUs"):
            pl.remote(gpus=3)(abs)(-1)


def hold(path: str) -> None:
    open(path + ".here", "a").close()
    while not _exists(path):
        time.sleep(0.01)


def _exists(path: str) -> bool:
    import os

    return os.path.exists(path)


def test_a_custom_resource_is_used_by_as_many_as_there_are(tmp_path: object) -> None:
    gate = f"{tmp_path}/gate"
    with pl.connect(cpus=3, resources={"licence": 1}):
        licensed = pl.remote(cpus=1, resources={"licence": 1})(hold)
        first, second = licensed.submit(gate), licensed.submit(gate)
        wait_until(lambda: first.running() or second.running(), "one of them runs")
        assert pl.remote(abs)(-1) == 1, "others are not in its way"
        assert not (first.running() and second.running())
        open(gate, "w").close()
        first.result(30)
        second.result(30)


def test_waiting_for_room_is_bounded_if_asked_for(tmp_path: object) -> None:
    gate = f"{tmp_path}/gate"
    with pl.connect(cpus=1):
        busy = pl.remote(hold).submit(gate)
        wait_until(busy.running, "the only slot is busy")
        start = time.monotonic()
        with pytest.raises(pl.NoResources, match=r"no room for 0\.5 CPUs") as refused:
            pl.remote(cpus=0.5, wait=0.3)(abs).submit(-1).result(30)
        assert refused.value.waited
        assert 0.2 < time.monotonic() - start < 10
        patient = pl.remote(cpus=0.5)(abs).submit(-2)
        open(gate, "w").close()
        assert patient.result(30) == 2
        busy.result(30)


def test_long_waits_are_announced(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    gate = f"{tmp_path}/gate"
    said: list[str] = []

    def announced() -> bool:
        said.append(capsys.readouterr().err)
        return "waits for" in "".join(said)

    with pl.connect(cpus=1):
        busy = pl.remote(hold).submit(gate)
        wait_until(busy.running, "the only slot is busy")
        patient = pl.remote(cpus=0.5)(abs).submit(-2)
        wait_until(announced, "it says what the task waits for")
        open(gate, "w").close()
        assert patient.result(30) == 2
        busy.result(30)
    text = "".join(said)
    assert "paceline: 1 task waits for 0.5 CPUs: of 1 node that could hold it" in text
    assert text.count("waits for") == 1, "once"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gpus": 1.5}, "gpus must be a whole number, or a fraction of one"),
        ({"gpus": -1}, "gpus must be"),
        ({"memory": "2 parsecs"}, "memory must be a number of bytes or a text such as '2GB'"),
        ({"memory": -5}, "memory must be a number of bytes from zero up"),
        ({"resources": {"x": 0}}, "the amount of x must be more than zero"),
        ({"resources": {"gpus": 1}}, "gpus is no custom resource"),
        ({"resources": dict.fromkeys("abcde", 1)}, "at most four custom resources"),
        ({"placement": "sideways"}, "the order of a placement is one of spread, pack"),
        ({"wait": 0}, "wait must be more than zero seconds"),
    ],
)
def test_nonsense_is_refused_where_it_is_written(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pl.remote(**options)(abs)  # type: ignore[call-overload]


def test_sizes_as_text() -> None:
    from paceline._placement import amount_of_bytes

    sizes = {"1": 1, "2KB": 2048, "1.5 GiB": 3 << 29, "1m": 1 << 20, "3T": 3 << 40}
    assert {text: amount_of_bytes("memory", text) for text in sizes} == sizes
