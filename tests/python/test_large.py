"""Large values both ways at once. Neither side may wait for the other to read first."""

import hashlib
import threading

import pytest

import paceline as pl

SIZE = 50_000_000


def digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


@pl.remote
def turn_round(data: bytes) -> tuple[str, bytes]:
    """What came in, as a digest, and as much again on the way out."""
    return digest(data), data[::-1]


@pytest.mark.slow
def test_large_arguments_and_results_cross_on_one_connection() -> None:
    data = bytes(range(256)) * (SIZE // 256)
    with pl.connect(cpus=1):
        # With one slot, the second argument is under way while the first result comes back.
        for future in [turn_round.submit(data) for _ in range(4)]:
            seen, back = future.result(timeout=50)
            assert seen == digest(data)
            assert back == data[::-1]


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_large_values_from_several_threads() -> None:
    problems: list[BaseException] = []

    def caller(number: int) -> None:
        try:
            data = bytes([number]) * SIZE
            for _ in range(2):
                assert turn_round(data) == (digest(data), data)
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=caller, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=50)
    assert not any(thread.is_alive() for thread in threads)
    assert not problems


@pytest.mark.usefixtures("cluster")
def test_small_calls_go_on_beside_a_large_one() -> None:
    large = turn_round.submit(bytes(SIZE))
    assert [future.result(timeout=20) for future in [turn_round.submit(b"ab") for _ in range(100)]] == [
        (digest(b"ab"), b"ba")
    ] * 100
    assert large.result(timeout=20)[1] == bytes(SIZE)
