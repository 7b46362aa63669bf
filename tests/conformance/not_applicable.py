"""The cases of CPython's suites that no other implementation can pass, each with the private member that it touches.

Nothing else may be here: a test reads the source of each case, or of what it calls by the name given, and looks for the
member. What a case says beside that is said by a test of our own, named on its line.
"""

from __future__ import annotations

# What tests of the standard library's own inside touch. `mp_context` is how processes are started and what is handed
# to them as they are; ours are started otherwise, and before anybody asks.
PRIVATE = {
    "_pool",
    "_repopulate_pool",
    "_call_queue",
    "_processes",
    "_executor_manager_thread",
    "_mp_context",
    "mp_context",
    "context=unittest.mock.MagicMock",
    "context.Process",
}

# Case, and the member; with the name of a helper if it is that which touches it.
EXECUTORS: dict[str, str] = {
    "FailingInitializerMixin.test_initializer": "mp_context",  # test_executor: a failing initializer breaks it
    "ProcessPoolShutdownTest.test_processes_terminate": "_processes",  # test_executor: slots end with it
    "ProcessPoolShutdownTest.test_context_manager_shutdown": "_processes",  # test_executor: slots end with it
    "ProcessPoolShutdownTest.test_del_shutdown": "_call_queue",  # test_executor: a forgotten one finishes its work
    "ProcessPoolShutdownTest.test_shutdown_no_wait": "_call_queue",  # test_executor: shutdown without waiting
    "ProcessPoolExecutorTest.test_killed_child": "_processes",  # test_executor: a killed slot breaks it
    "ProcessPoolExecutorTest.test_saturation": "_processes",  # test_executor: at most max_workers slots
    "ProcessPoolExecutorTest.test_idle_process_reuse_one": "_processes",  # test_executor: an idle slot is used again
    "ProcessPoolExecutorTest.test_idle_process_reuse_multiple": "_processes",  # the same
    "ProcessPoolExecutorTest.test_max_tasks_per_child": "_processes",  # test_executor: max_tasks_per_child
    "ProcessPoolExecutorTest.test_max_tasks_per_child_defaults_to_spawn_context": "_mp_context",
    "ExecutorDeadlockTest.test_shutdown_deadlock_pickle": "_executor_manager_thread",  # test_executor: unpicklable
}
POOLS: dict[str, str] = {
    "_TestPool.test_make_pool": "_pool",  # test_pool: numbers of processes
    "_TestPoolWorkerLifetime.test_pool_worker_lifetime": "_repopulate_pool",  # test_pool: maxtasksperchild
    "TestPoolNotLeakOnFailure.test_release_unused_processes": "context=unittest.mock.MagicMock",
}
