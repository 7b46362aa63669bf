"""How the state of a cluster is shown."""

import pytest

import paceline as pl
from paceline._status import Status

EXAMPLE = Status(
    name="test",
    cpus=2.0,
    tasks={"waiting": 3, "running": 1},
    nodes=[
        {"name": "a", "cpus": 2, "slots": [1, 2], "since": None},
        {"name": "longer", "cpus": 16, "load": 0.5, "free": {"cpus": 1.5}},
    ],
    nothing=[],
)


def test_it_is_a_dictionary() -> None:
    assert EXAMPLE["tasks"]["waiting"] == 3
    assert isinstance(EXAMPLE, dict)


def test_text() -> None:
    assert repr(EXAMPLE).splitlines() == [
        "name: test",
        "cpus: 2",
        "tasks:",
        "  waiting: 3",
        "  running: 1",
        "nodes:",
        "  name    cpus  slots  since  load  free",
        "  a          2  1, 2   -",
        "  longer    16                 0.5  cpus 1.5",
        "nothing: ",
    ]


def test_tables_within_tables() -> None:
    slots = [{"slot": 1, "state": "idle"}, {"slot": 12, "state": "busy"}]
    assert repr(Status(nodes=[{"name": "a", "cpus": 2, "slots": slots}])).splitlines() == [
        "nodes:",
        "  name  cpus",
        "  a        2",
        "    slots:",
        "      slot  state",
        "         1  idle",
        "        12  busy",
    ]


def test_html() -> None:
    html = EXAMPLE._repr_html_()
    assert html.startswith("<table><tr><th>name</th><td>test</td></tr>")
    assert "<td>longer</td><td>16</td>" in html
    assert "<script>" not in Status(name="<script>")._repr_html_()


def test_from_python_connected_or_not() -> None:
    lost = pl.status()
    assert lost["state"] == "not connected"
    assert "not connected" in repr(lost)
    assert "connect()" in repr(lost), "it says what to do"
    with pl.connect(cpus=2) as cluster:
        assert pl.remote(abs)(-1) == 1
        assert pl.status()["nodes"][0]["cpus"] == 2
        assert "slots:" in repr(pl.status())
        assert pl.status().keys() == cluster.status().keys()
    assert pl.status()["state"] == "not connected"
    with pytest.raises(pl.ClusterClosed, match="closed"):
        cluster.status()
