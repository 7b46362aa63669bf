"""The backend for joblib. Importing this module makes it known:

    import joblib, paceline.joblib

    with joblib.parallel_config("paceline"):
        joblib.Parallel()(joblib.delayed(math.sqrt)(i) for i in range(10))

Owns: how joblib's batches get to slots. Batches, their sizes, nesting and the files that large arrays are shared by are
joblib's own, as they are with its default backend.

* JB-1: slots are kept from one `Parallel` to the next, as long as they ask for the same and nothing is broken.
* JB-2: arrays go by memory maps only if all slots are on this machine.
* JB-3: when a batch fails, what still runs is ended.
"""

from __future__ import annotations

import os
import pickle
import threading
from typing import TYPE_CHECKING, Any

from joblib._memmapping_reducer import TemporaryResourcesManager, get_memmapping_reducers
from joblib.externals.loky.backend.reduction import dumps
from joblib.parallel import AutoBatchingMixin, FallbackToBackend, ParallelBackendBase, SequentialBackend
from joblib.parallel import register_parallel_backend as _register

from paceline import _cluster
from paceline._executor import Executor

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

__all__ = ["PacelineBackend", "register"]

# What `Parallel` and `parallel_config` say of large arrays, as joblib names it.
MAPPING = ("max_nbytes", "mmap_mode", "temp_folder", "verbose", "prewarm")


class PacelineBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
    """Runs joblib's batches in slots of the current cluster, which is started if there is none. `n_jobs=-1` is as many
    as it has CPUs. What `parallel_config("paceline", ...)` is given beside joblib's own goes to `pl.Executor`.

    >>> import joblib, paceline as pl, paceline.joblib
    >>> with pl.connect(cpus=2), joblib.parallel_config("paceline", n_jobs=2):
    ...     joblib.Parallel()(joblib.delayed(divmod)(i, 2) for i in range(3))
    [(0, 0), (0, 1), (1, 0)]
    """

    supports_retrieve_callback = True
    supports_inner_max_num_threads = True

    _executor: Executor | None = None
    _files: TemporaryResourcesManager | None = None

    def configure(
        self,
        n_jobs: int | None = 1,
        parallel: Any = None,
        prefer: str | None = None,
        require: str | None = None,
        **options: Any,
    ) -> int:
        n_jobs = self.effective_n_jobs(n_jobs)
        if n_jobs == 1:
            raise FallbackToBackend(SequentialBackend(nesting_level=self.nesting_level))
        options = {**self.backend_kwargs, **options}
        mapping = {name: options.pop(name) for name in MAPPING if name in options}
        options.pop("context", None)  # how `multiprocessing` would start processes
        cluster = _cluster.current_or_new()
        self.parallel = parallel
        self._executor = _reused(cluster, n_jobs, self._threads(n_jobs), options)
        self._files, self._reducers = None, {}
        if cluster.address is None:
            self._files = TemporaryResourcesManager(mapping.pop("temp_folder", None), parallel._id)
            self._reducers, _ = get_memmapping_reducers(
                temp_folder_resolver=self._files.resolve_temp_folder_name, unlink_on_gc_collect=False, **mapping
            )
        return n_jobs

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is None:
            return 1
        if n_jobs < 0:
            return max(_cluster.current_or_new().cpus + 1 + n_jobs, 1)
        return n_jobs

    def submit(self, func: Callable[[], Any], callback: Callable[[Any], object] | None = None) -> Future[bytes]:
        assert self._executor is not None, "joblib configures a backend before it submits"
        future = self._executor.submit(run, bytes(dumps(func, reducers=self._reducers)))
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, future: Future[bytes]) -> Any:
        return pickle.loads(future.result())

    def terminate(self) -> None:
        # The slots stay for the next one (JB-1).
        self._executor = None
        self._remove_files(force=False)
        self.reset_batch_stats()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        executor, self._executor = self._executor, None
        if executor is not None:
            _drop(executor)
        self._remove_files(force=True)
        if ensure_ready:
            self.configure(self.parallel.n_jobs, self.parallel, **self.parallel._backend_kwargs)

    def _remove_files(self, force: bool) -> None:
        files, self._files = self._files, None
        if files is not None:
            files._clean_temporary_resources(context_id=self.parallel._id, force=force, allow_non_empty=force)

    def _threads(self, n_jobs: int) -> tuple[tuple[str, str], ...]:
        """How many threads libraries may use in a slot, as joblib has it."""
        return tuple(sorted(self._prepare_worker_env(n_jobs).items()))


def run(batch: bytes) -> bytes:
    """In a slot: the results of a batch. Arrays that are joblib's files come back as plain ones."""
    _, reducers = get_memmapping_reducers()
    return bytes(dumps(pickle.loads(batch)(), reducers=reducers))


def register() -> None:
    """Make the backend known to joblib. Importing this module does so too."""
    _register("paceline", PacelineBackend)


_lock = threading.Lock()
_kept: tuple[Any, Executor] | None = None


def _reused(cluster: _cluster.Cluster, n_jobs: int, threads: Any, options: dict[str, Any]) -> Executor:
    global _kept
    wanted = (cluster, n_jobs, threads, options, os.getpid())
    with _lock:
        if _kept is not None and _kept[0] == wanted and not _kept[1]._broken and not cluster._closed:
            return _kept[1]
        old, _kept = _kept, None
        if old is not None and old[0][0]._session is not None:
            old[1].shutdown(wait=False)
        executor = Executor(n_jobs, initializer=_set_threads, initargs=(threads,), cluster=cluster, **options)
        _kept = (wanted, executor)
        return executor


def _drop(executor: Executor) -> None:
    """End an executor with all that runs in it."""
    global _kept
    with _lock:
        if _kept is not None and _kept[1] is executor:
            _kept = None
    executor._kill()


def _set_threads(threads: tuple[tuple[str, str], ...]) -> None:
    os.environ.update(threads)


register()
